//! Where the files of a new sandbox come from, in the dialects that name an image or a snapshot.

use stockade_api::{Caller, CreateSandbox, Problem, Restore, Sandbox, Sandboxes};
use stockade_core::SnapshotId;

/// Where the files of a new sandbox come from.
pub(crate) enum Source {
    /// The programs of the server's machine.
    Host,
    /// An image.
    Image(String),
    /// A snapshot.
    Snapshot(SnapshotId),
}

impl Source {
    /// Creates a sandbox with these files.
    pub(crate) async fn create(
        self,
        sandboxes: &dyn Sandboxes,
        caller: &Caller,
        sandbox: CreateSandbox,
    ) -> Result<Sandbox, Problem> {
        match self {
            // Its commands find what clients expect of a machine, `sudo` among it.
            Self::Host => sandboxes.create(caller, CreateSandbox { sudo: true, ..sandbox }).await,
            Self::Image(name) => {
                let sandbox = CreateSandbox { image: Some(name), ..sandbox };
                sandboxes.create(caller, sandbox).await
            }
            Self::Snapshot(snapshot_id) => {
                let sandbox = CreateSandbox { sudo: true, ..sandbox };
                sandboxes.restore(caller, Restore { snapshot_id, sandbox }).await
            }
        }
    }
}
