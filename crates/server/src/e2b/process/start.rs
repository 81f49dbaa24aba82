//! `Start`: runs a command.

use std::time::Instant;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use stockade_api::{Bytes, CommandLine, Execute, FileKind, OpenSession};
use stockade_core::Code;
use tokio::sync::mpsc;

use super::message::{Start, keepalive, started};
use super::table::{CLIENT_CAPACITY, Description, pid};
use crate::e2b::App;
use crate::e2b::connect::{StreamBody, StreamError, Terms, respond};
use crate::e2b::failure::{RpcCode, RpcError};
use crate::e2b::user::User;
use crate::failure::Failure;
use crate::inside::{Target, stat};

/// The longest argument that a program receives (`MAX_ARG_STRLEN`).
const ARGUMENT_BYTES: usize = 128 << 10;

/// `Start`. The process continues when its client disconnects; it ends when its time is over.
pub(super) async fn start(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
    StreamBody(request): StreamBody<Start>,
) -> Result<Response, StreamError> {
    let terms = Terms::of(&headers)?;
    let deadline = terms.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let Start { process: config, pty, tag, stdin } = request;
    if config.cmd.is_empty() {
        return Err(RpcError::new(RpcCode::InvalidArgument, "`cmd` is empty").into());
    }
    let is_terminal = pty.is_some();
    let terminal = match pty.and_then(|pty| pty.size) {
        Some(size) => Some(size.terminal()?),
        None if is_terminal => Some(stockade_api::Terminal { rows: 24, columns: 80 }),
        None => None,
    };
    let words = std::iter::once(config.cmd.clone()).chain(config.args.iter().cloned()).collect();
    let mut execute = Execute::new(target.sandbox.id.clone(), command(words)?);
    if !user.is_default {
        (execute.uid, execute.gid) = (Some(user.uid), Some(user.gid));
    }
    if let Some(cwd) = config.cwd.as_deref().filter(|cwd| !cwd.is_empty()) {
        let path = user.path(cwd);
        check_directory(&app, &target, &path).await?;
        execute.working_directory = Some(path.as_str().into());
    }
    let variables = config.envs.iter();
    execute.environment =
        variables.map(|(name, value)| (name.clone(), Bytes::from(value.as_str()))).collect();
    if let Some(name) = &user.added {
        // The runtime knows only the users that a sandbox was created with.
        for (variable, value) in [("HOME", &user.home), ("USER", name), ("LOGNAME", name)] {
            let value = Bytes::from(value.as_str());
            execute.environment.entry(variable.to_owned()).or_insert(value);
        }
        let has_home = check_directory(&app, &target, &user.home).await.is_ok();
        if execute.working_directory.is_none() && has_home {
            execute.working_directory = Some(user.home.as_str().into());
        }
    }
    execute.timeout_seconds = terms.timeout.map(|timeout| timeout.as_secs_f64());
    let takes_input = is_terminal || stdin.unwrap_or(true);
    let open = OpenSession { execute, terminal, input: takes_input, survives: true };
    let session = app.sandboxes.open_session(&target.caller, open).await?;
    let (sender, receiver) = mpsc::channel(CLIENT_CAPACITY);
    // The first message is always this one.
    let _ = sender.send(Ok(started(pid(&session.workflow_id)))).await;
    let description = Description { config, tag, is_terminal, takes_input, deadline };
    let (ports, of) = (app.ports.clone(), target.clone());
    let closed = Box::pin(async move { ports.wait_until_closed(&of.caller, &of.sandbox).await });
    app.processes.add(&target.sandbox, description, session, Some(sender), closed);
    Ok(respond(terms, receiver, keepalive))
}

/// The command line. A script for a shell that is longer than an argument may be is several arguments.
fn command(mut words: Vec<String>) -> Result<CommandLine, RpcError> {
    /// Runs its arguments, joined, in the shell that runs it.
    const JOINED: &str = r#"s=; for w do s=$s$w; done; set --; eval "unset s w
$s""#;
    let is_short = |word: &String| word.len() < ARGUMENT_BYTES;
    if words.iter().all(is_short) {
        return Ok(CommandLine::Program(words));
    }
    let too_long = || {
        let message = "an argument of the command is longer than a program can receive";
        RpcError::new(RpcCode::InvalidArgument, message)
    };
    let script = words.pop().filter(|_| words.last().is_some_and(|word| word == "-c"));
    let script = script.ok_or_else(too_long)?;
    let shell = words.first().cloned().unwrap_or_default();
    if !words.iter().all(is_short) {
        return Err(too_long());
    }
    words.extend([JOINED.to_owned(), shell]);
    let mut rest = script.as_str();
    while !rest.is_empty() {
        let mut length = rest.len().min(ARGUMENT_BYTES / 2);
        while !rest.is_char_boundary(length) {
            length -= 1;
        }
        let (part, after) = rest.split_at(length);
        words.push(part.to_owned());
        rest = after;
    }
    Ok(CommandLine::Program(words))
}

/// Refuses a working directory that does not exist.
async fn check_directory(app: &App, target: &Target, path: &str) -> Result<(), RpcError> {
    let absent = || {
        let message = format!("cwd '{path}' does not exist");
        RpcError::new(RpcCode::InvalidArgument, message)
    };
    match stat(&app.sandboxes, target, path, true).await {
        Ok(entry) if entry.kind == FileKind::Directory => Ok(()),
        Ok(_) => {
            Err(RpcError::new(RpcCode::InvalidArgument, format!("cwd '{path}' is not a directory")))
        }
        Err(Failure(problem)) if problem.code == Code::FileNotFound => Err(absent()),
        Err(failure) => Err(failure.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_long_script_is_several_arguments() {
        let short = words(&["/bin/bash", "-l", "-c", "echo"]);
        assert_eq!(command(short.clone()).unwrap(), CommandLine::Program(short));
        let script = format!("x='{}'; printf %s \"$x\" | wc -c", "é".repeat(150_000));
        let CommandLine::Program(line) = command(words(&["/bin/bash", "-c", &script])).unwrap()
        else {
            panic!("another form")
        };
        assert!(line.iter().all(|word| word.len() < ARGUMENT_BYTES));
        let output = std::process::Command::new(&line[0]).args(&line[1..]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert_eq!(text, "300000", "{}", String::from_utf8_lossy(&output.stderr));
        assert!(command(words(&["cat", &"x".repeat(200_000)])).is_err());
    }
}
