//! The copy of a directory of the host in a workspace, and what was changed in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stockade_bundle::beneath::Timestamp;
use stockade_core::SandboxId;
use stockade_core::sandbox::HostMount;
use stockade_runtime::{Error, Result, SandboxPath, State, WorkspaceChanges};
use stockade_runtime_remote::{Base, host_error, pack, remove_all};

use crate::client::Codeplane;
use crate::record::Record;
use crate::tree::blocking;

/// The most bytes of a workspace that are copied out.
const LIMIT_BYTES: u64 = 64 << 30;

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
            let base = Base::of(&archive).map_err(failed)?;
            if let Some(above) = path.parent() {
                fs::create_dir_all(above).map_err(failed)?;
            }
            base.write(&path)?;
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
                .and_then(|()| Base::read(&base)?.leave_changes(&to));
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
