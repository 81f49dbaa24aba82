//! The copies of directories of the host in a workspace, and what was changed in them.

use std::path::{Path, PathBuf};

use stockade_core::SandboxId;
use stockade_core::sandbox::HostMount;
use stockade_runtime::{Error, Result, SandboxPath, State, WorkspaceChanges};
use stockade_runtime_remote::{blocking, pack_mount, remove_base, target};

use crate::client::Codeplane;
use crate::record::Record;

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
        let (source, base, copies) =
            (from.to_owned(), self.base(&record.id), record.copies.clone());
        let packed = blocking(move || copies.pack_workspace(&source, &base));
        self.extract_inside(record, packed.await?, to).await
    }

    /// Copies a file or directory of the host, which is only read.
    pub(crate) async fn copy_mount(&self, record: &Record, mount: &HostMount) -> Result<()> {
        let (mounted, to) = (mount.clone(), SandboxPath::new(target(mount)?)?);
        let packed = blocking(move || pack_mount(&mounted)).await?;
        self.extract_inside(record, packed, &to).await
    }

    /// Copies the changed files to a new directory of the host, and lists the removed ones.
    pub(crate) async fn gather(&self, id: &SandboxId, to: &Path) -> Result<WorkspaceChanges> {
        let record = self.current(id)?;
        let Some((inside, _)) = &record.copies.workspace else {
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
        blocking(move || record.copies.changes(&base, &to)).await
    }

    /// Forgets what the copy was.
    pub(crate) fn forget_base(&self, id: &SandboxId) -> Result<()> {
        remove_base(&self.base(id))
    }

    fn base(&self, id: &SandboxId) -> PathBuf {
        self.0.directory.join("workspaces").join(format!("{id}.json"))
    }
}
