//! The backend of the real bubblewrap program: [`Bwrap`].
//!
//! A keeper of the native backend launches its sandboxes, and bubblewrap makes their innermost
//! namespaces (`docs/decisions`). So files, spools, leases, deadlines and the identity of commands are
//! those of the native backend, in a directory of their own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use stockade_core::runtime::RuntimeName;
use stockade_core::sandbox::{LimitChange, User};
use stockade_core::{ExecId, SandboxId, SandboxSpec, SnapshotId};
use stockade_runtime::{
    Capability, ChangesInPlace, Command, Connection, Content, EgressListeners, Exec, FileInfo,
    Offsets, PackedTree, ReadRange, Result, Runtime, SandboxPath, SnapshotInfo, Status, Target,
    TreeSize, Unsupported, Usage, WindowSize, WorkspaceChanges, WriteOptions,
};
use stockade_runtime_native::bubblewrap::{self, Launcher};
use stockade_runtime_native::{Native, Options};

/// Sandboxes of this machine that the program bubblewrap makes.
#[derive(Debug, Clone)]
pub struct Bwrap(Native);

impl Bwrap {
    /// The sandboxes of a data directory. `keeper` is the program of the keeper for bubblewrap, with
    /// its arguments. Nothing is started, and bubblewrap need not be installed.
    ///
    /// # Errors
    /// As [`Native::open`].
    pub fn open(data: PathBuf, keeper: Vec<OsString>) -> Result<Self> {
        // Unused sandboxes are not kept ready: most servers never hold one of this runtime.
        let options = Options { data, keeper, pool: 0 };
        Native::open_for(Launcher::Bubblewrap, options).map(Self)
    }
}

#[async_trait]
impl Runtime for Bwrap {
    fn name(&self) -> &'static str {
        RuntimeName::Bwrap.as_str()
    }

    async fn available(&self) -> std::result::Result<(), Unsupported> {
        let probed = tokio::task::spawn_blocking(bubblewrap::probe).await;
        let probed = probed
            .unwrap_or_else(|error| Err(Unsupported { reason: error.to_string(), remedy: None }));
        probed.map(drop)
    }

    async fn supports(&self, capability: Capability) -> std::result::Result<(), Unsupported> {
        self.0.supports(capability).await
    }

    fn has_stored_images(&self) -> bool {
        self.0.has_stored_images()
    }

    async fn resolve_image(&self, name: &str) -> Result<String> {
        self.0.resolve_image(name).await
    }

    async fn create(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<Status> {
        self.0.create(id, spec).await
    }

    async fn ship(&self, id: &SandboxId, from: &Path, to: &SandboxPath) -> Result<()> {
        self.0.ship(id, from, to).await
    }

    async fn execute(&self, id: &SandboxId, exec: &ExecId, command: &Command) -> Result<Exec> {
        self.0.execute(id, exec, command).await
    }

    async fn collect(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        to: &Path,
        limit_bytes: u64,
    ) -> Result<()> {
        self.0.collect(id, from, to, limit_bytes).await
    }

    async fn change_limits(&self, id: &SandboxId, change: &LimitChange) -> Result<()> {
        self.0.change_limits(id, change).await
    }

    async fn end(&self, id: &SandboxId) -> Result<()> {
        self.0.end(id).await
    }

    async fn cleanup(&self, id: &SandboxId) -> Result<()> {
        self.0.cleanup(id).await
    }

    async fn attach(&self, id: &SandboxId, exec: &ExecId, from: Offsets) -> Result<Exec> {
        self.0.attach(id, exec, from).await
    }

    async fn signal(&self, id: &SandboxId, exec: &ExecId, signal: i32) -> Result<()> {
        self.0.signal(id, exec, signal).await
    }

    async fn kill(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.0.kill(id, exec).await
    }

    async fn resize(&self, id: &SandboxId, exec: &ExecId, size: WindowSize) -> Result<()> {
        self.0.resize(id, exec, size).await
    }

    async fn acknowledge(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.0.acknowledge(id, exec).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Status> {
        self.0.inspect(id).await
    }

    async fn usage(&self, id: &SandboxId) -> Result<Usage> {
        self.0.usage(id).await
    }

    async fn list(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Status>> {
        // Most servers hold none, and need no keeper for that answer.
        if !self.0.may_have_sandboxes() {
            return Ok(Vec::new());
        }
        self.0.list(labels).await
    }

    async fn renew(&self, id: &SandboxId, lease: Option<Duration>) -> Result<()> {
        self.0.renew(id, lease).await
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        self.0.pause(id).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        self.0.resume(id).await
    }

    async fn changes(&self, id: &SandboxId, to: &Path) -> Result<WorkspaceChanges> {
        self.0.changes(id, to).await
    }

    async fn snapshot_changes(&self, snapshot: &SnapshotId, to: &Path) -> Result<WorkspaceChanges> {
        self.0.snapshot_changes(snapshot, to).await
    }

    async fn changes_in_place(
        &self,
        id: &SandboxId,
        snapshot: Option<&SnapshotId>,
    ) -> Result<Option<ChangesInPlace>> {
        self.0.changes_in_place(id, snapshot).await
    }

    async fn snapshot(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<SnapshotInfo> {
        self.0.snapshot(id, snapshot).await
    }

    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<()> {
        self.0.remove_snapshot(snapshot).await
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        self.0.snapshots().await
    }

    async fn connect(&self, id: &SandboxId, target: &Target) -> Result<Box<dyn Connection>> {
        self.0.connect(id, target).await
    }

    async fn listeners(&self, id: &SandboxId) -> Result<EgressListeners> {
        self.0.listeners(id).await
    }

    async fn trust(&self, id: &SandboxId, certificates: &str) -> Result<()> {
        self.0.trust(id, certificates).await
    }

    async fn agent_socket(&self, id: &SandboxId) -> Result<UnixListener> {
        self.0.agent_socket(id).await
    }

    async fn stat(&self, id: &SandboxId, path: &SandboxPath) -> Result<FileInfo> {
        self.0.stat(id, path).await
    }

    async fn read_directory(&self, id: &SandboxId, path: &SandboxPath) -> Result<Vec<FileInfo>> {
        self.0.read_directory(id, path).await
    }

    async fn read_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        range: ReadRange,
    ) -> Result<Content> {
        self.0.read_file(id, path, range).await
    }

    async fn write_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        content: Content,
        options: WriteOptions,
    ) -> Result<u64> {
        self.0.write_file(id, path, content, options).await
    }

    async fn unpack(
        &self,
        id: &SandboxId,
        to: &SandboxPath,
        mode: u32,
        content: Content,
    ) -> Result<TreeSize> {
        self.0.unpack(id, to, mode, content).await
    }

    async fn pack(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        mark: Option<Vec<u8>>,
    ) -> Result<PackedTree> {
        self.0.pack(id, from, mark).await
    }

    async fn make_directory(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        options: WriteOptions,
    ) -> Result<()> {
        self.0.make_directory(id, path, options).await
    }

    async fn set_attributes(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> Result<()> {
        self.0.set_attributes(id, path, mode, owner).await
    }

    async fn rename(&self, id: &SandboxId, from: &SandboxPath, to: &SandboxPath) -> Result<()> {
        self.0.rename(id, from, to).await
    }

    async fn remove(&self, id: &SandboxId, path: &SandboxPath) -> Result<()> {
        self.0.remove(id, path).await
    }
}
