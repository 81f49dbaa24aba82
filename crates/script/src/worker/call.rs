//! One call, on the caller's side: it forks a worker, sends the request, receives messages and
//! makes fetches for the worker, until the worker responds, fails, or times out. Dropping the
//! future kills the worker.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use stockade_jail::{WorkerExit, decode_exit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout_at};

use super::wire::{FromWorker, Incoming, Message as _, ToWorker};
use super::{Error, MAX_FETCHES, MAX_REQUEST_BYTES, Zygote};
use crate::fetch::Fetcher;
use crate::realm_host::{FetchResult, Request};

/// How many bytes one read returns.
const CHUNK_BYTES: usize = 64 << 10;
/// How many fetches of one call run concurrently; the others wait.
const MAX_FETCHES_AT_ONCE: usize = 16;
/// The total size of all responses of one call, in bytes.
const MAX_RESPONSE_BYTES: usize = 16 << 20;
/// The most messages of a worker: mostly lines, which may be empty.
const MAX_MESSAGES: usize = 1 << 20;
/// How long the notification of a worker's end may take after its stream has ended.
const GRACE: Duration = Duration::from_secs(1);

/// A request to a worker.
pub struct Call<'a> {
    /// The request, at most [`FRAME_BYTES`](super::wire::FRAME_BYTES) long.
    pub request: Vec<u8>,
    /// The time after which the worker is killed.
    pub timeout: Duration,
    /// The most memory that its lines may take, in bytes, with their overhead.
    pub line_bytes: usize,
    /// Receives each line as it arrives.
    pub lines: &'a mut (dyn FnMut(String) + Send),
    /// Makes its fetches.
    pub fetcher: &'a Fetcher,
}

impl std::fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// The output of a worker. Every byte is under the control of the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOutput {
    /// Its response, or how it ended without one.
    pub answer: Result<Vec<u8>, WorkerEnd>,
    /// Whether it was parsing files at that time.
    pub reading: bool,
}

/// How a call ended without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerEnd {
    /// The worker ended by itself.
    Exited(u8),
    /// It was ended by this signal.
    Signaled(u8),
    /// It was killed because it timed out.
    TimedOut,
    /// It was killed because it sent an invalid message, or too many.
    ProtocolError,
    /// It was lost, with its zygote or before it started.
    Lost,
}

impl std::fmt::Display for WorkerEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "it exited with code {code}"),
            Self::Signaled(signal) => write!(f, "it was killed by signal {signal}"),
            Self::TimedOut => f.write_str("it timed out"),
            Self::ProtocolError => f.write_str("it sent an invalid message"),
            Self::Lost => f.write_str("its zygote no longer exists"),
        }
    }
}

impl Zygote {
    /// Runs a call in a new worker.
    ///
    /// # Errors
    /// If there was no worker. Failures of the worker itself are part of the result.
    pub async fn call(&self, call: Call<'_>) -> Result<WorkerOutput, Error> {
        let end = Instant::now() + call.timeout;
        let (ours, theirs) = UnixStream::pair().map_err(Error::Channel)?;
        let no_zygote = || Error::Fork(io::ErrorKind::BrokenPipe.into());
        let requests = self.requests.as_ref().ok_or_else(no_zygote)?;
        let leash = requests.fork(theirs.as_fd()).map_err(Error::Fork)?;
        drop(theirs);
        let asynchronous = |stream: UnixStream| {
            stream.set_nonblocking(true)?;
            tokio::net::UnixStream::from_std(stream)
        };
        let mut channel = asynchronous(ours).map_err(Error::Channel)?;
        let mut leash = asynchronous(leash).map_err(Error::Channel)?;
        let mut session = Session::new(call);
        let exchanged = timeout_at(end, Box::pin(session.exchange(&mut channel))).await;
        let Session { answer, reading, .. } = session;
        let answer = match (exchanged, answer) {
            (Ok(Ok(())), Some(answer)) => Ok(answer),
            (Err(_), _) => Err(WorkerEnd::TimedOut),
            (Ok(Err(ProtocolError)), _) => Err(WorkerEnd::ProtocolError),
            (Ok(Ok(())), None) => {
                let mut status = Vec::new();
                Err(match timeout_at(end + GRACE, leash.read_to_end(&mut status)).await {
                    Err(_) => WorkerEnd::TimedOut,
                    Ok(_) => match decode_exit(&status) {
                        Some(WorkerExit::Exited(code)) => WorkerEnd::Exited(code),
                        Some(WorkerExit::Signaled(signal)) => WorkerEnd::Signaled(signal),
                        None => WorkerEnd::Lost,
                    },
                })
            }
        };
        // Closing the leash kills the rest of the worker.
        Ok(WorkerOutput { answer, reading })
    }
}

/// The worker has violated the protocol.
struct ProtocolError;

/// A call in progress.
struct Session<'a> {
    call: Call<'a>,
    /// Bytes that are still to be sent.
    outgoing: Vec<u8>,
    incoming: Incoming,
    fetches: JoinSet<FetchResult>,
    pending: BTreeMap<u32, AbortHandle>,
    fetch_slots: Arc<Semaphore>,
    messages_left: usize,
    fetches_left: usize,
    request_bytes_left: usize,
    response_bytes_left: usize,
    reading: bool,
    answer: Option<Vec<u8>>,
}

