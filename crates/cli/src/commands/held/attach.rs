//! A command in a sandbox with this program's streams and signals, until it has ended.

use std::io::{self, Write};

use stockade_api::{Execute, OpenSession, Session, SessionEvent, SessionInput, Terminal};
use stockade_core::{Code, Problem};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::{exec, say};
use crate::problem::{Failure, caused};
use crate::remote::Remote;
use crate::streams;
use crate::terminal::{self, Raw};

const PIPE: i32 = 13;

/// Runs a command, in a terminal where one is asked for; the exit code.
pub(super) async fn attach(
    remote: &Remote,
    mut execute: Execute,
    tty: bool,
) -> Result<u8, Failure> {
    if tty && let Ok(kind) = std::env::var("TERM") {
        execute.environment.entry("TERM".to_owned()).or_insert(kind);
    }
    let request = OpenSession { execute, terminal: tty.then(size), input: true };
    let session = remote.sandboxes.open_session(&remote.once(), request).await?;
    let Session { mut events, input, .. } = session;
    let raw = if tty { Raw::enter().map_err(failed)? } else { None };
    let mut signals = signals(tty).map_err(failed)?;
    tokio::spawn(feed(input.clone()));
    let said = said(input);
    let mut streams = Streams::default();
    let end = loop {
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(SessionEvent::Stdout { data })) => {
                    streams.output.write(io::stdout(), &data.0, &said);
                }
                Some(Ok(SessionEvent::Stderr { data })) => {
                    streams.error.write(io::stderr(), &data.0, &said);
                }
                Some(Ok(SessionEvent::Lost { bytes })) => {
                    say(&format!("{bytes} bytes of the output were not kept"));
                }
                Some(Ok(SessionEvent::Ended(end))) => break end,
                Some(Err(problem)) => return Err(problem.into()),
                None => return Err(lost().into()),
            },
            Some(kind) = signals.recv() => {
                if kind == SignalKind::window_change() {
                    let _ = said.send(SessionInput::Resize(size()));
                } else {
                    let _ = said.send(SessionInput::Signal { signal: kind.as_raw_value() });
                }
            }
        }
    };
    drop(raw);
    exec::complain(&end);
    match streams.unwritten() {
        Some(error) => Err(Failure::unwritten(&error)),
        None => Ok(exec::exit_code(&end)),
    }
}

/// The ways of a command's output to this program's.
#[derive(Debug, Default)]
struct Streams {
    output: Outlet,
    error: Outlet,
}

impl Streams {
    /// Why something could not be written. A reader that has gone is no reason: the command learns of
    /// it as it would from a pipe.
    fn unwritten(self) -> Option<io::Error> {
        let failures = [self.output.failure, self.error.failure];
        failures.into_iter().flatten().find(|error| error.kind() != io::ErrorKind::BrokenPipe)
    }
}

/// The way of one stream.
#[derive(Debug, Default)]
struct Outlet {
    failure: Option<io::Error>,
}

impl Outlet {
    /// Writes what the command wrote. Who goes on writing where nothing can be written is told so by
    /// the signal that a pipe would have sent.
    fn write(&mut self, mut to: impl Write, bytes: &[u8], said: &Said) {
        if self.failure.is_some() {
            let _ = said.send(SessionInput::Signal { signal: PIPE });
            return;
        }
        self.failure = to.write_all(bytes).and_then(|()| to.flush()).err();
    }
}

/// What is said to the command, beside its input.
type Said = mpsc::UnboundedSender<SessionInput>;

/// Passes on what is said, in its order. Nobody waits for a command that takes nothing.
fn said(to: mpsc::Sender<SessionInput>) -> Said {
    let (said, mut hears) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(next) = hears.recv().await {
            if to.send(next).await.is_err() {
                return;
            }
        }
    });
    said
}

/// Gives what comes from standard input to the command.
async fn feed(to: mpsc::Sender<SessionInput>) {
    let mut pieces = streams::pieces();
    while let Some(piece) = pieces.recv().await {
        if to.send(SessionInput::Stdin { data: piece.into() }).await.is_err() {
            return;
        }
    }
    // It may have ended meanwhile.
    let _ = to.send(SessionInput::End).await;
}

/// The signals that the command is told of, and with a terminal the changes of its size.
fn signals(tty: bool) -> io::Result<mpsc::Receiver<SignalKind>> {
    let (to, heard) = mpsc::channel(1);
    let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    if tty {
        kinds.push(SignalKind::window_change());
    }
    for kind in kinds {
        let (mut signals, to) = (signal(kind)?, to.clone());
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if to.send(kind).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(heard)
}

fn size() -> Terminal {
    let size = terminal::window_size();
    Terminal { rows: size.rows, columns: size.columns }
}

fn failed(error: io::Error) -> Failure {
    caused(Code::Io, &error).into()
}

fn lost() -> Problem {
    Problem::new(Code::Unreachable, "the session broke off").remedied_by("stockade ls")
}
