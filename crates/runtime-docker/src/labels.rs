//! The labels and names of what belongs to us in an engine: containers, volumes and images. Every
//! one of them has the id of the data directory, so that two data directories never touch each
//! other's, and everything that is left behind can be found.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use stockade_core::{SandboxId, SnapshotId};

/// The id of the data directory.
pub(crate) const DATA: &str = "dev.stockade.data";
/// The id of the sandbox.
pub(crate) const SANDBOX: &str = "dev.stockade.sandbox";
/// The id of the snapshot whose image it is.
pub(crate) const SNAPSHOT: &str = "dev.stockade.snapshot";
/// The build that made it.
pub(crate) const BUILD: &str = "dev.stockade.build";
/// The file with the id of the data directory.
const FILE: &str = "engine-id";
/// The length of an id.
const LENGTH: usize = 16;

/// Who owns objects in an engine.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    /// The id of the data directory.
    pub(crate) data: String,
    /// This build.
    pub(crate) build: String,
}

impl Owner {
    /// The owner for the directory of the runtime. Its id is made at the first use.
    pub(crate) fn open(directory: &Path, build: String) -> io::Result<Self> {
        let path = directory.join(FILE);
        loop {
            match std::fs::read_to_string(&path) {
                Ok(text) if is_id(text.trim()) => {
                    return Ok(Self { data: text.trim().to_owned(), build });
                }
                Ok(_) => return Err(io::Error::other(format!("{} is damaged", path.display()))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => create(&path)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The name of a sandbox's container.
    pub(crate) fn container(&self, id: &SandboxId) -> String {
        format!("stockade-{}-{id}", self.data)
    }

    /// The repository and the tag of a snapshot's image.
    pub(crate) fn image(&self, id: &SnapshotId) -> (String, String) {
        (format!("stockade-snapshot-{}", self.data), id.to_string())
    }

    /// The name of a snapshot's image.
    pub(crate) fn image_name(&self, id: &SnapshotId) -> String {
        let (repository, tag) = self.image(id);
        format!("{repository}:{tag}")
    }

    /// The labels of everything of a sandbox.
    pub(crate) fn of_sandbox(&self, id: &SandboxId) -> HashMap<String, String> {
        self.with((SANDBOX, id.to_string()))
    }

    /// The labels of the image of a snapshot.
    pub(crate) fn of_snapshot(&self, id: &SnapshotId) -> HashMap<String, String> {
        self.with((SNAPSHOT, id.to_string()))
    }

    /// The filter that finds everything of this data directory.
    pub(crate) fn filter(&self) -> HashMap<String, Vec<String>> {
        [("label".to_owned(), vec![format!("{DATA}={}", self.data)])].into()
    }

    fn with(&self, (name, value): (&str, String)) -> HashMap<String, String> {
        [
            (DATA.to_owned(), self.data.clone()),
            (BUILD.to_owned(), self.build.clone()),
            (name.to_owned(), value),
        ]
        .into()
    }
}

fn is_id(text: &str) -> bool {
    text.len() == LENGTH && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Makes the file. Of two processes that do so at the same time, one wins.
fn create(path: &Path) -> io::Result<()> {
    let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    let id: String = random.chars().filter(char::is_ascii_hexdigit).take(LENGTH).collect();
    let new = crate::own_file::write_beside(path, id.as_bytes(), 0o600)?;
    let linked = std::fs::hard_link(&new, path);
    std::fs::remove_file(&new)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_keeps_its_id_and_no_other_has_it() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let id = |place: &tempfile::TempDir| Owner::open(place.path(), "b".into()).unwrap().data;
        assert_eq!(id(&one), id(&one));
        assert_ne!(id(&one), id(&two));
        assert_eq!(one.path().read_dir().unwrap().count(), 1);
        std::fs::write(one.path().join(FILE), "x").unwrap();
        assert!(Owner::open(one.path(), "b".into()).is_err());
    }
}
