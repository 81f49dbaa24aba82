//! Copies the result bundle of a provider into a directory of Stockade before it is validated, without
//! following links and within the limits of the documentation of `<Sandbox>`.

use std::io::{self, Read as _};

use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind};
use stockade_core::BundleLimits;

use crate::engine::task_error::TaskError;

/// The maximum depth of directories in a bundle.
const DEPTH: usize = 32;
/// How many files and directories it may contain: the patches, the artifacts, and the directories
/// around them.
const ENTRIES: u64 = 4096;

/// Copies the content of a directory into an empty one.
///
/// # Errors
/// `TOOL_PATH_ESCAPE` for a link and for anything that is not a file or directory, `INVALID_INPUT`
/// beyond the limits, `SANDBOX_EXECUTION_FAILED` for a file or directory that cannot be read or
/// written.
pub(super) fn copy(from: &Dir, into: &Dir) -> Result<(), TaskError> {
    let (mut bytes_left, mut entries_left) = (BundleLimits::SANDBOX.total_bytes, ENTRIES);
    let mut directories: Vec<Option<RelativePath>> = vec![None];
    while let Some(directory) = directories.pop() {
        let opened = match &directory {
            Some(path) => from.open_dir(path)?,
            None => from.reopen()?,
        };
        let entries = opened.entries_up_to(entries_left)?;
        for (name, kind) in entries.ok_or_else(|| too_large("has too many files"))? {
            entries_left = entries_left.saturating_sub(1);
            let path = match &directory {
                Some(directory) => directory.join(&name),
                None => RelativePath::new(name),
            };
            let path =
                path.map_err(|error| TaskError::new("TOOL_PATH_ESCAPE", error.to_string()))?;
            match kind {
                FileKind::Directory if path.components().count() < DEPTH => {
                    into.mkdir(&path, 0o700)?;
                    directories.push(Some(path));
                }
                FileKind::Directory => return Err(too_large("has directories nested too deeply")),
                FileKind::File => bytes_left = copy_file(from, into, &path, bytes_left)?,
                FileKind::Symlink => {
                    let message = "Sandbox bundle may not contain symlinks.";
                    return Err(TaskError::new("TOOL_PATH_ESCAPE", message));
                }
                FileKind::CharacterDevice | FileKind::Other => {
                    let path = path.quoted();
                    let message = format!("Sandbox bundle may not contain special files: {path}");
                    return Err(TaskError::new("TOOL_PATH_ESCAPE", message));
                }
            }
        }
    }
    Ok(())
}

/// Copies a file of at most `left` bytes; returns how many bytes may still follow.
fn copy_file(from: &Dir, into: &Dir, path: &RelativePath, left: u64) -> Result<u64, TaskError> {
    let source = from.open_file(path)?;
    let mut target = into.create_file(path, 0o600)?;
    // One byte more than the limit, to detect a file that is too long.
    let copied = io::copy(&mut source.take(left.saturating_add(1)), &mut target);
    let copied = copied.and_then(|copied| target.sync_data().map(|()| copied));
    let io_error = |error: io::Error| {
        let message = format!("cannot copy {} of the result: {error}", path.quoted());
        TaskError::new("SANDBOX_EXECUTION_FAILED", message).retryable()
    };
    left.checked_sub(copied.map_err(io_error)?).ok_or_else(|| {
        too_large(&format!("exceeds {} MiB", BundleLimits::SANDBOX.total_bytes >> 20))
    })
}

fn too_large(how: &str) -> TaskError {
    TaskError::new("INVALID_INPUT", format!("Sandbox bundle {how}."))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn copy_filled(
        fill: impl FnOnce(&std::path::Path),
    ) -> (tempfile::TempDir, Result<(), TaskError>) {
        let (from, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fill(from.path());
        let copied = copy(&Dir::open(from.path()).unwrap(), &Dir::open(into.path()).unwrap());
        (into, copied)
    }

    #[test]
    fn files_are_copied_and_nothing_else() {
        let (into, done) = copy_filled(|from| {
            fs::create_dir_all(from.join("artifacts/deep")).unwrap();
            fs::write(from.join("README.md"), "{}").unwrap();
            fs::write(from.join("artifacts/deep/a"), "a").unwrap();
        });
        done.unwrap();
        assert_eq!(fs::read(into.path().join("artifacts/deep/a")).unwrap(), b"a");
        assert_eq!(fs::read(into.path().join("README.md")).unwrap(), b"{}");
        let refused = |fill: fn(&std::path::Path)| copy_filled(fill).1.unwrap_err().code;
        assert_eq!(refused(|from| symlink("/etc", from.join("link")).unwrap()), "TOOL_PATH_ESCAPE");
        assert_eq!(
            refused(|from| {
                let socket = std::os::unix::net::UnixListener::bind(from.join("socket"));
                drop(socket.unwrap());
            }),
            "TOOL_PATH_ESCAPE"
        );
        assert_eq!(
            refused(|from| fs::create_dir_all(from.join("d/".repeat(40))).unwrap()),
            "INVALID_INPUT"
        );
        assert_eq!(
            refused(|from| {
                let file = fs::File::create(from.join("sparse")).unwrap();
                file.set_len(BundleLimits::SANDBOX.total_bytes + 1).unwrap();
            }),
            "INVALID_INPUT"
        );
    }
}
