//! `stockade exec` and `stockade shell`: a command in a sandbox, with this program's streams.

use std::io::Write as _;

use stockade_api::{
    CommandLine, Ending, Execute, OpenSession, OutputEnd, Session, SessionEvent, SessionInput,
    Terminal,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::{find, print, print_text, say};
use crate::args::held::{Exec, Pair, Shell};
use crate::problem::{Failure, caused};
use crate::remote::{self, Remote};
use crate::streams;
use crate::terminal::{self, Raw};

/// Runs a command; the exit code is the command's.
pub(crate) fn run(arguments: Exec) -> Result<u8, Failure> {
    remote::with(arguments.way, async |remote| {
        let mut execute = Execute::new(
            find(&remote, &arguments.id).await?,
            CommandLine::Program(arguments.command),
        );
        execute.environment =
            arguments.env.into_iter().map(|Pair(name, value)| (name, value)).collect();
        execute.working_directory = arguments.cwd;
        execute.uid = arguments.user;
        execute.timeout_seconds = arguments.timeout.map(|length| length.as_secs_f64());
        execute.output_limit_bytes = arguments.max_output;
        if arguments.detach {
            let started = remote.sandboxes.execute_stream(&remote.once(), execute).await?;
            if arguments.json {
                print(&started)?;
            } else {
                print_text(&format!("{}\n", started.workflow_id))?;
                say(&format!("it runs; see its output: stockade logs {} -f", started.workflow_id));
            }
            return Ok(0);
        }
        if arguments.json {
            let executed = remote.sandboxes.execute(&remote.once(), execute).await?;
            print(&executed)?;
            return Ok(exit_code(&executed.end));
        }
        attach(&remote, execute, arguments.tty).await
    })
}

/// Opens a shell: bash where there is one.
pub(crate) fn shell(arguments: Shell) -> Result<u8, Failure> {
    remote::with(arguments.way, async |remote| {
        let line = "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi";
        let id = find(&remote, &arguments.id).await?;
        let mut execute = Execute::new(id, CommandLine::Shell(line.to_owned()));
        execute.uid = arguments.user;
        attach(&remote, execute, true).await
    })
}

/// Runs a command with this program's streams, in a terminal where one is asked for.
async fn attach(remote: &Remote, execute: Execute, tty: bool) -> Result<u8, Failure> {
    let mut execute = execute;
    if tty && let Ok(kind) = std::env::var("TERM") {
        execute.environment.entry("TERM".to_owned()).or_insert(kind);
    }
    let request = OpenSession { execute, terminal: tty.then(size), input: true };
    let session = remote.sandboxes.open_session(&remote.once(), request).await?;
    let Session { mut events, input, .. } = session;
    let raw = if tty { Raw::enter().map_err(io)? } else { None };
    tokio::spawn(feed(input.clone()));
    let signals = pass_on_signals(&input, tty).map_err(io)?;
    drop(input);
    let end = loop {
        match events.next().await {
            Some(Ok(SessionEvent::Stdout { data })) => {
                let mut to = std::io::stdout();
                // When nobody listens, the command goes on all the same.
                let _ = to.write_all(&data.0).and_then(|()| to.flush());
            }
            Some(Ok(SessionEvent::Stderr { data })) => {
                let _ = std::io::stderr().write_all(&data.0);
            }
            Some(Ok(SessionEvent::Lost { bytes })) => {
                say(&format!("{bytes} bytes of the output were not kept"));
            }
            Some(Ok(SessionEvent::Ended(end))) => break end,
            Some(Err(problem)) => return Err(problem.into()),
            None => return Err(lost().into()),
        }
    };
    drop(raw);
    for task in signals {
        task.abort();
    }
    complain(&end);
    Ok(exit_code(&end))
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

/// Passes on what this process is told: signals, and with a terminal its size.
fn pass_on_signals(
    to: &mpsc::Sender<SessionInput>,
    tty: bool,
) -> std::io::Result<Vec<tokio::task::JoinHandle<()>>> {
    let mut tasks = Vec::new();
    let mut pass = |kind: SignalKind| -> std::io::Result<()> {
        let (mut signals, to) = (signal(kind)?, to.clone());
        tasks.push(tokio::spawn(async move {
            while signals.recv().await.is_some() {
                let said = if kind == SignalKind::window_change() {
                    SessionInput::Resize(size())
                } else {
                    SessionInput::Signal { signal: kind.as_raw_value() }
                };
                if to.send(said).await.is_err() {
                    return;
                }
            }
        }));
        Ok(())
    };
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        pass(kind)?;
    }
    if tty {
        pass(SignalKind::window_change())?;
    }
    Ok(tasks)
}

fn size() -> Terminal {
    let size = terminal::window_size();
    Terminal { rows: size.rows, columns: size.columns }
}

fn io(error: std::io::Error) -> Failure {
    caused(stockade_core::Code::Io, &error).into()
}

fn lost() -> stockade_core::Problem {
    stockade_core::Problem::new(stockade_core::Code::Unreachable, "the session broke off")
        .remedied_by("stockade ls")
}

/// The exit code of a command, as a shell would give it; 125 where nobody knows it.
pub(super) fn exit_code(end: &OutputEnd) -> u8 {
    match (end.ending, end.exit_code) {
        (Ending::SandboxEnded, _) => 137,
        (_, Some(code)) => u8::try_from(code).unwrap_or(125),
        (_, None) => 125,
    }
}

/// Says how a command ended, unless it ended by itself.
pub(super) fn complain(end: &OutputEnd) {
    let how = match end.ending {
        Ending::Exited | Ending::Signaled => return,
        Ending::TimedOut => "its time was up",
        Ending::OutOfMemory => "it ran out of memory",
        Ending::OutputExceeded => "it wrote more than it may",
        Ending::LimitExceeded => "the sandbox used more than one of its limits",
        Ending::Killed => "it was killed",
        Ending::NotRun => "the program could not be run",
        Ending::SandboxEnded => "the sandbox ended",
        Ending::Unknown => "nobody knows how it ended",
    };
    let reason = end.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    say(&format!("the command ended: {how}{reason}"));
}
