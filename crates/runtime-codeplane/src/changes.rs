//! The copies of files of the host in a workspace, and what was changed in that of a project.

use std::fs;
use std::path::{Path, PathBuf};

use stockade_core::SandboxId;
use stockade_core::sandbox::HostMount;
use stockade_runtime::{Error, Result, SandboxPath, State, WorkspaceChanges};
use stockade_runtime_remote::{host_error, pack_mount, remove_all, target};

use crate::client::Codeplane;
use crate::record::Record;
use crate::tree::blocking;

/// The most bytes of a workspace that are copied out.
const LIMIT_BYTES: u64 = 64 << 30;

impl Codeplane {
    /// Copies a directory of the host to the place of the workspace inside, and keeps what it was.
    pub(crate) async fn copy_workspace(
        &self,
        record: &Record,
        from: &Path,
        to: &SandboxPath,
    ) -> Result<()> {
        let (source, path) = (from.to_owned(), self.base(&record.id));
        let copies = record.copies.clone();
        let packed = blocking(move || {
            let (archive, base) = copies.pack_workspace(&source)?;
            if let Some(above) = path.parent() {
                fs::create_dir_all(above).map_err(|error| host_error(above, error))?;
            }
            base.write(&path)?;
            Ok(archive)
        });
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
        let Some(inside) = record.copies.workspace() else {
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
        remove_all(&self.base(id))
    }

    fn base(&self, id: &SandboxId) -> PathBuf {
        self.0.directory.join("workspaces").join(format!("{id}.json"))
    }
}
