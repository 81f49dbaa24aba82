//! The ssh agents of sandboxes. Each is served by this process, with keys that a sandbox never has: from
//! the vault, from files, or in the caller's own agent. What is recorded of a sandbox are the permissions
//! and where the keys are, so that an agent is served again after a restart. It ends with each pause.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stockade_api::{Caller, Result, SshAgent, SshPermission};
use stockade_core::event::{Payload, SshAgentUse};
use stockade_core::{Code, ExecutionId, OwnerId, Problem, SandboxId, State};
use stockade_durable::Store;
use stockade_ssh_agent::{
    Allowed, CallersAgent, Decision, Observer, Policy, Record, Records, Running, Signers, StoredKey,
};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use crate::clock::now_ms;
use crate::delivery::{Delivery, Principal};
use crate::failure::{invalid, runtime_problem};
use crate::first_events::{self, FirstEvent};
use crate::inner::Inner;
use crate::store::sandboxes::{self, SandboxRow};

/// The longest private key in a file, in bytes.
const MAX_KEY_BYTES: u64 = 1 << 20;
/// How many keys of files and secrets one agent may have.
const MAX_KEYS: usize = 64;

/// The agents that this process serves, and why others are not served.
#[derive(Debug)]
pub(crate) struct SshAgents {
    agents: Mutex<BTreeMap<SandboxId, Agent>>,
    first_events: mpsc::Sender<FirstEvent>,
}

#[derive(Debug)]
enum Agent {
    Served(Running),
    /// It is not served, for this reason.
    Failed(String),
}

impl SshAgents {
    pub(crate) fn new(store: &Arc<dyn Store>) -> Self {
        Self { agents: Mutex::default(), first_events: first_events::spawn(Arc::clone(store)) }
    }

