//! The operations of a fake runtime.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::egress::EgressListeners;
use async_trait::async_trait;
use rustix::io::Errno;
use stockade_core::sandbox::{LimitChange, LimitName, User};
use stockade_core::{ExecId, SandboxId, SandboxSpec, SnapshotId};
use tokio::io::{AsyncReadExt as _, DuplexStream};
use tokio::sync::watch;
use tokio::time::Instant;

use super::process::Command as Running;
use super::sandbox::{Sandbox, now_ms, watch_lease};
use super::tree::Tree;
use super::{Fake, State, StoredSnapshot, changes, copies, lock, network, start, streams};
use crate::capability::{Capability, Unsupported};
use crate::changes::WorkspaceChanges;
use crate::error::{Error, Result};
use crate::exec::{Command, Ending, Exec, Offsets, WindowSize};
use crate::files::{Content, FileInfo, ReadRange, SandboxPath, WriteOptions};
use crate::runtime::{Connection, EndCause, Runtime, SnapshotInfo, Status, Target};
use crate::tree::{PackedTree, TreeProgress, TreeSize};
use crate::usage::Usage;

/// The buffer size of each direction of a connection.
const CONNECTION_BYTES: usize = 64 * 1024;

/// The signals that end no process by themselves: child, continue, urgent data, window size.
const IGNORED_SIGNALS: [i32; 4] = [17, 18, 23, 28];

