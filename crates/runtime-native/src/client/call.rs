//! One request and its response: on an idle or a new connection, repeated if the keeper dies
//! meanwhile, and within its deadline.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use super::channel::{Channel, is_exhausted, is_loss};
use super::start::Starter;
use crate::bubblewrap::Launcher;
use crate::directory::Directory;
use crate::failure::RequestedName;
use crate::socket::{Message, Packet};
use crate::wire::{Action, Answer, Failure, Request};
use stockade_runtime::{Error, Result};

/// The deadline of most responses.
const DEADLINE: Duration = Duration::from_secs(30);
/// The deadline for creating a sandbox.
const CREATE_DEADLINE: Duration = Duration::from_secs(60);
/// How many idle connections are kept.
const IDLE: usize = 16;
/// How many keepers may die during one request: because of it, or because another process kills
/// them.
pub(super) const ATTEMPTS: usize = 12;
/// The pause before a request is repeated after a keeper died, doubled each time: the first and the
/// longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(500)];

/// The shared state of all operations: the access to the keeper.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) directory: Directory,
    pub(super) launcher: Launcher,
    starter: Starter,
    idle: Mutex<Vec<Channel>>,
}

/// A response, and the connection that it arrived on.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) message: Message<Answer>,
    pub(super) channel: Channel,
}

impl Client {
    pub(super) const fn new(directory: Directory, launcher: Launcher, starter: Starter) -> Self {
        Self { directory, launcher, starter, idle: Mutex::new(Vec::new()) }
    }

    /// Sends the keeper a request, and returns the connection to the idle ones.
    pub(super) async fn request(&self, request: &Request, body: &[u8]) -> Result<Message<Answer>> {
        self.request_with(request, body, &[]).await
    }

    /// The same with descriptors.
    pub(super) async fn request_with(
        &self,
        request: &Request,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Message<Answer>> {
        let answered = self.call(request, body, descriptors).await?;
        self.return_channel(answered.channel);
        Ok(answered.message)
    }

    /// Sends a request whose response is [`Answer::Done`].
    pub(super) async fn execute(&self, request: &Request) -> Result<()> {
        match self.request(request, &[]).await?.head {
            Answer::Done => Ok(()),
            _ => Err(unexpected_answer()),
        }
    }

    /// Sends the keeper a request. The caller gets the connection.
    ///
    /// # Errors
    /// The error that the keeper reports, [`Error::Deadline`] when it does not answer in time,
    /// [`Error::Unreachable`] when no keeper can be started, and [`Error::OutcomeUnknown`] when it
    /// died meanwhile and the request must not be repeated.
    pub(super) async fn call(
        &self,
        request: &Request,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Exchange> {
        let name = requested_name(request);
        let packet = Packet::new(request, body).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => Error::Invalid(error.to_string()),
            _ => Error::Exhausted(error.to_string()),
        })?;
        let answered = timeout(deadline(request), self.exchange(request, &packet, descriptors));
        let answered = answered.await;
        let answered = answered.map_err(|_| Error::Deadline(name.operation))??;
        let is_told =
            |failure: &Failure| matches!(failure, Failure::Wall { without_overlay: Some(_), .. });
        if let Answer::Failed(failure) = &answered.message.head
            && is_told(failure)
        {
            return Ok(answered);
        }
        if let Answer::Failed(failure) = answered.message.head {
            self.return_channel(answered.channel);
            return Err(failure.into_error(&name));
        }
        Ok(answered)
    }

    /// The data directory.
    pub(super) fn data(&self) -> &Path {
        self.starter.data()
    }

    /// The keeper's program.
    pub(super) fn program(&self) -> &OsStr {
        self.starter.program()
    }

    /// Takes back a connection whose last request was answered.
    pub(super) fn return_channel(&self, channel: Channel) {
        let mut idle = self.idle();
        if idle.len() < IDLE {
            idle.push(channel);
        }
    }

    /// Whether every connection is in use.
    #[cfg(test)]
    pub(super) fn has_no_idle(&self) -> bool {
        self.idle().is_empty()
    }