    fn agents(&self) -> MutexGuard<'_, BTreeMap<SandboxId, Agent>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, id: &SandboxId, agent: Agent) {
        let before = self.agents().insert(id.clone(), agent);
        before.into_iter().for_each(end);
    }

    /// Whether the agent of a sandbox is served.
    fn is_served(&self, id: &SandboxId) -> bool {
        matches!(self.agents().get(id), Some(Agent::Served(_)))
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

/// Ends an agent. Its threads may wait for the caller's own agent, which nobody here waits for.
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

fn policy(agent: &SshAgent) -> Policy {
    let allowed = |own: &SshPermission| Allowed {
        key: own.key.clone(),
        host_keys: own.host_keys.clone(),
        users: own.users.clone(),
        namespaces: own.namespaces.clone(),
    };
    Policy { allow: agent.allow.iter().map(allowed).collect(), ..Policy::default() }
}

impl Inner {
    /// Checks that an agent could be served: its keys are there.
    ///
    /// # Errors
    /// Why not.
    pub(crate) async fn check_agent(
        &self,
        agent: &SshAgent,
        owner: &OwnerId,
        id: &SandboxId,
    ) -> Result<()> {
        let signers = self.signers(agent, owner, id).await?;
        let policy = policy(agent);
        self.blocking(move || Ok(policy.check_keys(&signers)?)).await
    }

    /// Serves the agent of a sandbox from scratch, if it has one.
    ///
    /// # Errors
    /// Why it is not served; nothing is signed then.
    pub(crate) async fn serve_agent(&self, row: &SandboxRow) -> Result<()> {
        let Some(agent) = &row.request.ssh_agent else { return Ok(()) };
        let served = self.start_agent(row, agent).await;
        let (agent, result) = match served {
            Ok(running) => (Agent::Served(running), Ok(())),
            Err(problem) => (Agent::Failed(one_line(&problem)), Err(problem)),
        };
        self.ssh_agents.put(&row.id, agent);
        result
    }

    /// The same for a running sandbox whose agent may be served already. Its status tells why not.
    pub(crate) async fn ensure_agent(&self, row: &SandboxRow) {
        if row.request.ssh_agent.is_some() && !self.ssh_agents.is_served(&row.id) {
            let _ = self.serve_agent(row).await;
        }
    }

    /// Tries to serve the agent of a sandbox that should be served, unless another operation changes
    /// the sandbox: one that pauses it ends the agent.
    pub(crate) async fn try_agent(&self, id: &SandboxId) {
        if self.ssh_agents.is_served(id) {
            return;
        }
        let Some(_driver) = self.locks.try_lock(id) else { return };
        self.serve_if_running(id).await;
    }

    async fn serve_if_running(&self, id: &SandboxId) {
        if let Ok(Some(row)) = sandboxes::find(&*self.store, id).await
            && row.state == State::Running
        {
            self.ensure_agent(&row).await;
        }
    }

    /// Serves the agent of a running sandbox before a command starts, if it is not served. Its status tells
    /// why it cannot be.
    ///
    /// # Errors
    /// If another change of the sandbox does not end.
    pub(crate) async fn await_agent(&self, row: &SandboxRow) -> Result<()> {
        if row.request.ssh_agent.is_some() && !self.ssh_agents.is_served(&row.id) {
            let _driver = self.lock_sandbox(&row.id).await?;
            self.serve_if_running(&row.id).await;
        }
        Ok(())
    }

    async fn start_agent(&self, row: &SandboxRow, agent: &SshAgent) -> Result<Running> {
        let signers = self.signers(agent, &row.owner, &row.id).await?;
        let runtime = self.runtime(&row.runtime)?;
        let socket = self.with_deadline(runtime.agent_socket(&row.id)).await;
        let socket = socket.map_err(|error| runtime_problem(&error))?;
        let recorder = Recorder {
            sandbox: row.id.clone(),
            unique_name: row.unique_name(),
            owner: row.owner.clone(),
            execution: row.execution_id.clone(),
            sender: self.ssh_agents.first_events.clone(),
        };
        let (policy, records) = (policy(agent), Records::sent_to(Box::new(recorder)));
        self.blocking(move || Ok(Running::start(socket, &policy, Box::new(signers), records)?))
            .await
    }

    /// The keys of an agent: first those of secrets, then of files, then the caller's own agent.
    async fn signers(&self, agent: &SshAgent, owner: &OwnerId, id: &SandboxId) -> Result<Signers> {
        let principal = Principal { caller: owner.clone(), flow_owner: None };
        let delivery =
            Delivery { inner: self, principal: &principal, sandbox: id, operation: "ssh-agent" };
        let mut signers = Signers::default();
        for secret in &agent.secrets {
            let value = delivery.value(secret).await?;
            let key = StoredKey::parse(&value).map_err(|error| {
                Problem::from(error).because(format!("the secret {}", secret.reference))
            })?;
            signers.0.push(Box::new(key));
        }
        let (files, socket) = (agent.private_keys.clone(), agent.callers_agent.clone());
        self.blocking(move || {
            for path in &files {
                signers.0.push(Box::new(key_in_file(path)?));
            }
            if let Some(socket) = socket {
                signers.0.push(Box::new(callers_agent(socket)?));
            }
            Ok(signers)
        })
        .await
    }

    /// Work that opens files, or waits for the caller's agent.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let late = || Problem::new(Code::Unreachable, "the caller's ssh agent does not answer");
        let time = self.options.deadline.min(DEADLINE);
        match tokio::time::timeout(time, tokio::task::spawn_blocking(work)).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) | Err(_) => Err(late()),
        }
    }
}

/// How long the start of an agent may take.
const DEADLINE: Duration = Duration::from_secs(20);

fn callers_agent(socket: PathBuf) -> Result<CallersAgent> {
    Ok(CallersAgent::new(socket)?)
}

/// The private key in a file.
fn key_in_file(path: &Path) -> Result<StoredKey> {
    let shown = path.display();
    let mut text = Zeroizing::new(String::new());
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(MAX_KEY_BYTES).read_to_string(&mut text).map(drop));
    read.map_err(|error| {
        Problem::new(Code::InvalidInput, format!("cannot read the private key {shown}"))
            .because(error.to_string())
    })?;
    StoredKey::parse(&text).map_err(|error| Problem::from(error).because(shown.to_string()))
}

fn one_line(problem: &Problem) -> String {
    match &problem.cause {
        Some(cause) => format!("{}: {cause}", problem.message),
        None => problem.message.clone(),
    }
}
