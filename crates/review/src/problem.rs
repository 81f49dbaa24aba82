//! The problems with bundles, each with a remedy.

use std::io::ErrorKind;

use stockade_bundle::apply;
use stockade_bundle::store::Cause;
use stockade_bundle::validate::LimitExceeded;
use stockade_bundle::{RelativePath, scan, store};
use stockade_core::{Code, Problem};

use crate::messages;

/// The most paths that a message names.
const MAX_LISTED: usize = 20;

/// The limits that a remedy names: all paths that a command may ask for, and more than most disks have.
const MAX_PATHS: u64 = 10_000_000;
const MAX_BUNDLE: &str = "1T";

/// The remedy if the disk of the data directory is full.
pub const FREE_SPACE_REMEDY: &str = "free space on the disk of the data directory, then retry; `stockade kill ID` and `stockade reject ID` need no space and free some";

/// A problem whose causes are those of an error, down to the root cause. If a full disk is the
/// cause, the problem contains that remedy.
pub fn caused(code: Code, error: &dyn std::error::Error) -> Problem {
    let mut causes = Vec::new();
    let mut next = error.source();
    let mut is_full = false;
    while let Some(cause) = next {
        causes.push(cause.to_string());
        is_full |= is_storage_full(cause);
        next = cause.source();
    }
    let problem = match code {
        Code::Io if is_full => {
            Problem::new(Code::StorageFull, error.to_string()).remedied_by(FREE_SPACE_REMEDY)
        }
        _ => Problem::new(code, error.to_string()),
    };
    if causes.is_empty() { problem } else { problem.because(causes.join(": ")) }
}

