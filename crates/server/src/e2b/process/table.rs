//! The processes that clients have started. Several clients may receive the output of one; it continues
//! without a client.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stockade_api::{
    CommandInfo, OperationId, Problem, Sandbox, Session, SessionEvent, SessionInput,
};
use stockade_core::{Code, Time};
use tokio::sync::{Notify, mpsc};

use super::message::{Config, Selector, ended, output};
use crate::e2b::failure::{RpcCode, RpcError};

/// How many messages may wait for a slow client; then the process waits.
pub(super) const CLIENT_CAPACITY: usize = 16;
/// How long a process that has ended can be joined.
const REMEMBERED: Duration = Duration::from_secs(30);
/// How long input may wait for a process that does not read.
const INPUT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a sandbox may take to end after its processes.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(10);

/// Completes when the sandbox does not run any more.
pub(super) type Closed = Pin<Box<dyn Future<Output = ()> + Send>>;
/// A message for a client of a process.
pub(super) type Message = Result<Value, (RpcCode, Problem)>;
pub(super) type Client = mpsc::Sender<Result<Value, RpcError>>;

/// A process, for all who use it.
pub(super) type Process = Arc<Running>;

/// A sandbox: a later one may have the same id.
type Place = (String, i64);

fn place(sandbox: &Sandbox) -> Place {
    (sandbox.id.to_string(), sandbox.created_at.as_ms())
}

/// The processes of all sandboxes.
#[derive(Debug, Clone)]
pub(in crate::e2b) struct Processes(Arc<Table>);

#[derive(Debug)]
struct Table {
    running: Mutex<BTreeMap<(Place, u32), Process>>,
    /// When this server started: earlier sandboxes may have processes that it has not started.
    started_at: Time,
}

/// A process.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) pid: u32,
    pub(super) operation: OperationId,
    pub(super) is_terminal: bool,
    config: Config,
    tag: Option<String>,
    /// When its time is over and its processes are killed.
    deadline: Option<Instant>,
    /// Absent if it takes none.
    input: Option<mpsc::Sender<SessionInput>>,
    state: Mutex<State>,
    /// A first client has joined.
    joined: Notify,
}

#[derive(Debug, Default)]
struct State {
    clients: Vec<Client>,
    waits_for_client: bool,
    is_input_closed: bool,
    /// Its last message, once it has ended.
    end: Option<Message>,
}

/// What a client said about a process.
pub(super) struct Description {
    pub(super) config: Config,
    pub(super) tag: Option<String>,
    pub(super) is_terminal: bool,
    pub(super) takes_input: bool,
    pub(super) deadline: Option<Instant>,
}

impl Processes {
    pub(in crate::e2b) fn new(started_at: Time) -> Self {
        Self(Arc::new(Table { running: Mutex::default(), started_at }))
    }

    /// Whether an earlier server may have started processes in a sandbox.
    pub(super) fn may_lack_some(&self, sandbox: &Sandbox) -> bool {
        sandbox.created_at < self.0.started_at
    }

    /// Whether a process of a sandbox is known.
    pub(super) fn has(&self, sandbox: &Sandbox, operation: &OperationId) -> bool {
        self.lock().contains_key(&(place(sandbox), pid(operation)))
    }

    /// Forgets the processes of a sandbox that no client has joined and that do not run any more.
    pub(super) fn forget_ended(&self, sandbox: &Sandbox, running: &[CommandInfo]) {
        let place = place(sandbox);
        let runs =
            |process: &Process| running.iter().any(|info| info.workflow_id == process.operation);
        self.lock().retain(|(at, _), process| {
            *at != place || !process.waits_for_client() || runs(process)
        });
    }

