//! Following a command: its output is read from files inside, from where the reader is.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use stockade_core::ending::Ending;
use stockade_core::{ExecId, SandboxId};
use stockade_runtime::{Event, EventSource, Offsets, Result, Stream};
use tokio::io::AsyncReadExt as _;

use crate::SERVICE;
use crate::client::OpenSandbox;
use crate::script::{self, ERRORS, OUTPUT};

/// The pauses between two looks at a command that writes nothing.
const SHORTEST: Duration = Duration::from_millis(15);
const LONGEST: Duration = Duration::from_millis(400);
/// How much is read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// For how long a server may be away before the end of a command is unknown.
const OUTAGE: Duration = Duration::from_secs(120);

/// A reader of the events of a command.
#[derive(Debug)]
pub(crate) struct Follower {
    runtime: OpenSandbox,
    id: SandboxId,
    exec: ExecId,
    at: Offsets,
    waiting: VecDeque<Event>,
    pause: Duration,
    last_answer: tokio::time::Instant,
}

impl Follower {
    pub(crate) fn new(runtime: OpenSandbox, id: SandboxId, exec: ExecId, at: Offsets) -> Self {
        Self {
            runtime,
            id,
            exec,
            at,
            waiting: VecDeque::new(),
            pause: SHORTEST,
            last_answer: tokio::time::Instant::now(),
        }
    }

    /// Reads what is new. The end is asked for first: what was written before it is in the files.
    async fn look(&mut self) -> Result<()> {
        let is_unstarted = self.runtime.current(&self.id).await?.exec(&self.exec)?.is_unstarted();
        if is_unstarted {
            self.runtime.finish_start(&self.id, &self.exec).await?;
        }
        let ending = self.runtime.ending(&self.id, &self.exec).await?;
        let mut pieces = Vec::new();
        loop {
            let mut found = false;
            for stream in [Stream::Output, Stream::Error] {
                if let Some(bytes) = self.read(stream, &pieces).await? {
                    found = true;
                    pieces.push((stream, bytes));
                }
            }
            // Before the end, the reader gets what is there; after it, everything.
            if !found || ending.is_none() {
                break;
            }
        }
        let is_over = self.is_over(&pieces).await?;
        for (stream, bytes) in pieces {
            let at = self.offset(stream);
            let offset = *at;
            *at += bytes.len() as u64;
            self.waiting.push_back(Event::Output { stream, offset, bytes });
        }
        if is_over && ending.is_none() {
            self.runtime.end_command(&self.id, &self.exec, Ending::OutputExceeded).await?;
        }
        if let Some(ending) = ending {
            self.waiting.push_back(Event::Ended(ending));
        }
        Ok(())
    }

    /// The next bytes of a stream behind those that were read.
    async fn read(&self, stream: Stream, pieces: &[(Stream, Vec<u8>)]) -> Result<Option<Vec<u8>>> {
        let record = self.runtime.current(&self.id).await?;
        if record.ended.is_some() {
            return Ok(None);
        }
        let (name, at) = match stream {
            Stream::Output => (OUTPUT, self.at.output),
            Stream::Error => (ERRORS, self.at.error),
        };
        let of_stream = pieces.iter().filter(|(piece, _)| *piece == stream);
        let at = at + of_stream.map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        let execd = self.runtime.execd(&record).await?;
        let path = format!("{}/{name}", script::directory(&self.exec));
        let content = match execd.download(&path, at, Some(PIECE_BYTES)).await {
            Ok(Some(content)) => content,
            Ok(None) => return Ok(None),
            // It has not been created yet.
            Err(failure) if matches!(failure.status(), Some(400 | 404)) => return Ok(None),
            Err(failure) => return Err(failure.of_reading(SERVICE, &self.id)),
        };
        let mut bytes = Vec::new();
        // What was read before the connection ended is read again.
        let read = content.take(PIECE_BYTES).read_to_end(&mut bytes).await;
        read.map_err(|error| stockade_runtime::Error::Unreachable {
            what: "the sandbox".to_owned(),
            source: error,
        })?;
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    /// Whether a command has written more than it may.
    async fn is_over(&self, pieces: &[(Stream, Vec<u8>)]) -> Result<bool> {
        let record = self.runtime.current(&self.id).await?;
        let limit = record.execs.get(&self.exec).and_then(|exec| exec.output_limit);
        let new: u64 = pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        Ok(limit.is_some_and(|limit| self.at.output + self.at.error + new > limit))
    }

    fn offset(&mut self, stream: Stream) -> &mut u64 {
        match stream {
            Stream::Output => &mut self.at.output,
            Stream::Error => &mut self.at.error,
        }
    }
}

#[async_trait]
impl EventSource for Follower {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                self.pause = SHORTEST;
                return Some(event);
            }
            match self.look().await {
                Ok(()) => self.last_answer = tokio::time::Instant::now(),
                // Nothing was asked: the command goes on until the key is given again.
                Err(_) if self.runtime.lacks_key(&self.id).await => {
                    self.last_answer = tokio::time::Instant::now();
                }
                Err(error) if self.last_answer.elapsed() < OUTAGE => {
                    tracing::debug!(%error, "a command cannot be followed");
                    if matches!(
                        error,
                        stockade_runtime::Error::NoSandbox(_)
                            | stockade_runtime::Error::NoExec { .. }
                    ) {
                        return Some(Event::Ended(Ending::SandboxEnded));
                    }
                }
                Err(_) => return None,
            }
            if self.waiting.is_empty() {
                tokio::time::sleep(self.pause).await;
                self.pause = (self.pause * 2).min(LONGEST);
            }
        }
    }
}