fn is_storage_full(cause: &(dyn std::error::Error + 'static)) -> bool {
    let error = match cause.downcast_ref::<Cause>() {
        Some(Cause::Io(error)) => Some(error),
        _ => cause.downcast_ref::<std::io::Error>(),
    };
    error.is_some_and(|error| {
        matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    })
}

/// The displayed prefix of an id: long enough to identify a bundle, and accepted as a name.
pub fn short_id(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// The problem for a view whose changes could not be determined, or are too large.
pub fn scan_problem(error: &scan::Error) -> Problem {
    match error {
        scan::Error::Limit(limit) => {
            caused(Code::BundleTooLarge, error).remedied_by(raise_limit(limit, "stockade bundles"))
        }
        scan::Error::Read { .. } => caused(Code::Io, error),
    }
}

/// The command that makes a bundle with a higher limit.
pub(crate) fn raise_limit(exceeded: &LimitExceeded, command: &str) -> String {
    match exceeded.limit {
        "entries" | "manifest_bytes" => format!("{command} --max-paths {MAX_PATHS}"),
        _ => format!("{command} --max-bundle {MAX_BUNDLE}"),
    }
}

/// The problem for a bundle that could not be created, found or read.
pub fn store_problem(error: &store::Error) -> Problem {
    let code = match error {
        store::Error::NotFound(_)
        | store::Error::None
        | store::Error::Ambiguous { .. }
        | store::Error::SeveralProjects { .. } => Code::BundleNotFound,
        store::Error::Invalid(stockade_bundle::validate::Error::Limit(_)) => Code::BundleTooLarge,
        store::Error::Altered(_)
        | store::Error::Invalid(_)
        | store::Error::Listing(_)
        | store::Error::State(_) => Code::BundleInvalid,
        store::Error::Busy(_) => Code::Busy,
        store::Error::Data(_)
        | store::Error::Changed(_)
        | store::Error::Commits(_)
        | store::Error::Io { .. } => Code::Io,
    };
    let problem = caused(code, error);
    match error {
        store::Error::Ambiguous { ids, .. } | store::Error::SeveralProjects { ids } => {
            problem.because(lines(ids.iter().cloned())).remedied_by("stockade bundles --all")
        }
        store::Error::Busy(id) => problem.remedied_by(format!("stockade diff {}", short_id(id))),
        store::Error::None => problem.remedied_by("stockade run -- CMD"),
        store::Error::NotFound(_) => problem.remedied_by("stockade bundles"),
        store::Error::Invalid(stockade_bundle::validate::Error::Limit(limit)) => {
            problem.remedied_by(raise_limit(limit, "stockade bundles"))
        }
        _ => problem,
    }
}

/// The problem for a bundle that does not exist or does not belong to the caller.
pub fn not_found(name: &str) -> Problem {
    store_problem(&match name {
        "latest" => store::Error::None,
        name => store::Error::NotFound(name.to_owned()),
    })
}

/// The problem for changes that could not be applied. `id` is the bundle's.
pub fn apply_problem(error: &apply::Error, id: &str) -> Problem {
    use apply::Error;
    let id = short_id(id);
    match error {
        Error::Conflicts(conflicts) => caused(Code::BundleConflict, error)
            .because(lines(conflicts.iter().map(|c| format!("{} {}", c.path, c.difference))))
            .remedied_by(format!("stockade apply {id} --merge")),
        Error::Executed { paths, .. } => caused(Code::ExecutedFile, error)
            .because(lines(
                paths.iter().map(|(path, by)| format!("{path} is {}", messages::executed_by(*by))),
            ))
            .remedied_by(format!("stockade apply {id} --allow-executed")),
        Error::Unseen(paths) => caused(Code::UnseenContent, error)
            .because(lines(
                paths.iter().map(|(path, bytes)| format!("{path}: {bytes} bytes, not shown")),
            ))
            .remedied_by(format!("stockade apply {id} --allow-unseen")),
        Error::Refused(paths) => caused(Code::PathRefused, error)
            .because(lines(
                paths.iter().map(|(path, why)| format!("{path} {}", messages::refusal(*why))),
            ))
            .remedied_by(format!("stockade apply {id}")),
        Error::NotInBundle(_) => {
            caused(Code::FileNotFound, error).remedied_by(format!("stockade diff {id} --stat"))
        }
        Error::OtherFileSystem(_) => {
            caused(Code::PathRefused, error).remedied_by(format!("stockade diff {id}"))
        }
        Error::Blob { .. } => {
            caused(Code::BundleInvalid, error).remedied_by(format!("stockade reject {id}"))
        }
        Error::PartlyUndone { not_restored: left, cause } => caused(Code::BundleConflict, error)
            .because(lines(
                std::iter::once(cause.to_string()).chain(left.iter().map(messages::not_restored)),
            )),
        Error::NeedsRecovery { .. } => caused(Code::Io, error).remedied_by("stockade bundles"),
        Error::Busy => caused(Code::Busy, error).remedied_by(format!("stockade apply {id}")),
        Error::Record(_)
        | Error::JournalDamaged { .. }
        | Error::NotWritable(_)
        | Error::Beneath(_)
        | Error::Io { .. } => caused(Code::Io, error),
    }
}

/// The path that is most like another one, if one is like it at all: one of the same name in another
/// directory, or one that differs in a few letters.
pub(crate) fn nearest<'p>(
    path: &RelativePath,
    known: impl Iterator<Item = &'p RelativePath>,
) -> Option<&'p RelativePath> {
    const MIN_LIKENESS: f64 = 0.6;
    /// More paths are not compared: the answer may not take long.
    const MAX_PATHS: usize = 10_000;
    const MAX_BYTES: usize = 200;
    let wanted = path.to_string();
    let likeness = |known: &RelativePath| {
        let same_name = f64::from(u8::from(known.file_name() == path.file_name()));
        if known.as_bytes().len().max(wanted.len()) > MAX_BYTES {
            return same_name;
        }
        same_name + strsim::normalized_damerau_levenshtein(&known.to_string(), &wanted)
    };
    let likely = known.take(MAX_PATHS).map(|known| (likeness(known), known));
    let best = likely.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (best.0 >= MIN_LIKENESS).then_some(best.1)
}

/// A list for a message, truncated if it is long.
pub(crate) fn lines(items: impl Iterator<Item = String>) -> String {
    let mut text: Vec<_> = items.collect();
    let more = text.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        text.truncate(MAX_LISTED);
        text.push(format!("and {more} more"));
    }
    text.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_however_deep_it_is() {
        let caused_by = |kind: ErrorKind| {
            let io = || std::io::Error::from(kind);
            let (operation, path) = ("write", "a".to_owned());
            let below = stockade_bundle::beneath::Error::Io { operation, path, source: io() };
            [Cause::from(io()), Cause::from(below)]
                .map(|source| caused(Code::Io, &store::Error::Io { operation, source }))
        };
        for problem in caused_by(ErrorKind::StorageFull) {
            assert_eq!(problem.code, Code::StorageFull);
            assert!(problem.remediation.is_some() && problem.cause.is_some());
        }
        for problem in caused_by(ErrorKind::PermissionDenied) {
            assert_eq!((problem.code, problem.remediation), (Code::Io, None));
        }
    }
}
