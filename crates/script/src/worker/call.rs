//! One call, on the caller's side: it forks a worker, sends the request, receives messages and
//! makes fetches for the worker, until the worker responds, fails, or times out. Dropping the
//! future kills the worker.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use stockade_jail::zygote::{self, WorkerEnded};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout_at};

use super::wire::{FromWorker, Incoming, ToWorker, Word as _};
use super::{Error, MAX_ASKED_BYTES, MAX_FETCHES, Zygote};
use crate::fetch::Fetcher;
use crate::outside::{Answer, Request};

/// How many bytes one read returns.
const PIECE_BYTES: usize = 64 << 10;
/// How many fetches of one call run concurrently; the others wait.
const MAX_FETCHES_AT_ONCE: usize = 16;
/// The total size of all responses of one call, in bytes.
const MAX_FETCHED_BYTES: usize = 16 << 20;
/// The most messages of a worker: mostly lines, which may be empty.
const MAX_WORDS: usize = 1 << 20;
/// How long the notification of a worker's end may take after its stream has ended.
const GRACE: Duration = Duration::from_secs(1);

/// A request to a worker.
pub struct Call<'a> {
    /// The request, at most [`FRAME_BYTES`](super::wire::FRAME_BYTES) long.
    pub question: Vec<u8>,
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
pub struct Told {
    /// Its response, or how it ended without one.
    pub answer: Result<Vec<u8>, Ended>,
    /// Whether it was parsing files at that time.
    pub reading: bool,
}

/// How a call ended without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The worker ended by itself.
    Exited(u8),
    /// It was ended by this signal.
    Signaled(u8),
    /// It was killed because it timed out.
    TimedOut,
    /// It was killed because it sent an invalid message, or too many.
    Misspoke,
    /// It was lost, with its zygote or before it started.
    Lost,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "it exited with code {code}"),
            Self::Signaled(signal) => write!(f, "it was killed by signal {signal}"),
            Self::TimedOut => f.write_str("it timed out"),
            Self::Misspoke => f.write_str("it sent an invalid message"),
            Self::Lost => f.write_str("its zygote no longer exists"),
        }
    }
}

impl Zygote {
    /// Runs a call in a new worker.
    ///
    /// # Errors
    /// If there was no worker. Failures of the worker itself are part of the result.
    pub async fn call(&self, call: Call<'_>) -> Result<Told, Error> {
        let end = Instant::now() + call.timeout;
        let (ours, theirs) = UnixStream::pair().map_err(Error::Wire)?;
        let gone = || Error::Fork(io::ErrorKind::BrokenPipe.into());
        let requests = self.requests.as_ref().ok_or_else(gone)?;
        let leash = requests.fork(theirs.as_fd()).map_err(Error::Fork)?;
        drop(theirs);
        let asynchronous = |stream: UnixStream| {
            stream.set_nonblocking(true)?;
            tokio::net::UnixStream::from_std(stream)
        };
        let mut wire = asynchronous(ours).map_err(Error::Wire)?;
        let mut leash = asynchronous(leash).map_err(Error::Wire)?;
        let mut session = Session::new(call);
        let heard = timeout_at(end, Box::pin(session.hear(&mut wire))).await;
        let Session { answer, reading, .. } = session;
        let answer = match (heard, answer) {
            (Ok(Ok(())), Some(answer)) => Ok(answer),
            (Err(_), _) => Err(Ended::TimedOut),
            (Ok(Err(Misspoke)), _) => Err(Ended::Misspoke),
            (Ok(Ok(())), None) => {
                let mut told = Vec::new();
                Err(match timeout_at(end + GRACE, leash.read_to_end(&mut told)).await {
                    Err(_) => Ended::TimedOut,
                    Ok(_) => match zygote::ended(&told) {
                        Some(WorkerEnded::Exited(code)) => Ended::Exited(code),
                        Some(WorkerEnded::Signaled(signal)) => Ended::Signaled(signal),
                        None => Ended::Lost,
                    },
                })
            }
        };
        // Closing the leash kills the rest of the worker.
        Ok(Told { answer, reading })
    }
}

/// The worker has violated the protocol.
struct Misspoke;

