//! The implementation of the trait: where each operation is.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use stockade_core::runtime::RuntimeName;
use stockade_core::sandbox::{LimitChange, User};
use stockade_core::{ExecId, SandboxId, SandboxSpec, SnapshotId};
use stockade_pod::{CommandForm, Request};
use stockade_runtime::{
    Capability, Command, Connection, Content, Ending, Error, Event, Events, Exec, FileInfo,
    Offsets, PackedTree, ReadRange, Result, Runtime, SandboxPath, SnapshotInfo, StandardInput,
    Status, Target, TreeSize, Unsupported, Usage, WindowSize, WorkspaceChanges, WriteOptions,
};

use crate::client::Kubernetes;
use crate::events::follow;
use crate::observed::Phase;
use crate::request::{missing, refused};
use crate::{port, tree};

fn unsupported(error: Error) -> Unsupported {
    match error {
        Error::Unavailable { reason, remedy, .. } => Unsupported { reason, remedy: Some(remedy) },
        other => Unsupported {
            reason: crate::failure::chain(&other),
            remedy: Some("kubectl version".to_owned()),
        },
    }
}

/// A command that ended with its sandbox.
fn ended() -> Exec {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    // There is room for one, and the receiver exists.
    let _ = sender.try_send(Event::Ended(Ending::SandboxEnded));
    Exec { events: Events::new(receiver), input: None }
}

