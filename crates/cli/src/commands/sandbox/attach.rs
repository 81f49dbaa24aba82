//! A command in a sandbox, attached to this program's streams and signals until it has ended.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stockade_api::{
    Ending, Execute, GetSandbox, OpenSession, OutputEnd, Session, SessionEvent, SessionInput,
    Terminal,
};
use stockade_core::ending::signal_exit_code;
use stockade_core::{Code, Problem, SandboxId};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::commands::print::{escaped, notify};
use crate::commands::refused_calls;
use crate::problem::{Failure, caused};
use crate::remote::Remote;
use crate::streams;
use crate::terminal::{self, RawMode};

/// How long a command may take to end after it was asked to, and again after it was killed.
const GRACE: Duration = Duration::from_secs(10);
const KILL: i32 = 9;
pub(super) const PIPE: i32 = 13;
/// The exit code if the command's output is incomplete, whatever its own exit code was.
pub(super) const INCOMPLETE: u8 = 125;

/// Runs a command, in a terminal if one is requested. Returns the exit code, which is [`INCOMPLETE`]
/// if some of its output was lost.
pub(super) async fn attach(
    remote: &Remote,
    mut execute: Execute,
    tty: bool,
) -> Result<u8, Failure> {
    if tty {
        set_terminal_kind(&mut execute);
    }
    let id = execute.sandbox_id.clone();
    let request = OpenSession { execute, terminal: tty.then(size), input: true, survives: false };
    let session = remote.sandboxes.open_session(&remote.idempotent(), request).await?;
    let Session { mut events, input, .. } = session;
    let raw = if tty { RawMode::enter().map_err(io_failure)? } else { None };
    let mut signals = signals().map_err(io_failure)?;
    if tty {
        follow_size(input.clone()).map_err(io_failure)?;
    }
    tokio::spawn(forward_stdin(input.clone()));
    let input_sender = input_sender(input);
    let mut streams = Streams::start();
    let mut stopping = Stopping::No;
    let mut lost_bytes: u64 = 0;
    let end = loop {
        tokio::select! {
            // Output that is being written must be finished first; signals are handled meanwhile.
            () = streams.wait_written(), if streams.is_writing => {}
            event = events.next(), if !streams.is_writing || stopping.is_over() => match event {
                Some(Ok(SessionEvent::Stdout { data })) => streams.write(Stream::Output, data.0, &input_sender),
                Some(Ok(SessionEvent::Stderr { data })) => streams.write(Stream::Error, data.0, &input_sender),
                Some(Ok(SessionEvent::Lost { bytes })) => {
                    lost_bytes += bytes;
                    notify(&format!("{bytes} bytes of the output were lost here"));
                }
                Some(Ok(SessionEvent::Ended(end))) => break end,
                Some(Err(problem)) => return Err(problem.into()),
                None => return Err(connection_lost("the session was interrupted").into()),
            },
            Some(kind) = signals.recv() => {
                stopping = stopping.request(kind.as_raw_value(), &input_sender);
            }
            () = stopping.wait_until_due() => match stopping {
                Stopping::Killed { .. } => {
                    return Err(connection_lost("the command was killed, and its end was not confirmed").into());
                }
                Stopping::Requested { signal, .. } => stopping = Stopping::kill(signal, &input_sender),
                Stopping::No => {}
            },
        }
    };
    drop(raw);
    let code = match stopping {
        Stopping::Killed { signal, .. } => {
            notify("the command did not exit after a signal, and was killed");
            signal_exit_code(signal)
        }
        Stopping::No | Stopping::Requested { .. } => {
            match end.ending {
                Ending::SandboxEnded => report_sandbox_end(remote, &end, id).await,
                _ => report_failure(&end),
            }
            let code = end.ending.process_exit_code(end.exit_code);
            report_refused_calls(&end, code);
            code
        }
    };
    match streams.write_error() {
        Some(error) => Err(Failure::from_write_error(&error)),
        // Otherwise a reader would take a part of the output for all of it.
        None if lost_bytes > 0 => Ok(INCOMPLETE),
        None => Ok(code),
    }
}

