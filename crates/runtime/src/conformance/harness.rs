//! What every case starts with: a client of the backend, unique ids, and waiting with a deadline.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use stockade_core::{ExecId, SandboxId, SandboxSpec, SnapshotId};
use tempfile::TempDir;

use super::backend::Backend;

use super::{DEADLINE, Need};
use crate::files::SandboxPath;
use crate::runtime::Runtime;

/// The polling interval for conditions without a notification.
const INTERVAL: Duration = Duration::from_millis(20);

/// A backend, a client of it, and everything that the case has created with it.
#[derive(Debug)]
pub struct Harness {
    pub(super) backend: Arc<dyn Backend>,
    runtime: Mutex<Option<Arc<dyn Runtime>>>,
    prefix: String,
    count: AtomicU32,
    sandboxes: Mutex<Vec<SandboxId>>,
    snapshots: Mutex<Vec<SnapshotId>>,
    host: TempDir,
}

impl Harness {
    pub(super) async fn open(backend: Arc<dyn Backend>) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let prefix = format!("case-{:x}-{:x}", std::process::id(), now.as_nanos());
        let host = tempfile::Builder::new().prefix("stockade-conformance-").tempdir().unwrap();
        // Files that a case puts there must be unreachable because of their path, not because of
        // their owner.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(host.path(), open).unwrap();
        let runtime = within("a client", backend.open()).await.expect("a client");
        Self {
            backend,
            runtime: Mutex::new(Some(runtime)),
            prefix,
            count: AtomicU32::new(0),
            sandboxes: Mutex::default(),
            snapshots: Mutex::default(),
            host,
        }
    }

    /// Why a case with these needs cannot run here.
    pub(super) async fn lacks(&self, needs: &[Need]) -> Option<String> {
        for need in needs {
            let has = match need {
                Need::Shell => self.backend.shell(),
                Need::Server => self.backend.server(),
                Need::Pipes => self.backend.pipes(),
                Need::Processes => self.backend.processes(),
                Need::RawPaths => self.backend.raw_paths(),
                Need::Holder => self.backend.holder(),
                Need::Can(capability) => {
                    let supported = self.runtime().supports(*capability).await;
                    supported.map_err(|unsupported| format!("{capability}: {}", unsupported.reason))
                }
            };
            if let Err(reason) = has {
                return Some(reason);
            }
        }
        None
    }

    /// The client.
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::clone(self.runtime.lock().unwrap().as_ref().expect("a client"))
    }

    /// Drops the client, if there is one, and creates another.
    pub async fn reopen(&self) {
        self.lose_client();
        let runtime = within("another client", self.backend.open()).await.expect("a client");
        *self.runtime.lock().unwrap() = Some(runtime);
    }

    /// Kills the process that holds the sandboxes, and drops the client. There is none until
    /// [`Harness::reopen`].
    pub async fn kill_holder(&self) {
        within("the holder's end", self.backend.kill_holder()).await;
        self.lose_client();
    }

    fn lose_client(&self) {
        self.runtime.lock().unwrap().take();
    }

    /// A unique id.
    pub fn id(&self) -> SandboxId {
        let id = SandboxId::new(self.name()).unwrap();
        self.sandboxes.lock().unwrap().push(id.clone());
        id
    }

    /// A unique id.
    pub fn snapshot_id(&self) -> SnapshotId {
        let id = SnapshotId::new(self.name()).unwrap();
        self.snapshots.lock().unwrap().push(id.clone());
        id
    }

    /// A unique id.
    pub(super) fn exec_id(&self) -> ExecId {
        ExecId::new(self.name()).unwrap()
    }

    /// A unique text that is valid as an id, a label or a file name.
    pub(super) fn name(&self) -> String {
        format!("{}-{}", self.prefix, self.count.fetch_add(1, Ordering::Relaxed))
    }

    /// The spec of the cases' sandboxes.
    pub fn spec(&self) -> SandboxSpec {
        self.backend.spec()
    }

    /// A directory of the host that only this case uses.
    pub(super) fn host(&self) -> &Path {
        self.host.path()
    }

    /// Removes everything that the case has created, and reports what is left of it.
    pub(super) async fn clean_up(&self) -> Result<(), String> {
        if self.runtime.lock().unwrap().is_none() {
            self.reopen().await;
        }
        let runtime = self.runtime();
        let sandboxes = std::mem::take(&mut *self.sandboxes.lock().unwrap());
        for id in &sandboxes {
            let cleaned = within("a cleanup", runtime.cleanup(id)).await;
            cleaned.map_err(|error| format!("cleanup of {id}: {error}"))?;
        }
        let snapshots = std::mem::take(&mut *self.snapshots.lock().unwrap());
        for id in &snapshots {
            let removed = within("the removal of a snapshot", runtime.remove_snapshot(id)).await;
            removed.map_err(|error| format!("removal of the snapshot {id}: {error}"))?;
        }
        drop(runtime);
        let end = tokio::time::Instant::now() + DEADLINE;
        loop {
            let left = self.backend.leftovers().await;
            if left.is_empty() {
                return Ok(());
            }
            if tokio::time::Instant::now() > end {
                return Err(left.join("; "));
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    pub(super) async fn close(&self) {
        drop(self.runtime.lock().unwrap().take());
        self.backend.close().await;
    }
}

/// The result of something that has to happen.
pub(super) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    within_long(what, DEADLINE, future).await
}

/// The same for operations that may take longer.
pub(super) async fn within_long<T>(
    what: &str,
    deadline: Duration,
    future: impl Future<Output = T>,
) -> T {
    let result = tokio::time::timeout(deadline, future).await;
    result.unwrap_or_else(|_| panic!("{what}: waited for {} s", deadline.as_secs()))
}

/// Waits until a condition is true.
pub(super) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    within(what, async {
        while !is_so().await {
            tokio::time::sleep(INTERVAL).await;
        }
    })
    .await;
}

/// A path inside.
pub(super) fn path(text: impl AsRef<std::ffi::OsStr>) -> SandboxPath {
    SandboxPath::new(text).unwrap()
}
