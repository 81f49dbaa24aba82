//! A command in a sandbox: its request and its events.

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

/// The longest input of a command that can be given as a whole, in bytes.
pub const WHOLE_INPUT_BYTES: usize = 64 << 20;

/// A command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// The program, found as `execvp(3)` does, and its arguments.
    pub arguments: Vec<OsString>,
    /// Additions to the sandbox's environment; a variable of the same name is replaced.
    pub environment: BTreeMap<OsString, OsString>,
    /// The working directory; the sandbox's default when absent.
    pub working_directory: Option<SandboxPath>,
    /// Its user; the sandbox's default when absent.
    pub user: Option<User>,
    /// A terminal of this size instead of three pipes.
    pub terminal: Option<WindowSize>,
    /// Its standard input.
    pub input: StandardInput,
    /// The time limit after which it is killed with all that it started. It is measured by a
    /// monotonic clock, which continues while the sandbox is paused.
    pub timeout: Option<Duration>,
    /// The limit on the bytes that it may write to both streams together; it is killed when it
    /// exceeds this.
    pub output_limit_bytes: Option<u64>,
}

/// The standard input of a command.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum StandardInput {
    /// Empty.
    #[default]
    Empty,
    /// Bytes that are written while the command runs, through [`Exec::input`].
    Streamed,
    /// These bytes, which are available from its start: whichever process is killed meanwhile, the
    /// command reads all of them, or was never run. No more than [`WHOLE_INPUT_BYTES`], and without
    /// a terminal. The input may be a file, which the command can seek in and open again.
    Whole(Vec<u8>),
}

impl Debug for StandardInput {
    /// Only the length: the input must not be logged.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Streamed => f.write_str("Streamed"),
            Self::Whole(bytes) => write!(f, "Whole({} bytes)", bytes.len()),
        }
    }
}

impl Command {
    /// Refuses an input that is not possible; for backends.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a whole input that is too long, or with a terminal.
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

/// An event of a command, in the order of arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes that it wrote. `offset` is that of the first.
    Output {
        /// The stream.
        stream: Stream,
        /// How many bytes came before on this stream.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Bytes that it wrote and that are no longer stored: the reader came too late. For a reader
    /// that is connected since the start, however slow, a runtime loses nothing: the command waits.
    /// Bytes that are lost nevertheless, such as because the disk is full, are reported here.
    Lost {
        /// The stream.
        stream: Stream,
        /// The offset of the first.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// The names of the system calls that were refused while it ran, from a runtime that hears of
    /// them; at most once, immediately before the end. Other commands of the same sandbox may have
    /// made them.
    RefusedCalls(Vec<String>),
    /// The end. Nothing follows.
    Ended(Ending),
}

/// A command that runs or ran: its events, and the handle of its standard input.
#[derive(Debug)]
pub struct Exec {
    /// Its events.
    pub events: Events,
    /// The handle of its standard input, if that is streamed.
    pub input: Option<Input>,
}

/// The events of one command. The last one is always [`Event::Ended`].
#[derive(Debug)]
pub struct Events {
    source: Box<dyn EventSource>,
    ended: bool,
}

/// A source of events.
#[async_trait]
pub trait EventSource: std::fmt::Debug + Send + Sync {
    /// The next event; `None` when the end can no longer be determined. Cancel-safe: no event is
    /// lost. Not called again after the end.
    async fn next(&mut self) -> Option<Event>;
}

#[async_trait]
impl EventSource for mpsc::Receiver<Event> {
    async fn next(&mut self) -> Option<Event> {
        self.recv().await
    }
}

impl Events {
    /// The events from a source, such as a channel. If the source ends without an ending, the
    /// ending is [`Ending::Unknown`].
    pub fn new(source: impl EventSource + 'static) -> Self {
        Self { source: Box::new(source), ended: false }
    }

    /// The next event; `None` after the last. Cancel-safe: no event is lost.
    pub async fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let event = self.source.next().await.unwrap_or(Event::Ended(Ending::Unknown));
        self.ended = matches!(event, Event::Ended(_));
        Some(event)
    }
}

/// The handle of a command's standard input. Dropping it leaves the input open for others.
#[derive(Debug, Clone)]
pub struct Input {
    sender: mpsc::Sender<Option<Vec<u8>>>,
    /// One of the handles has ended the input.
    closed: Arc<AtomicBool>,
}

impl Input {
    /// The input whose bytes are read from a channel, with `None` for its end.
    pub fn new(sender: mpsc::Sender<Option<Vec<u8>>>) -> Self {
        Self { sender, closed: Arc::default() }
    }

    /// Writes all the bytes; waits while the command does not read.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the input was closed or the command has ended.
    pub async fn write(&self, bytes: Vec<u8>) -> Result<()> {
        // The receiver has the end in its queue, and ignores everything after it.
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

/// The state of one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStatus {
    /// Its id.
    pub id: ExecId,
    /// How it ended; absent while it runs.
    pub ending: Option<Ending>,
    /// How much it has written.
    pub written: Offsets,
}
