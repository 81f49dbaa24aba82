//! Removing discarded files, whatever an untrusted program made of them.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use stockade_bundle::beneath::Dir;

use crate::{directory, subordinate};

/// How often a failed removal is retried: a dying jail may still write to the directory.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// Removes the contents of a directory.
///
/// # Errors
/// The last error for an entry that could not be removed.
pub(super) fn sweep(trash: &Path) -> io::Result<()> {
    let trash = Dir::open(trash).map_err(io::Error::other)?;
    let (mut attempts, mut has_ids) = (0, false);
    loop {
        let mut failed = None;
        let entries = trash.entries().map_err(io::Error::other)?;
        if entries.is_empty() {
            return Ok(());
        }
        for (entry, _) in entries {
            let removed = directory::name(entry).and_then(|path| trash.remove_tree(&path));
            failed = removed.err().or(failed);
        }
        let Some(error) = failed else { continue };
        let is_denied = matches!(error.errno(), Some(Errno::ACCESS | Errno::PERM));
        if is_denied && !rustix::process::geteuid().is_root() && !has_ids {
            // Subordinate ids may own it. Where there are none, the last error says what is left.
            has_ids = subordinate::enter().is_ok();
        }
        attempts += 1;
        if attempts == ATTEMPTS {
            return Err(io::Error::other(error));
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        std::fs::write(dir.path().join("a/b/file"), "x").unwrap();
        std::fs::write(dir.path().join("d"), "x").unwrap();
        sweep(dir.path()).unwrap();
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
        sweep(dir.path()).unwrap();
        assert!(sweep(&dir.path().join("absent")).is_err());
    }
}