/// A call in progress.
struct Session<'a> {
    call: Call<'a>,
    /// Bytes that are still to be sent.
    outgoing: Vec<u8>,
    incoming: Incoming,
    fetches: JoinSet<Answer>,
    begun: BTreeMap<u32, AbortHandle>,
    turns: Arc<Semaphore>,
    words_left: usize,
    fetches_left: usize,
    asked_bytes_left: usize,
    fetched_bytes_left: usize,
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
            begun: BTreeMap::new(),
            turns: Arc::new(Semaphore::new(MAX_FETCHES_AT_ONCE)),
            words_left: MAX_WORDS,
            fetches_left: MAX_FETCHES,
            asked_bytes_left: MAX_ASKED_BYTES,
            fetched_bytes_left: MAX_FETCHED_BYTES,
            reading: false,
            answer: None,
        }
    }

    /// Sends the request, and receives all messages of the worker, also while it does not read.
    async fn hear(&mut self, wire: &mut tokio::net::UnixStream) -> Result<(), Misspoke> {
        let (mut from, mut to) = wire.split();
        self.outgoing = ToWorker::Ask(std::mem::take(&mut self.call.question)).encode();
        let mut piece = vec![0; PIECE_BYTES];
        let mut listens = true;
        while self.answer.is_none() {
            tokio::select! {
                read = from.read(&mut piece) => match read {
                    // The exit status shows how it ended.
                    Ok(0) | Err(_) => return Ok(()),
                    Ok(length) => {
                        self.incoming.push(&piece[..length]);
                        self.understand()?;
                    }
                },
                written = to.write(&self.outgoing), if !self.outgoing.is_empty() => {
                    match written {
                        Ok(length) => drop(self.outgoing.drain(..length)),
                        // It has ended. Its earlier messages are still to be received.
                        Err(_) => {
                            listens = false;
                            self.outgoing.clear();
                        }
                    }
                }
                Some(done) = self.fetches.join_next(), if self.outgoing.is_empty() => {
                    let Ok(answer) = done else { continue };
                    self.begun.remove(&answer.id);
                    let answer = self.within_budget(answer);
                    if listens {
                        self.outgoing = ToWorker::Fetched(answer).encode();
                    }
                }
            }
        }
        Ok(())
    }

    /// Handles the messages that have arrived.
    fn understand(&mut self) -> Result<(), Misspoke> {
        while let Some(word) = self.incoming.take().map_err(|_| Misspoke)? {
            self.words_left = self.words_left.checked_sub(1).ok_or(Misspoke)?;
            if self.answer.is_some() {
                return Err(Misspoke);
            }
            match word {
                FromWorker::Reading => self.reading = true,
                FromWorker::Read => self.reading = false,
                FromWorker::Line(line) => {
                    let taken = line.len() + size_of::<String>();
                    let left = self.call.line_bytes.checked_sub(taken).ok_or(Misspoke)?;
                    self.call.line_bytes = left;
                    (self.call.lines)(line);
                }
                FromWorker::Fetch(id, request) => self.fetch(id, request)?,
                FromWorker::Abort(id) => {
                    if let Some(handle) = self.begun.remove(&id) {
                        handle.abort();
                    }
                }
                FromWorker::Answer(answer) => self.answer = Some(answer),
            }
        }
        Ok(())
    }

    fn fetch(&mut self, id: u32, request: Request) -> Result<(), Misspoke> {
        self.fetches_left = self.fetches_left.checked_sub(1).ok_or(Misspoke)?;
        let left = self.asked_bytes_left.checked_sub(request.bytes());
        self.asked_bytes_left = left.ok_or(Misspoke)?;
        let (fetcher, turns) = (self.call.fetcher.clone(), Arc::clone(&self.turns));
        let handle = self.fetches.spawn(async move {
            // The semaphore is never closed.
            let _turn = turns.acquire().await;
            let result = fetcher.fetch(request).await.map_err(|error| error.to_string());
            Answer { id, result }
        });
        match self.begun.insert(id, handle) {
            None => Ok(()),
            Some(_) => Err(Misspoke),
        }
    }

    /// The response to a fetch, unless the call has received too many bytes already.
    fn within_budget(&mut self, answer: Answer) -> Answer {
        let length = answer.result.as_ref().map_or(0, |response| response.body.len());
        match self.fetched_bytes_left.checked_sub(length) {
            Some(left) => {
                self.fetched_bytes_left = left;
                answer
            }
            None => {
                let why = format!("fetch failed: more than {MAX_FETCHED_BYTES} bytes in total");
                Answer { result: Err(why), ..answer }
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
    const OFTEN: usize = 64;

    #[tokio::test]
    async fn one_that_answered_and_does_not_listen_any_more_is_heard() {
        let fetcher = Fetcher::new(Hosts::Nowhere);
        for _ in 0..OFTEN {
            let (ours, mut worker) = UnixStream::pair().unwrap();
            worker.write_all(&FromWorker::Answer(b"yes".to_vec()).encode()).unwrap();
            drop(worker);
            ours.set_nonblocking(true).unwrap();
            let mut wire = tokio::net::UnixStream::from_std(ours).unwrap();
            let mut lines = |_| {};
            let mut session = Session::new(Call {
                question: b"well?".to_vec(),
                timeout: Duration::from_secs(10),
                line_bytes: 0,
                lines: &mut lines,
                fetcher: &fetcher,
            });
            assert!(session.hear(&mut wire).await.is_ok());
            assert_eq!(session.answer.as_deref(), Some(b"yes".as_slice()));
        }
    }
}
