//! The task that drives the owner of the egress process ([`Owner`]): it waits on the process's
//! socket, handles commands, and serves every sandbox again after a restart of the process. It
//! never waits for a runtime or a disk.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net;
use std::sync::Arc;
use std::time::Instant;

use stockade_api::Result;
use stockade_core::SandboxId;
use stockade_egress_control::{Error, Owner, OwnerSocket, Program, Report, Values, not_served};
use stockade_runtime::EgressListeners;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep_until, timeout};

use super::ledger::{Ledger, Member};
use super::{TIMEOUT, in_one_line};
use crate::first_events::FirstEvent;

/// The receiver of a command's result, if there is one.
pub(super) type ReplySender = Option<oneshot::Sender<Result<()>>>;

/// A command for the task.
#[derive(Debug)]
pub(super) enum Command {
    /// Serve a sandbox with these listeners.
    Serve {
        id: SandboxId,
        listeners: EgressListeners,
        /// The values of its stored secrets.
        values: Values,
        /// `None` for a sandbox that is served again.
        answer: ReplySender,
    },
    /// Replace the policy of a served sandbox by that of the ledger.
    Change {
        id: SandboxId,
        /// Also replace its bindings, and give these values.
        values: Option<Values>,
        answer: ReplySender,
    },
    /// Stop serving a sandbox.
    Leave { id: SandboxId },
}

/// The state of the task.
#[derive(Debug)]
pub(super) struct Supervisor {
    owner: Owner<ReplySender>,
    /// The socket of the running process, registered with the async runtime.
    socket: Option<UnixDatagram>,
    ledger: Arc<Ledger>,
    /// Receives connections that were denied for the first time.
    first_events: mpsc::Sender<FirstEvent>,
    /// The sender of this task's own commands.
    commands: mpsc::WeakSender<Command>,
    restoring: Option<JoinHandle<()>>,
}

impl Supervisor {
    pub(super) fn new(
        program: Program,
        ledger: Arc<Ledger>,
        first: mpsc::Sender<FirstEvent>,
        commands: mpsc::WeakSender<Command>,
    ) -> Self {
        let source = Arc::<Ledger>::clone(&ledger);
        let owner = Owner::new(program, source);
        Self { owner, socket: None, ledger, first_events: first, commands, restoring: None }
    }

