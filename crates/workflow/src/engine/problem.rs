//! Errors of the engine in the form that callers receive.

use std::path::Path;

use stockade_api::Run;
use stockade_core::{Code, Problem};

use crate::authoring::Error;

/// What helps when the disk of the data directory is full.
const FREE_SPACE_REMEDY: &str = "free space on the disk of the data directory, for which `stockade kill ID` and `stockade reject ID` need none, then retry";

/// The error for a run id that already exists.
pub(super) fn run_exists(id: &str) -> Problem {
    Problem::new(Code::Conflict, format!("a run {id} already exists"))
        .remedied_by(format!("stockade resume {id}"))
}

/// The error for a run whose workflow file has changed.
pub(super) fn workflow_changed(run: &Run) -> Problem {
    let message = format!("{} has changed since run {} started", run.file, run.id);
    Problem::new(Code::Conflict, message)
        .because("finished tasks do not run again, even if they have changed")
        .remedied_by(format!("stockade resume {} --accept-workflow-change", run.id))
}

/// The error for a failure of the user's code when a run is started.
pub(super) fn from_user_code(file: &Path, error: Error) -> Problem {
    let file = file.display();
    match error {
        Error::Start(why) => {
            Problem::new(Code::LaunchFailed, "the process for workflow files failed to start")
                .because(why)
        }
        Error::Faults(faults) => {
            let all = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            Problem::new(Code::InvalidInput, format!("{file} is not a valid workflow")).because(all)
        }
        Error::Threw(failure) if failure.code.as_deref() == Some("INVALID_INPUT_VALUE") => {
            Problem::new(
                Code::InvalidInput,
                format!("the input does not match the schema of {file}"),
            )
            .because(failure.message)
        }
        Error::Threw(failure) => {
            let name = failure.name.as_deref().unwrap_or("Error");
            let mut text = format!("{name}: {}", failure.message);
            for frame in &failure.frames {
                text.push_str(&format!("\n    {frame}"));
            }
            Problem::new(Code::InvalidInput, format!("{file} cannot be rendered")).because(text)
        }
        other => Problem::new(Code::LaunchFailed, format!("{file} cannot be loaded"))
            .because(other.to_string()),
    }
}

/// The error for a failure of the store or of the durable engine.
pub(super) fn from_store(error: stockade_durable::Error) -> Problem {
    use stockade_durable::Error as Durable;
    let code = match &error {
        Durable::Conflict { .. } => Code::Conflict,
        Durable::NotFound { .. } => Code::NotFound,
        Durable::Invalid { .. } | Durable::InvalidId { .. } => Code::InvalidInput,
        Durable::Cancelled { .. } => Code::Cancelled,
        Durable::ShuttingDown | Durable::Closed => Code::Unreachable,
        Durable::NewerDatabase { .. }
        | Durable::ForeignDatabase { .. }
        | Durable::CorruptDatabase { .. } => Code::DatabaseInvalid,
        Durable::StorageFull => {
            return Problem::new(Code::StorageFull, "there is no space to record the run")
                .because(error.to_string())
                .remedied_by(FREE_SPACE_REMEDY);
        }
        _ => Code::Io,
    };
    Problem::new(code, error.to_string())
}

/// The error for a run that has stopped because the store failed.
pub(super) fn run_stopped(id: &str, error: stockade_durable::Error) -> Problem {
    let code = match error {
        stockade_durable::Error::StorageFull => Code::StorageFull,
        _ => Code::Io,
    };
    let message = format!("run {id} has stopped: its progress cannot be recorded");
    let problem = Problem::new(code, message).because(match code {
        Code::StorageFull => "no space is left on the disk of the data directory".to_owned(),
        _ => error.to_string(),
    });
    problem.remedied_by(format!("{FREE_SPACE_REMEDY}: stockade resume {id}"))
}
