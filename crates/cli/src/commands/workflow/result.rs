//! `stockade up --result`: a child run that is done inside a sandbox, and leaves its result there as
//! the bundle that the seeds describe. What its tasks left in that directory is kept.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use serde_json::{Value, json};
use stockade_api::{Follow, Run, RunStatus, Up};
use stockade_bundle::beneath::Dir;
use stockade_bundle::path::RelativePath;
use stockade_bundle::sandbox::{self, Conclusion, Status, conclude};
use stockade_core::{Code, Problem};

use super::follow;
use crate::problem::{Failure, caused};
use crate::remote::{self, Remote};

/// Where the state of the run is, below the result: it goes out with it.
const STATE: &str = "artifacts/state";
/// What the data directory of a command has that is of no use to others.
const SERVER: &str = "artifacts/state/server";

/// What came of a run.
struct Ended {
    exit_code: u8,
    run: Run,
    /// What happened, an object a line.
    log: Vec<u8>,
}

/// Does a run and leaves its result in a directory. A run of the same id that was begun there goes
/// on where it was.
pub(super) fn up(directory: &Path, request: Up, is_json: bool) -> Result<u8, Failure> {
    let state = directory.join(STATE);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&state);
    made.map_err(|error| caused(Code::Io, &error))?;
    let id = request.run_id.clone().unwrap_or_default();
    let ended = remote::in_process(Some(&state), async |remote| {
        let run = remote.workflows.up(&remote.as_before(&id), request).await?;
        let exit_code = follow::to_its_end(&remote, &run.id, 0, follow::WAIT_MS, is_json).await?;
        let (run, log) = told(&remote, &run.id).await?;
        Ok(Ended { exit_code, run, log })
    });
    let dir = Dir::open(directory).map_err(|error| caused(Code::Io, &error))?;
    let server = RelativePath::new(SERVER).map_err(|error| caused(Code::Io, &error))?;
    dir.remove_tree(&server).map_err(|error| caused(Code::Io, &error))?;
    let failed = |error: &Value, log: &[u8]| {
        let outputs = json!({ "error": error });
        let (status, outputs) = (Status::Failed, &outputs);
        conclude(&dir, &Conclusion { status, outputs, run_id: &id, stream_log: log })
    };
    match ended {
        Ok(Ended { exit_code, run, log }) => {
            let (status, outputs) = outcome(run);
            let conclusion =
                Conclusion { status, outputs: &outputs, run_id: &id, stream_log: &log };
            if let Err(error) = conclude(&dir, &conclusion) {
                let problem = refused(&error);
                // Without its log, should that be what is too large.
                failed(&told_of(error.code(), &problem), &[]).map_err(|error| refused(&error))?;
                return Err(problem.into());
            }
            Ok(exit_code)
        }
        Err(failure) => {
            let problem = failure.problem();
            failed(&told_of(problem.code.as_str(), problem), &[])
                .map_err(|error| refused(&error))?;
            Err(failure)
        }
    }
}

/// A run as it is, and all that happened in it.
async fn told(remote: &Remote, id: &str) -> Result<(Run, Vec<u8>), Failure> {
    let (mut from, mut log) = (0, Vec::new());
    loop {
        let request = Follow { id: id.to_owned(), from, wait_ms: 0 };
        let news = remote.workflows.follow(remote.caller(), request).await?;
        for event in &news.events {
            log.extend_from_slice(event.to_string().as_bytes());
            log.push(b'\n');
        }
        if news.next == from {
            return Ok((news.run, log));
        }
        from = news.next;
    }
}

/// What a result says of a run.
fn outcome(run: Run) -> (Status, Value) {
    let error = |error: Value| json!({ "error": error });
    match run.status {
        RunStatus::Finished => (Status::Finished, run.output.unwrap_or_default()),
        RunStatus::Cancelled => (Status::Cancelled, error(run.error.unwrap_or_default())),
        RunStatus::Failed => (Status::Failed, error(run.error.unwrap_or_default())),
        RunStatus::Waiting | RunStatus::Running => {
            let message = "the child workflow waits for somebody who cannot answer it in there";
            let code = "SANDBOX_EXECUTION_FAILED";
            (Status::Failed, error(json!({ "code": code, "message": message })))
        }
    }
}

fn told_of(code: &str, Problem { message, cause, .. }: &Problem) -> Value {
    json!({ "code": code, "message": message, "cause": cause })
}

fn refused(error: &sandbox::Error) -> Problem {
    let code = match error {
        sandbox::Error::TooLarge { .. } => Code::BundleTooLarge,
        error if error.code() == "SANDBOX_EXECUTION_FAILED" => Code::Io,
        _ => Code::BundleInvalid,
    };
    let problem = Problem::new(code, "the result of the run cannot leave its sandbox");
    problem.because(format!("{error} [{}]", error.code()))
}
