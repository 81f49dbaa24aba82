//! Serves the ssh agent of a sandbox, with keys that the sandbox never has: from the vault, from files,
//! or in the caller's own agent.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stockade_api::{Result, SshAgent};
use stockade_core::{Code, OwnerId, Problem, SandboxId, State};
use stockade_ssh_agent::{CallersAgent, Running, Signers, StoredKey};
use zeroize::Zeroizing;

use crate::delivery::{Delivery, Principal};
use crate::failure::runtime_problem;
use crate::inner::Inner;
use crate::ssh_agents::{Agent, policy};
use crate::store::sandboxes::{self, SandboxRow};

/// The longest private key in a file, in bytes.
const MAX_KEY_BYTES: u64 = 1 << 20;
/// How long the start of an agent may take.
const DEADLINE: Duration = Duration::from_secs(20);

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
        let (policy, records) = (policy(agent), self.ssh_agents.records(row));
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