#[async_trait]
impl Runtime for Fake {
    fn name(&self) -> &'static str {
        lock(&self.0).name.unwrap_or("fake")
    }

    async fn available(&self) -> std::result::Result<(), Unsupported> {
        lock(&self.0).unavailable.clone().map_or(Ok(()), Err)
    }

    async fn supports(&self, capability: Capability) -> std::result::Result<(), Unsupported> {
        lock(&self.0).supports(capability)
    }

    async fn create(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<Status> {
        let mut state = self.enter("create")?;
        if let Some(sandbox) = state.sandboxes.get(id) {
            if sandbox.spec != *spec {
                return Err(Error::Conflict(format!("the sandbox {id}")));
            }
            return Ok(sandbox.status(id));
        }
        let sandbox = Sandbox::new(&state, spec)?;
        let status = sandbox.status(id);
        let lease = sandbox.lease.subscribe();
        tokio::spawn(watch_lease(Arc::downgrade(&self.0), id.clone(), lease));
        state.sandboxes.insert(id.clone(), sandbox);
        Ok(status)
    }

    async fn ship(&self, id: &SandboxId, from: &Path, to: &SandboxPath) -> Result<()> {
        let mut state = self.enter("ship")?;
        let files = &state.sandbox(id)?.files;
        copies::ship(&mut lock(files), from, to.as_path())
    }

    async fn execute(&self, id: &SandboxId, exec: &ExecId, command: &Command) -> Result<Exec> {
        let mut state = self.enter("execute")?;
        let State { sandboxes, programs, refused, .. } = &mut *state;
        let sandbox = sandboxes.get_mut(id).ok_or_else(|| Error::NoSandbox(id.clone()))?;
        if let Some(running) = sandbox.commands.get(exec) {
            return Ok(running.attach(Offsets::default()));
        }
        sandbox.allows(id, "start a command", |state| state == crate::State::Running)?;
        let required = [
            (command.terminal.is_some(), Capability::Terminal),
            (command.user.is_some(), Capability::Users),
        ];
        for (_, capability) in required.into_iter().filter(|(wanted, _)| *wanted) {
            if let Some(unsupported) = refused.get(&capability) {
                return Err((capability, unsupported.clone()).into());
            }
        }
        let running = start::start(programs, sandbox, command)?;
        let attached = running.attach(Offsets::default());
        sandbox.commands.insert(exec.clone(), running);
        Ok(attached)
    }

    async fn collect(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        to: &Path,
        limit_bytes: u64,
    ) -> Result<()> {
        let mut state = self.enter("collect")?;
        let files = &state.sandbox(id)?.files;
        copies::collect(&lock(files), from.as_path(), to, limit_bytes)
    }

    async fn end(&self, id: &SandboxId) -> Result<()> {
        self.enter("end")?.sandbox(id)?.end("a client ended it", EndCause::Requested);
        Ok(())
    }

    async fn cleanup(&self, id: &SandboxId) -> Result<()> {
        self.enter("cleanup")?.remove(id);
        Ok(())
    }

    async fn attach(&self, id: &SandboxId, exec: &ExecId, from: Offsets) -> Result<Exec> {
        Ok(self.enter("attach")?.command(id, exec)?.attach(from))
    }

    async fn signal(&self, id: &SandboxId, exec: &ExecId, signal: i32) -> Result<()> {
        if !(0..=64).contains(&signal) {
            return Err(Error::Invalid(format!("there is no signal {signal}")));
        }
        let mut state = self.enter("signal")?;
        let command = state.command(id, exec)?;
        if signal != 0 && !IGNORED_SIGNALS.contains(&signal) {
            command.end(Ending::Signaled(signal));
        }
        Ok(())
    }

    async fn kill(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        let mut transcript = {
            let mut state = self.enter("kill")?;
            let command = state.command(id, exec)?;
            command.end(Ending::Killed);
            command.transcript.clone()
        };
        // A command that is lost meanwhile has ended too.
        let _ = transcript.wait_for(|transcript| transcript.ending.is_some()).await;
        Ok(())
    }

    async fn resize(&self, id: &SandboxId, exec: &ExecId, size: WindowSize) -> Result<()> {
        let mut state = self.enter("resize")?;
        let command = state.command(id, exec)?;
        if command.size.borrow().is_none() {
            return Err(Error::Invalid("the command has no terminal".to_owned()));
        }
        command.size.send_replace(Some(size));
        Ok(())
    }

    async fn acknowledge(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        let mut state = self.enter("acknowledge")?;
        if state.command(id, exec)?.ending().is_none() {
            return Err(Error::Invalid(format!("the command {exec} has not ended")));
        }
        state.sandbox(id)?.commands.remove(exec);
        Ok(())
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Status> {
        Ok(self.enter("inspect")?.sandbox(id)?.status(id))
    }

    async fn usage(&self, id: &SandboxId) -> Result<Usage> {
        let mut state = self.enter("usage")?;
        let sandbox = state.sandbox(id)?;
        let running = sandbox.commands.values().filter(|command| command.ending().is_none());
        Ok(Usage {
            processes: Some(running.count() as u64),
            disk_bytes: Some(lock(&sandbox.files).size_bytes()),
            reasons: vec!["a fake sandbox uses neither memory nor time".to_owned()],
            ..Usage::default()
        })
    }

    async fn list(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Status>> {
        let state = self.enter("list")?;
        let all = state.sandboxes.iter().filter(|(_, sandbox)| {
            labels.iter().all(|(name, value)| sandbox.spec.labels.get(name) == Some(value))
        });
        Ok(all.map(|(id, sandbox)| sandbox.status(id)).collect())
    }

    async fn renew(&self, id: &SandboxId, lease: Option<Duration>) -> Result<()> {
        let mut state = self.enter("renew")?;
        let sandbox = state.sandbox(id)?;
        sandbox.allows(id, "renew its lease", |state| state != crate::State::Ended)?;
        sandbox.lease.send_replace(lease.map(|lease| Instant::now() + lease));
        Ok(())
    }

    async fn change_limits(&self, id: &SandboxId, change: &LimitChange) -> Result<()> {
        let mut state = self.enter("change_limits")?;
        for (limit, capability) in [
            (LimitName::Memory, Capability::MemoryLimit),
            (LimitName::Cpus, Capability::CpuLimit),
            (LimitName::Processes, Capability::ProcessLimit),
        ] {
            if change.each().any(|(name, _)| name == limit)
                && let Some(Unsupported { reason, remedy }) =
                    state.refused.get(&capability).cloned()
            {
                return Err(Error::Limit { limit, reason, remedy: remedy.unwrap_or_default() });
            }
        }
        let sandbox = state.sandbox(id)?;
        sandbox.allows(id, "change its limits", |state| state != crate::State::Ended)?;
        sandbox.spec.limits = sandbox.spec.limits.with(change);
        Ok(())
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        let mut state = self.enter("pause")?;
        state.needs(Capability::Pause)?;
        state.sandbox(id)?.transition(id, crate::State::Paused)
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        let mut state = self.enter("resume")?;
        state.needs(Capability::Pause)?;
        state.sandbox(id)?.transition(id, crate::State::Running)
    }

    async fn snapshot(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<SnapshotInfo> {
        let mut state = self.enter("snapshot")?;
        state.needs(Capability::Snapshot)?;
        let sandbox = state.sandbox(id)?;
        let files = lock(&sandbox.files).clone();
        let stored = StoredSnapshot { files, workspace: sandbox.workspace.clone() };
        if let Some((info, _)) = state.snapshots.get(snapshot) {
            if info.sandbox != *id {
                return Err(Error::Conflict(format!("the snapshot {snapshot}")));
            }
            return Ok(info.clone());
        }
        let info = SnapshotInfo {
            id: snapshot.clone(),
            sandbox: id.clone(),
            created_at_ms: now_ms(),
            size_bytes: stored.files.size_bytes(),
        };
        state.snapshots.insert(snapshot.clone(), (info.clone(), stored));
        Ok(info)
    }

    async fn changes(&self, id: &SandboxId, to: &Path) -> Result<WorkspaceChanges> {
        let mut state = self.enter("changes")?;
        let sandbox = state.sandbox(id)?;
        changes::gather(&lock(&sandbox.files), sandbox.workspace.as_ref(), to)
    }

    async fn snapshot_changes(&self, snapshot: &SnapshotId, to: &Path) -> Result<WorkspaceChanges> {
        let state = self.enter("snapshot_changes")?;
        let stored = state.snapshots.get(snapshot);
        let (_, kept) = stored.ok_or_else(|| Error::NoSnapshot(snapshot.clone()))?;
        changes::gather(&kept.files, kept.workspace.as_ref(), to)
    }

    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<()> {
        self.enter("remove_snapshot")?.snapshots.remove(snapshot);
        Ok(())
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        let state = self.enter("snapshots")?;
        Ok(state.snapshots.values().map(|(info, _)| info.clone()).collect())
    }

    async fn connect(&self, id: &SandboxId, target: &Target) -> Result<Box<dyn Connection>> {
        let mut state = self.enter("connect")?;
        state.needs(Capability::Ports)?;
        let sandbox = state.sandbox(id)?;
        let (ports, ending) = (&sandbox.ports, sandbox.state.subscribe());
        let listener = ports.iter().find(|(other, _)| other == target).map(|(_, sender)| sender);
        let (outer, middle) = tokio::io::duplex(CONNECTION_BYTES);
        let (other_middle, inner) = tokio::io::duplex(CONNECTION_BYTES);
        if listener.is_none_or(|listener| listener.try_send(inner).is_err()) {
            let errno = match target {
                Target::Unix(_) if listener.is_none() => Errno::NOENT,
                _ => Errno::CONNREFUSED,
            };
            return Err(Error::Connect { target: target.to_string(), source: errno.into() });
        }
        tokio::spawn(relay(middle, other_middle, ending));
        Ok(Box::new(outer))
    }

    async fn listeners(&self, id: &SandboxId) -> Result<EgressListeners> {
        let mut state = self.enter("listeners")?;
        let sandbox = state.sandbox(id)?;
        let none = || Error::Invalid(format!("the sandbox {id} has no network policy"));
        sandbox.spec.network.as_ref().ok_or_else(none)?;
        let is_there = |state| state != crate::State::Ended;
        sandbox.allows(id, "get its egress listeners", is_there)?;
        sandbox.listeners.as_ref().ok_or_else(none)?.try_clone().map_err(network::exhausted)
    }

    async fn trust(&self, id: &SandboxId, certificates: &str) -> Result<()> {
        self.listeners(id).await?;
        let path = SandboxPath::new(stockade_core::network::TRUSTED_INSIDE)?;
        let content = Box::pin(std::io::Cursor::new(certificates.as_bytes().to_vec()));
        self.write_file(id, &path, content, WriteOptions::default()).await.map(drop)
    }

    async fn stat(&self, id: &SandboxId, path: &SandboxPath) -> Result<FileInfo> {
        self.files("stat", "inspect", id, path, |tree, path| tree.info(path))
    }

    async fn read_directory(&self, id: &SandboxId, path: &SandboxPath) -> Result<Vec<FileInfo>> {
        self.files("read_directory", "read", id, path, |tree, path| tree.list(path))
    }

    async fn read_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        range: ReadRange,
    ) -> Result<Content> {
        let (content, _) =
            self.files("read_file", "read", id, path, |tree, path| tree.read(path))?;
        let number = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let start = number(range.offset).min(content.len());
        let length = range.length.map_or(usize::MAX, number);
        let end = start.saturating_add(length).min(content.len());
        Ok(Box::pin(io::Cursor::new(content[start..end].to_vec())))
    }

    async fn write_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        mut content: Content,
        options: WriteOptions,
    ) -> Result<u64> {
        let mut bytes = Vec::new();
        let read = content.read_to_end(&mut bytes).await;
        self.files("write_file", "write", id, path, |tree, path| {
            read?;
            let length = bytes.len() as u64;
            tree.write(path, bytes, options).map(|()| length)
        })
    }

    async fn unpack(
        &self,
        id: &SandboxId,
        to: &SandboxPath,
        mode: u32,
        mut content: Content,
    ) -> Result<TreeSize> {
        let mut bytes = Vec::new();
        let read = content.read_to_end(&mut bytes).await;
        self.files("unpack", "copy to", id, to, |tree, to| {
            read?;
            streams::unpack(tree, to, mode, bytes.as_slice())
        })
    }

    async fn pack(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        mark: Option<Vec<u8>>,
    ) -> Result<PackedTree> {
        let progress = Arc::new(TreeProgress::default());
        let bytes = self.files("pack", "copy", id, from, |tree, from| {
            streams::pack(tree, from, mark.as_deref(), &progress)
        })?;
        Ok(PackedTree { content: Box::pin(io::Cursor::new(bytes)), progress })
    }

    async fn make_directory(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        options: WriteOptions,
    ) -> Result<()> {
        self.files("make_directory", "make", id, path, |tree, path| {
            tree.make_directory(path, options)
        })
    }

    async fn set_attributes(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> Result<()> {
        self.files("set_attributes", "change", id, path, |tree, path| {
            tree.set_attributes(path, mode, owner)
        })
    }

    async fn rename(&self, id: &SandboxId, from: &SandboxPath, to: &SandboxPath) -> Result<()> {
        self.files("rename", "rename", id, from, |tree, from| tree.rename(from, to.as_path()))
    }

    async fn remove(&self, id: &SandboxId, path: &SandboxPath) -> Result<()> {
        self.files("remove", "remove", id, path, Tree::remove)
    }
}

/// Relays bytes in both directions, until both have ended or the sandbox has.
async fn relay(
    mut one: DuplexStream,
    mut two: DuplexStream,
    mut state: watch::Receiver<crate::State>,
) {
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut one, &mut two) => {}
        _ = state.wait_for(|state| *state == crate::State::Ended) => {}
    }
}

impl Fake {
    /// Runs an operation on the files of a sandbox.
    fn files<T>(
        &self,
        operation: &'static str,
        verb: &'static str,
        id: &SandboxId,
        path: &SandboxPath,
        act: impl FnOnce(&mut Tree, &Path) -> io::Result<T>,
    ) -> Result<T> {
        let mut state = self.enter(operation)?;
        let mut tree = lock(&state.sandbox(id)?.files);
        act(&mut tree, path.as_path()).map_err(copies::file(verb, path.as_path()))
    }
}

impl State {
    fn command(&mut self, id: &SandboxId, exec: &ExecId) -> Result<&Running> {
        let no_exec = || Error::NoExec { sandbox: id.clone(), exec: exec.clone() };
        self.sandbox(id)?.commands.get(exec).ok_or_else(no_exec)
    }
}
