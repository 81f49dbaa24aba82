//! Copies of directories of the host in a sandbox elsewhere, and what was changed in them: what a copy was
//! at the beginning is kept here, and compared with what it is at the end (`copied_directory`).

use std::fs::{self, File};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use stockade_bundle::beneath::Timestamp;
use stockade_core::SandboxSpec;
use stockade_core::sandbox::HostMount;
use stockade_runtime::{Error, Result, WorkspaceChanges};

use crate::archive::{pack, pack_file};
use crate::copied_directory::{Base, remove_all, remove_of_copy};
use crate::records::host_error;

/// What a sandbox elsewhere has copies of, as its record says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    /// Where the copy of the workspace is inside, if there is one, and since when.
    #[serde(default)]
    pub workspace: Option<(String, u64)>,
    /// Where the copies of other files and directories of the host are.
    #[serde(default)]
    pub mounts: Vec<String>,
}

impl Copies {
    /// The copies that a sandbox is requested with.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that is not text, or something of the host that would be written.
    pub fn of(spec: &SandboxSpec, now_ms: u64) -> Result<Self> {
        let text = |path: &Path| {
            let text = path.to_str().map(str::to_owned);
            text.ok_or_else(|| Error::Invalid(format!("the path {} is not text", path.display())))
        };
        let inside = spec.workspace.as_ref().map(|it| text(&it.inside)).transpose()?;
        let mounts = spec.mounts.iter().map(|mount| text(&mount.inside)).collect::<Result<_>>()?;
        Ok(Self { workspace: inside.map(|inside| (inside, now_ms)), mounts })
    }

    /// Refuses what a copy cannot be: something of the host that the sandbox writes.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn check(spec: &SandboxSpec) -> Result<()> {
        match spec.mounts.iter().find(|mount| mount.writable) {
            None => Ok(()),
            Some(mount) => Err(Error::Invalid(format!(
                "{} cannot be changed from another machine: mount it read-only, or use a workspace",
                mount.host.display()
            ))),
        }
    }

    /// Whether a path below the workspace is the place of another copy.
    fn hides(&self, path: &Path) -> bool {
        self.workspace.as_ref().is_some_and(|(inside, _)| {
            let whole = Path::new(inside).join(path);
            self.mounts.iter().any(|mount| Path::new(mount) == whole)
        })
    }

    /// An archive of the workspace, without pipes, sockets and devices. What it has is written to the file
    /// `base`.
    ///
    /// # Errors
    /// [`Error::Host`] for what cannot be read or written.
    pub fn pack_workspace(&self, from: &Path, base: &Path) -> Result<File> {
        let archive = pack(from, |path| self.hides(path) || is_special(&from.join(path)))?;
        let failed = |error: io::Error| host_error(base, error);
        if let Some(above) = base.parent() {
            fs::create_dir_all(above).map_err(failed)?;
        }
        Base::of(&archive).map_err(failed)?.write(base)?;
        Ok(archive)
    }

    /// Removes from a copy that came back what has not changed, and lists what is missing in it. After an
    /// error there is no such directory any more.
    ///
    /// # Errors
    /// [`Error::Host`] for what cannot be read.
    pub fn changes(&self, base: &Path, copy: &Path) -> Result<WorkspaceChanges> {
        let Some((inside, since)) = &self.workspace else {
            return Err(Error::Invalid("the sandbox has no workspace".to_owned()));
        };
        let mut shown = self.mounts.iter().filter_map(|mount| {
            Path::new(mount).strip_prefix(inside).ok().filter(|path| *path != Path::new(""))
        });
        let compared = shown
            .try_for_each(|path| remove_of_copy(copy, path))
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
/// [`Error::Host`] if the host has no such file.
pub fn target(mount: &HostMount) -> Result<&Path> {
    let above = mount.inside.parent().unwrap_or(&mount.inside);
    Ok(if is_file(mount)? { above } else { &mount.inside })
}

/// An archive of what is mounted: of a file, with its name inside, or of what is in a directory.
///
/// # Errors
/// [`Error::Host`] if it cannot be read.
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

/// Forgets what a copy was.
///
/// # Errors
/// [`Error::Host`] if the file remains.
pub fn remove_base(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(host_error(path, error)),
        _ => Ok(()),
    }
}

/// Runs work on files in a thread of its own.
///
/// # Errors
/// Those of the work.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::Exhausted(error.to_string())))
}

/// Whether a path is neither a file, a directory nor a link.
fn is_special(path: &Path) -> bool {
    let kind = fs::symlink_metadata(path).map(|found| found.file_type());
    kind.is_ok_and(|kind| !(kind.is_file() || kind.is_dir() || kind.is_symlink()))
}

#[cfg(test)]
mod tests {
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
        let mount = |inside: &str, writable| HostMount {
            host: path("project"),
            inside: inside.into(),
            writable,
        };
        let mut spec = SandboxSpec {
            workspace: Some(Workspace { host: path("project"), inside: "/inside".into() }),
            mounts: vec![mount("/inside/shown", false)],
            ..SandboxSpec::default()
        };
        Copies::check(&spec).unwrap();
        let copies = Copies::of(&spec, 0).unwrap();
        let archive = copies.pack_workspace(&path("project"), &path("base")).unwrap();
        unpack(archive, 0, &path("copy"), 1000).unwrap();
        assert!(!path("copy/shown").exists());
        fs::create_dir(path("copy/shown")).unwrap();
        fs::write(path("copy/shown/other"), "").unwrap();
        fs::write(path("copy/file"), "two").unwrap();
        let changes = copies.changes(&path("base"), &path("copy")).unwrap();
        assert!(changes.removed.is_empty());
        assert_eq!(fs::read_dir(path("copy")).unwrap().count(), 1);
        spec.mounts.push(mount("/other", true));
        assert!(matches!(Copies::check(&spec), Err(Error::Invalid(_))));
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
