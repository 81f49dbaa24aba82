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
            Problem::caused(Code::ImageInUse, error).remedied_by(format!("stockade kill {by}"))
        }
    }
}
