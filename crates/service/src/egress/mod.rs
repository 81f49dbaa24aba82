//! The network of sandboxes: one egress process for all of them. It is started for the first one,
//! restarted whenever it exits, and gets the policies and listeners of all live sandboxes each
//! time. `stockade-egress-control` is the logic of its owner.
//!
//! `supervisor` is the task that drives the owner, `ledger` the state of each sandbox, `trust` the
//! certificates that programs inside need. As long as a sandbox is not served, none of its traffic
//! passes: its data waits in its own network.

mod ledger;
mod supervisor;
mod trust;

use std::sync::{Arc, Weak};
use std::time::Duration;

use stockade_api::{Network, NetworkStatus, Result};
use stockade_core::network::Policy;
use stockade_core::network::binding::Binding;
use stockade_core::{Code, Problem, SandboxId};
use stockade_durable::Store;
use stockade_egress_control::{Program, Values, not_served};
use stockade_runtime::{Capability, Error, Runtime};
use tokio::sync::{mpsc, oneshot, watch};

use self::ledger::Ledger;
pub(crate) use self::ledger::{Member, StoredValues};
use self::supervisor::{Command, ReplySender, Supervisor};
use crate::failure::runtime_problem;
use crate::first_events;

/// How long the process may take to answer, on a machine under heavy load.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
/// How often serving is attempted while the process exits again and again.
const MAX_ATTEMPTS: u32 = 3;
/// How many commands may wait for the task.
const COMMAND_CAPACITY: usize = 64;

/// The network of the sandboxes of a service.
#[derive(Debug)]
pub(crate) struct Egress {
    commands: Option<mpsc::Sender<Command>>,
    ledger: Arc<Ledger>,
}

impl Egress {
    /// This program starts the process when it is needed; without a program no sandbox has a
    /// network. The process ends when `stopped` becomes true.
    pub(crate) fn new(
        program: Option<Program>,
        store: &Arc<dyn Store>,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        let ledger = Arc::new(Ledger::default());
        let commands = program.map(|program| {
            let (sender, commands) = mpsc::channel(COMMAND_CAPACITY);
            let first = first_events::spawn(store);
            let again = sender.downgrade();
            let supervisor = Supervisor::new(program, Arc::clone(&ledger), first, again);
            tokio::spawn(supervisor.run(commands, stopped));
            sender
        });
        Self { commands, ledger }
    }

    /// Takes values of stored secrets from a service.
    pub(crate) fn fetch_from(&self, source: Weak<dyn StoredValues>) {
        self.ledger.fetch_from(source);
    }

    /// Whether a sandbox of a runtime could have a network.
    ///
    /// # Errors
    /// [`Code::Unsupported`], with the reason.
    pub(crate) async fn check_supported(&self, runtime: &dyn Runtime) -> Result<()> {
        if self.commands.is_none() {
            let message = "this service has no egress process, so no sandbox has a network";
            return Err(Problem::new(Code::Unsupported, message)
                .remedied_by("create the sandbox without a network"));
        }
        runtime
            .supports(Capability::Egress)
            .await
            .map_err(|reason| runtime_problem(&(Capability::Egress, reason).into()))
    }

    /// Serves a sandbox from scratch: an earlier sandbox with its id is not served any more.
    ///
    /// # Errors
    /// Why it is not served; no traffic passes then.
    pub(crate) async fn serve(&self, member: Member, deadline: Duration) -> Result<()> {
        self.ledger.enter(&member);
        let mut attempts = 1;
        let problem = loop {
            match self.try_serve(&member, deadline).await {
                Ok(()) => return Ok(()),
                // The process exited meanwhile, and is restarted.
                Err(problem) if problem.code == Code::Unreachable && attempts < MAX_ATTEMPTS => {
                    attempts += 1;
                }
                Err(problem) if problem.code == Code::WallUnavailable => break problem,
                Err(problem) => break not_served(in_one_line(&problem)),
            }
        };
        self.ledger.close(&member.id, &in_one_line(&problem));
        Err(problem)
    }

