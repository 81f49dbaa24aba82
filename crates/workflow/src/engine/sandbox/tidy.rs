//! Removes the files of sandboxes of runs that ended long ago from `.smithers/sandboxes` of a project. The
//! newest ones stay for inspection.

use std::path::Path;

use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, Error, FileKind};

/// How long the files of a run stay after its last sandbox was created, in seconds.
const LONGEST_SECONDS: i64 = 14 * 24 * 60 * 60;

/// Removes old files of runs that have ended, and returns how many runs they were of. `unfinished` are the
/// ids of the runs that have not.
///
/// # Errors
/// If the directory cannot be read.
pub(crate) fn tidy(root: &Path, unfinished: &[String], now_seconds: i64) -> Result<usize, Error> {
    let root = Dir::open(root)?;
    let Ok(path) = RelativePath::new(".smithers/sandboxes") else { return Ok(0) };
    let dir = match root.open_dir(&path) {
        Err(error) if error.kind() == Some(std::io::ErrorKind::NotFound) => return Ok(0),
        opened => opened?,
    };
    let mut removed = 0;
    for (name, kind) in dir.entries()? {
        let Ok(entry) = RelativePath::new(name.as_slice()) else { continue };
        let is_open = unfinished.iter().any(|id| is_of(&name, id));
        if kind != FileKind::Directory || is_open {
            continue;
        }
        let changed_at = dir.open_dir(&entry)?.stat_self()?.modified.seconds;
        if changed_at < now_seconds - LONGEST_SECONDS {
            dir.remove_tree(&entry)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Whether a directory belongs to a run or to one of its child runs.
fn is_of(name: &[u8], run: &str) -> bool {
    let rest = name.strip_prefix(run.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"@"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn only_old_files_of_ended_runs_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let seconds = i64::try_from(now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs());
        let seconds = seconds.unwrap();
        assert_eq!(tidy(place.path(), &[], seconds).unwrap(), 0);
        let path = |name: &str| place.path().join(".smithers/sandboxes").join(name);
        for name in ["old", "open", "open@child@a@0", "new"] {
            fs::create_dir_all(path(name).join("box/result")).unwrap();
            if name != "new" {
                let directory = fs::File::open(path(name)).unwrap();
                let age = Duration::from_secs(15 * 24 * 60 * 60);
                directory.set_modified(now - age).unwrap();
            }
        }
        fs::write(path(".gitignore"), "*\n").unwrap();
        assert_eq!(tidy(place.path(), &["open".to_owned()], seconds).unwrap(), 1);
        assert!(!path("old").exists() && path("open@child@a@0").exists());
        assert!(path("new").exists() && path("open").exists() && path(".gitignore").exists());
    }
}