    async fn exchange(
        &self,
        request: &Request,
        packet: &Packet,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Exchange> {
        let broken = |source| Error::Unreachable { what: "the keeper".to_owned(), source };
        let mut repeated = false;
        let [mut pause, longest] = PAUSES;
        for attempt in 0..ATTEMPTS {
            if attempt > 1 {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(longest);
            }
            let used = self.idle().pop();
            let channel = match used {
                Some(channel) => channel,
                None => self.starter.connect(&self.directory).await?,
            };
            match channel.send(packet, descriptors).await {
                Ok(()) => {}
                Err(error) if is_loss(&error) => {
                    self.forget();
                    continue;
                }
                Err(error) => return Err(broken(error)),
            }
            match channel.receive::<Answer>().await {
                Ok(Some(mut message)) => {
                    if repeated && is_done(request, &message.head) {
                        message.head = Answer::Done;
                    }
                    return Ok(Exchange { message, channel });
                }
                Ok(None) if !may_repeat(request) => {
                    return Err(Error::OutcomeUnknown(
                        requested_name(request).operation.to_owned(),
                    ));
                }
                Ok(None) => {
                    self.forget();
                    repeated = true;
                }
                Err(error) if is_exhausted(&error) => {
                    return Err(Error::Exhausted(error.to_string()));
                }
                Err(error) => return Err(broken(error)),
            }
        }
        Err(broken(io::Error::other(format!("the keeper disconnected {ATTEMPTS} times"))))
    }

    /// Drops the connections to a keeper that no longer exists.
    fn forget(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Channel>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error for a response that does not match the request.
pub(super) fn unexpected_answer() -> Error {
    Error::Unreachable { what: "the keeper".to_owned(), source: io::ErrorKind::InvalidData.into() }
}

fn deadline(request: &Request) -> Duration {
    match request {
        Request::Create { .. } => CREATE_DEADLINE,
        _ => DEADLINE,
    }
}

/// Whether a request that a dead keeper may have executed may be repeated. A second signal is a
/// different action.
const fn may_repeat(request: &Request) -> bool {
    !matches!(request, Request::Command { action: Action::Signal(_), .. })
}

/// Whether the response to a repeated request shows that the first attempt had succeeded.
fn is_done(request: &Request, answer: &Answer) -> bool {
    matches!(request, Request::Command { action: Action::Acknowledge, .. })
        && *answer == Answer::Failed(Failure::NoExec)
}

fn requested_name(request: &Request) -> RequestedName<'_> {
    let (operation, sandbox, exec) = match request {
        Request::Hello { .. } => ("greet", None, None),
        Request::Drain => ("hand over to another version", None, None),
        Request::Create { id, .. } => ("create the sandbox", Some(id), None),
        Request::Destroy { id } => ("terminate the sandbox", Some(id), None),
        Request::Inspect { id } => ("inspect the sandbox", Some(id), None),
        Request::List { .. } => ("list the sandboxes", None, None),
        Request::Renew { id, .. } => ("renew the lease", Some(id), None),
        Request::End { id } => ("end its processes", Some(id), None),
        Request::ChangeLimits { id, .. } => ("change its limits", Some(id), None),
        Request::Pause { id } => ("pause", Some(id), None),
        Request::Resume { id } => ("resume", Some(id), None),
        Request::Hold { id } => ("take a snapshot", Some(id), None),
        Request::Execute { id, exec, .. } => ("start a command", Some(id), Some(exec)),
        Request::Attach { id, exec, .. } => ("attach to a command", Some(id), Some(exec)),
        Request::Command { id, exec, action } => {
            let operation = match action {
                Action::Signal(_) => "signal a command",
                Action::Kill => "kill a command",
                Action::Resize(_) => "resize a terminal",
                Action::CloseInput => "close the input of a command",
                Action::Acknowledge => "remove the record of a command",
            };
            (operation, Some(id), Some(exec))
        }
        Request::Connect { id, .. } => ("connect to a port or socket inside", Some(id), None),
        Request::Listeners { id } => ("get its egress listeners", Some(id), None),
        Request::Trusted { id } => ("change what its programs trust", Some(id), None),
        Request::Root { id } => ("access its files", Some(id), None),
        Request::Supports { .. } => ("report its capabilities", None, None),
        Request::Metrics => ("count", None, None),
    };
    RequestedName { operation, sandbox, exec }
}
