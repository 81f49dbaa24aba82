//! The host's side of a realm: takes a process for it, sends the files that the program imports, and
//! calls its functions. Its answers are untrusted: an answer of another type is an error.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use stockade_script::realm::Failure;
use stockade_script::worker::Confinement;
use stockade_script::{SourceFile, TOO_DEEP, persistent_realm};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::error::Error;
use super::processes::{Processes, RealmProcess};
use super::sources::Modules;
use super::wire::{CallMessage, FromRealm, Message, Rejection, ToRealm};
use crate::graph::{Fault, SourceLocation};
use crate::sync::lock;

/// The longest line that is read.
const MAX_LINE_BYTES: u64 = 64 << 20;
/// The time limit for loading and running a program.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How many messages of a call can wait to be read. The library sends a few, and a heartbeat twice a
/// second.
const MAX_MESSAGES: usize = 64;
/// The longest message of a call, as a line. The library has a lower limit.
const MAX_MESSAGE_BYTES: usize = 5 << 20;
/// How much of the process's standard error is included in messages, in bytes.
const MAX_STDERR_BYTES: u64 = 4 << 10;
/// How long to wait for the standard error, and for the end of the process.
const STDERR_TIMEOUT: Duration = Duration::from_secs(1);

/// Receives each line of the console: its level and its text.
pub type Console = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// The waiters for calls, by the ids of the calls.
type Waiting = Arc<Mutex<HashMap<u64, Waiter>>>;

/// The waiter for a call.
#[derive(Debug)]
struct Waiter {
    outcome: oneshot::Sender<Result<Box<RawValue>, Failure>>,
    /// Receives the messages of the call, if it has any.
    messages: Option<mpsc::Sender<Message>>,
}

/// A realm with a loaded program. Dropping this value ends its process.
#[derive(Debug)]
pub struct Realm {
    confinement: Confinement,
    requests: mpsc::UnboundedSender<ToRealm>,
    waiting: Waiting,
    /// Why the process has ended; `None` while it runs.
    end: tokio::sync::watch::Receiver<Option<String>>,
    is_killed: AtomicBool,
    next: AtomicU64,
    io_tasks: Vec<JoinHandle<()>>,
    process: Mutex<Child>,
}

impl Drop for Realm {
    fn drop(&mut self) {
        for io_tasks in &self.io_tasks {
            io_tasks.abort();
        }
    }
}

impl Realm {
    /// Loads a workflow file into a process.
    pub(crate) async fn load(
        processes: &Processes,
        entry: SourceFile,
        environment: BTreeMap<String, String>,
        modules: &mut dyn Modules,
        console: Console,
    ) -> Result<Self, Error> {
        let RealmProcess { mut process, stream } = processes.take()?;
        let (reader, mut writer) = stream.into_split();
        let mut lines = Incoming { reader: BufReader::new(reader), line: Vec::new() };
        let loading = async {
            send(&mut writer, &ToRealm::Load { entry, environment }).await?;
            let FromRealm::Raised { namespaces, landlock } = lines.next().await? else {
                return Err(Error::Answer("its isolation is unknown".to_owned()));
            };
            loop {
                match lines.next().await? {
                    FromRealm::Import { importer, specifier } => {
                        let found = modules.import(&importer, &specifier);
                        send(&mut writer, &ToRealm::Imported(found)).await?;
                    }
                    FromRealm::Line { level, text } => console(&level, &text),
                    FromRealm::Loaded(loaded) => {
                        loaded.map_err(rejection_error)?;
                        return Ok(Confinement { namespaces, landlock });
                    }
                    FromRealm::Done { .. } | FromRealm::Raised { .. } | FromRealm::Said(_) => {
                        return Err(Error::Answer("an unexpected message".to_owned()));
                    }
                }
            }
        };
        let confinement = match tokio::time::timeout(LOAD_TIMEOUT, loading).await {
            Ok(Ok(confinement)) => confinement,
            Ok(Err(Error::Ended(_))) => return Err(load_error(&mut process).await),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(Error::Timeout { what: "run", limit: LOAD_TIMEOUT }),
        };
        let (requests, queue) = mpsc::unbounded_channel();
        let (ended, end) = tokio::sync::watch::channel(None);
        let waiting = Waiting::default();
        let receiving = receive(lines, Arc::clone(&waiting), console, ended);
        let io_tasks = vec![tokio::spawn(send_all(writer, queue)), tokio::spawn(receiving)];
        let (is_killed, next) = (AtomicBool::new(false), AtomicU64::new(1));
        let process = Mutex::new(process);
        Ok(Self { confinement, requests, waiting, end, is_killed, next, io_tasks, process })
    }