    /// Runs until the command channel is closed or the service stops; the process ends with it.
    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut stopped: watch::Receiver<bool>,
    ) {
        loop {
            self.take_reports();
            let wants_to_send = self.owner.wants_to_send();
            tokio::select! {
                () = wait_stopped(&mut stopped) => return,
                // The next command waits until the process has received the last one.
                command = commands.recv(), if !wants_to_send => match command {
                    Some(command) => self.handle(command),
                    None => return,
                },
                () = ready(self.socket.as_ref(), wants_to_send) => self.transfer(),
                () = wait_until(self.owner.deadline()) => self.owner.tick(Instant::now()),
            }
        }
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Serve { id, listeners, values, answer } => {
                let is_active = self.owner.is_pending(&id) || self.ledger.is_served(&id);
                let is_again = answer.is_none() && is_active;
                // It may have left while its listeners were fetched.
                if !is_again && self.ledger.is_member(&id) {
                    self.owner.serve(id, listeners.into_descriptors().into(), values, answer);
                }
            }
            Command::Change { id, answer, .. } if !self.ledger.is_served(&id) => {
                send(answer, Err(not_served("it is not connected to the egress process")));
            }
            Command::Change { id, values: None, answer } => self.owner.change_policy(id, answer),
            Command::Change { id, values: Some(values), answer } => {
                self.owner.give_values(id, values, answer);
            }
            Command::Leave { id } if !self.ledger.is_member(&id) => self.owner.remove(id),
            // It is already served again.
            Command::Leave { .. } => {}
        }
    }

    /// Sends and receives as much as possible without waiting.
    fn transfer(&mut self) {
        let Some(socket) = &self.socket else { return };
        // An error here means that the socket was not ready after all.
        let _ = socket.try_io(Interest::READABLE, || self.owner.receive());
        if self.owner.wants_to_send() {
            let _ = socket.try_io(Interest::WRITABLE, || self.owner.flush());
        }
    }

    fn take_reports(&mut self) {
        while let Some(report) = self.owner.next_report() {
            match report {
                Report::Started => self.started(),
                Report::Ended(error) => {
                    self.socket = None;
                    self.ledger.close_all(&in_one_line(&error.problem()));
                }
                Report::Answered { token, sandbox, outcome } => {
                    let outcome = match outcome {
                        Ok(installed) => {
                            self.ledger.open(&sandbox, installed);
                            if token.is_none() {
                                self.deliver(sandbox);
                            }
                            Ok(())
                        }
                        // Nothing was changed.
                        Err(Error::Refused(problem)) if self.ledger.is_served(&sandbox) => {
                            Err(problem)
                        }
                        Err(error) => {
                            let problem = error.problem();
                            self.ledger.close(&sandbox, &in_one_line(&problem));
                            Err(problem)
                        }
                    };
                    send(token, outcome);
                }
                Report::Event(event) => {
                    if let Some(first) = self.ledger.record_event(&event) {
                        // Records that do not fit are in the ledger.
                        let _ = self.first_events.try_send(first);
                    }
                }
            }
        }
    }

    /// Writes the certificates of a process that was started again into a sandbox, in a task of its
    /// own. If that fails, the watcher of the sandbox or its next command tries it again.
    fn deliver(&self, sandbox: SandboxId) {
        let ledger = Arc::clone(&self.ledger);
        tokio::spawn(async move { ledger.deliver(&sandbox, TIMEOUT).await });
    }

    /// Registers the socket of a process that was started, and makes it serve every sandbox.
    fn started(&mut self) {
        let Some(socket) = self.owner.socket() else { return };
        match async_socket(socket) {
            Ok(socket) => {
                self.socket = Some(socket);
                self.restore();
            }
            Err(error) => self.owner.end(&error.to_string()),
        }
    }

    /// Serves every sandbox again. A separate task requests the listeners from the runtimes.
    fn restore(&mut self) {
        let members = self.ledger.members();
        let (commands, ledger) = (self.commands.clone(), Arc::clone(&self.ledger));
        let restoring = tokio::spawn(async move {
            // Side by side: the vault may be slow for one of them.
            let mut all = JoinSet::new();
            for member in members {
                all.spawn(restore_one(member, commands.clone(), Arc::clone(&ledger)));
            }
            while all.join_next().await.is_some() {}
        });
        if let Some(before) = self.restoring.replace(restoring) {
            before.abort();
        }
    }
}

async fn restore_one(member: Member, commands: mpsc::WeakSender<Command>, ledger: Arc<Ledger>) {
    // The watcher of a sandbox whose listeners are unavailable now tries again.
    let fetched = timeout(TIMEOUT, member.runtime.listeners(&member.id)).await;
    let Ok(Ok(listeners)) = fetched else { return };
    // Before its listeners are served: else a request could be refused meanwhile.
    let values = ledger.stored_values(&member).await;
    let Some(commands) = commands.upgrade() else { return };
    let command = Command::Serve { id: member.id, listeners, values, answer: None };
    // The task has ended, and its process with it.
    let _ = commands.send(command).await;
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(restoring) = self.restoring.take() {
            restoring.abort();
        }
    }
}

fn send(answer: ReplySender, outcome: Result<()>) {
    if let Some(answer) = answer {
        // The caller may have stopped waiting.
        let _ = answer.send(outcome);
    }
}

/// A duplicate of a process's socket, non-blocking, only for waiting: the owner reads and writes
/// it.
fn async_socket(socket: &OwnerSocket) -> io::Result<UnixDatagram> {
    let socket = net::UnixDatagram::from(socket.as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(socket)
}

/// Waits until the socket is readable, or writable if that is wanted; for ever if no process is
/// running.
async fn ready(socket: Option<&UnixDatagram>, wants_to_send: bool) {
    let Some(socket) = socket else { return std::future::pending().await };
    let interest = match wants_to_send {
        true => Interest::READABLE | Interest::WRITABLE,
        false => Interest::READABLE,
    };
    // It only fails when the async runtime shuts down, and this task with it.
    let _ = socket.ready(interest).await;
}

/// Waits until the service stops.
async fn wait_stopped(stopped: &mut watch::Receiver<bool>) {
    // A dropped sender means stopped.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Waits until a time; for ever if there is none.
async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}
