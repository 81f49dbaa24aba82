//! The ssh agents that this process serves, and the checks of a request for one. `operations::ssh_agent`
//! starts them. What is recorded of a sandbox are the permissions and where the keys are, so that an
//! agent is served again after a restart. It ends with each pause.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stockade_api::{Caller, Result, SshAgent, SshPermission};
use stockade_core::event::{Payload, SshAgentUse};
use stockade_core::{Code, ExecutionId, OwnerId, Problem, SandboxId};
use stockade_durable::Store;
use stockade_ssh_agent::{Allowed, Decision, Observer, Policy, Record, Records, Running};
use tokio::sync::mpsc;

use crate::clock::now_ms;
use crate::failure::invalid;
use crate::first_events::{self, FirstEvent};
use crate::store::sandboxes::SandboxRow;

/// How many keys of files and secrets one agent may have.
const MAX_KEYS: usize = 64;

/// The agents that this process serves, and why others are not served.
#[derive(Debug)]
pub(crate) struct SshAgents {
    agents: Mutex<BTreeMap<SandboxId, Agent>>,
    first_events: mpsc::Sender<FirstEvent>,
}

/// The agent of one sandbox.
#[derive(Debug)]
pub(crate) enum Agent {
    /// It answers.
    Served(Running),
    /// It is not served, for this reason.
    Failed(String),
}

impl SshAgents {
    pub(crate) fn new(store: &Arc<dyn Store>) -> Self {
        Self { agents: Mutex::default(), first_events: first_events::spawn(store) }
    }

    fn agents(&self) -> MutexGuard<'_, BTreeMap<SandboxId, Agent>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an agent instead of the one that the sandbox has, which ends.
    pub(crate) fn put(&self, id: &SandboxId, agent: Agent) {
        let before = self.agents().insert(id.clone(), agent);
        before.into_iter().for_each(end);
    }

    /// Whether the agent of a sandbox is served.
    pub(crate) fn is_served(&self, id: &SandboxId) -> bool {
        matches!(self.agents().get(id), Some(Agent::Served(_)))
    }

    /// Where the requests to the agent of this sandbox are recorded.
    pub(crate) fn records(&self, row: &SandboxRow) -> Records {
        Records::sent_to(Box::new(Recorder {
            sandbox: row.id.clone(),
            unique_name: row.unique_name(),
            owner: row.owner.clone(),
            execution: row.execution_id.clone(),
            sender: self.first_events.clone(),
        }))
    }

    /// Why the agent of a running sandbox does not answer.
    pub(crate) fn problem(&self, id: &SandboxId) -> Option<String> {
        match self.agents().get(id) {
            Some(Agent::Served(_)) => None,
            Some(Agent::Failed(reason)) => Some(reason.clone()),
            None => Some("it is not served yet".to_owned()),
        }
    }

    /// Ends the agent of a sandbox: from now on it signs nothing.
    pub(crate) fn end(&self, id: &SandboxId) {
        let before = self.agents().remove(id);
        before.into_iter().for_each(end);
    }

    /// Ends the agents of all sandboxes but these.
    pub(crate) fn retain(&self, live: &[SandboxId]) {
        let gone: Vec<_> = {
            let mut agents = self.agents();
            let ids: Vec<_> = agents.keys().filter(|id| !live.contains(id)).cloned().collect();
            ids.iter().filter_map(|id| agents.remove(id)).collect()
        };
        gone.into_iter().for_each(end);
    }
}

/// Ends an agent. Its threads may wait for the caller's own agent, so they are joined by another thread.
fn end(agent: Agent) {
    if let Agent::Served(running) = agent {
        running.stop();
        std::thread::spawn(move || drop(running));
    }
}

/// Sends what an agent signs and refuses to the record of events.
#[derive(Debug)]
struct Recorder {
    sandbox: SandboxId,
    unique_name: String,
    owner: OwnerId,
    execution: Option<ExecutionId>,
    sender: mpsc::Sender<FirstEvent>,
}

impl Observer for Recorder {
    fn observe(&self, record: Record) {
        let Record { request, key, decision } = record;
        let (decision, reason) = match decision {
            Decision::Signed => ("signed", None),
            Decision::Refused(reason) => ("refused", Some(reason.to_owned())),
            Decision::Failed(reason) => ("failed", Some(reason)),
        };
        let decision = decision.to_owned();
        let used = SshAgentUse { request, key, decision, reason };
        // A program that asks faster than can be written loses records of its own requests.
        let _ = self.sender.try_send(FirstEvent {
            sandbox: self.sandbox.clone(),
            unique_name: self.unique_name.clone(),
            owner: self.owner.clone(),
            execution: self.execution.clone(),
            at_ms: now_ms(),
            payload: Payload::SshAgentUsed(used),
        });
    }
}

/// Checks the permissions of an agent, and the form of its request.
///
/// # Errors
/// [`Code::RuleInvalid`], [`Code::InvalidInput`].
pub(crate) fn check(agent: &SshAgent) -> Result<()> {
    policy(agent).check()?;
    if agent.allow.is_empty() {
        return Err(invalid("the ssh agent permits nothing"));
    }
    if agent.secrets.len() + agent.private_keys.len() > MAX_KEYS {
        return Err(invalid(format!("an ssh agent has at most {MAX_KEYS} keys of its own")));
    }
    let mut paths = agent.private_keys.iter().chain(&agent.callers_agent);
    match paths.find(|path| !path.is_absolute()) {
        Some(path) => Err(invalid(format!("{} is no absolute path", path.display()))),
        None => Ok(()),
    }
}

/// Refuses files and sockets of this machine that the caller names and this process would open with
/// its own rights.
///
/// # Errors
/// [`Code::Forbidden`].
pub(crate) fn check_caller(agent: &SshAgent, caller: &Caller) -> Result<()> {
    let own = OwnerId::from_uid(rustix::process::geteuid().as_raw());
    let names_files = !agent.private_keys.is_empty() || agent.callers_agent.is_some();
    if !names_files || caller.owner == own && !caller.remote {
        return Ok(());
    }
    let message =
        "only the user of the server can name files with keys, or an ssh agent of its machine";
    Err(Problem::new(Code::Forbidden, message)
        .because("the server would use them with its own rights")
        .remedied_by("store the key, and name the secret: stockade secrets set NAME --type ssh"))
}

/// The permissions of an agent in the form in which it is served.
pub(crate) fn policy(agent: &SshAgent) -> Policy {
    let allowed = |own: &SshPermission| Allowed {
        key: own.key.clone(),
        host_keys: own.host_keys.clone(),
        users: own.users.clone(),
        namespaces: own.namespaces.clone(),
    };
    Policy { allow: agent.allow.iter().map(allowed).collect(), ..Policy::default() }
}