impl<'a> Session<'a> {
    fn new(call: Call<'a>) -> Self {
        Self {
            call,
            outgoing: Vec::new(),
            incoming: Incoming::default(),
            fetches: JoinSet::new(),
            pending: BTreeMap::new(),
            fetch_slots: Arc::new(Semaphore::new(MAX_FETCHES_AT_ONCE)),
            messages_left: MAX_MESSAGES,
            fetches_left: MAX_FETCHES,
            request_bytes_left: MAX_REQUEST_BYTES,
            response_bytes_left: MAX_RESPONSE_BYTES,
            reading: false,
            answer: None,
        }
    }

    /// Sends the request, and receives all messages of the worker, also while it does not read.
    async fn exchange(
        &mut self,
        channel: &mut tokio::net::UnixStream,
    ) -> Result<(), ProtocolError> {
        let (mut from, mut to) = channel.split();
        self.outgoing = ToWorker::Request(std::mem::take(&mut self.call.request)).encode();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut is_listening = true;
        while self.answer.is_none() {
            tokio::select! {
                read = from.read(&mut chunk) => match read {
                    // The exit status shows how it ended.
                    Ok(0) | Err(_) => return Ok(()),
                    Ok(length) => {
                        self.incoming.push(&chunk[..length]);
                        self.handle_messages()?;
                    }
                },
                written = to.write(&self.outgoing), if !self.outgoing.is_empty() => {
                    match written {
                        Ok(length) => drop(self.outgoing.drain(..length)),
                        // It has ended. Its earlier messages are still to be received.
                        Err(_) => {
                            is_listening = false;
                            self.outgoing.clear();
                        }
                    }
                }
                Some(done) = self.fetches.join_next(), if self.outgoing.is_empty() => {
                    let Ok(answer) = done else { continue };
                    self.pending.remove(&answer.id);
                    let answer = self.within_budget(answer);
                    if is_listening {
                        self.outgoing = ToWorker::FetchResult(answer).encode();
                    }
                }
            }
        }
        Ok(())
    }

    /// Handles the messages that have arrived.
    fn handle_messages(&mut self) -> Result<(), ProtocolError> {
        while let Some(message) = self.incoming.take().map_err(|_| ProtocolError)? {
            self.messages_left = self.messages_left.checked_sub(1).ok_or(ProtocolError)?;
            if self.answer.is_some() {
                return Err(ProtocolError);
            }
            match message {
                FromWorker::ReadingStarted => self.reading = true,
                FromWorker::ReadingFinished => self.reading = false,
                FromWorker::Line(line) => {
                    let used = line.len() + size_of::<String>();
                    let left = self.call.line_bytes.checked_sub(used).ok_or(ProtocolError)?;
                    self.call.line_bytes = left;
                    (self.call.lines)(line);
                }
                FromWorker::Fetch(id, request) => self.fetch(id, request)?,
                FromWorker::Abort(id) => {
                    if let Some(handle) = self.pending.remove(&id) {
                        handle.abort();
                    }
                }
                FromWorker::Response(answer) => self.answer = Some(answer),
            }
        }
        Ok(())
    }

    fn fetch(&mut self, id: u32, request: Request) -> Result<(), ProtocolError> {
        self.fetches_left = self.fetches_left.checked_sub(1).ok_or(ProtocolError)?;
        let left = self.request_bytes_left.checked_sub(request.bytes());
        self.request_bytes_left = left.ok_or(ProtocolError)?;
        let (fetcher, slots) = (self.call.fetcher.clone(), Arc::clone(&self.fetch_slots));
        let handle = self.fetches.spawn(async move {
            // The semaphore is never closed.
            let _slot = slots.acquire().await;
            let result = fetcher.fetch(request).await.map_err(|error| error.to_string());
            FetchResult { id, result }
        });
        match self.pending.insert(id, handle) {
            None => Ok(()),
            Some(_) => Err(ProtocolError),
        }
    }

    /// The response to a fetch, unless the call has received too many bytes already.
    fn within_budget(&mut self, answer: FetchResult) -> FetchResult {
        let length = answer.result.as_ref().map_or(0, |response| response.body.len());
        match self.response_bytes_left.checked_sub(length) {
            Some(left) => {
                self.response_bytes_left = left;
                answer
            }
            None => {
                let why = format!("fetch failed: more than {MAX_RESPONSE_BYTES} bytes in total");
                FetchResult { result: Err(why), ..answer }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use stockade_core::address::hosts::Hosts;

    use super::*;

    /// `select!` chooses randomly between two branches that are ready.
    const ROUNDS: usize = 64;

    #[tokio::test]
    async fn one_that_answered_and_does_not_listen_any_more_is_heard() {
        let fetcher = Fetcher::new(Hosts::Nowhere);
        for _ in 0..ROUNDS {
            let (ours, mut worker) = UnixStream::pair().unwrap();
            worker.write_all(&FromWorker::Response(b"yes".to_vec()).encode()).unwrap();
            drop(worker);
            ours.set_nonblocking(true).unwrap();
            let mut channel = tokio::net::UnixStream::from_std(ours).unwrap();
            let mut lines = |_| {};
            let mut session = Session::new(Call {
                request: b"well?".to_vec(),
                timeout: Duration::from_secs(10),
                line_bytes: 0,
                lines: &mut lines,
                fetcher: &fetcher,
            });
            assert!(session.exchange(&mut channel).await.is_ok());
            assert_eq!(session.answer.as_deref(), Some(b"yes".as_slice()));
        }
    }
}
