//! `stockade up --result`: a child run inside a sandbox, which writes its result as the result
//! bundle that Smithers describes. Files that its tasks put into the directory are kept.
//!
//! A run that waits for an external event writes no result yet, but what it waits for; when the
//! answer is available, it is executed again in the same directory and continues.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::confined::Child;
use serde_json::{Value, json};
use stockade_api::{
    ANSWERS, Answer, Answers, Decide, Follow, ListRuns, Run, RunById, RunStatus, SendSignal,
    TaskStatus, Up, WAITING, Wait, WaitList,
};
use stockade_bundle::beneath::Dir;
use stockade_bundle::path::RelativePath;
use stockade_bundle::sandbox::{self, Conclusion, Status, conclude};
use stockade_core::{Code, Problem};

use stockade_cli::commands::workflow::follow;
use stockade_cli::problem::{Failure, caused};
use stockade_cli::remote::Remote;

use crate::in_process;

/// The path of the run's state, below the result, with which it leaves the sandbox.
const STATE: &str = "artifacts/state";
/// The part of the data directory that is useless for others.
const SERVER: &str = "artifacts/state/server";

/// The requests for nested sandboxes, and their results.
const NESTED: &str = "nested";

/// How long a run that seems to wait may take to process its answers, before its status is read
/// again.
const POLL_MS: u32 = 500;
/// A timer that expires within this time is waited for here.
const SHORT_WAIT: Duration = Duration::from_secs(30);

/// The result of a run.
struct RunResult {
    exit_code: u8,
    run: Run,
    /// Its events, one JSON object per line.
    log: Vec<u8>,
    /// Its waits, if it waits.
    waits: Vec<Wait>,
}

/// Executes a run and writes its result to a directory. A run with the same id that was started
/// there continues.
pub(super) fn up(
    directory: &Path,
    request: Up,
    allow_nested: bool,
    is_json: bool,
) -> Result<u8, Failure> {
    let state = directory.join(STATE);
    let created = DirBuilder::new().recursive(true).mode(0o700).create(&state);
    created.map_err(|error| caused(Code::Io, &error))?;
    let id = request.run_id.clone().unwrap_or_default();
    let received = answers(directory, &id)?;
    let child = Child { state: &state, nested: allow_nested.then_some(directory) };
    let result = in_process::run(child, async |remote| {
        let run = remote.workflows.up(&remote.idempotent_as(&id), request).await?;
        send_answers(&remote, &run.id, received.as_ref()).await?;
        let (exit_code, waits) =
            follow_to_rest(&remote, &run.id, received.as_ref(), is_json).await?;
        let (run, log) = events(&remote, &run.id).await?;
        Ok(RunResult { exit_code, run, log, waits })
    });
    let dir = Dir::open(directory).map_err(|error| caused(Code::Io, &error))?;
    let server = RelativePath::new(SERVER).map_err(|error| caused(Code::Io, &error))?;
    dir.remove_tree(&server).map_err(|error| caused(Code::Io, &error))?;
    let is_over = !result.as_ref().is_ok_and(|result| !result.waits.is_empty());
    if is_over {
        remove_nested(&dir)?;
    }
    let failed = |error: &Value, log: &[u8]| {
        let outputs = json!({ "error": error });
        let (status, outputs) = (Status::Failed, &outputs);
        conclude(&dir, &Conclusion { status, outputs, run_id: &id, stream_log: log })
    };
    match result {
        Ok(RunResult { exit_code, run, waits, .. }) if !waits.is_empty() => {
            let text = json!(WaitList { run: run.id, waits }).to_string();
            write(&directory.join(WAITING), &text).map_err(|error| caused(Code::Io, &error))?;
            Ok(exit_code)
        }
        Ok(RunResult { exit_code, run, log, .. }) => {
            let (status, outputs) = outcome(run);
            let conclusion =
                Conclusion { status, outputs: &outputs, run_id: &id, stream_log: &log };
            if let Err(error) = conclude(&dir, &conclusion) {
                let problem = result_problem(&error);
                // Without its log, in case that is too large.
                failed(&error_json(error.code(), &problem), &[])
                    .map_err(|error| result_problem(&error))?;
                return Err(problem.into());
            }
            Ok(exit_code)
        }
        Err(failure) => {
            let problem = failure.problem();
            failed(&error_json(problem.code.as_str(), problem), &[])
                .map_err(|error| result_problem(&error))?;
            Err(failure)
        }
    }
}

/// Removes the requests and results of nested sandboxes: their results are in the workspace and in
/// the run's state.
fn remove_nested(dir: &Dir) -> Result<(), Failure> {
    let nested = RelativePath::new(NESTED).map_err(|error| caused(Code::Io, &error))?;
    match dir.remove_tree(&nested) {
        Err(error) if error.kind() != Some(ErrorKind::NotFound) => {
            Err(caused(Code::Io, &error).into())
        }
        _ => Ok(()),
    }
}

/// Reads the answers for a run that waited here, and removes the file with its waits.
fn answers(directory: &Path, id: &str) -> Result<Option<Answers>, Failure> {
    match fs::remove_file(directory.join(WAITING)) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(caused(Code::Io, &error).into());
        }
        _ => {}
    }
    let text = match fs::read(directory.join(ANSWERS)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(caused(Code::Io, &error).into()),
    };
    let received: Answers = serde_json::from_slice(&text).map_err(|error| {
        Problem::new(Code::InvalidInput, format!("{ANSWERS} cannot be read"))
            .because(error.to_string())
    })?;
    Ok(Some(received).filter(|received| received.run == id))
}

