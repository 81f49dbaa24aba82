//! The implementation of the trait: which module has each operation.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use stockade_core::ending::Ending;
use stockade_core::runtime::RuntimeName;
use stockade_core::sandbox::User;
use stockade_core::{ExecId, SandboxId, SandboxSpec, SnapshotId};
use stockade_runtime::{
    Capability, Command, Connection, Content, EndCause, Error, Exec, FileInfo, Offsets, ReadRange,
    Result, Runtime, SandboxPath, SnapshotInfo, Status, Target, Unsupported, WindowSize,
    WorkspaceChanges, WriteOptions,
};
use stockade_runtime_remote::{Failure, now_ms};

use crate::SERVICE;
use crate::client::{OpenSandbox, missing};
use crate::record::Record;
use crate::request::{ID, OWNER, millis, remote_lease};
use crate::status::status;

/// How long a sandbox lives at the server that has lost its lease here.
const WITHOUT_LEASE: Duration = Duration::from_secs(30 * 24 * 3600);

#[async_trait]
impl Runtime for OpenSandbox {
    fn name(&self) -> &'static str {
        RuntimeName::OpenSandbox.as_str()
    }

    async fn available(&self) -> std::result::Result<(), Unsupported> {
        let server = self.configured()?;
        server.check().await.map_err(|failure| Unsupported {
            reason: failure.to_string(),
            remedy: Some(format!("curl {}/sandboxes", server.name())),
        })
    }

    async fn supports(&self, capability: Capability) -> std::result::Result<(), Unsupported> {
        match missing(capability) {
            None => Ok(()),
            Some(reason) => Err(Unsupported { reason: reason.to_owned(), remedy: None }),
        }
    }

    async fn create(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<Status> {
        self.make(id, spec).await
    }

    async fn ship(&self, id: &SandboxId, from: &Path, to: &SandboxPath) -> Result<()> {
        self.copy_in(id, from, to).await
    }

    async fn execute(&self, id: &SandboxId, exec: &ExecId, command: &Command) -> Result<Exec> {
        self.start(id, exec, command).await
    }

    async fn collect(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        to: &Path,
        limit_bytes: u64,
    ) -> Result<()> {
        self.copy_out(id, from, to, limit_bytes).await
    }

    async fn end(&self, id: &SandboxId) -> Result<()> {
        self.finish(id, EndCause::Requested).await
    }

    async fn cleanup(&self, id: &SandboxId) -> Result<()> {
        let records = self.records()?;
        let _lock = records.lock(id).await?;
        let server = self.server()?;
        let failed = |failure: Failure| failure.of_sandbox(SERVICE, id, "the removal");
        let wanted = [(OWNER, records.owner.as_str()), (ID, id.as_str())];
        // Also what a creation has left whose answer never came.
        let mut remotes: Vec<String> =
            server.list(&wanted).await.map_err(failed)?.into_iter().map(|found| found.id).collect();
        remotes.extend(records.find(id)?.and_then(|record| record.remote));
        for remote in remotes {
            server.delete(&remote).await.map_err(failed)?;
        }
        self.forget_base(id)?;
        records.remove(id)
    }

    async fn attach(&self, id: &SandboxId, exec: &ExecId, from: Offsets) -> Result<Exec> {
        let record = self.current(id).await?;
        let is_fed = record.exec(exec)?.is_fed;
        Ok(self.follow(id, exec, from, is_fed))
    }

    async fn signal(&self, id: &SandboxId, exec: &ExecId, signal: i32) -> Result<()> {
        self.send_signal(id, exec, signal).await
    }

    async fn kill(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.end_command(id, exec, Ending::Killed).await
    }

    async fn resize(&self, id: &SandboxId, exec: &ExecId, _size: WindowSize) -> Result<()> {
        self.current(id).await?.exec(exec)?;
        Err(Self::refused(Capability::Terminal))
    }

    async fn acknowledge(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.forget(id, exec).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Status> {
        let found = self.state(id).await?;
        let running: Vec<_> = found.execs.iter().filter(|exec| exec.ending.is_none()).collect();
        for exec in &running {
            self.ending(id, &exec.id).await?;
        }
        let record = self.current(id).await?;
        Ok(Status { execs: status(&record).execs, ..found })
    }

    async fn list(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Status>> {
        // Most servers hold none, and need no directory for that answer.
        if !self.has_records() {
            return Ok(Vec::new());
        }
        let records = self.records()?.all()?;
        let has_all = |record: &Record| {
            labels.iter().all(|(name, value)| record.labels.get(name) == Some(value))
        };
        let mut found = Vec::new();
        for record in records.into_iter().filter(has_all) {
            // Where the server does not answer, what is known here is the answer.
            found.push(self.state(&record.id).await.unwrap_or_else(|_| status(&record)));
        }
        Ok(found)
    }

    async fn renew(&self, id: &SandboxId, lease: Option<Duration>) -> Result<()> {
        let record = self.current(id).await?;
        record.require_running("be renewed")?;
        if let Some(remote) = record.remote.as_ref().filter(|_| !record.is_endless) {
            let time = lease.map_or(WITHOUT_LEASE, remote_lease);
            let renewed = self.server()?.renew(remote, time).await;
            renewed.map_err(|failure| failure.of_sandbox(SERVICE, id, "the renewal"))?;
        }
        let renew = |record: &mut Record| {
            record.lease_until_ms = lease.map(|time| now_ms().saturating_add(millis(time)));
        };
        self.records()?.change(id, renew).await.map(drop)
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        self.current(id).await?.require_running("be paused")?;
        Err(Self::refused(Capability::Pause))
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        self.current(id).await?.require_running("be resumed")?;
        Err(Self::refused(Capability::Pause))
    }

    async fn changes(&self, id: &SandboxId, to: &Path) -> Result<WorkspaceChanges> {
        self.gather(id, to).await
    }

    async fn snapshot_changes(
        &self,
        snapshot: &SnapshotId,
        _to: &Path,
    ) -> Result<WorkspaceChanges> {
        Err(Error::NoSnapshot(snapshot.clone()))
    }

    async fn snapshot(&self, id: &SandboxId, _snapshot: &SnapshotId) -> Result<SnapshotInfo> {
        self.current(id).await?;
        Err(Self::refused(Capability::Snapshot))
    }

    async fn remove_snapshot(&self, _snapshot: &SnapshotId) -> Result<()> {
        // There is none.
        Ok(())
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        Ok(Vec::new())
    }

    async fn connect(&self, id: &SandboxId, _target: &Target) -> Result<Box<dyn Connection>> {
        self.current(id).await?;
        Err(Self::refused(Capability::Ports))
    }

    async fn stat(&self, id: &SandboxId, path: &SandboxPath) -> Result<FileInfo> {
        self.file(id, path).await
    }

    async fn read_directory(&self, id: &SandboxId, path: &SandboxPath) -> Result<Vec<FileInfo>> {
        self.directory(id, path).await
    }

    async fn read_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        range: ReadRange,
    ) -> Result<Content> {
        self.read(id, path, range).await
    }

    async fn write_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        content: Content,
        options: WriteOptions,
    ) -> Result<u64> {
        self.write(id, path, content, options).await
    }

    async fn make_directory(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        options: WriteOptions,
    ) -> Result<()> {
        self.make_directory_inside(id, path, options).await
    }

    async fn set_attributes(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> Result<()> {
        self.attributes(id, path, mode, owner).await
    }

    async fn rename(&self, id: &SandboxId, from: &SandboxPath, to: &SandboxPath) -> Result<()> {
        self.move_file(id, from, to).await
    }

    async fn remove(&self, id: &SandboxId, path: &SandboxPath) -> Result<()> {
        self.delete(id, path).await
    }
}
