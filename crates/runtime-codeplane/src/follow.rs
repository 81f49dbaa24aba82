//! Following a command: its output is read from files inside, from where the reader is.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use stockade_core::ending::Ending;
use stockade_core::{ExecId, SandboxId};
use stockade_runtime::{Error, Event, EventSource, Offsets, Result, Stream};

use crate::client::Codeplane;

/// The pauses between two looks at a command that writes nothing.
const SHORTEST: Duration = Duration::from_millis(15);
const LONGEST: Duration = Duration::from_millis(400);
/// For how long a workspace may be away before the end of a command is unknown.
const OUTAGE: Duration = Duration::from_secs(120);

/// A reader of the events of a command.
#[derive(Debug)]
pub(crate) struct Follower {
    runtime: Codeplane,
    id: SandboxId,
    exec: ExecId,
    at: Offsets,
    waiting: VecDeque<Event>,
    pause: Duration,
    last_answer: tokio::time::Instant,
}

impl Follower {
    pub(crate) fn new(runtime: Codeplane, id: SandboxId, exec: ExecId, at: Offsets) -> Self {
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

    /// Reads what is new. The end is told when everything before it was read.
    async fn look(&mut self) -> Result<()> {
        let look = self.runtime.look(&self.id, &self.exec, self.at).await?;
        for (stream, bytes) in [(Stream::Output, look.output), (Stream::Error, look.errors)] {
            let at = match stream {
                Stream::Output => &mut self.at.output,
                Stream::Error => &mut self.at.error,
            };
            if !bytes.is_empty() {
                let offset = *at;
                *at += bytes.len() as u64;
                self.waiting.push_back(Event::Output { stream, offset, bytes });
            }
        }
        let record = self.runtime.current(&self.id)?;
        let limit = record.exec(&self.exec)?.output_limit;
        let is_over = limit.is_some_and(|limit| self.at.output + self.at.error > limit);
        if is_over && look.ending.is_none() {
            self.runtime.end_command(&self.id, &self.exec, Ending::OutputExceeded).await?;
        }
        let is_read = self.at.output >= look.written.output && self.at.error >= look.written.error;
        if let Some(ending) = look.ending
            && (is_read || record.ended.is_some())
        {
            self.waiting.push_back(Event::Ended(ending));
        }
        Ok(())
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
                Err(Error::NoSandbox(_) | Error::NoExec { .. }) => {
                    return Some(Event::Ended(Ending::SandboxEnded));
                }
                Err(error) if self.last_answer.elapsed() < OUTAGE => {
                    tracing::debug!(%error, "a command cannot be followed");
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