/// Passes answers to a run. An answer that was passed before has no effect.
async fn send_answers(
    remote: &Remote,
    id: &str,
    received: Option<&Answers>,
) -> Result<(), Failure> {
    let Some(Answers { round, answers, .. }) = received else { return Ok(()) };
    for (number, answer) in answers.iter().cloned().enumerate() {
        let caller = remote.idempotent_as(&format!("answer-{round}-{number}"));
        let id = id.to_owned();
        let done = match answer {
            Answer::Approval { node: task, approved, note, .. } => {
                let (only, allow_executed) = (Vec::new(), false);
                let decide = Decide { id, task, approved, note, only, allow_executed };
                remote.workflows.decide(&caller, decide).await
            }
            // The waiting task reads it itself.
            Answer::Sandbox { .. } => continue,
            Answer::Signal { name, correlation, payload, .. } => {
                let signal = SendSignal { id, name, correlation, payload };
                remote.workflows.signal(&caller, signal).await
            }
        };
        match done {
            // It was received before, or its wait has timed out.
            Err(Problem { code: Code::NotFound | Code::InvalidState, .. }) => {}
            done => drop(done?),
        }
    }
    Ok(())
}

/// Follows a run until it has ended, or waits for something that cannot change here. Returns the
/// exit code and the waits.
async fn follow_to_rest(
    remote: &Remote,
    id: &str,
    received: Option<&Answers>,
    is_json: bool,
) -> Result<(u8, Vec<Wait>), Failure> {
    let mut from = 0;
    loop {
        let followed = follow::follow_to_end(remote, id, from, 0, is_json).await?;
        let exit_code = followed.0;
        from = followed.1;
        let by_id = RunById { id: id.to_owned() };
        let found = remote.workflows.inspect(remote.caller(), by_id).await?;
        if found.run.status.is_terminal() {
            return Ok((follow::exit_code(found.run.status), Vec::new()));
        }
        let is_answered = |wait: &Wait| {
            let mut received = received.iter().flat_map(|told| &told.answers);
            received.any(|received| received.answers(wait))
        };
        let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + SHORT_WAIT;
        let soon = i64::try_from(soon.as_millis()).unwrap_or(i64::MAX);
        let is_soon = |wait: &Wait| wait.due_ms().is_some_and(|due| due <= soon);
        let will_continue = found.waits.iter().any(|wait| is_answered(wait) || is_soon(wait));
        if !will_continue && !found.waits.is_empty() && is_at_rest(remote).await? {
            return Ok((exit_code, found.waits));
        }
        let follow = Follow { id: id.to_owned(), from, wait_ms: POLL_MS, known_status: None };
        remote.workflows.follow(remote.caller(), follow).await?;
    }
}

/// Whether all runs here wait, and all active tasks in them are child runs that wait.
async fn is_at_rest(remote: &Remote) -> Result<bool, Failure> {
    let runs = remote.workflows.runs(remote.caller(), ListRuns { limit: u32::MAX }).await?;
    let (mut below, mut under_way) = (0, 0);
    for run in runs.into_iter().filter(|run| !run.status.is_terminal()) {
        if run.status != RunStatus::Waiting {
            return Ok(false);
        }
        below += usize::from(run.parent_id.is_some());
        let found = remote.workflows.inspect(remote.caller(), RunById { id: run.id }).await?;
        under_way += found.tasks.iter().filter(|task| task.status == TaskStatus::Running).count();
    }
    Ok(below == under_way)
}

/// Writes a file completely or not at all.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, path)
}

/// The current state of a run, and all its events.
async fn events(remote: &Remote, id: &str) -> Result<(Run, Vec<u8>), Failure> {
    let (mut from, mut log) = (0, Vec::new());
    loop {
        let request = Follow { id: id.to_owned(), from, wait_ms: 0, known_status: None };
        let page = remote.workflows.follow(remote.caller(), request).await?;
        for event in &page.events {
            log.extend_from_slice(event.to_string().as_bytes());
            log.push(b'\n');
        }
        if page.next == from {
            return Ok((page.run, log));
        }
        from = page.next;
    }
}

/// The status and outputs of a run for its result.
fn outcome(run: Run) -> (Status, Value) {
    let error = |error: Value| json!({ "error": error });
    match run.status {
        RunStatus::Finished => (Status::Finished, run.output.unwrap_or_default()),
        RunStatus::Cancelled => (Status::Cancelled, error(run.error.unwrap_or_default())),
        RunStatus::Failed => (Status::Failed, error(run.error.unwrap_or_default())),
        RunStatus::Waiting | RunStatus::Running => {
            let message = "the child workflow has not ended and is not waiting";
            let code = "SANDBOX_EXECUTION_FAILED";
            (Status::Failed, error(json!({ "code": code, "message": message })))
        }
    }
}

fn error_json(code: &str, Problem { message, cause, .. }: &Problem) -> Value {
    json!({ "code": code, "message": message, "cause": cause })
}

fn result_problem(error: &sandbox::Error) -> Problem {
    let code = match error {
        sandbox::Error::TooLarge { .. } => Code::BundleTooLarge,
        error if error.code() == "SANDBOX_EXECUTION_FAILED" => Code::Io,
        _ => Code::BundleInvalid,
    };
    let problem = Problem::new(code, "the result of the run cannot be returned from its sandbox");
    problem.because(format!("{error} [{}]", error.code()))
}
