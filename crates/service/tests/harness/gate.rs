//! A runtime in memory with a gate before and after each call, at which a test can hold it.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use stockade_core::sandbox::{LimitChange, User};
use stockade_core::{ExecId, SandboxId, SandboxSpec, SnapshotId};
use stockade_runtime::fake::Fake;
use stockade_runtime::{
    Capability, Command, Connection, Content, EgressListeners, Exec, FileInfo, Offsets, PackedTree,
    ReadRange, Result, Runtime, SandboxPath, SnapshotInfo, Status, Target, TreeSize, Unsupported,
    Usage, WindowSize, WorkspaceChanges, WriteOptions,
};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// The point at which a call is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Before its effect.
    Before,
    /// After its effect, before its result is returned.
    After,
}

/// Holds the calls of one operation, until it is opened.
#[derive(Debug, Clone)]
pub(crate) struct Gate(watch::Sender<GateState>);

#[derive(Debug, Clone, Copy, Default)]
struct GateState {
    target: Option<(&'static str, Side)>,
    count: usize,
}

impl Default for Gate {
    fn default() -> Self {
        Self(watch::Sender::new(GateState::default()))
    }
}

impl Gate {
    /// Holds the calls of an operation, by the name of its method, from now on.
    pub(crate) fn hold(&self, operation: &'static str, side: Side) {
        self.0.send_replace(GateState { target: Some((operation, side)), count: 0 });
    }

    /// Waits until this many calls are held.
    pub(crate) async fn wait_for_held(&self, count: usize) {
        let mut held = self.0.subscribe();
        let reached = held.wait_for(|held| held.count >= count);
        tokio::time::timeout(super::PATIENCE, reached).await.unwrap().unwrap();
    }

    /// Releases all calls.
    pub(crate) fn open(&self) {
        self.0.send_replace(GateState::default());
    }

    async fn pass(&self, operation: &'static str, side: Side) {
        let is_held = |held: &GateState| held.target == Some((operation, side));
        if !is_held(&self.0.borrow()) {
            return;
        }
        self.0.send_modify(|held| held.count += 1);
        let _ = self.0.subscribe().wait_for(|held| !is_held(held)).await;
    }
}

/// The runtime. Its commands run in the async runtime that created it, not in the one that calls
/// it.
#[derive(Debug)]
pub(crate) struct GatedRuntime {
    fake: Fake,
    gate: Gate,
    home: Handle,
}

impl GatedRuntime {
    /// A runtime whose commands run in the async runtime of the caller.
    pub(crate) fn new(fake: Fake, gate: Gate) -> Self {
        Self { fake, gate, home: Handle::current() }
    }

    async fn gated_call<T>(&self, name: &'static str, call: impl Future<Output = T> + Send) -> T {
        self.gate.pass(name, Side::Before).await;
        let answer = InRuntime { call: Box::pin(call), home: &self.home }.await;
        self.gate.pass(name, Side::After).await;
        answer
    }
}

/// A call whose tasks are spawned in another async runtime.
struct InRuntime<'a, F> {
    call: Pin<Box<F>>,
    home: &'a Handle,
}

impl<F: Future> Future for InRuntime<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _home = self.home.enter();
        self.call.as_mut().poll(context)
    }
}

#[async_trait]
impl Runtime for GatedRuntime {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn supports(&self, capability: Capability) -> std::result::Result<(), Unsupported> {
        self.fake.supports(capability).await
    }

