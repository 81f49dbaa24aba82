//! The egress process, which serves the sandboxes of one owner: it receives requests over a socket,
//! and ends when that is closed. It must be confined before: it needs the network and its socket,
//! but no file.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net;
use std::sync::Arc;
use std::time::Duration;

use stockade_core::network::Policy;
use stockade_core::{Code, Problem, SandboxId};
use stockade_egress_control::{
    Envelope, Event, Installed, Message, Request, VERSION, receive, send,
};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::dns::{Configuration, Stub};
use crate::limits::Limits;
use crate::listeners::Listeners;
use crate::record::Queue;
use crate::sandbox::{Options, Sandbox};
use crate::trust::Trust;

/// How many events may wait for the owner to receive them.
const EVENTS: usize = 1024;
/// How many responses may wait for the owner to receive them.
const MAX_OUTBOX: usize = 4096;
/// The most sandboxes.
const MAX_SANDBOXES: usize = 4096;

/// How long an owner may take to receive the remaining messages.
const DRAIN: Duration = Duration::from_secs(2);

/// How long connections may take to end when the owner has ended, and how often that is checked.
const SETTLE: Duration = Duration::from_millis(150);
const SETTLE_STEP: Duration = Duration::from_millis(2);

/// Why the process ended before its owner.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket cannot be used.
    #[error("using the owner's socket failed")]
    Socket(#[source] io::Error),
    /// A request cannot be received or is invalid.
    #[error("receiving a request from the owner failed")]
    Receive(#[source] io::Error),
    /// A message cannot be sent.
    #[error("sending a message to the owner failed")]
    Send(#[source] io::Error),
}

/// Serves sandboxes on requests of the owner at the other end of a socket, until that is closed.
/// Must be called within a runtime.
///
/// # Errors
/// [`Error`]; all connections have ended then, too.
pub async fn serve(owner: OwnedFd) -> Result<(), Error> {
    // The runtime only waits for it to be ready; `stockade-egress-control` reads and writes it.
    let owner = net::UnixDatagram::from(owner);
    owner.set_nonblocking(true).map_err(Error::Socket)?;
    let owner = UnixDatagram::from_std(owner).map_err(Error::Socket)?;
    let (record, mut events) = Queue::new(EVENTS);
    let mut served = ProcessState {
        sandboxes: HashMap::new(),
        resolve: Arc::new(Stub::new(Configuration::parse("", ""))),
        record: Arc::new(record),
    };
    // The outgoing messages. Sending never blocks the process: the owner may be busy with its own
    // requests.
    let mut outbox: VecDeque<Message> = VecDeque::new();
    loop {
        tokio::select! {
            biased;
            received = owner.async_io(Interest::READABLE, || receive::<Envelope>(&owner)) => {
                let (envelope, descriptors) = match received {
                    Ok(Some(received)) => received,
                    Ok(None) => {
                        served.settle().await;
                        served.sandboxes.clear();
                        send_rest(&owner, outbox, &mut events).await;
                        return Ok(());
                    }
                    // The owner ended and left messages unread.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                    Err(error) => return Err(Error::Receive(error)),
                };
                let number = envelope.number;
                let (installed, problem) = match served.handle(envelope, descriptors).await {
                    Ok(installed) => (installed, None),
                    Err(problem) => (None, Some(problem)),
                };
                if outbox.len() > MAX_OUTBOX {
                    return Err(Error::Send(io::ErrorKind::TimedOut.into()));
                }
                outbox.push_back(Message::Response { number, problem, installed });
            }
            sent = send_message(&owner, outbox.front()) => {
                sent.map_err(Error::Send)?;
                outbox.pop_front();
            }
            Some(event) = events.recv(), if outbox.is_empty() => {
                outbox.push_back(Message::Event(Box::new(event)));
            }
        }
    }
}

/// Sends a message once the socket is writable; waits forever if there is none.
async fn send_message(owner: &UnixDatagram, message: Option<&Message>) -> io::Result<()> {
    let Some(message) = message else { return std::future::pending().await };
    owner.async_io(Interest::WRITABLE, || send(owner, message, &[])).await
}

/// Sends the remaining messages to an owner that makes no more requests, but may still receive.
async fn send_rest(
    owner: &UnixDatagram,
    mut outbox: VecDeque<Message>,
    events: &mut mpsc::Receiver<Event>,
) {
    while let Ok(event) = events.try_recv() {
        outbox.push_back(Message::Event(Box::new(event)));
    }
    let send_all = async {
        for message in &outbox {
            if send_message(owner, Some(message)).await.is_err() {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN, send_all).await;
}

/// The sandboxes that are served.
struct ProcessState {
    /// Each with its serving task, once it has listeners.
    sandboxes: HashMap<SandboxId, (Arc<Sandbox>, Option<Serving>)>,
    resolve: Arc<Stub>,
    record: Arc<Queue>,
}

/// The trusted authorities, from the file that came with the credentials.
fn read_trust(descriptors: Vec<OwnedFd>) -> Result<Trust, Problem> {
    let file = descriptors.into_iter().next().map(File::from);
    let file = file.ok_or_else(|| io::Error::other("no file with CA certificates was given"));
    file.and_then(Trust::read).map_err(|error| {
        Problem::new(Code::Unsupported, "no host can be authenticated").because(error.to_string())
    })
}

fn invalid(message: &str, error: &dyn std::error::Error) -> Problem {
    Problem::new(Code::InvalidInput, message).because(error.to_string())
}

/// The task that serves a sandbox. It is aborted when this is dropped.
struct Serving(JoinHandle<()>);

impl Serving {
    /// Ends it. Afterwards nothing listens.
    async fn end(mut self) {
        self.0.abort();
        let _ = tokio::time::timeout(SETTLE, &mut self.0).await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ProcessState {
    /// Waits a moment for connections that are ending: a command may end as soon as it has read why
    /// its request was refused, which is recorded after that.
    async fn settle(&self) {
        let settled = async {
            while self.sandboxes.values().any(|(sandbox, _)| sandbox.has_connections()) {
                tokio::time::sleep(SETTLE_STEP).await;
            }
        };
        let _ = tokio::time::timeout(SETTLE, settled).await;
    }

    /// Carries out a request. Returns the state of the credentials, in response to
    /// [`Request::Credentials`].
    async fn handle(
        &mut self,
        envelope: Envelope,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Option<Installed>, Problem> {
        let Envelope { version, request, .. } = envelope;
        if version != VERSION {
            let message =
                format!("the egress process uses protocol version {VERSION}, not {version}");
            return Err(Problem::new(Code::Unsupported, message));
        }
        match request {
            Request::Add { sandbox, policy } => self.add(sandbox, policy, descriptors)?,
            Request::Listen { sandbox } => self.listen(&sandbox, descriptors)?,
            Request::Change { sandbox, policy } => {
                let refused = self.find(&sandbox)?.set_policy(policy);
                refused.map_err(|error| invalid("the policy is invalid", &error))?;
            }
            Request::UseUpstream { sandbox, proxy } => self.find(&sandbox)?.use_upstream(proxy),
            Request::ReportRequests { sandbox } => self.find(&sandbox)?.report_requests(),
            Request::Credentials { sandbox, policy, credentials } => {
                self.find(&sandbox)?;
                let trust = read_trust(descriptors)?;
                let installed = self.find(&sandbox)?.set_credentials(policy, credentials, trust);
                return installed
                    .map(Some)
                    .map_err(|error| invalid("the credentials are invalid", &error));
            }
            Request::Remove { sandbox } => {
                self.find(&sandbox)?;
                if let Some((_, Some(serving))) = self.sandboxes.remove(&sandbox) {
                    serving.end().await;
                }
            }
            Request::Names { resolv_conf, hosts } => {
                self.resolve.set(Configuration::parse(&resolv_conf, &hosts));
            }
        }
        Ok(None)
    }

    fn find(&self, sandbox: &SandboxId) -> Result<&Arc<Sandbox>, Problem> {
        let found = self.sandboxes.get(sandbox).map(|(sandbox, _)| sandbox);
        found.ok_or_else(|| Problem::new(Code::NotFound, format!("{sandbox} is not registered")))
    }

    fn add(
        &mut self,
        id: SandboxId,
        policy: Policy,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Problem> {
        if self.sandboxes.contains_key(&id) {
            return Err(Problem::new(Code::Conflict, format!("{id} is already registered")));
        }
        if self.sandboxes.len() >= MAX_SANDBOXES {
            let message = format!("at most {MAX_SANDBOXES} sandboxes can be registered");
            return Err(Problem::new(Code::QuotaExceeded, message));
        }
        let listeners = match descriptors.is_empty() {
            true => None,
            false => Some(listeners(&id, descriptors)?),
        };
        let sandbox = Sandbox::new(Options {
            id: id.clone(),
            policy,
            limits: Limits::default(),
            resolve: Arc::<Stub>::clone(&self.resolve),
            record: Arc::<Queue>::clone(&self.record),
        });
        let serving = listeners.map(|listeners| serve_at(&sandbox, listeners));
        self.sandboxes.insert(id, (sandbox, serving));
        Ok(())
    }

    fn listen(&mut self, id: &SandboxId, descriptors: Vec<OwnedFd>) -> Result<(), Problem> {
        self.find(id)?;
        let Some((sandbox, serving @ None)) = self.sandboxes.get_mut(id) else {
            return Err(Problem::new(Code::Conflict, format!("{id} is already registered")));
        };
        *serving = Some(serve_at(sandbox, listeners(id, descriptors)?));
        Ok(())
    }
}

fn listeners(id: &SandboxId, descriptors: Vec<OwnedFd>) -> Result<Listeners, Problem> {
    let message = format!("the listeners of {id} are invalid");
    Listeners::from_descriptors(descriptors).map_err(|error| invalid(&message, &error))
}

fn serve_at(sandbox: &Arc<Sandbox>, listeners: Listeners) -> Serving {
    Serving(tokio::spawn(Arc::clone(sandbox).serve(listeners)))
}

#[cfg(test)]
mod tests;
