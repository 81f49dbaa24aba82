//! Copies of directories of the host in a sandbox elsewhere, and what was changed in them: what a copy was
//! at the beginning is kept here, and compared with what it is at the end.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Timestamp;
use stockade_core::SandboxSpec;
use stockade_runtime::{Error, Result, WorkspaceChanges};

use crate::archive::pack;
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
        let pairs: Vec<_> = base_of(&archive).map_err(failed)?.into_iter().collect();
        let text = serde_json::to_vec(&pairs).map_err(|error| failed(error.into()))?;
        if let Some(above) = base.parent() {
            fs::create_dir_all(above).map_err(failed)?;
        }
        fs::write(base, text).map_err(failed)?;
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
            Path::new(mount).strip_prefix(inside).ok().map(|path| copy.join(path))
        });
        let compared =
            shown.try_for_each(|path| remove_all(&path)).and_then(|()| compare(base, copy));
        if compared.is_err() {
            // The error is the one to report.
            let _ = fs::remove_dir_all(copy);
        }
        let seconds = i64::try_from(since / 1000).unwrap_or_default();
        let nanoseconds = u32::try_from(since % 1000).unwrap_or_default() * 1_000_000;
        let since = Timestamp { seconds, nanoseconds };
        compared.map(|removed| WorkspaceChanges { since, removed })
    }
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

/// What a file was at the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Initial {
    Directory,
    File { mode: u32, hash: String },
    Link(Vec<u8>),
}

/// All files of a copy at its beginning, by their paths.
type Base = BTreeMap<Vec<u8>, Initial>;

/// Whether a path is neither a file, a directory nor a link.
fn is_special(path: &Path) -> bool {
    let kind = fs::symlink_metadata(path).map(|found| found.file_type());
    kind.is_ok_and(|kind| !(kind.is_file() || kind.is_dir() || kind.is_symlink()))
}

/// Removes a copy of something else, whatever is there now. Links above were not extracted.
fn remove_all(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(host_error(path, error)),
        _ => Ok(()),
    }
}

/// What an archive of ours has.
fn base_of(archive: &File) -> io::Result<Base> {
    let mut archive = archive.try_clone()?;
    archive.rewind()?;
    let mut base = Base::new();
    let mut entries = tar::Archive::new(io::BufReader::new(&archive));
    for entry in entries.entries()? {
        let mut entry = entry?;
        let path = entry.path_bytes().into_owned();
        let path = path.strip_suffix(b"/").unwrap_or(&path).to_vec();
        let initial = match entry.header().entry_type() {
            tar::EntryType::Directory => Initial::Directory,
            tar::EntryType::Symlink => {
                Initial::Link(entry.link_name_bytes().unwrap_or_default().into_owned())
            }
            _ => {
                let mode = entry.header().mode()? & 0o777;
                Initial::File { mode, hash: hash(&mut entry)? }
            }
        };
        base.insert(path, initial);
    }
    (&archive).rewind()?;
    Ok(base)
}

fn hash(content: &mut impl io::Read) -> io::Result<String> {
    let (mut digest, mut buffer) = (Sha256::new(), vec![0; 64 << 10]);
    loop {
        match content.read(&mut buffer)? {
            0 => break,
            length => digest.update(&buffer[..length]),
        }
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Removes from a copy what has not changed, and lists what is missing in it.
fn compare(base: &Path, copy: &Path) -> Result<Vec<RelativePath>> {
    let text = fs::read(base).map_err(|error| host_error(base, error))?;
    let pairs: Vec<(Vec<u8>, Initial)> =
        serde_json::from_slice(&text).map_err(|error| host_error(base, error.into()))?;
    let mut removed: Vec<RelativePath> = Vec::new();
    // A directory comes before what is in it.
    for (path, initial) in pairs {
        let relative =
            RelativePath::new(path.clone()).map_err(|error| Error::Invalid(error.to_string()))?;
        if removed.iter().any(|above| relative.is_within(above)) {
            continue;
        }
        let there = copy.join(OsStr::from_bytes(&path));
        let failed = |error| host_error(&there, error);
        // What is above is a directory, or the path was removed with it.
        let found = match fs::symlink_metadata(&there) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                removed.push(relative);
                continue;
            }
            Err(error) => return Err(failed(error)),
        };
        let is_same = match &initial {
            Initial::Directory => {
                if !found.is_dir() {
                    removed.push(relative);
                }
                continue;
            }
            Initial::Link(target) => {
                found.is_symlink()
                    && fs::read_link(&there).map_err(failed)?.as_os_str().as_bytes() == target
            }
            Initial::File { mode, hash: before } => {
                found.is_file() && found.mode() & 0o777 == *mode && {
                    // The owner may have taken the right to read it from itself.
                    let readable = fs::Permissions::from_mode(found.mode() | 0o400);
                    fs::set_permissions(&there, readable).map_err(failed)?;
                    let mut file = File::open(&there).map_err(failed)?;
                    let now = hash(&mut file).map_err(failed)?;
                    fs::set_permissions(&there, found.permissions()).map_err(failed)?;
                    now == *before
                }
            }
        };
        if is_same {
            fs::remove_file(&there).map_err(failed)?;
        } else if found.is_dir() {
            removed.push(relative);
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_what_has_changed_is_left_of_a_copy() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        fs::create_dir_all(path("from/below/deep")).unwrap();
        for name in ["same", "changed", "mode", "gone", "below/deep/file", "kind"] {
            fs::write(path("from").join(name), name).unwrap();
        }
        symlink("same", path("from/link")).unwrap();
        let base = base_of(&pack(&path("from"), |_| false).unwrap()).unwrap();
        let pairs: Vec<_> = base.into_iter().collect();
        fs::write(path("base"), serde_json::to_vec(&pairs).unwrap()).unwrap();
        let archive = pack(&path("from"), |_| false).unwrap();
        crate::archive::unpack(archive, 0, &path("to"), 1 << 20).unwrap();
        fs::write(path("to/changed"), "other").unwrap();
        fs::write(path("to/new"), "new").unwrap();
        fs::set_permissions(path("to/mode"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::remove_file(path("to/gone")).unwrap();
        fs::remove_dir_all(path("to/below")).unwrap();
        fs::remove_file(path("to/kind")).unwrap();
        fs::create_dir(path("to/kind")).unwrap();
        let removed = compare(&path("base"), &path("to")).unwrap();
        let removed: Vec<_> = removed.iter().map(RelativePath::as_bytes).collect();
        assert_eq!(removed, [&b"below"[..], b"gone", b"kind"]);
        let mut left: Vec<_> = fs::read_dir(path("to"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["changed", "kind", "mode", "new"]);
    }
}
