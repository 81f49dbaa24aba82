//! One call, seen from the caller: a worker is forked, asked, heard, and has what it fetches fetched
//! for it, until it answers, fails, or its time is over. Dropping the future ends the worker.

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

use super::wire::{FRAME_BYTES, FromWorker, Incoming, ToWorker, Word as _};
use super::{Error, MAX_FETCHES, Zygote};
use crate::fetch::Fetcher;
use crate::outside::{Answer, Request};

/// How much is read at once.
const PIECE_BYTES: usize = 64 << 10;
/// How many fetches of one call are under way at once; the others wait.
const MAX_FETCHES_AT_ONCE: usize = 16;
/// The bytes of responses that one call may have in all.
const MAX_FETCHED_BYTES: usize = 16 << 20;
/// How long a worker that has answered may take to end.
const GRACE: Duration = Duration::from_secs(1);

/// What is asked of a worker.
pub struct Call<'a> {
    /// The question, at most [`FRAME_BYTES`] long.
    pub question: Vec<u8>,
    /// The time after which the worker is killed.
    pub timeout: Duration,
    /// The most bytes that its lines may take, with what holds them.
    pub line_bytes: usize,
    /// Takes each line as it comes.
    pub lines: &'a mut (dyn FnMut(String) + Send),
    /// Fetches for it.
    pub fetcher: &'a Fetcher,
}

impl std::fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// What a worker left. Every byte is what the worker wanted it to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Its answer.
    pub answer: Option<Vec<u8>>,
    /// Whether it was reading files when it ended.
    pub reading: bool,
    /// How it ended.
    pub ended: Ended,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The worker ended by itself.
    Exited(u8),
    /// It was ended by this signal.
    Signaled(u8),
    /// It was killed when its time was over.
    TimedOut,
    /// It was killed because it said what is no word, or too much.
    Misspoke,
    /// It was lost, with its zygote or before it began.
    Lost,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "it exited with code {code}"),
            Self::Signaled(signal) => write!(f, "signal {signal} ended it"),
            Self::TimedOut => f.write_str("it took too long"),
            Self::Misspoke => f.write_str("it said something that is not understood"),
            Self::Lost => f.write_str("the process that it was forked from is gone"),
        }
    }
}

impl Zygote {
    /// Has a call served by a new worker.
    ///
    /// # Errors
    /// When there was no worker. What goes wrong in it is told.
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
        let wire = asynchronous(ours).map_err(Error::Wire)?;
        let mut leash = asynchronous(leash).map_err(Error::Wire)?;
        let mut session = Session::new(call, wire);
        let heard = timeout_at(end, Box::pin(session.hear())).await;
        let Session { answer, reading, .. } = session;
        let ended = match heard {
            Err(_) => Ended::TimedOut,
            Ok(Err(Misspoke)) => Ended::Misspoke,
            Ok(Ok(())) => {
                let mut told = Vec::new();
                let told = match timeout_at(end + GRACE, leash.read_to_end(&mut told)).await {
                    Ok(Ok(_)) => zygote::ended(&told),
                    _ => None,
                };
                match told {
                    Some(WorkerEnded::Exited(code)) => Ended::Exited(code),
                    Some(WorkerEnded::Signaled(signal)) => Ended::Signaled(signal),
                    None => Ended::Lost,
                }
            }
        };
        // Whatever is still alive goes with the leash.
        Ok(Told { answer, reading, ended })
    }
}

/// The worker has said what it may not say.
struct Misspoke;

/// A call that is under way.
struct Session<'a> {
    call: Call<'a>,
    wire: tokio::net::UnixStream,
    incoming: Incoming,
    fetches: JoinSet<Answer>,
    begun: BTreeMap<u32, AbortHandle>,
    turns: Arc<Semaphore>,
    fetches_left: usize,
    fetched_bytes_left: usize,
    reading: bool,
    answer: Option<Vec<u8>>,
}

impl<'a> Session<'a> {
    fn new(call: Call<'a>, wire: tokio::net::UnixStream) -> Self {
        Self {
            call,
            wire,
            incoming: Incoming::default(),
            fetches: JoinSet::new(),
            begun: BTreeMap::new(),
            turns: Arc::new(Semaphore::new(MAX_FETCHES_AT_ONCE)),
            fetches_left: MAX_FETCHES,
            fetched_bytes_left: MAX_FETCHED_BYTES,
            reading: false,
            answer: None,
        }
    }

    /// Asks, and hears the worker out.
    async fn hear(&mut self) -> Result<(), Misspoke> {
        let question = ToWorker::Ask(std::mem::take(&mut self.call.question)).encode();
        if question.len() > FRAME_BYTES || self.wire.write_all(&question).await.is_err() {
            return Ok(());
        }
        let mut piece = vec![0; PIECE_BYTES];
        while self.answer.is_none() {
            tokio::select! {
                read = self.wire.read(&mut piece) => match read {
                    // Its end says how it went.
                    Ok(0) | Err(_) => return Ok(()),
                    Ok(length) => {
                        self.incoming.push(&piece[..length]);
                        self.understand()?;
                    }
                },
                Some(done) = self.fetches.join_next() => {
                    let Ok(answer) = done else { continue };
                    self.begun.remove(&answer.id);
                    let answer = self.within_budget(answer);
                    if self.wire.write_all(&ToWorker::Fetched(answer).encode()).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Does what the words say that have come.
    fn understand(&mut self) -> Result<(), Misspoke> {
        while let Some(word) = self.incoming.take().map_err(|_| Misspoke)? {
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
        let (fetcher, turns) = (self.call.fetcher.clone(), Arc::clone(&self.turns));
        let handle = self.fetches.spawn(async move {
            // Nobody closes it.
            let _turn = turns.acquire().await;
            let result = fetcher.fetch(request).await.map_err(|error| error.to_string());
            Answer { id, result }
        });
        match self.begun.insert(id, handle) {
            None => Ok(()),
            Some(_) => Err(Misspoke),
        }
    }

    /// The answer to a fetch, unless the call has had too much already.
    fn within_budget(&mut self, answer: Answer) -> Answer {
        let length = answer.result.as_ref().map_or(0, |response| response.body.len());
        match self.fetched_bytes_left.checked_sub(length) {
            Some(left) => {
                self.fetched_bytes_left = left;
                answer
            }
            None => {
                let why = format!("fetch failed: more than {MAX_FETCHED_BYTES} bytes in all");
                Answer { result: Err(why), ..answer }
            }
        }
    }
}