    /// Adds a process, whose first client receives all of its messages; without one, that is the first that joins.
    pub(super) fn add(
        &self,
        sandbox: &Sandbox,
        description: Description,
        session: Session,
        client: Option<Client>,
        closed: Closed,
    ) {
        let Session { workflow_id, events, input } = session;
        let Description { config, tag, is_terminal, takes_input, deadline } = description;
        let pid = pid(&workflow_id);
        let process = Arc::new(Running {
            pid,
            operation: workflow_id,
            is_terminal,
            config,
            tag,
            deadline,
            input: takes_input.then_some(input),
            joined: Notify::new(),
            state: Mutex::new(State {
                waits_for_client: client.is_none(),
                clients: client.into_iter().collect(),
                ..State::default()
            }),
        });
        let key = (place(sandbox), pid);
        self.lock().insert(key.clone(), Arc::clone(&process));
        let table = self.clone();
        tokio::spawn(async move {
            if process.waits_for_client() {
                process.joined.notified().await;
            }
            process.relay(events, closed).await;
            tokio::time::sleep(REMEMBERED).await;
            table.lock().remove(&key);
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(Place, u32), Process>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The processes of a sandbox that run.
    pub(super) fn running(&self, sandbox: &Sandbox) -> Vec<Process> {
        let place = place(sandbox);
        let table = self.lock();
        let own = table.range((place.clone(), 0)..=(place, u32::MAX)).map(|(_, process)| process);
        own.filter(|process| !process.has_ended() && !process.is_overdue()).cloned().collect()
    }

    /// A process of a sandbox. One that has ended is found by its number for a while.
    pub(super) fn find(&self, sandbox: &Sandbox, selector: &Selector) -> Option<Process> {
        match (selector.pid, &selector.tag) {
            (Some(pid), _) => self.lock().get(&(place(sandbox), pid)).cloned(),
            (None, Some(tag)) => {
                let running = self.running(sandbox);
                running.into_iter().find(|process| process.tag.as_ref() == Some(tag))
            }
            (None, None) => None,
        }
    }
}

/// The number of a process, for clients: it follows from its operation.
pub(super) fn pid(operation: &OperationId) -> u32 {
    let hash = blake3::hash(operation.0.as_bytes());
    let [a, b, c, d, ..] = *hash.as_bytes();
    (u32::from_be_bytes([a, b, c, d]) & 0x3fff_ffff) | 0x4000_0000
}

impl Running {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_overdue(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    fn waits_for_client(&self) -> bool {
        self.lock().waits_for_client
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().end.is_some()
    }

    pub(super) fn to_json(&self) -> Value {
        let mut value = json!({ "config": self.config.to_json(), "pid": self.pid });
        if let Some(tag) = &self.tag {
            value["tag"] = tag.as_str().into();
        }
        value
    }

    /// Adds a client, which receives what comes from now on.
    pub(super) fn join(&self, client: Client) {
        let mut state = self.lock();
        if std::mem::take(&mut state.waits_for_client) {
            self.joined.notify_one();
        }
        match &state.end {
            // The capacity of a client is larger.
            Some(end) => drop(client.try_send(to_client(end))),
            None => state.clients.push(client),
        }
    }

    /// Sends something to the process.
    pub(super) async fn send(&self, input: SessionInput) -> Result<(), RpcError> {
        let closed = || RpcError::new(RpcCode::FailedPrecondition, "the process takes no input");
        if self.has_ended() {
            let text = format!("process with pid {} not found", self.pid);
            return Err(RpcError::new(RpcCode::NotFound, text));
        }
        let is_data = matches!(input, SessionInput::Stdin { .. });
        if is_data && self.lock().is_input_closed {
            return Err(closed());
        }
        let to = self.input.as_ref().ok_or_else(closed)?;
        match tokio::time::timeout(INPUT_TIMEOUT, to.send(input)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(closed()),
            Err(_) => {
                let message = "the process does not read its input";
                Err(RpcError::new(RpcCode::DeadlineExceeded, message))
            }
        }
    }

    /// Ends the input.
    pub(super) async fn close_input(&self) -> Result<(), RpcError> {
        if self.input.is_none() || std::mem::replace(&mut self.lock().is_input_closed, true) {
            return Ok(());
        }
        self.send(SessionInput::End).await
    }

    /// Passes on what comes from the process until it has ended.
    async fn relay(&self, mut events: stockade_api::Items<SessionEvent>, closed: Closed) {
        let end: Message = loop {
            let message = match events.next().await {
                Some(Ok(SessionEvent::Stdout { data })) => {
                    output(if self.is_terminal { "pty" } else { "stdout" }, &data)
                }
                Some(Ok(SessionEvent::Stderr { data })) => output("stderr", &data),
                Some(Ok(SessionEvent::Lost { bytes })) => {
                    let text = format!("[{bytes} bytes of output were lost]\n").into_bytes();
                    output(if self.is_terminal { "pty" } else { "stderr" }, &text.into())
                }
                Some(Ok(SessionEvent::Ended(end))) => {
                    break ended(&end).map_err(|error| (error.code, error.problem));
                }
                Some(Err(problem)) => {
                    let error = RpcError::from(problem);
                    break Err((error.code, error.problem));
                }
                None => {
                    let problem =
                        Problem::new(Code::Unreachable, "the stream of the process ended");
                    break Err((RpcCode::Unavailable, problem));
                }
            };
            let clients = self.lock().clients.clone();
            for client in &clients {
                // One that has left is removed below.
                let _ = client.send(Ok(message.clone())).await;
            }
            if clients.iter().any(Client::is_closed) {
                self.lock().clients.retain(|client| !client.is_closed());
            }
        };
        if matches!(end, Err((RpcCode::Unavailable, _))) {
            // Then a client asks whether the sandbox still runs.
            let _ = tokio::time::timeout(CLOSING_TIMEOUT, closed).await;
        }
        let clients = {
            let mut state = self.lock();
            state.end = Some(end.clone());
            std::mem::take(&mut state.clients)
        };
        for client in clients {
            let _ = client.send(to_client(&end)).await;
        }
    }
}

fn to_client(end: &Message) -> Result<Value, RpcError> {
    match end {
        Ok(value) => Ok(value.clone()),
        Err((code, problem)) => Err(RpcError { code: *code, problem: problem.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_follows_from_the_operation() {
        let one = pid(&OperationId("a".to_owned()));
        assert_eq!(one, pid(&OperationId("a".to_owned())));
        assert_ne!(one, pid(&OperationId("b".to_owned())));
        assert!(i32::try_from(one).is_ok() && one > 1000);
    }
}
