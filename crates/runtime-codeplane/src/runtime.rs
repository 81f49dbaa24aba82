//! The implementation of the trait: states, and where each other operation is.

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
    Result, Runtime, SandboxPath, SnapshotInfo, State, Status, Target, Unsupported, WindowSize,
    WorkspaceChanges, WriteOptions,
};
use stockade_runtime_remote::{Failure, now_ms};

use crate::api::SERVICE;
use crate::client::{Codeplane, missing};
use crate::creation::millis;
use crate::record::Record;
use crate::status::status;

/// How long a workspace may take to wake up.
const WAKE: Duration = Duration::from_secs(120);
const WAKE_POLL: Duration = Duration::from_millis(100);

impl Codeplane {
    /// The state of a sandbox, as Codeplane says.
    async fn state(&self, id: &SandboxId) -> Result<Status> {
        let record = self.current(id)?;
        let Some(remote) = record.remote.clone() else { return Ok(status(&record)) };
        if record.ended.is_some() {
            if self.records()?.get(id)?.ended.is_none() {
                self.finish(id, EndCause::LeaseExpired).await?;
            }
            return Ok(status(&record));
        }
        match self.api()?.workspace(&remote).await {
            Ok(found) => match found.status.as_str() {
                "failed" | "stopped" => {
                    let reason = format!("the workspace is {} at Codeplane", found.status);
                    Ok(status(&self.lost(id, reason).await?))
                }
                "suspended" => Ok(Status { state: State::Paused, ..status(&record) }),
                _ => Ok(status(&record)),
            },
            Err(failure) if matches!(failure.status(), Some(404 | 410)) => {
                let reason = "Codeplane has deleted the workspace".to_owned();
                Ok(status(&self.lost(id, reason).await?))
            }
            Err(failure) => Err(failure.of_reading(SERVICE, id)),
        }
    }

    /// Records that Codeplane has no workspace any more.
    async fn lost(&self, id: &SandboxId, reason: String) -> Result<Record> {
        self.disconnect(id).await;
        let end = |record: &mut Record| {
            record.ended.get_or_insert((EndCause::ProcessesLost, reason));
        };
        self.records()?.change(id, end).await
    }

    /// Refuses an operation on a workspace that is suspended.
    pub(crate) async fn require_awake(
        &self,
        record: &Record,
        operation: &'static str,
    ) -> Result<()> {
        let Some(remote) = &record.remote else { return Ok(()) };
        let found = self.api()?.workspace(remote).await;
        let found = found.map_err(|failure| failure.of_reading(SERVICE, &record.id))?;
        match found.status.as_str() {
            "suspended" => {
                let (id, state) = (record.id.clone(), State::Paused);
                Err(Error::WrongState { id, state, operation })
            }
            _ => Ok(()),
        }
    }

    /// Suspends the workspace of a sandbox. Has no effect on a suspended one.
    pub(crate) async fn suspend(&self, record: &Record) -> Result<()> {
        let id = &record.id;
        let Some(remote) = &record.remote else { return Ok(()) };
        let failed = |failure: Failure| failure.of_sandbox(SERVICE, id, "the suspension");
        let api = self.api()?;
        if api.workspace(remote).await.map_err(failed)?.status != "suspended" {
            api.suspend(remote).await.map_err(failed)?;
        }
        // The connection hangs until the workspace wakes up, or longer.
        self.disconnect(id).await;
        Ok(())
    }

    /// Resumes the workspace of a sandbox, and waits until it runs.
    pub(crate) async fn wake(&self, record: &Record) -> Result<()> {
        let id = &record.id;
        let Some(remote) = &record.remote else { return Ok(()) };
        let failed = |failure: Failure| failure.of_sandbox(SERVICE, id, "the resumption");
        let api = self.api()?;
        let end = tokio::time::Instant::now() + WAKE;
        if api.workspace(remote).await.map_err(failed)?.status == "suspended" {
            api.resume(remote).await.map_err(failed)?;
        }
        while api.workspace(remote).await.map_err(failed)?.status != "running" {
            if tokio::time::Instant::now() >= end {
                return Err(Error::Deadline("resume a workspace at Codeplane"));
            }
            tokio::time::sleep(WAKE_POLL).await;
        }
        Ok(())
    }