    /// The isolation of its process.
    pub(crate) const fn confinement(&self) -> Confinement {
        self.confinement
    }

    /// A new call id.
    pub(crate) fn id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Calls a function of `library/start.js`. The request is sent now; the answer can be awaited
    /// later.
    pub(crate) fn call<T: DeserializeOwned>(
        &self,
        id: u64,
        function: &str,
        argument: Value,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T> {
        self.start_call(id, function, argument, None)
    }

    /// Like `call`, but also returns the messages of the call while it runs.
    pub(crate) fn call_with_messages<T: DeserializeOwned>(
        &self,
        id: u64,
        function: &str,
        argument: Value,
    ) -> (impl Future<Output = Result<T, Error>> + Send + use<T>, mpsc::Receiver<Message>) {
        let (messages, heard) = mpsc::channel(MAX_MESSAGES);
        (self.start_call(id, function, argument, Some(messages)), heard)
    }

    fn start_call<T: DeserializeOwned>(
        &self,
        id: u64,
        function: &str,
        argument: Value,
        messages: Option<mpsc::Sender<Message>>,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T> {
        let (outcome, receiver) = oneshot::channel();
        lock(&self.waiting).insert(id, Waiter { outcome, messages });
        let request = ToRealm::Call { id, function: function.to_owned(), argument };
        let is_sent = self.requests.send(request).is_ok();
        let mut end = self.end.clone();
        async move {
            let outcome = tokio::select! {
                biased;
                Ok(outcome) = receiver, if is_sent => Some(outcome),
                _ = end.wait_for(Option::is_some) => None,
            };
            let outcome = outcome.ok_or_else(|| ended_error(&end))?;
            let value = outcome.map_err(|failure| Error::Threw(Box::new(failure)))?;
            serde_json::from_str(value.get()).map_err(|error| Error::Answer(error.to_string()))
        }
    }

    /// Like `call`, with a time limit.
    pub(crate) async fn call_with_timeout<T: DeserializeOwned>(
        &self,
        what: &'static str,
        limit: Duration,
        function: &str,
        argument: Value,
    ) -> Result<T, Error> {
        let call = self.call(self.id(), function, argument);
        tokio::time::timeout(limit, call).await.map_err(|_| Error::Timeout { what, limit })?
    }

    /// Calls a function, and ignores the answer.
    pub(crate) fn notify(&self, function: &str, argument: Value) {
        let (id, function) = (self.id(), function.to_owned());
        // The realm may have ended.
        drop(self.requests.send(ToRealm::Call { id, function, argument }));
    }

    /// Aborts a call, unless it has already ended.
    pub(crate) fn abort(&self, call: u64) {
        if lock(&self.waiting).remove(&call).is_some() {
            self.notify("abort", json!({ "call": call }));
        }
    }

    /// Kills the process.
    pub(crate) fn kill(&self) {
        self.is_killed.store(true, Ordering::Relaxed);
        // It may have ended already.
        let _ = lock(&self.process).start_kill();
    }

    /// Whether the process has ended or was killed.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_killed.load(Ordering::Relaxed) || self.end.borrow().is_some()
    }
}

fn ended_error(end: &tokio::sync::watch::Receiver<Option<String>>) -> Error {
    Error::Ended(end.borrow().clone().unwrap_or_else(|| "without a message".to_owned()))
}

/// The reason why a process ended before its program was loaded.
async fn load_error(process: &mut Child) -> Error {
    let remark = read_stderr(process).await;
    let ended = tokio::time::timeout(STDERR_TIMEOUT, process.wait()).await;
    if let Ok(Ok(status)) = ended
        && persistent_realm::signal(status).is_some_and(stockade_script::is_stack_overflow)
    {
        return Error::Faults(vec![Fault { place: None, message: TOO_DEEP.to_owned() }]);
    }
    Error::Start(remark)
}

/// The standard error of a process that has ended.
async fn read_stderr(process: &mut Child) -> String {
    let mut text = Vec::new();
    if let Some(errors) = process.stderr.take() {
        let mut errors = errors.take(MAX_STDERR_BYTES);
        let read = errors.read_to_end(&mut text);
        // Other processes may still have the pipe open.
        let _ = tokio::time::timeout(STDERR_TIMEOUT, read).await;
    }
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    if text.is_empty() { "it exited without a message".to_owned() } else { text }
}

fn rejection_error(rejection: Rejection) -> Error {
    let fault = |fault: stockade_script::Fault| Fault {
        place: Some(SourceLocation { file: fault.path, line: fault.line, column: fault.column }),
        message: fault.message,
    };
    match rejection {
        Rejection::Faults(faults) => Error::Faults(faults.into_iter().map(fault).collect()),
        Rejection::Missing(missing) => Error::Faults(vec![fault(missing)]),
        Rejection::Threw(failure) => Error::Threw(Box::new(failure)),
        Rejection::Stuck(message) => Error::Faults(vec![Fault { place: None, message }]),
    }
}

struct Incoming {
    reader: BufReader<OwnedReadHalf>,
    line: Vec<u8>,
}

impl Incoming {
    async fn next(&mut self) -> Result<FromRealm, Error> {
        self.line.clear();
        let mut reader = (&mut self.reader).take(MAX_LINE_BYTES);
        let read = reader.read_until(b'\n', &mut self.line).await;
        match read {
            Ok(_) if self.line.last() == Some(&b'\n') => {}
            Ok(0) => return Err(Error::Ended("its process was killed".to_owned())),
            Ok(_) => return Err(Error::Ended("its answer is truncated".to_owned())),
            Err(error) => return Err(Error::Ended(error.to_string())),
        }
        serde_json::from_slice(&self.line).map_err(|error| Error::Answer(error.to_string()))
    }
}

async fn send(writer: &mut OwnedWriteHalf, message: &ToRealm) -> Result<(), Error> {
    let mut line = serde_json::to_vec(message).map_err(|error| Error::Answer(error.to_string()))?;
    line.push(b'\n');
    writer.write_all(&line).await.map_err(|error| Error::Ended(error.to_string()))
}

async fn send_all(mut writer: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<ToRealm>) {
    while let Some(message) = queue.recv().await {
        if send(&mut writer, &message).await.is_err() {
            return;
        }
    }
}

async fn receive(
    mut lines: Incoming,
    waiting: Waiting,
    console: Console,
    ended: tokio::sync::watch::Sender<Option<String>>,
) {
    let why = loop {
        match lines.next().await {
            Ok(FromRealm::Done { id, outcome }) => {
                if let Some(waiter) = lock(&waiting).remove(&id) {
                    // The waiter may have been dropped.
                    drop(waiter.outcome.send(outcome));
                }
            }
            Ok(FromRealm::Said(_)) if lines.line.len() > MAX_MESSAGE_BYTES => {
                break "it sent a message that is too long".to_owned();
            }
            Ok(FromRealm::Said(CallMessage { call, word: message })) => {
                let waiting = lock(&waiting);
                let messages = waiting.get(&call).and_then(|waiter| waiter.messages.as_ref());
                if messages.is_some_and(|messages| is_full(&messages.try_send(message))) {
                    break "it sent too many messages".to_owned();
                }
            }
            Ok(FromRealm::Line { level, text }) => console(&level, &text),
            Ok(FromRealm::Import { .. } | FromRealm::Loaded(_) | FromRealm::Raised { .. }) => {
                break "it sent an unexpected message".to_owned();
            }
            Err(error) => break error.to_string(),
        }
    };
    ended.send_replace(Some(why));
}

fn is_full<T>(sent: &Result<(), mpsc::error::TrySendError<T>>) -> bool {
    matches!(sent, Err(mpsc::error::TrySendError::Full(_)))
}
