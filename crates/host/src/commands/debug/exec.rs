//! `stockade debug runtime exec`: runs a command with this program's streams.

use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use stockade_core::{Code, ExecId};
use stockade_runtime::{
    Command, Ending, Event, Input, Runtime, SandboxPath, StandardInput, Stream, WindowSize,
};
use stockade_runtime_native::Native;

use super::{print_answer, problem};
use stockade_cli::args::debug::{Exec, Id};
use stockade_cli::problem::{Failure, caused};
use stockade_cli::terminal::{self, RawMode};
use stockade_cli::{eprint_line, streams};

/// Runs a command and returns its exit code.
pub(super) async fn run(native: &Native, arguments: Exec, json: bool) -> Result<u8, Failure> {
    let Exec { id: Id(id), exec, tty, input, user, cwd, env, timeout, max_output, command } =
        arguments;
    let exec = match exec {
        Some(Id(exec)) => exec,
        None => fresh_id()?,
    };
    let size = terminal::window_size();
    let command = Command {
        arguments: command,
        environment: env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        working_directory: cwd
            .map(SandboxPath::new)
            .transpose()
            .map_err(|error| problem(&error))?,
        user,
        terminal: tty.then_some(WindowSize { rows: size.rows, columns: size.columns }),
        input: if input || tty { StandardInput::Streamed } else { StandardInput::Empty },
        timeout,
        output_limit_bytes: max_output,
    };
    let mut running =
        native.execute(&id, &exec, &command).await.map_err(|error| problem(&error))?;
    let raw = if tty { RawMode::enter().map_err(|e| caused(Code::Io, &e))? } else { None };
    if let Some(input) = running.input.take() {
        tokio::spawn(feed(input));
    }
    let mut captured = [Vec::new(), Vec::new()];
    let mut lost_bytes = 0;
    let ending = loop {
        match running.events.next().await {
            Some(Event::Output { stream, bytes, .. }) if json => {
                captured[usize::from(stream == Stream::Error)].extend(bytes);
            }
            Some(Event::Output { stream, bytes, .. }) => {
                write(stream, &bytes).map_err(|error| Failure::from_write_error(&error))?;
            }
            Some(Event::Lost { length, .. }) => lost_bytes += length,
            Some(Event::RefusedCalls(_)) => {}
            Some(Event::Ended(ending)) => break ending,
            None => break Ending::Unknown,
        }
    };
    drop(raw);
    // No client requests it again, so the keeper can delete it.
    let _ = native.acknowledge(&id, &exec).await;
    let code = ending.process_exit_code();
    if json {
        let [output, error] = captured.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        print_answer(&json!({
            "exec": exec, "ending": ending, "exitCode": code,
            "stdout": output, "stderr": error, "lostBytes": lost_bytes,
        }))?;
    } else if !matches!(ending, Ending::Exited(_)) || lost_bytes > 0 {
        report_failure(&ending, lost_bytes);
    }
    // A reader would take partial output for complete output.
    Ok(if lost_bytes > 0 && !json { 125 } else { code })
}

/// Forwards standard input to a command.
async fn feed(input: Input) {
    let mut chunks = streams::stdin_chunks();
    while let Some(chunk) = chunks.recv().await {
        if input.write(chunk).await.is_err() {
            return;
        }
    }
    // It may have ended already.
    let _ = input.close().await;
}

fn write(stream: Stream, bytes: &[u8]) -> std::io::Result<()> {
    match stream {
        Stream::Output => {
            let mut output = std::io::stdout();
            output.write_all(bytes).and_then(|()| output.flush())
        }
        Stream::Error => std::io::stderr().write_all(bytes),
    }
}

fn report_failure(ending: &Ending, lost_bytes: u64) {
    eprint_line!("stockade: the command ended: {ending:?}");
    if lost_bytes > 0 {
        eprint_line!("stockade: {lost_bytes} bytes of its output were not stored");
    }
}

/// A unique command id.
fn fresh_id() -> Result<ExecId, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let id = format!("exec-{:x}-{now:x}", std::process::id());
    ExecId::new(id).map_err(|error| Failure::from(caused(Code::InvalidInput, &error)))
}