    async fn try_serve(&self, member: &Member, deadline: Duration) -> Result<()> {
        let none = || not_served("this service has no egress process");
        let commands = self.commands.as_ref().ok_or_else(none)?;
        let listeners = tokio::time::timeout(deadline, member.runtime.listeners(&member.id)).await;
        let listeners = listeners.unwrap_or(Err(Error::Deadline("change a sandbox")));
        let listeners = listeners.map_err(|error| runtime_problem(&error))?;
        let values = self.ledger.stored_values(member).await;
        let id = member.id.clone();
        send_command(commands, |answer| Command::Serve { id, listeners, values, answer }).await
    }

    /// Applies another policy and other bindings of secrets to a sandbox that is served. Connections
    /// that it allows continue. Secrets that are bound to no more than before keep their values.
    ///
    /// # Errors
    /// Why it is not in force yet: the sandbox must then be served from scratch.
    pub(crate) async fn change(
        &self,
        id: &SandboxId,
        policy: Policy,
        bindings: Vec<Binding>,
    ) -> Result<()> {
        let values = self.ledger.change(id, policy, bindings).then(Values::default);
        self.tell(id, values).await
    }

    /// The same, with values for some of the secrets. If it fails, the former policy and bindings are
    /// to be applied again.
    ///
    /// # Errors
    /// Why it is not in force.
    pub(crate) async fn change_with(
        &self,
        id: &SandboxId,
        policy: Policy,
        bindings: Vec<Binding>,
        values: Values,
    ) -> Result<()> {
        self.ledger.change(id, policy, bindings);
        self.tell(id, Some(values)).await
    }

    /// Gives the process values of secrets that a sandbox has. The process has the only copy.
    ///
    /// # Errors
    /// Why it does not have them.
    pub(crate) async fn give_values(&self, id: &SandboxId, values: Values) -> Result<()> {
        self.tell(id, Some(values)).await
    }

    async fn tell(&self, id: &SandboxId, values: Option<Values>) -> Result<()> {
        let none = || not_served("this service has no egress process");
        let commands = self.commands.as_ref().ok_or_else(none)?;
        let id = id.clone();
        send_command(commands, |answer| Command::Change { id, values, answer }).await
    }

    /// Writes the certificates that its programs must trust into a sandbox, unless they are there.
    ///
    /// # Errors
    /// Why they are not there.
    pub(crate) async fn deliver(&self, id: &SandboxId, deadline: Duration) -> Result<()> {
        self.ledger.deliver(id, deadline).await
    }

    /// Whether a sandbox is served.
    pub(crate) fn is_served(&self, id: &SandboxId) -> bool {
        self.ledger.is_served(id)
    }

    /// Stops serving a sandbox.
    pub(crate) async fn leave(&self, id: &SandboxId) {
        if !self.ledger.leave(id) {
            return;
        }
        if let Some(commands) = &self.commands {
            let leave = commands.send(Command::Leave { id: id.clone() });
            // Remaining state ends with the process, or with the sandbox's own network.
            let _ = tokio::time::timeout(TIMEOUT, leave).await;
        }
    }

    /// Removes the state of all sandboxes but these.
    pub(crate) fn retain(&self, live: &[SandboxId]) {
        self.ledger.retain(live);
    }

    /// The network status of a sandbox.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub(crate) async fn status(
        &self,
        store: &dyn Store,
        id: &SandboxId,
        network: &Network,
        bindings: &[Binding],
    ) -> Result<NetworkStatus> {
        let before = first_events::read(store, id).await?;
        let mut status = self.ledger.status(id, network.policy()?, bindings, before);
        status.injections.clone_from(&network.injections);
        Ok(status)
    }
}

/// Sends the task a command, and waits for its result.
async fn send_command(
    commands: &mpsc::Sender<Command>,
    command: impl FnOnce(ReplySender) -> Command,
) -> Result<()> {
    let (answer, answered) = oneshot::channel();
    let command = command(Some(answer));
    let exchange = async {
        commands.send(command).await.ok()?;
        answered.await.ok()
    };
    let answer = tokio::time::timeout(TIMEOUT.saturating_mul(2), exchange).await;
    answer.ok().flatten().unwrap_or_else(|| Err(not_served("it did not answer")))
}

/// Formats a problem as one line.
fn in_one_line(problem: &Problem) -> String {
    match &problem.cause {
        Some(cause) => format!("{}: {cause}", problem.message),
        None => problem.message.clone(),
    }
}
