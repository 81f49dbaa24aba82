//! The copies of files of the host in a sandbox, and what was changed in that of a project.

use std::fs;
use std::path::Path;

use stockade_core::{SandboxId, SandboxSpec};
use stockade_runtime::{Error, Result, SandboxPath, WorkspaceChanges};
use stockade_runtime_remote::{host_error, pack_mount, remove_all, target};

use crate::client::OpenSandbox;
use crate::record::Record;
use crate::tree::blocking;

/// The most bytes of a workspace that are copied out.
const LIMIT_BYTES: u64 = 64 << 30;

impl OpenSandbox {
    /// Copies what a sandbox is to have of the host. What an earlier attempt has left is written again.
    pub(crate) async fn fill(&self, record: &Record, spec: &SandboxSpec) -> Result<()> {
        let id = &record.id;
        if let Some(workspace) = &spec.workspace {
            let (source, path) = (workspace.host.clone(), self.base(id));
            let copies = record.copies.clone();
            let packed = blocking(move || {
                let (archive, base) = copies.pack_workspace(&source)?;
                if let Some(above) = path.parent() {
                    fs::create_dir_all(above).map_err(|error| host_error(above, error))?;
                }
                base.write(&path)?;
                Ok(archive)
            });
            let to = SandboxPath::new(&workspace.inside)?;
            self.extract_inside(id, packed.await?, &to).await?;
        }
        for mount in &spec.mounts {
            let (mounted, to) = (mount.clone(), SandboxPath::new(target(mount)?)?);
            let packed = blocking(move || pack_mount(&mounted)).await?;
            self.extract_inside(id, packed, &to).await?;
        }
        Ok(())
    }

    /// Copies the changed files of the workspace to a new directory of the host, and lists the removed ones.
    pub(crate) async fn gather(&self, id: &SandboxId, to: &Path) -> Result<WorkspaceChanges> {
        let record = self.current(id).await?;
        let Some(inside) = record.copies.workspace() else {
            return Err(Error::Invalid(format!("the sandbox {id} has no workspace")));
        };
        self.copy_out(id, &SandboxPath::new(inside)?, to, LIMIT_BYTES).await?;
        let (base, to) = (self.base(id), to.to_owned());
        blocking(move || record.copies.changes(&base, &to)).await
    }

    /// Forgets what the copy of the workspace was.
    pub(crate) fn forget_base(&self, id: &SandboxId) -> Result<()> {
        remove_all(&self.base(id))
    }
}
