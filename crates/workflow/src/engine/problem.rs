//! Errors of the engine in the form that callers receive.

use std::path::Path;

use stockade_api::Run;
use stockade_core::{Code, Problem};

use crate::authoring::Error;

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
        _ => Code::Io,
    };
    Problem::new(code, error.to_string())
}
