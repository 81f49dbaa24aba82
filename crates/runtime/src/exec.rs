//! A command in a sandbox: what it is asked for with, and what is heard of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use stockade_core::ExecId;
pub use stockade_core::ending::Ending;
use stockade_core::sandbox::User;
use tokio::sync::mpsc;

use crate::error::{Error, Result};
use crate::files::SandboxPath;

/// The longest input that a command is given whole, in bytes.
pub const WHOLE_INPUT_BYTES: usize = 64 << 20;

/// A command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// The program, found as `execvp(3)` does, and its arguments.
    pub arguments: Vec<OsString>,
    /// What is added to the sandbox's environment, or replaces it, name by name.
    pub environment: BTreeMap<OsString, OsString>,
    /// Where it starts; the sandbox's own answer when absent.
    pub working_directory: Option<SandboxPath>,
    /// Whom it runs as; the sandbox's own answer when absent.
    pub user: Option<User>,
    /// A terminal of this size instead of three pipes.
    pub terminal: Option<WindowSize>,
    /// What it reads on its standard input.
    pub input: StandardInput,
    /// How long it may take until it is killed with all that it started, by a clock that nobody
    /// sets and that goes on while the sandbox is paused.
    pub timeout: Option<Duration>,
    /// How many bytes it may write to both streams together until it is killed.
    pub output_limit_bytes: Option<u64>,
}

/// What a command reads on its standard input.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum StandardInput {
    /// Nothing: it is at its end.
    #[default]
    Empty,
    /// What is written to it while the command runs, through [`Exec::input`].
    Streamed,
    /// These bytes, which are there with its start: whoever is killed meanwhile, the command reads
    /// all of them, or was never run. No more than [`WHOLE_INPUT_BYTES`], and without a terminal. It
    /// may be a file, which can be read from any place and opened again.
    Whole(Vec<u8>),
}

impl Debug for StandardInput {
    /// Only how long it is: what is read is not for a log.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Streamed => f.write_str("Streamed"),
            Self::Whole(bytes) => write!(f, "Whole({} bytes)", bytes.len()),
        }
    }
}

impl Command {
    /// Refuses an input that cannot be given, for backends.
    ///
    /// # Errors
    /// [`Error::Invalid`] for one that is given whole and too long, or with a terminal.
    pub fn check_input(&self) -> Result<()> {
        let StandardInput::Whole(bytes) = &self.input else { return Ok(()) };
        if self.terminal.is_some() {
            let text = "the input of a command with a terminal must be streamed";
            return Err(Error::Invalid(text.to_owned()));
        }
        if bytes.len() > WHOLE_INPUT_BYTES {
            let text = format!(
                "an input of {} bytes is too long to send with the start (maximum {WHOLE_INPUT_BYTES}): stream it",
                bytes.len()
            );
            return Err(Error::Invalid(text));
        }
        Ok(())
    }
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

/// One of the two streams that a command writes to; with a terminal only the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// How far each stream has been read, in bytes since the command's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offsets {
    /// Of [`Stream::Output`].
    pub output: u64,
    /// Of [`Stream::Error`].
    pub error: u64,
}

/// Something that is heard of a command, in the order in which it was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes that it wrote. `offset` is that of the first.
    Output {
        /// Where to.
        stream: Stream,
        /// How many bytes came before on this stream.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Bytes that it wrote and that are not kept any more: the reader came too late. From one who
    /// listens since the start, however slowly, a runtime keeps nothing back and loses nothing: the
    /// command waits. What is lost all the same, such as for want of room on the disk, is told here.
    Lost {
        /// Where to.
        stream: Stream,
        /// The offset of the first.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// The end. Nothing follows.
    Ended(Ending),
}

/// A command that runs or ran: what is heard of it, and the way to its standard input.
#[derive(Debug)]
pub struct Exec {
    /// What is heard of it.
    pub events: Events,
    /// The way to its standard input, where that is streamed.
    pub input: Option<Input>,
}

/// What is heard of one command. The last event is always [`Event::Ended`].
#[derive(Debug)]
pub struct Events {
    source: Box<dyn EventSource>,
    ended: bool,
}

/// Where events come from.
#[async_trait]
pub trait EventSource: std::fmt::Debug + Send + Sync {
    /// The next event; `None` when nobody is left who could tell the end. May be cancelled without
    /// losing one. Is not asked again after the end.
    async fn next(&mut self) -> Option<Event>;
}

#[async_trait]
impl EventSource for mpsc::Receiver<Event> {
    async fn next(&mut self) -> Option<Event> {
        self.recv().await
    }
}

impl Events {
    /// The events that come from a source, such as a channel. When that goes without having told
    /// the end, the end is [`Ending::Unknown`].
    pub fn new(source: impl EventSource + 'static) -> Self {
        Self { source: Box::new(source), ended: false }
    }

    /// The next event; `None` after the last. May be cancelled without losing one.
    pub async fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let event = self.source.next().await.unwrap_or(Event::Ended(Ending::Unknown));
        self.ended = matches!(event, Event::Ended(_));
        Some(event)
    }
}

/// The way to a command's standard input. Dropping it leaves the input open for others.
#[derive(Debug, Clone)]
pub struct Input {
    sender: mpsc::Sender<Option<Vec<u8>>>,
    /// Somebody who has it has ended it.
    closed: Arc<AtomicBool>,
}

impl Input {
    /// The input that is read from a channel: bytes, and `None` for its end.
    pub fn new(sender: mpsc::Sender<Option<Vec<u8>>>) -> Self {
        Self { sender, closed: Arc::default() }
    }

    /// Writes all the bytes; waits while the command does not read.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the input was closed or the command has ended.
    pub async fn write(&self, bytes: Vec<u8>) -> Result<()> {
        // Whoever carries the bytes has the end on its way, and looks at nothing after it.
        if self.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        self.sender.send(Some(bytes)).await.map_err(|_| closed())
    }

    /// Ends the input: the command sees the end of its file.
    ///
    /// # Errors
    /// As [`Input::write`].
    pub async fn close(&self) -> Result<()> {
        self.sender.send(None).await.map_err(|_| closed())?;
        self.closed.store(true, Ordering::Release);
        Ok(())
    }
}

fn closed() -> Error {
    Error::Invalid("the command's input is closed".to_owned())
}

/// What is known of one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStatus {
    /// Its id.
    pub id: ExecId,
    /// How it ended; absent while it runs.
    pub ending: Option<Ending>,
    /// How much it has written.
    pub written: Offsets,
}