    async fn create(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<Status> {
        self.gated_call("create", self.fake.create(id, spec)).await
    }

    async fn ship(&self, id: &SandboxId, from: &Path, to: &SandboxPath) -> Result<()> {
        self.gated_call("ship", self.fake.ship(id, from, to)).await
    }

    async fn execute(&self, id: &SandboxId, exec: &ExecId, command: &Command) -> Result<Exec> {
        self.gated_call("execute", self.fake.execute(id, exec, command)).await
    }

    async fn collect(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        to: &Path,
        limit_bytes: u64,
    ) -> Result<()> {
        self.gated_call("collect", self.fake.collect(id, from, to, limit_bytes)).await
    }

    async fn change_limits(&self, id: &SandboxId, change: &LimitChange) -> Result<()> {
        self.gated_call("change_limits", self.fake.change_limits(id, change)).await
    }

    async fn end(&self, id: &SandboxId) -> Result<()> {
        self.gated_call("end", self.fake.end(id)).await
    }

    async fn cleanup(&self, id: &SandboxId) -> Result<()> {
        self.gated_call("cleanup", self.fake.cleanup(id)).await
    }

    async fn attach(&self, id: &SandboxId, exec: &ExecId, from: Offsets) -> Result<Exec> {
        self.gated_call("attach", self.fake.attach(id, exec, from)).await
    }

    async fn signal(&self, id: &SandboxId, exec: &ExecId, signal: i32) -> Result<()> {
        self.gated_call("signal", self.fake.signal(id, exec, signal)).await
    }

    async fn kill(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.gated_call("kill", self.fake.kill(id, exec)).await
    }

    async fn resize(&self, id: &SandboxId, exec: &ExecId, size: WindowSize) -> Result<()> {
        self.gated_call("resize", self.fake.resize(id, exec, size)).await
    }

    async fn acknowledge(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.gated_call("acknowledge", self.fake.acknowledge(id, exec)).await
    }

    async fn usage(&self, id: &SandboxId) -> Result<Usage> {
        self.gated_call("usage", self.fake.usage(id)).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Status> {
        self.gated_call("inspect", self.fake.inspect(id)).await
    }

    async fn list(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Status>> {
        self.gated_call("list", self.fake.list(labels)).await
    }

    async fn renew(&self, id: &SandboxId, lease: Option<Duration>) -> Result<()> {
        self.gated_call("renew", self.fake.renew(id, lease)).await
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        self.gated_call("pause", self.fake.pause(id)).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        self.gated_call("resume", self.fake.resume(id)).await
    }

    async fn snapshot(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<SnapshotInfo> {
        self.gated_call("snapshot", self.fake.snapshot(id, snapshot)).await
    }

    async fn changes(&self, id: &SandboxId, to: &Path) -> Result<WorkspaceChanges> {
        self.gated_call("changes", self.fake.changes(id, to)).await
    }

    async fn snapshot_changes(&self, snapshot: &SnapshotId, to: &Path) -> Result<WorkspaceChanges> {
        self.gated_call("snapshot_changes", self.fake.snapshot_changes(snapshot, to)).await
    }

    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<()> {
        self.gated_call("remove_snapshot", self.fake.remove_snapshot(snapshot)).await
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        self.gated_call("snapshots", self.fake.snapshots()).await
    }

    async fn connect(&self, id: &SandboxId, target: &Target) -> Result<Box<dyn Connection>> {
        self.gated_call("connect", self.fake.connect(id, target)).await
    }

    async fn listeners(&self, id: &SandboxId) -> Result<EgressListeners> {
        self.gated_call("listeners", self.fake.listeners(id)).await
    }

    async fn trust(&self, id: &SandboxId, certificates: &str) -> Result<()> {
        self.gated_call("trust", self.fake.trust(id, certificates)).await
    }

    async fn stat(&self, id: &SandboxId, path: &SandboxPath) -> Result<FileInfo> {
        self.gated_call("stat", self.fake.stat(id, path)).await
    }

    async fn read_directory(&self, id: &SandboxId, path: &SandboxPath) -> Result<Vec<FileInfo>> {
        self.gated_call("read_directory", self.fake.read_directory(id, path)).await
    }

    async fn read_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        range: ReadRange,
    ) -> Result<Content> {
        self.gated_call("read_file", self.fake.read_file(id, path, range)).await
    }

    async fn write_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        content: Content,
        options: WriteOptions,
    ) -> Result<u64> {
        self.gated_call("write_file", self.fake.write_file(id, path, content, options)).await
    }

    async fn unpack(
        &self,
        id: &SandboxId,
        to: &SandboxPath,
        mode: u32,
        content: Content,
    ) -> Result<TreeSize> {
        self.gated_call("unpack", self.fake.unpack(id, to, mode, content)).await
    }

    async fn pack(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        mark: Option<Vec<u8>>,
    ) -> Result<PackedTree> {
        self.gated_call("pack", self.fake.pack(id, from, mark)).await
    }

    async fn make_directory(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        options: WriteOptions,
    ) -> Result<()> {
        self.gated_call("make_directory", self.fake.make_directory(id, path, options)).await
    }

    async fn set_attributes(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> Result<()> {
        self.gated_call("set_attributes", self.fake.set_attributes(id, path, mode, owner)).await
    }

    async fn rename(&self, id: &SandboxId, from: &SandboxPath, to: &SandboxPath) -> Result<()> {
        self.gated_call("rename", self.fake.rename(id, from, to)).await
    }

    async fn remove(&self, id: &SandboxId, path: &SandboxPath) -> Result<()> {
        self.gated_call("remove", self.fake.remove(id, path)).await
    }
}
