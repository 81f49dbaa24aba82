//! The history of decisions: one line of JSON for each bundle that was applied, taken to a branch,
//! undone, rejected, or removed because of its age.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use stockade_core::Time;

use crate::beneath::{self, Dir, Rename};
use crate::data::DataDir;
use crate::path::{RelativePath, bytes_as_json};

/// A longer history loses its older half.
const MAX_BYTES: u64 = 4 << 20;

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Changes were applied to the project.
    Applied,
    /// The last application was taken back.
    Undone,
    /// The bundle was rejected.
    Rejected,
    /// The bundle was removed because no decision came in time.
    Expired,
    /// Its changes were committed to a new branch.
    Branch,
    /// Its commits were taken to a branch.
    Commits,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// When.
    pub decided_at: Time,
    /// What.
    pub action: Action,
    /// The bundle.
    pub bundle: String,
    /// The project's root.
    #[serde(with = "bytes_as_json")]
    pub project: Vec<u8>,
    /// The command that made the changes.
    pub command: Vec<String>,
    /// How many paths were concerned.
    pub paths: usize,
}

/// Adds a decision. Lines of several processes do not mix.
///
/// # Errors
/// When it cannot be written.
pub fn append(data: &DataDir, decision: &Decision) -> Result<(), beneath::Error> {
    let dir = data.decisions()?;
    let failed = |source| beneath::Error::Io { operation: "write", path: name().quoted(), source };
    // The lock is that of the directory: the file may be replaced.
    let lock = dir.reopen()?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|errno| failed(errno.into()))?;
    let mut line = serde_json::to_vec(decision).map_err(|error| failed(error.into()))?;
    line.push(b'\n');
    let mut file = match dir.open_file_to_write(&name()) {
        Err(error) if error.errno() == Some(Errno::NOENT) => dir.create_file(&name(), 0o600)?,
        other => other?,
    };
    let end = file.seek(SeekFrom::End(0)).map_err(failed)?;
    if end > MAX_BYTES {
        file = shorten(&dir)?;
    }
    file.write_all(&line).and_then(|()| file.sync_data()).map_err(failed)
}

/// Keeps the newer half of the lines.
fn shorten(dir: &Dir) -> Result<File, beneath::Error> {
    let failed = |source| beneath::Error::Io { operation: "write", path: name().quoted(), source };
    let mut content = Vec::new();
    dir.open_file(&name())?.read_to_end(&mut content).map_err(failed)?;
    let half = content.len() / 2;
    let start =
        content[half..].iter().position(|byte| *byte == b'\n').map_or(half, |at| half + at + 1);
    let new = RelativePath::literal("decisions.new");
    match dir.remove_file(&new) {
        Err(error) if error.errno() != Some(Errno::NOENT) => return Err(error),
        _ => {}
    }
    let mut file = dir.create_file(&new, 0o600)?;
    file.write_all(&content[start..]).map_err(failed)?;
    dir.rename(&new, dir, &name(), Rename::Replace)?;
    Ok(file)
}

/// All decisions, oldest first. Lines that are not decisions are left out.
///
/// # Errors
/// When they cannot be read.
pub fn read(data: &DataDir) -> Result<Vec<Decision>, beneath::Error> {
    let dir = data.decisions()?;
    let mut content = Vec::new();
    match dir.open_file(&name()) {
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(Vec::new()),
        file => {
            let read = file?.take(2 * MAX_BYTES).read_to_end(&mut content);
            read.map_err(|source| beneath::Error::Io {
                operation: "read",
                path: name().quoted(),
                source,
            })?;
        }
    }
    let lines = content.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

fn name() -> RelativePath {
    RelativePath::literal("decisions.jsonl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_history_keeps_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::open(&directory.path().join("data")).unwrap();
        let decision = |at| Decision {
            decided_at: Time::from_ms(at),
            action: Action::Applied,
            bundle: "b".repeat(64),
            project: b"/p\xff".to_vec(),
            command: vec!["x".repeat(100_000)],
            paths: 1,
        };
        for at in 0..60 {
            append(&data, &decision(at)).unwrap();
        }
        let all = read(&data).unwrap();
        assert!(all.len() < 60 && all.len() > 10, "{}", all.len());
        assert_eq!(all.last(), Some(&decision(59)));
        assert!(
            all.windows(2).all(|pair| pair[0].decided_at.as_ms() + 1 == pair[1].decided_at.as_ms())
        );
    }
}
