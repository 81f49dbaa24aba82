//! The copy of a directory of the host in a workspace, and what was changed in it: what it was at the
//! beginning is kept here, and compared with what it is.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Seek as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Timestamp;
use stockade_core::SandboxId;
use stockade_core::sandbox::HostMount;
use stockade_runtime::{Error, Result, SandboxPath, State, WorkspaceChanges};
use stockade_runtime_remote::{host_error, pack};

use crate::client::Codeplane;
use crate::record::Record;
use crate::tree::blocking;

/// The most bytes of a workspace that are copied out.
const LIMIT_BYTES: u64 = 64 << 30;

/// What a file was at the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Initial {
    Directory,
    File { mode: u32, hash: String },
    Link(Vec<u8>),
}

/// All files of a copy at its beginning, by their paths.
type Base = BTreeMap<Vec<u8>, Initial>;

impl Codeplane {
    /// Copies a directory of the host to a new directory inside, and keeps what it was.
    pub(crate) async fn copy_workspace(
        &self,
        record: &Record,
        from: &Path,
        to: &SandboxPath,
    ) -> Result<()> {
        let (source, path) = (from.to_owned(), self.base(&record.id));
        let known = record.clone();
        let packed = blocking(move || {
            let archive = pack(&source, |path| known.hides(path))?;
            let failed = |error: io::Error| host_error(&path, error);
            let base = base_of(&archive).map_err(failed)?;
            let text = serde_json::to_vec(&base.into_iter().collect::<Vec<_>>());
            let text = text.map_err(|error| failed(error.into()))?;
            if let Some(above) = path.parent() {
                fs::create_dir_all(above).map_err(failed)?;
            }
            fs::write(&path, text).map_err(failed)?;
            Ok(archive)
        });
        self.extract_inside(record, packed.await?, to).await
    }

    /// Copies a file or directory of the host, which is only read, to the same place inside.
    pub(crate) async fn copy_mount(&self, record: &Record, mount: &HostMount) -> Result<()> {
        let source = mount.host.clone();
        let is_file = source.metadata().map_err(|error| host_error(&source, error))?.is_file();
        if is_file && source.file_name() != mount.inside.file_name() {
            let text = format!("{} must keep its name in a workspace elsewhere", source.display());
            return Err(Error::Invalid(text));
        }
        let above = mount.inside.parent().filter(|_| is_file).unwrap_or(&mount.inside);
        let to = SandboxPath::new(above)?;
        let packed = blocking(move || pack(&source, |_| false)).await?;
        self.extract_inside(record, packed, &to).await
    }

    /// Copies the changed files to a new directory of the host, and lists the removed ones.
    pub(crate) async fn gather(&self, id: &SandboxId, to: &Path) -> Result<WorkspaceChanges> {
        let record = self.current(id)?;
        let Some((inside, since)) = record.workspace.clone() else {
            return Err(Error::Invalid(format!("the sandbox {id} has no workspace")));
        };
        let inside = SandboxPath::new(inside)?;
        // Nothing of a suspended workspace can be read.
        let awake = self.require_awake(&record, "copy its changes").await;
        let is_paused = matches!(awake, Err(Error::WrongState { state: State::Paused, .. }));
        if is_paused {
            self.wake(&record).await?;
        }
        let copied = self.copy_out(id, &inside, to, LIMIT_BYTES).await;
        if is_paused {
            self.suspend(&record).await?;
        }
        copied?;
        let (base, to) = (self.base(id), to.to_owned());
        blocking(move || {
            let shown = record.mounts.iter().filter_map(|mount| {
                Path::new(mount).strip_prefix(inside.as_path()).ok().map(|path| to.join(path))
            });
            let compared = shown
                .into_iter()
                .try_for_each(|path| remove_all(&path))
                .and_then(|()| compare(&base, &to));
            if compared.is_err() {
                // The error is the one to report.
                let _ = fs::remove_dir_all(&to);
            }
            let seconds = i64::try_from(since / 1000).unwrap_or_default();
            let nanoseconds = u32::try_from(since % 1000).unwrap_or_default() * 1_000_000;
            let since = Timestamp { seconds, nanoseconds };
            compared.map(|removed| WorkspaceChanges { since, removed })
        })
        .await
    }

    /// Forgets what the copy was.
    pub(crate) fn forget_base(&self, id: &SandboxId) -> Result<()> {
        let path = self.base(id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(host_error(&path, error)),
            _ => Ok(()),
        }
    }

    fn base(&self, id: &SandboxId) -> PathBuf {
        self.0.directory.join("workspaces").join(format!("{id}.json"))
    }
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
        stockade_runtime_remote::unpack(archive, 0, &path("to"), 1 << 20).unwrap();
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