    /// Ends all commands of a sandbox; its files stay until it is removed.
    async fn finish(&self, id: &SandboxId, cause: EndCause) -> Result<()> {
        let record = self.records()?.get(id)?;
        if record.ended.is_none() && record.remote.is_some() && !record.execs.is_empty() {
            // A suspended one runs for a moment: what is stopped cannot be killed from outside.
            self.wake(&record).await?;
            self.kill_all(&record).await?;
        }
        let end = |record: &mut Record| *record = record.clone().ended_by(cause);
        self.records()?.change(id, end).await.map(drop)
    }
}

#[async_trait]
impl Runtime for Codeplane {
    fn name(&self) -> &'static str {
        RuntimeName::Codeplane.as_str()
    }

    fn configured(&self) -> std::result::Result<(), Unsupported> {
        let remedy = "export CODEPLANE_API_URL=https://HOST/api CODEPLANE_API_KEY=KEY \
                      CODEPLANE_REPOSITORY=OWNER/NAME, then start the server again";
        let invalid = |reason: &String| Unsupported {
            reason: reason.clone(),
            remedy: Some(remedy.to_owned()),
        };
        self.0.api.as_ref().map(drop).map_err(invalid)
    }

    async fn available(&self) -> std::result::Result<(), Unsupported> {
        self.configured()?;
        let Ok(api) = &self.0.api else { return Ok(()) };
        api.check().await.map_err(|failure| Unsupported {
            reason: failure.to_string(),
            remedy: Some(format!("curl {}/workspaces", api.name())),
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
        if !self.0.directory.exists() {
            return Ok(());
        }
        let records = self.records()?;
        let _lock = records.lock(id).await?;
        // Without a record there is no workspace: it is written before one is made.
        if let Some(record) = records.find(id)? {
            self.release(self.api()?, &record).await?;
        }
        self.forget_base(id)?;
        records.remove(id)
    }

    async fn attach(&self, id: &SandboxId, exec: &ExecId, from: Offsets) -> Result<Exec> {
        let is_fed = self.current(id)?.exec(exec)?.is_fed;
        Ok(self.follow(id, exec, from, is_fed))
    }

    async fn signal(&self, id: &SandboxId, exec: &ExecId, signal: i32) -> Result<()> {
        self.send_signal(id, exec, signal).await
    }

    async fn kill(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.current(id)?.exec(exec)?;
        self.end_command(id, exec, Ending::Killed).await
    }

    async fn resize(&self, id: &SandboxId, exec: &ExecId, _size: WindowSize) -> Result<()> {
        self.current(id)?.exec(exec)?;
        Err(Self::refused(Capability::Terminal))
    }

    async fn acknowledge(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.forget(id, exec).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Status> {
        let found = self.state(id).await?;
        if found.state != State::Running {
            return Ok(found);
        }
        // Only the end is asked for, not the output.
        let far = Offsets { output: u64::MAX >> 2, error: u64::MAX >> 2 };
        for exec in found.execs.iter().filter(|exec| exec.ending.is_none()) {
            self.look(id, &exec.id, far).await?;
        }
        let execs = status(&self.current(id)?).execs;
        Ok(Status { execs, ..found })
    }

    async fn list(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Status>> {
        // Most servers hold none, and need no directory for that answer.
        if !self.0.directory.exists() {
            return Ok(Vec::new());
        }
        let records = self.records()?.all()?;
        let has_all = |record: &Record| {
            labels.iter().all(|(name, value)| record.labels.get(name) == Some(value))
        };
        let mut found = Vec::new();
        for record in records.into_iter().filter(has_all) {
            // Where Codeplane does not answer, what is known here is the answer.
            found.push(self.state(&record.id).await.unwrap_or_else(|_| status(&record)));
        }
        Ok(found)
    }

    async fn renew(&self, id: &SandboxId, lease: Option<Duration>) -> Result<()> {
        self.current(id)?.require_running("be renewed")?;
        let renew = |record: &mut Record| {
            record.lease_until_ms = lease.map(|time| now_ms().saturating_add(millis(time)));
        };
        self.records()?.change(id, renew).await.map(drop)
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        let record = self.current(id)?;
        record.require_running("be paused")?;
        self.suspend(&record).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        let record = self.current(id)?;
        record.require_running("be resumed")?;
        self.wake(&record).await
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
        self.current(id)?;
        Err(Self::refused(Capability::Snapshot))
    }

    async fn remove_snapshot(&self, _snapshot: &SnapshotId) -> Result<()> {
        // There is none.
        Ok(())
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        Ok(Vec::new())
    }

    async fn connect(&self, id: &SandboxId, target: &Target) -> Result<Box<dyn Connection>> {
        self.forward(id, target).await
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