#[async_trait]
impl Runtime for Kubernetes {
    fn name(&self) -> &'static str {
        RuntimeName::Kubernetes.as_str()
    }

    async fn available(&self) -> std::result::Result<(), Unsupported> {
        let opened = self.opened().await.map_err(unsupported)?;
        self.own_image().map_err(unsupported)?;
        let agents = opened.agents().await;
        agents.map(drop).map_err(|failure| unsupported(failure.into_error("ask for resources")))
    }

    async fn supports(&self, capability: Capability) -> std::result::Result<(), Unsupported> {
        match missing(capability) {
            None => Ok(()),
            Some(reason) => Err(Unsupported {
                reason: reason.to_owned(),
                remedy: Some("--runtime native".to_owned()),
            }),
        }
    }

    async fn create(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<Status> {
        self.make(id, spec).await
    }

    async fn ship(&self, id: &SandboxId, from: &Path, to: &SandboxPath) -> Result<()> {
        tree::copy_in(self, id, from, to).await
    }

    async fn execute(&self, id: &SandboxId, exec: &ExecId, command: &Command) -> Result<Exec> {
        command.check_input()?;
        let form = Box::new(CommandForm::new(command));
        let request = Request::Execute { exec: exec.clone(), command: form };
        let content = match &command.input {
            StandardInput::Whole(bytes) => {
                Some(Box::pin(io::Cursor::new(bytes.clone())) as Content)
            }
            StandardInput::Empty | StandardInput::Streamed => None,
        };
        match self.begin(id, &request, content).await {
            Ok((has_input, session)) => {
                let has_input = has_input == true;
                Ok(follow(self, (id, exec), Offsets::default(), session, has_input))
            }
            // It may have ended the sandbox before the reply came.
            Err(Error::OutcomeUnknown(_)) => {
                let attached = self.attach(id, exec, Offsets::default()).await;
                Ok(attached.unwrap_or_else(|_| ended()))
            }
            Err(error) => Err(error),
        }
    }

    async fn collect(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        to: &Path,
        limit_bytes: u64,
    ) -> Result<()> {
        tree::copy_out(self, id, from, to, limit_bytes).await
    }

    async fn end(&self, id: &SandboxId) -> Result<()> {
        if matches!(self.pod(id).await?.phase, Phase::Ended(..)) {
            return Ok(());
        }
        self.ask(id, &Request::End).await
    }

    async fn cleanup(&self, id: &SandboxId) -> Result<()> {
        if self.is_unused() {
            return Ok(());
        }
        self.remove(self.opened().await?, id).await?;
        self.forget_copies(id)
    }

    async fn attach(&self, id: &SandboxId, exec: &ExecId, from: Offsets) -> Result<Exec> {
        let request = Request::Attach { exec: exec.clone(), from };
        let (has_input, session) = self.begin(id, &request, None).await?;
        Ok(follow(self, (id, exec), from, session, has_input == true))
    }

    async fn signal(&self, id: &SandboxId, exec: &ExecId, signal: i32) -> Result<()> {
        self.ask(id, &Request::Signal { exec: exec.clone(), signal }).await
    }

    async fn kill(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.ask(id, &Request::Kill { exec: exec.clone() }).await
    }

    async fn resize(&self, id: &SandboxId, exec: &ExecId, size: WindowSize) -> Result<()> {
        self.ask(id, &Request::Resize { exec: exec.clone(), size }).await
    }

    async fn acknowledge(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.ask(id, &Request::Acknowledge { exec: exec.clone() }).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Status> {
        self.state(id).await
    }

    async fn usage(&self, id: &SandboxId) -> Result<Usage> {
        // The keeper measures its own directories, and not those of the pod.
        type Measured = (Option<u64>, Option<Duration>, Option<u64>, Option<u64>, Vec<String>);
        let (memory_bytes, cpu_time, processes, _, mut reasons): Measured =
            self.ask(id, &Request::Usage).await?;
        reasons.push("the disk use of a pod is not measured".to_owned());
        Ok(Usage { memory_bytes, cpu_time, processes, disk_bytes: None, reasons })
    }

    async fn list(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Status>> {
        if self.is_unused() {
            return Ok(Vec::new());
        }
        self.all(labels).await
    }

    async fn renew(&self, id: &SandboxId, lease: Option<Duration>) -> Result<()> {
        self.set_lease(id, lease).await
    }

    async fn change_limits(&self, id: &SandboxId, change: &LimitChange) -> Result<()> {
        self.resize(id, change).await
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        self.inspect(id).await?;
        Err(refused(Capability::Pause))
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        self.inspect(id).await?;
        Err(refused(Capability::Pause))
    }

    async fn changes(&self, id: &SandboxId, to: &Path) -> Result<WorkspaceChanges> {
        self.inspect(id).await?;
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
        self.inspect(id).await?;
        Err(refused(Capability::Snapshot))
    }

    async fn remove_snapshot(&self, _snapshot: &SnapshotId) -> Result<()> {
        // There never is one.
        Ok(())
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        Ok(Vec::new())
    }

    async fn connect(&self, id: &SandboxId, target: &Target) -> Result<Box<dyn Connection>> {
        port::connect(self, id, target).await
    }

    async fn stat(&self, id: &SandboxId, path: &SandboxPath) -> Result<FileInfo> {
        self.ask(id, &Request::Stat { path: path.clone() }).await
    }

    async fn read_directory(&self, id: &SandboxId, path: &SandboxPath) -> Result<Vec<FileInfo>> {
        self.ask(id, &Request::ReadDirectory { path: path.clone() }).await
    }

    async fn read_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        range: ReadRange,
    ) -> Result<Content> {
        let request = Request::ReadFile { path: path.clone(), range };
        let (_, session) = self.begin(id, &request, None).await?;
        Ok(tree::content(session))
    }

    async fn write_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        content: Content,
        options: WriteOptions,
    ) -> Result<u64> {
        self.send(id, &Request::WriteFile { path: path.clone(), options }, content).await
    }

    async fn unpack(
        &self,
        id: &SandboxId,
        to: &SandboxPath,
        mode: u32,
        content: Content,
    ) -> Result<TreeSize> {
        self.send(id, &Request::Unpack { to: to.clone(), mode }, content).await
    }

    async fn pack(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        mark: Option<Vec<u8>>,
    ) -> Result<PackedTree> {
        let request = Request::Pack { from: from.clone(), mark };
        let (_, session) = self.begin(id, &request, None).await?;
        Ok(tree::packed(session))
    }

    async fn make_directory(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        options: WriteOptions,
    ) -> Result<()> {
        self.ask(id, &Request::MakeDirectory { path: path.clone(), options }).await
    }

    async fn set_attributes(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> Result<()> {
        self.ask(id, &Request::SetAttributes { path: path.clone(), mode, owner }).await
    }

    async fn rename(&self, id: &SandboxId, from: &SandboxPath, to: &SandboxPath) -> Result<()> {
        self.ask(id, &Request::Rename { from: from.clone(), to: to.clone() }).await
    }

    async fn remove(&self, id: &SandboxId, path: &SandboxPath) -> Result<()> {
        self.ask(id, &Request::Remove { path: path.clone() }).await
    }
}
