//! Errors of the store of images as problems.

use stockade_core::{Code, Problem};
use stockade_image::store::Error;

/// The problem of an error of the store.
pub(crate) fn store_problem(error: &Error) -> Problem {
    let is_full = std::iter::successors(Some(error as &dyn std::error::Error), |e| e.source())
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| {
            matches!(
                error.kind(),
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
            )
        });
    if is_full {
        return Problem::caused(Code::StorageFull, error).remedied_by("stockade image prune");
    }
    match error {
        Error::Data(_) | Error::Write(_) | Error::Io { .. } => Problem::caused(Code::Io, error),
        Error::References { path, .. } => Problem::caused(Code::Io, error)
            .remedied_by(format!("mv {0} {0}.damaged", path.display())),
        Error::Digest { .. } | Error::Size { .. } | Error::Document(_) | Error::Layer { .. } => {
            Problem::caused(Code::ImageInvalid, error)
        }
        Error::MissingBlob(_) | Error::MissingLayer(_) => {
            Problem::caused(Code::ImageInvalid, error)
                .because("a part of it was removed from the store")
                .remedied_by("stockade image ls")
        }
        Error::TooLarge { .. } => Problem::caused(Code::ImageTooLarge, error),
        Error::Platform { found, .. } => Problem::caused(Code::ImagePlatformMissing, error)
            .remedied_by(format!("--platform {found}")),
        Error::Busy(_) => Problem::caused(Code::Busy, error),
        Error::InUse { by, .. } => {
            let remedy = match by.strip_prefix("snapshot ") {
                Some(snapshot) => format!("stockade snapshots --remove {snapshot}"),
                None => format!("stockade kill {by}"),
            };
            Problem::caused(Code::ImageInUse, error).remedied_by(remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use stockade_image::Digest;

    use super::*;

    #[test]
    fn the_problems_match_their_snapshots() {
        let digest = || Digest::of(b"");
        let errors = [
            Error::Digest { expected: digest(), found: Digest::of(b"x") },
            Error::Size { digest: digest(), expected: 1, found: 2 },
            Error::TooLarge { digest: digest(), size: 9, limit: 8 },
            Error::MissingBlob(digest()),
            Error::Platform {
                wanted: Box::new("linux/arm64".parse().unwrap()),
                found: Box::new("linux/amd64".parse().unwrap()),
            },
            Error::Busy(60),
            Error::InUse { digest: digest(), by: "demo".to_owned() },
            Error::Io { operation: "write", source: std::io::ErrorKind::StorageFull.into() },
            Error::Io { operation: "write", source: std::io::ErrorKind::PermissionDenied.into() },
        ];
        let mut problems: Vec<_> = errors.iter().map(store_problem).collect();
        problems.push(crate::registry::missing(&"debian:12".parse().unwrap()));
        let text = serde_json::to_string_pretty(&problems).unwrap();
        stockade_test_support::assert_snapshot("errors/images", &text);
    }
}
