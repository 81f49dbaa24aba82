//! Which files of the host a sandbox elsewhere has as copies: its workspace, whose changes are found at the end, and
//! what is mounted read-only.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stockade_bundle::beneath::Timestamp;
use stockade_core::SandboxSpec;
use stockade_core::sandbox::HostMount;
use stockade_runtime::{Error, Result, WorkspaceChanges};

use crate::archive::{pack, pack_file};
use crate::copied_directory::{Base, remove_all};
use crate::records::{host_error, now_ms};

/// The copies of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    /// Where the copy of the workspace is inside, and since when, in milliseconds since 1970.
    workspace: Option<(PathBuf, u64)>,
    /// Where the other copies are.
    mounts: Vec<PathBuf>,
}

impl Copies {
    /// Those of a request, made now.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a writable mount: the host would not see what is written elsewhere.
    pub fn of(spec: &SandboxSpec) -> Result<Self> {
        if let Some(mount) = spec.mounts.iter().find(|mount| mount.writable) {
            let host = mount.host.display();
            return Err(Error::Invalid(format!(
                "{host} cannot be changed from a sandbox elsewhere: mount it read-only, or use a \
                 workspace"
            )));
        }
        let workspace = spec.workspace.as_ref().map(|workspace| workspace.inside.clone());
        Ok(Self {
            workspace: workspace.map(|inside| (inside, now_ms())),
            mounts: spec.mounts.iter().map(|mount| mount.inside.clone()).collect(),
        })
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.workspace.is_none() && self.mounts.is_empty()
    }

    /// Where the copy of the workspace is inside.
    #[must_use]
    pub fn workspace(&self) -> Option<&Path> {
        self.workspace.as_ref().map(|(inside, _)| inside.as_path())
    }

    /// An archive of the workspace, without the places of other copies, and what is in it.
    ///
    /// # Errors
    /// A file cannot be read, or is neither a file, a directory nor a link.
    pub fn pack_workspace(&self, from: &Path) -> Result<(File, Base)> {
        let inside = self.workspace().unwrap_or_else(|| Path::new("/"));
        let archive = pack(from, |path| self.mounts.contains(&inside.join(path)))?;
        let base = Base::of(&archive).map_err(|error| host_error(from, error))?;
        Ok((archive, base))
    }

    /// Leaves in a copy of the whole workspace only what has changed, and lists what was removed. After an error there is
    /// no copy.
    ///
    /// # Errors
    /// A file cannot be read, or there is no workspace.
    pub fn changes(&self, base: &Path, copy: &Path) -> Result<WorkspaceChanges> {
        let Some((inside, since)) = &self.workspace else {
            return Err(Error::Invalid("the sandbox has no workspace".to_owned()));
        };
        let mut below = self.mounts.iter().filter_map(|mount| mount.strip_prefix(inside).ok());
        let compared = below
            .try_for_each(|path| remove_all(&copy.join(path)))
            .and_then(|()| Base::read(base)?.leave_changes(copy));
        if compared.is_err() {
            // The error is the one to report.
            let _ = remove_all(copy);
        }
        let seconds = i64::try_from(since / 1000).unwrap_or_default();
        let nanoseconds = u32::try_from(since % 1000).unwrap_or_default() * 1_000_000;
        let since = Timestamp { seconds, nanoseconds };
        compared.map(|removed| WorkspaceChanges { since, removed })
    }
}

/// The directory inside to which a mount is copied: that around a file, or the place of a directory.
///
/// # Errors
/// The host has no such file.
pub fn target(mount: &HostMount) -> Result<&Path> {
    let above = mount.inside.parent().unwrap_or(&mount.inside);
    Ok(if is_file(mount)? { above } else { &mount.inside })
}

/// An archive of what is mounted: of a file, with its name inside, or of what is in a directory.
///
/// # Errors
/// It cannot be read.
pub fn pack_mount(mount: &HostMount) -> Result<File> {
    match mount.inside.file_name() {
        Some(name) if is_file(mount)? => pack_file(&mount.host, name),
        _ => pack(&mount.host, |_| false),
    }
}

fn is_file(mount: &HostMount) -> Result<bool> {
    let found = mount.host.metadata().map_err(|error| host_error(&mount.host, error))?;
    Ok(found.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use stockade_core::sandbox::Workspace;

    use super::*;
    use crate::unpack;

    #[test]
    fn what_is_mounted_is_no_change_of_the_workspace() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        fs::create_dir_all(path("project/shown")).unwrap();
        fs::write(path("project/file"), "one").unwrap();
        fs::write(path("project/shown/own"), "").unwrap();
        fs::write(path("program"), "#!").unwrap();
        let mount = |host: &str, inside: &str, writable| HostMount {
            host: path(host),
            inside: inside.into(),
            writable,
        };
        let mut spec = SandboxSpec {
            workspace: Some(Workspace { host: path("project"), inside: "/inside".into() }),
            mounts: vec![mount("program", "/inside/shown", false)],
            ..SandboxSpec::default()
        };
        let copies = Copies::of(&spec).unwrap();
        let (archive, base) = copies.pack_workspace(&path("project")).unwrap();
        base.write(&path("base")).unwrap();
        unpack(archive, 0, &path("copy"), 1000).unwrap();
        assert!(!path("copy/shown").exists());
        fs::create_dir(path("copy/shown")).unwrap();
        fs::write(path("copy/shown/other"), "").unwrap();
        fs::write(path("copy/file"), "two").unwrap();
        let changes = copies.changes(&path("base"), &path("copy")).unwrap();
        assert!(changes.removed.is_empty());
        let left: Vec<_> = fs::read_dir(path("copy")).unwrap().collect();
        assert_eq!(left.len(), 1);
        spec.mounts.push(mount("project", "/other", true));
        assert!(matches!(Copies::of(&spec), Err(Error::Invalid(_))));
    }

    #[test]
    fn a_file_gets_its_name_inside() {
        let top = tempfile::tempdir().unwrap();
        let host = top.path().join("program");
        fs::write(&host, "#!").unwrap();
        let mount = HostMount { host, inside: "/bin/other".into(), writable: false };
        assert_eq!(target(&mount).unwrap(), Path::new("/bin"));
        let to = top.path().join("to");
        unpack(pack_mount(&mount).unwrap(), 0, &to, 1000).unwrap();
        assert_eq!(fs::read_to_string(to.join("other")).unwrap(), "#!");
    }
}