/// Gives a command with a terminal the kind of this program's, unless it has one.
pub(super) fn set_terminal_kind(execute: &mut Execute) {
    if let Ok(kind) = std::env::var("TERM") {
        execute.environment.entry("TERM".to_owned()).or_insert_with(|| kind.into());
    }
}

/// One of this program's output streams.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stream {
    Output,
    Error,
}

/// Writes a command's output to this program's streams. This happens on a separate thread, because
/// a reader of these streams may block it forever.
#[derive(Debug)]
pub(super) struct Streams {
    chunks: std::sync::mpsc::Sender<(Stream, Vec<u8>)>,
    done: mpsc::UnboundedReceiver<(Stream, io::Result<()>)>,
    pub(super) is_writing: bool,
    /// Why a stream is no longer written: output, then error.
    failures: [Option<io::Error>; 2],
}

impl Streams {
    pub(super) fn start() -> Self {
        let (pieces, taken) = std::sync::mpsc::channel::<(Stream, Vec<u8>)>();
        let (result_sender, done) = mpsc::unbounded_channel();
        // The thread ends with this value, or with the process.
        std::thread::spawn(move || {
            for (way, bytes) in taken {
                let written = match way {
                    Stream::Output => write(rustix::stdio::stdout(), &bytes),
                    Stream::Error => write(rustix::stdio::stderr(), &bytes),
                };
                if result_sender.send((way, written)).is_err() {
                    return;
                }
            }
        });
        Self { chunks: pieces, done, is_writing: false, failures: [None, None] }
    }

    /// Starts to write output of the command. If a stream cannot be written any more, a command that
    /// continues to write receives the signal that a pipe would have sent.
    pub(super) fn write(&mut self, stream: Stream, bytes: Vec<u8>, input: &InputSender) {
        if self.is_writing {
            // The command is being killed, and no reader takes its output.
        } else if self.failures[stream as usize].is_some() {
            let _ = input.send(SessionInput::Signal { signal: PIPE });
        } else {
            self.is_writing = self.chunks.send((stream, bytes)).is_ok();
        }
    }

    /// Waits until the current write has completed or failed.
    pub(super) async fn wait_written(&mut self) {
        if let Some((way, written)) = self.done.recv().await {
            self.failures[way as usize] = written.err();
        }
        self.is_writing = false;
    }

    /// Whether a stream has no reader any more.
    pub(super) fn is_broken(&self) -> bool {
        self.failures.iter().any(Option::is_some)
    }

    /// Why output could not be written. A reader that closed the pipe is no such reason: the command
    /// is notified as a pipe would do.
    pub(super) fn write_error(self) -> Option<io::Error> {
        self.failures.into_iter().flatten().find(|error| error.kind() != io::ErrorKind::BrokenPipe)
    }
}

/// Writes all bytes, bypassing the library's own locks, for which the end of this process would
/// wait.
fn write(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// How far ending the command has progressed.
#[derive(Debug, Clone, Copy)]
enum Stopping {
    No,
    Requested { signal: i32, until: Instant },
    Killed { signal: i32, until: Instant },
}

impl Stopping {
    /// The next step after a signal: the first signal is passed to the command, the second kills
    /// it.
    fn request(self, signal: i32, input: &InputSender) -> Self {
        match self {
            Self::No => {
                let _ = input.send(SessionInput::Signal { signal });
                Self::Requested { signal, until: Instant::now() + GRACE }
            }
            Self::Requested { .. } => Self::kill(signal, input),
            killed @ Self::Killed { .. } => killed,
        }
    }

    /// Whether only the command's end is awaited.
    const fn is_over(self) -> bool {
        matches!(self, Self::Killed { .. })
    }

    fn kill(signal: i32, input: &InputSender) -> Self {
        let _ = input.send(SessionInput::Signal { signal: KILL });
        Self::Killed { signal, until: Instant::now() + GRACE }
    }

    /// Returns when the command has taken too long to end; never if it was not asked to end.
    async fn wait_until_due(self) {
        match self {
            Self::No => std::future::pending().await,
            Self::Requested { until, .. } | Self::Killed { until, .. } => {
                tokio::time::sleep_until(until).await;
            }
        }
    }
}

/// The sender for signals to the command.
pub(super) type InputSender = mpsc::UnboundedSender<SessionInput>;

/// Forwards messages in order, so that no sender blocks on a command that accepts nothing.
pub(super) fn input_sender(to: mpsc::Sender<SessionInput>) -> InputSender {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(next) = receiver.recv().await {
            if to.send(next).await.is_err() {
                return;
            }
        }
    });
    sender
}

