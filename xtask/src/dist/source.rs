//! What is built: a commit, with the time that all files of the archive get.

use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::workspace::{Workspace, output};

/// The variable that names the time of all files, as reproducible builds have it.
const TIME: &str = "SOURCE_DATE_EPOCH";

/// The state of the sources.
#[derive(Debug)]
pub(super) struct Source {
    /// The commit; with `-dirty` behind it where files differ from it.
    pub(super) commit: String,
    /// In seconds since 1970.
    pub(super) time: u64,
}

impl Source {
    /// Asks git. Files that differ from the commit are refused, unless that is allowed: a build is
    /// named by its sources, so nobody could build the same program again.
    pub(super) fn read(workspace: &Workspace, allow_dirty: bool) -> anyhow::Result<Self> {
        let changed = git(workspace, &["status", "--porcelain"])?;
        let is_dirty = !changed.trim().is_empty();
        if is_dirty && !allow_dirty {
            bail!("files differ from the last commit (--allow-dirty builds them):\n{changed}");
        }
        let commit = git(workspace, &["rev-parse", "HEAD"])?.trim().to_owned();
        ensure!(!commit.is_empty(), "git names no commit");
        let time = match std::env::var(TIME) {
            Ok(time) => time,
            Err(_) => git(workspace, &["show", "--no-patch", "--format=%ct", "HEAD"])?,
        };
        let time = seconds(&time)?;
        let commit = if is_dirty { format!("{commit}-dirty") } else { commit };
        Ok(Self { commit, time })
    }

    /// The time as RFC 3339 has it.
    pub(super) fn timestamp(&self) -> anyhow::Result<String> {
        Ok(jiff::Timestamp::from_second(i64::try_from(self.time)?)?.to_string())
    }
}

fn seconds(text: &str) -> anyhow::Result<u64> {
    text.trim().parse().with_context(|| format!("{TIME} is no number of seconds: {text:?}"))
}

fn git(workspace: &Workspace, arguments: &[&str]) -> anyhow::Result<String> {
    let mut git = Command::new("git");
    // The tree may belong to another user than the one who builds it.
    git.current_dir(&workspace.root).args(["-c", "safe.directory=*"]);
    output(git.args(arguments)).context("only a commit can be shipped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds() {
        assert_eq!(seconds("1700000000\n").unwrap(), 1_700_000_000);
        assert!(seconds("yesterday").unwrap_err().to_string().contains("yesterday"));
        let source = Source { commit: String::new(), time: 1_700_000_000 };
        assert_eq!(source.timestamp().unwrap(), "2023-11-14T22:13:20Z");
    }
}
