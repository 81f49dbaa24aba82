//! The file in which tests record that they could not run. If the runner captures a test's output,
//! the test would otherwise silently count as passed.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;

/// The environment variable with the file's name for the tests. Each appends lines such as
/// `SKIPPED: pids_limit_on_v2: the controller is bound to v1`.
pub(super) const VARIABLE: &str = "STOCKADE_SKIP_LOG";

/// The file, removed with its directory at the end.
#[derive(Debug)]
pub(super) struct SkipLog {
    directory: PathBuf,
    file: PathBuf,
}

impl SkipLog {
    /// Creates an empty file in a new directory.
    pub(super) fn create() -> anyhow::Result<Self> {
        let nanoseconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
        let name = format!("stockade-ci-{}-{nanoseconds}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        // Tests that run with another user's id write to it as well.
        DirBuilder::new()
            .mode(0o711)
            .create(&directory)
            .context("make the skip log's directory")?;
        let file = directory.join("skipped");
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create_new(true)
            .mode(0o666)
            .open(&file)
            .context("make the skip log")?;
        Ok(Self { directory, file })
    }

    /// Where the file is.
    pub(super) fn path(&self) -> &Path {
        &self.file
    }

    /// The lines that the tests wrote, sorted, each once.
    pub(super) fn read(&self) -> anyhow::Result<Vec<String>> {
        let text = std::fs::read_to_string(&self.file).context("read the skip log")?;
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| line.strip_prefix("SKIPPED: ").unwrap_or(line).to_owned())
            .filter(|line| !line.is_empty())
            .collect();
        lines.sort();
        lines.dedup();
        Ok(lines)
    }
}

impl Drop for SkipLog {
    fn drop(&mut self) {
        // A leftover in the temporary directory does no harm.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_once_and_the_file_goes_away() {
        let log = SkipLog::create().unwrap();
        assert!(log.read().unwrap().is_empty());
        std::fs::write(log.path(), "SKIPPED: b: why\nSKIPPED: a: why\nSKIPPED: b: why\n").unwrap();
        assert_eq!(log.read().unwrap(), ["a: why", "b: why"]);
        let directory = log.directory.clone();
        drop(log);
        assert!(!directory.exists());
    }
}