/// Forwards standard input to the command.
async fn forward_stdin(to: mpsc::Sender<SessionInput>) {
    let mut pieces = streams::stdin_chunks();
    while let Some(piece) = pieces.recv().await {
        if to.send(SessionInput::Stdin { data: piece.into() }).await.is_err() {
            return;
        }
    }
    // The command may have ended meanwhile.
    let _ = to.send(SessionInput::End).await;
}

/// The signals that request the end of this program.
fn signals() -> io::Result<mpsc::Receiver<SignalKind>> {
    let (to, receiver) = mpsc::channel(1);
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let (mut signals, to) = (signal(kind)?, to.clone());
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if to.send(kind).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}

/// Resizes the command's terminal whenever the size of this program's changes, before later input
/// is sent.
pub(super) fn follow_size(to: mpsc::Sender<SessionInput>) -> io::Result<()> {
    let mut changes = signal(SignalKind::window_change())?;
    tokio::spawn(async move {
        while changes.recv().await.is_some() {
            if to.send(SessionInput::Resize(size())).await.is_err() {
                return;
            }
        }
    });
    Ok(())
}

pub(super) fn size() -> Terminal {
    let size = terminal::window_size();
    Terminal { rows: size.rows, columns: size.columns }
}

pub(super) fn io_failure(error: io::Error) -> Failure {
    caused(Code::Io, &error).into()
}

pub(super) fn connection_lost(message: &str) -> Problem {
    Problem::new(Code::Unreachable, message).remedied_by("stockade ls")
}

/// Reports that a command ended with its sandbox, and whether that was the end of its time to live.
async fn report_sandbox_end(remote: &Remote, end: &OutputEnd, id: SandboxId) {
    let request = GetSandbox { id, metrics: false };
    let sandbox = remote.sandboxes.get_status(remote.caller(), request).await.ok();
    let expired =
        sandbox.and_then(|sandbox| Some((sandbox.id, sandbox.created_at, sandbox.expires_at?)));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    match expired {
        Some((id, created, expires))
            if u128::try_from(expires.as_ms()).is_ok_and(|at| at <= now) =>
        {
            let length = (expires.as_ms() - created.as_ms()) / 1000;
            notify(&format!(
                "the command was ended: the time to live of the sandbox ({length} s) has expired; `stockade start {id}` makes it run again, and `stockade renew {id} 1h` before its end extends it"
            ));
        }
        _ => report_failure(end),
    }
}

/// Reports the system calls that were refused while a command ran, which ended with this exit code.
pub(super) fn report_refused_calls(end: &OutputEnd, code: u8) {
    if let Some(note) = refused_calls::note(&end.refused_calls, code == 0) {
        notify(&note);
    }
}

/// Reports how a command ended, unless it ended by itself.
pub(super) fn report_failure(end: &OutputEnd) {
    let how = match end.ending {
        Ending::Exited | Ending::Signaled | Ending::Stopped => return,
        Ending::NotRun => {
            let reason = end.reason.as_deref().unwrap_or("run the program");
            return notify(&format!("cannot {}", escaped(reason)));
        }
        Ending::TimedOut => "it timed out",
        Ending::OutOfMemory => "it ran out of memory",
        Ending::OutputExceeded => "it exceeded its output limit",
        Ending::LimitExceeded => "the sandbox exceeded one of its limits",
        Ending::Killed => "it was killed",
        Ending::SandboxEnded => "the sandbox ended",
        Ending::Unknown => "the result is unknown",
    };
    let reason = end.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let code = end.ending.code(end.reason.as_deref());
    let code = code.map(|code| format!(" [{code}]")).unwrap_or_default();
    notify(&format!("the command was ended: {how}{reason}{code}"));
}
