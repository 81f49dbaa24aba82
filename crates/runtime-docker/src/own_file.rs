//! Files of our own that containers mount: written once, by any number of processes and tasks at the same
//! time, and never changed while a container may have them.

use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A path beside this one that no other task of any running process uses.
pub(crate) fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}-{number}", std::process::id()))
}

/// Writes a new file beside this path. One that an earlier process with the same number has left is
/// replaced, not written to.
pub(crate) fn write_beside(path: &Path, content: &[u8], mode: u32) -> io::Result<PathBuf> {
    let new = beside(path);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = std::fs::File::options();
    let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(content)?;
    // Regardless of the umask.
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    Ok(new)
}

/// Writes a file completely, or not at all. A reader finds the old file or this one.
pub(crate) fn publish(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let new = write_beside(path, content, mode)?;
    std::fs::rename(&new, path).inspect_err(|_| {
        // Only the first error is reported.
        let _ = std::fs::remove_file(&new);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_writers_leave_one_whole_file_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let content = vec![7; 1 << 20];
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..8 {
                        publish(&path, &content, 0o755).unwrap();
                        assert_eq!(std::fs::read(&path).unwrap().len(), content.len());
                    }
                });
            }
        });
        assert!(std::fs::read(&path).unwrap() == content);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o755);
        assert_eq!(place.path().read_dir().unwrap().count(), 1);
    }
}
