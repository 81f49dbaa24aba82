//! The operations that the keeper does as for every other sandbox, and the few around which the engine
//! has to do something.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use stockade_core::runtime::{RuntimeName, Support};
use stockade_core::sandbox::{LimitChange, LimitName, Root, User};
use stockade_core::{ExecId, SandboxId, SandboxSpec, SnapshotId};
use stockade_runtime::{
    Capability, ChangesInPlace, Command, Connection, Content, EgressListeners, Error, Exec,
    FileInfo, Offsets, PackedTree, ReadRange, Result, Runtime, SandboxPath, SnapshotInfo, State,
    Status, Target, TreeSize, Unsupported, Usage, WindowSize, WorkspaceChanges, WriteOptions,
};

use stockade_runtime_native::Native;

use super::create::{Lock, no_egress};
use super::{Docker, Opened, lock_of_snapshot};
use crate::image::Image;
use crate::request::idle;
use crate::{container, image};

#[async_trait]
impl Runtime for Docker {
    fn name(&self) -> &'static str {
        RuntimeName::Docker.as_str()
    }

    async fn available(&self) -> std::result::Result<(), Unsupported> {
        self.usable_engine().await.map(drop).map_err(unsupported)
    }

    async fn supports(&self, capability: Capability) -> std::result::Result<(), Unsupported> {
        if let Support::No(reason) = RuntimeName::Docker.declares(capability) {
            let remedy = Some("--runtime native".to_owned());
            return Err(Unsupported { reason: reason.to_owned(), remedy });
        }
        let info = self.usable_engine().await.map_err(unsupported)?;
        let limit = |is_supported: Option<bool>| match is_supported {
            Some(true) => Ok(()),
            _ => Err(Unsupported {
                reason: "the Docker engine does not support it on this host".to_owned(),
                remedy: Some("docker info --format '{{.Warnings}}'".to_owned()),
            }),
        };
        match capability {
            Capability::Egress if !rustix::process::geteuid().is_root() => Err(no_egress()),
            Capability::Egress => {
                self.native().await.map_err(unsupported)?.supports(capability).await
            }
            Capability::MemoryLimit => limit(info.memory_limit),
            Capability::CpuLimit => limit(info.cpu_cfs_quota),
            Capability::ProcessLimit => limit(info.pids_limit),
            _ => Ok(()),
        }
    }

    async fn resolve_image(&self, name: &str) -> Result<String> {
        let image = Image::find(self.engine()?, name).await?;
        Ok(image.pinned(name))
    }

    async fn create(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<Status> {
        self.create_sandbox(id, spec).await
    }

    async fn cleanup(&self, id: &SandboxId) -> Result<()> {
        if self.is_unused() {
            return Ok(());
        }
        let Opened { native, directory, .. } = self.opened().await?;
        let _lock = Lock::take(directory, id.as_str()).await?;
        native.cleanup(id).await?;
        self.remove_container(id).await?;
        // It may have been the last that used the image of a removed snapshot.
        self.sweep_images().await
    }

    async fn change_limits(&self, id: &SandboxId, change: &LimitChange) -> Result<()> {
        let Opened { native, owner, directory } = self.opened().await?;
        let _lock = Lock::take(directory, id.as_str()).await?;
        let Status { state, .. } = native.inspect(id).await?;
        if state == State::Ended {
            return Err(Error::WrongState { id: id.clone(), state, operation: "change" });
        }
        for (limit, capability) in [
            (LimitName::Memory, Capability::MemoryLimit),
            (LimitName::Cpus, Capability::CpuLimit),
            (LimitName::Processes, Capability::ProcessLimit),
        ] {
            if change.each().any(|(name, _)| name == limit)
                && let Err(Unsupported { reason, remedy }) = self.supports(capability).await
            {
                return Err(Error::Limit { limit, reason, remedy: remedy.unwrap_or_default() });
            }
        }
        container::change_limits(self.engine()?, &owner.container(id), change).await?;
        native.change_limits(id, change).await
    }

    async fn list(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Status>> {
        if self.is_unused() {
            return Ok(Vec::new());
        }
        let listed = self.native().await?.list(labels).await?;
        // An engine that does not answer has nothing that could be removed now.
        match self.sweep().await {
            Ok(()) | Err(Error::Unavailable { .. } | Error::Deadline(_)) => Ok(listed),
            Err(error) => Err(error),
        }
    }

    async fn snapshot(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<SnapshotInfo> {
        let Opened { native, owner, directory } = self.opened().await?;
        let engine = self.engine()?;
        native.inspect(id).await?;
        let _lock = Lock::take(directory, &lock_of_snapshot(snapshot)).await?;
        let image = owner.image_name(snapshot);
        // First the image: a snapshot whose image is missing would be useless.
        if Image::find(engine, &image).await.is_err() {
            self.keep_image(id, snapshot).await?;
        }
        let taken = native.snapshot(id, snapshot).await;
        let is_known = || async {
            let known = native.snapshots().await;
            known.is_ok_and(|known| known.iter().any(|info| info.id == *snapshot))
        };
        if taken.is_err() && !is_known().await {
            // One that stays is found by its labels.
            let _ = image::remove(engine, &image).await;
        }
        taken
    }

    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<()> {
        if self.is_unused() {
            return Ok(());
        }
        let Opened { native, owner, directory } = self.opened().await?;
        let _lock = Lock::take(directory, &lock_of_snapshot(snapshot)).await?;
        native.remove_snapshot(snapshot).await?;
        image::remove(self.engine()?, &owner.image_name(snapshot)).await
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        if self.is_unused() {
            return Ok(Vec::new());
        }
        self.native().await?.snapshots().await
    }

    async fn ship(&self, id: &SandboxId, from: &Path, to: &SandboxPath) -> Result<()> {
        self.native().await?.ship(id, from, to).await
    }

    async fn execute(&self, id: &SandboxId, exec: &ExecId, command: &Command) -> Result<Exec> {
        self.native().await?.execute(id, exec, command).await
    }

    async fn collect(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        to: &Path,
        limit_bytes: u64,
    ) -> Result<()> {
        self.native().await?.collect(id, from, to, limit_bytes).await
    }

    async fn end(&self, id: &SandboxId) -> Result<()> {
        self.native().await?.end(id).await
    }

    async fn attach(&self, id: &SandboxId, exec: &ExecId, from: Offsets) -> Result<Exec> {
        self.native().await?.attach(id, exec, from).await
    }

    async fn signal(&self, id: &SandboxId, exec: &ExecId, signal: i32) -> Result<()> {
        self.native().await?.signal(id, exec, signal).await
    }

    async fn kill(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.native().await?.kill(id, exec).await
    }

    async fn resize(&self, id: &SandboxId, exec: &ExecId, size: WindowSize) -> Result<()> {
        self.native().await?.resize(id, exec, size).await
    }

    async fn acknowledge(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.native().await?.acknowledge(id, exec).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Status> {
        self.native().await?.inspect(id).await
    }

    async fn usage(&self, id: &SandboxId) -> Result<Usage> {
        self.native().await?.usage(id).await
    }

    async fn renew(&self, id: &SandboxId, lease: Option<Duration>) -> Result<()> {
        self.native().await?.renew(id, lease).await
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        self.native().await?.pause(id).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        self.native().await?.resume(id).await
    }

    async fn changes(&self, id: &SandboxId, to: &Path) -> Result<WorkspaceChanges> {
        self.native().await?.changes(id, to).await
    }

    async fn snapshot_changes(&self, snapshot: &SnapshotId, to: &Path) -> Result<WorkspaceChanges> {
        self.native().await?.snapshot_changes(snapshot, to).await
    }

    async fn changes_in_place(
        &self,
        id: &SandboxId,
        snapshot: Option<&SnapshotId>,
    ) -> Result<Option<ChangesInPlace>> {
        self.native().await?.changes_in_place(id, snapshot).await
    }

    async fn connect(&self, id: &SandboxId, target: &Target) -> Result<Box<dyn Connection>> {
        self.native().await?.connect(id, target).await
    }

    async fn listeners(&self, id: &SandboxId) -> Result<EgressListeners> {
        self.native().await?.listeners(id).await
    }

    async fn trust(&self, id: &SandboxId, certificates: &str) -> Result<()> {
        self.native().await?.trust(id, certificates).await
    }

    async fn stat(&self, id: &SandboxId, path: &SandboxPath) -> Result<FileInfo> {
        self.native().await?.stat(id, path).await
    }

    async fn read_directory(&self, id: &SandboxId, path: &SandboxPath) -> Result<Vec<FileInfo>> {
        self.native().await?.read_directory(id, path).await
    }

    async fn read_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        range: ReadRange,
    ) -> Result<Content> {
        self.native().await?.read_file(id, path, range).await
    }

    async fn write_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        content: Content,
        options: WriteOptions,
    ) -> Result<u64> {
        self.native().await?.write_file(id, path, content, options).await
    }

    async fn unpack(
        &self,
        id: &SandboxId,
        to: &SandboxPath,
        mode: u32,
        content: Content,
    ) -> Result<TreeSize> {
        self.native().await?.unpack(id, to, mode, content).await
    }

    async fn pack(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        mark: Option<Vec<u8>>,
    ) -> Result<PackedTree> {
        self.native().await?.pack(id, from, mark).await
    }

    async fn make_directory(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        options: WriteOptions,
    ) -> Result<()> {
        self.native().await?.make_directory(id, path, options).await
    }

    async fn set_attributes(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> Result<()> {
        self.native().await?.set_attributes(id, path, mode, owner).await
    }

    async fn rename(&self, id: &SandboxId, from: &SandboxPath, to: &SandboxPath) -> Result<()> {
        self.native().await?.rename(id, from, to).await
    }

    async fn remove(&self, id: &SandboxId, path: &SandboxPath) -> Result<()> {
        self.native().await?.remove(id, path).await
    }
}

impl Docker {
    /// Keeps the image of a sandbox under the name of a snapshot. The root of a container is
    /// read-only, so its image is all of it, also once the container has ended.
    async fn keep_image(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<()> {
        let (engine, Opened { native, owner, .. }) = (self.engine()?, self.opened().await?);
        let name = owner.container(id);
        if container::process(engine, &name).await?.is_some()
            && let Some(image_id) = container::image(engine, &name).await?
        {
            let image = Image::find(engine, &image_id).await?;
            let committed = image::commit(engine, owner, &name, (id, snapshot), &image).await;
            if committed.is_ok() || container::process(engine, &name).await?.is_some() {
                return committed;
            }
            // It has just ended, and the engine removes it.
        }
        let image = Image::find(engine, &image_id(native, id).await?).await?;
        let name = format!("{name}-snapshot");
        container::remove(engine, &name).await?;
        container::create(engine, &name, idle(&image, owner.of_sandbox(id))).await?;
        let committed = image::commit(engine, owner, &name, (id, snapshot), &image).await;
        container::remove(engine, &name).await?;
        committed
    }
}

fn unsupported(error: Error) -> Unsupported {
    match error {
        Error::Unavailable { what, reason, remedy } => {
            Unsupported { reason: format!("cannot reach {what}: {reason}"), remedy: Some(remedy) }
        }
        error => Unsupported { reason: error.to_string(), remedy: None },
    }
}

/// The id of the image that a sandbox was made from.
async fn image_id(native: &Native, id: &SandboxId) -> Result<String> {
    match native.root_of(id).await? {
        Root::Image(image) => Ok(image),
        _ => Err(Error::Invalid(format!("the sandbox {id} was made from no image"))),
    }
}
