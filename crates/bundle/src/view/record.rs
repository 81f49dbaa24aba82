//! The description of a view on disk: enough to continue with it after its process was killed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Error;
use crate::beneath::{self, Dir, Timestamp};
use crate::manifest::ViewKind;
use crate::path::{RelativePath, bytes_as_json};
use crate::project::Project;

/// A longer description was not written by this module.
const MAX_BYTES: u64 = 16 << 20;

/// The byte with which a description is overwritten.
const BLANK: u8 = b' ';

/// The project and the purpose of a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    #[serde(with = "bytes_as_json")]
    project: Vec<u8>,
    /// How copy-on-write was implemented.
    pub kind: ViewKind,
    /// When it was created: what the host changed later is a conflict.
    pub started: Timestamp,
    /// When a copy was complete, or what an overlay has from the start. Anything with an earlier
    /// timestamp is unchanged since.
    #[serde(default)]
    pub copied: Option<Timestamp>,
    /// The command that runs in it.
    pub command: Vec<String>,
    /// Labels by which its bundle can be found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The digest of the image that it runs in, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The commit that the project's HEAD named, if there was one.
    pub base_ref: Option<String>,
    /// The exit code of its command, if that ended and the changes could not become a bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
}

/// The purpose of a view, as given by its creator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ViewPurpose {
    /// The command that runs in it.
    pub command: Vec<String>,
    /// Labels by which its bundle can be found.
    pub labels: BTreeMap<String, String>,
    /// The digest of the image that it runs in, if there is one.
    pub image: Option<String>,
}

impl<S: AsRef<[String]>> From<S> for ViewPurpose {
    fn from(command: S) -> Self {
        Self { command: command.as_ref().to_vec(), ..Self::default() }
    }
}

/// One view in the list of [`super::View::list`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its name.
    pub id: String,
    /// Whether a process has locked it.
    pub live: bool,
    /// Its description on disk; `None` if that is missing or unusable.
    pub record: Option<Record>,
}

impl Summary {
    pub(super) fn started(&self) -> Option<Timestamp> {
        self.record.as_ref().map(|record| record.started)
    }
}

impl Record {
    pub(super) fn new(
        project: &Project,
        kind: ViewKind,
        about: ViewPurpose,
        started: Timestamp,
    ) -> Self {
        Self {
            project: project.root.as_os_str().as_bytes().to_vec(),
            kind,
            started,
            copied: None,
            command: about.command,
            labels: about.labels,
            image: about.image,
            base_ref: project.base_ref.clone(),
            exit_code: None,
        }
    }

    /// The project's root.
    pub fn project(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.project))
    }

    pub(super) fn write(&self, dir: &Dir) -> Result<(), Error> {
        let failed = |source| Error::Operation { operation: "describe", source };
        // A stored view has a blank description, whose remaining blanks may follow.
        let mut file = match dir.open_file_to_write(&name()) {
            Err(error) if error.errno() == Some(rustix::io::Errno::NOENT) => {
                dir.create_file(&name(), 0o600)
            }
            other => other,
        }
        .map_err(failed)?;
        let content = serde_json::to_vec(self).map_err(std::io::Error::from);
        content.and_then(|content| file.write_all(&content)).map_err(|source| {
            failed(beneath::Error::Io { operation: "write", path: name().quoted(), source })
        })
    }

    pub(super) fn read(dir: &Dir) -> Result<Self, String> {
        let file = dir.open_file(&name()).map_err(|error| error.to_string())?;
        let mut content = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut content).map_err(|error| error.to_string())?;
        serde_json::from_slice(&content).map_err(|error| error.to_string())
    }

    /// Whether the view's process ended before it had written the description.
    pub(super) fn is_absent(dir: &Dir) -> bool {
        let mut first = [BLANK];
        match dir.open_file(&name()) {
            Err(error) => error.errno() == Some(rustix::io::Errno::NOENT),
            Ok(mut file) => file.read(&mut first).is_ok_and(|_| first == [BLANK]),
        }
    }

    /// Overwrites the description, so that nothing of it is left. The file keeps its length: freeing
    /// its disk space takes longer than everything else at the end of a run.
    pub(super) fn clear(dir: &Dir) -> Result<(), Error> {
        let failed = |source| Error::Operation { operation: "clear", source };
        let mut file = dir.open_file_to_write(&name()).map_err(failed)?;
        let mut blank = || {
            let length = usize::try_from(file.metadata()?.len()).map_err(std::io::Error::other)?;
            file.write_all(&vec![BLANK; length])
        };
        blank().map_err(|source| {
            let path = name().quoted();
            failed(beneath::Error::Io { operation: "overwrite", path, source })
        })
    }

    /// Removes the description, if it exists.
    pub(super) fn remove(dir: &Dir) -> Result<(), Error> {
        match dir.remove_file(&name()) {
            Err(error) if error.errno() == Some(rustix::io::Errno::NOENT) => Ok(()),
            other => other.map_err(|source| Error::Operation { operation: "remove", source }),
        }
    }
}

fn name() -> RelativePath {
    RelativePath::literal("view.json")
}
