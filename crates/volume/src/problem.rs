//! What a user is told about a volume that cannot be used or removed.

use stockade_core::{Code, Problem, VolumeName};

use crate::Error;

/// The problem of an error.
pub fn problem(error: &Error) -> Problem {
    let caused = |code| Problem::caused(code, error);
    match error {
        Error::NotFound(_) => caused(Code::NotFound).remedied_by("stockade volume ls"),
        Error::InUse { .. } => caused(Code::Busy),
        Error::SubPath { .. } | Error::Name(_) => caused(Code::InvalidInput),
        Error::Cache(_) => caused(Code::InvalidInput).remedied_by("stockade cache ls"),
        Error::OtherCache(name) => caused(Code::InvalidInput)
            .remedied_by(format!("choose another name, or: stockade volume rm {name}")),
        Error::TooMany(_) => caused(Code::QuotaExceeded).remedied_by("stockade volume prune --all"),
        Error::Data(_) | Error::Io(_) | Error::Record(_) if error.is_full() => {
            caused(Code::StorageFull)
        }
        Error::Data(_) | Error::Io(_) | Error::Record(_) => caused(Code::Io),
    }
}

/// The problem of a volume that is not removed because of its users: sandboxes by their ids, and what
/// else uses it in words.
pub fn in_use(name: &VolumeName, sandboxes: &[String], others: &[String]) -> Problem {
    let problem = Problem::new(Code::Busy, format!("the volume {name} is in use"));
    let users: Vec<String> =
        sandboxes.iter().map(|id| user(id)).chain(others.iter().cloned()).collect();
    let problem = match users.as_slice() {
        [] => problem,
        _ => problem.because(format!("it is used by {}", users.join(", "))),
    };
    match sandboxes {
        [] => {
            problem.remedied_by(format!("wait until the run has ended: stockade volume rm {name}"))
        }
        _ => problem.remedied_by(format!("stockade kill {}", sandboxes.join(" "))),
    }
}

/// A sandbox in a list of users.
pub fn user(sandbox: &str) -> String {
    format!("sandbox {sandbox}")
}

/// Refuses labels that are Stockade's own.
///
/// # Errors
/// [`Code::InvalidInput`].
pub fn check_labels<'a>(names: impl IntoIterator<Item = &'a String>) -> Result<(), Problem> {
    match names.into_iter().find(|name| name.starts_with("stockade.")) {
        None => Ok(()),
        Some(name) => {
            Err(Problem::new(Code::InvalidInput, format!("the label {name:?} is reserved"))
                .because("labels that start with `stockade.` are Stockade's own"))
        }
    }
}
