//! The problems of volumes that cannot be used or removed, as users see them.

use std::collections::BTreeMap;

use stockade_core::{Code, Problem, VolumeName};

use crate::Error;

/// The most bytes of the names and values of a volume's labels. In JSON they have six times as many at
/// most, which its record can have.
const MAX_LABEL_BYTES: usize = 32 << 10;

/// The problem of an error.
pub fn problem(error: &Error) -> Problem {
    let caused = |code| Problem::caused(code, error);
    match error {
        Error::NotFound(_) => caused(Code::NotFound).remedied_by("stockade volume ls"),
        Error::InUse { .. } => caused(Code::Busy),
        Error::FilesLeft(_) => caused(Code::Io).remedied_by(
            "as root, remove the directories `.removed-*` below `volumes` in the data directory",
        ),
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

/// Refuses labels that are Stockade's own, and more than the record of a volume can have.
///
/// # Errors
/// [`Code::InvalidInput`].
pub fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Problem> {
    if let Some(name) = labels.keys().find(|name| name.starts_with("stockade.")) {
        return Err(Problem::new(Code::InvalidInput, format!("the label {name:?} is reserved"))
            .because("labels that start with `stockade.` are Stockade's own"));
    }
    let bytes: usize = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > MAX_LABEL_BYTES {
        let message = format!("the labels of a volume have at most {MAX_LABEL_BYTES} bytes");
        return Err(Problem::new(Code::InvalidInput, message)
            .because(format!("they have {bytes}"))
            .remedied_by("keep the text in a file of the volume"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_ones_own_and_fit_into_a_record() {
        let labels = |name: &str, value: String| BTreeMap::from([(name.to_owned(), value)]);
        for (labels, is_allowed) in [
            (labels("a", "b".to_owned()), true),
            (labels("a", "\u{1}".repeat(MAX_LABEL_BYTES - 1)), true),
            (labels("a", "b".repeat(MAX_LABEL_BYTES)), false),
            (labels("stockade.cache", "npm".to_owned()), false),
        ] {
            let checked = check_labels(&labels);
            assert_eq!(checked.is_ok(), is_allowed, "{checked:?}");
            let text = serde_json::to_vec(&labels).unwrap();
            let fits = u64::try_from(text.len()).unwrap() < crate::MAX_RECORD_BYTES * 4 / 5;
            assert!(!is_allowed || fits, "{}", text.len());
        }
    }
}
