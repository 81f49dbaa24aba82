//! [`OpenSandbox`], the implementation of the trait: the life cycle, and where each other operation is.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use stockade_core::ending::Ending;
use stockade_core::runtime::{RuntimeName, Support};
use stockade_core::sandbox::{Root, User};
use stockade_core::{ExecId, SandboxId, SandboxSpec, SnapshotId};
use stockade_runtime::{
    Capability, Command, Connection, Content, EndCause, Error, Exec, FileInfo, Offsets, ReadRange,
    Result, Runtime, SandboxPath, SnapshotInfo, State, Status, Target, Unsupported, WindowSize,
    WorkspaceChanges, WriteOptions,
};

use crate::address::Address;
use crate::commands::{no_exec, running};
use crate::execd::Execd;
use crate::failure::Failure;
use crate::lifecycle::{RemoteSandbox, Server};
use crate::record::{Record, Records, now_ms};
use crate::request::{
    ID, OWNER, fingerprint, image_error, millis, new_record, new_sandbox, remote_lease,
};
use crate::status::{mark_ended, mark_lease, status};

/// How long a sandbox lives at the server that has lost its lease here.
const WITHOUT_LEASE: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a sandbox may take to start.
const START: Duration = Duration::from_secs(120);
const START_POLL: Duration = Duration::from_millis(50);

/// How sandboxes elsewhere are held.
#[derive(Debug, Clone)]
pub struct Options {
    /// The data directory.
    pub data: PathBuf,
    /// The server, or why the environment names none.
    pub address: std::result::Result<Option<Address>, String>,
}

/// Sandboxes that a server of OpenSandbox holds.
#[derive(Debug, Clone)]
pub struct OpenSandbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    server: std::result::Result<Server, Unsupported>,
    records: OnceLock<Records>,
    /// The numbers of owners by a sandbox and their names.
    owners: Mutex<HashMap<OwnerNames, User>>,
}

/// A sandbox, a user and a group.
type OwnerNames = (SandboxId, String, String);

/// How many owners are remembered.
const OWNERS: usize = 1000;

impl OpenSandbox {
    /// The sandboxes of a data directory. Nothing is asked before there is a request.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let unset = || Unsupported {
            reason: "no server of OpenSandbox is configured".to_owned(),
            remedy: Some("export OPENSANDBOX_DOMAIN=HOST:PORT OPENSANDBOX_API_KEY=KEY".to_owned()),
        };
        let invalid = |reason| Unsupported { reason, remedy: None };
        let server = match options.address {
            Ok(Some(address)) => Server::new(&address).map_err(invalid),
            Ok(None) => Err(unset()),
            Err(reason) => Err(invalid(reason)),
        };
        let directory = options.data.join("runtime-opensandbox");
        Self(Arc::new(Inner {
            directory,
            server,
            records: OnceLock::new(),
            owners: Mutex::default(),
        }))
    }

    pub(crate) fn known_owner(&self, names: &OwnerNames) -> Option<User> {
        self.0.owners.lock().unwrap_or_else(PoisonError::into_inner).get(names).copied()
    }

    pub(crate) fn remember_owner(&self, names: OwnerNames, owner: User) {
        let mut owners = self.0.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if owners.len() >= OWNERS {
            owners.clear();
        }
        owners.insert(names, owner);
    }

    fn server(&self) -> Result<&Server> {
        self.0.server.as_ref().map_err(|missing| Error::Unavailable {
            what: "the server of OpenSandbox".to_owned(),
            reason: missing.reason.clone(),
            remedy: missing.remedy.clone().unwrap_or_else(|| "correct the variable".to_owned()),
        })
    }

    /// The records, whose directory is created when it is needed.
    pub(crate) fn records(&self) -> Result<&Records> {
        if let Some(records) = self.0.records.get() {
            return Ok(records);
        }
        let opened = Records::open(self.0.directory.clone())?;
        Ok(self.0.records.get_or_init(|| opened))
    }

    /// The record of a sandbox, with the end of its lease.
    pub(crate) async fn current(&self, id: &SandboxId) -> Result<Record> {
        let record = self.records()?.get(id)?;
        let is_over = record.lease_until_ms.is_some_and(|until| until <= now_ms());
        if !is_over || record.ended.is_some() {
            return Ok(record);
        }
        Ok(mark_ended(record, EndCause::LeaseExpired))
    }

    /// `execd` of a sandbox.
    pub(crate) async fn execd(&self, record: &Record) -> Result<Execd> {
        let Some(remote) = &record.remote else {
            return Err(Error::OutcomeUnknown(format!("the creation of {}", record.id)));
        };
        let place = self.server()?.execd(remote).await;
        place.map(Execd).map_err(|failure| failure.of_reading(&record.id))
    }

    /// `execd` of a sandbox whose files can be reached.
    pub(crate) async fn usable(&self, id: &SandboxId) -> Result<Execd> {
        let record = self.current(id).await?;
        self.execd(&record).await
    }

    /// The refusal of a capability that the interface does not have.
    pub(crate) fn refused(capability: Capability) -> Error {
        let reason = missing(capability).unwrap_or("it is not supported here").to_owned();
        (capability, Unsupported { reason, remedy: None }).into()
    }

    /// Refuses what cannot be requested.
    fn check(&self, spec: &SandboxSpec) -> Result<()> {
        let requested = [
            (spec.private_base, Capability::PrivateBase),
            (spec.workspace.is_some(), Capability::Workspace),
            (!spec.mounts.is_empty(), Capability::HostMounts),
            (!spec.volumes.is_empty() || !spec.caches.is_empty(), Capability::Volumes),
            (!spec.access.is_empty(), Capability::AccessRules),
            (spec.network.is_some(), Capability::Egress),
            (matches!(spec.root, Root::Snapshot(_)), Capability::Snapshot),
            (spec.user.is_some() || !spec.groups.is_empty(), Capability::Users),
        ];
        if let Some((_, capability)) = requested.iter().find(|(requested, _)| *requested) {
            return Err(Self::refused(*capability));
        }
        if matches!(spec.root, Root::Directory(_)) {
            let text = "a directory of this host cannot be the root of a sandbox elsewhere";
            return Err(Error::Invalid(text.to_owned()));
        }
        Ok(())
    }

    async fn make(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<Status> {
        self.check(spec)?;
        let server = self.server()?;
        let records = self.records()?;
        let _lock = records.lock(id).await?;
        let requested = fingerprint(spec)?;
        let mut record = match records.find(id)? {
            Some(record) if record.requested != requested => {
                return Err(Error::Conflict(format!("the sandbox {id}")));
            }
            Some(record) if record.remote.is_some() => return Ok(status(&mark_lease(record))),
            // A creation that was not finished.
            Some(record) => record,
            None => {
                let record = new_record(id, spec, requested)?;
                records.store(&record)?;
                record
            }
        };
        match self.create_remote(server, records, &record, spec).await {
            Ok(remote) => {
                record.remote = Some(remote);
                records.store(&record)?;
                Ok(status(&record))
            }
            Err(error) => {
                // Where it is unknown whether there is one, the record stays, and it is looked for.
                if !matches!(error, Error::OutcomeUnknown(_) | Error::Unreachable { .. }) {
                    records.remove(id)?;
                }
                Err(error)
            }
        }
    }

    /// Creates the sandbox at the server, or finds the one that an earlier attempt has created.
    async fn create_remote(
        &self,
        server: &Server,
        records: &Records,
        record: &Record,
        spec: &SandboxSpec,
    ) -> Result<String> {
        let id = &record.id;
        let failed = |failure: Failure| failure.of_sandbox(id, "the creation");
        let found = server.list(&[(OWNER, &records.owner), (ID, id.as_str())]).await;
        let created = match found.map_err(failed)?.into_iter().next() {
            Some(found) => found,
            None => {
                let new = new_sandbox(records, id, spec)?;
                let created = server.create(&new).await;
                match created {
                    Ok(created) => created,
                    // It may have been created although no answer came.
                    Err(failure @ (Failure::Lost(..) | Failure::TimedOut(_))) => {
                        let wanted = [(OWNER, records.owner.as_str()), (ID, id.as_str())];
                        let found = server.list(&wanted).await.map_err(failed)?.into_iter().next();
                        found.ok_or_else(|| failed(failure))?
                    }
                    Err(failure) => return Err(image_error(failure, id, spec)),
                }
            }
        };
        let ready = self.wait_until_ready(server, id, created).await;
        match ready {
            Ok(remote) => Ok(remote),
            Err((remote, error)) => {
                // Nothing is left there of what cannot be used.
                server.delete(&remote).await.map_err(failed)?;
                Err(error)
            }
        }
    }

    async fn wait_until_ready(
        &self,
        server: &Server,
        id: &SandboxId,
        created: RemoteSandbox,
    ) -> std::result::Result<String, (String, Error)> {
        let end = tokio::time::Instant::now() + START;
        let remote = created.id.clone();
        let failed = |error| (remote.clone(), error);
        let mut now = created;
        loop {
            match now.status.state.as_str() {
                "Running" => {
                    let place = server.execd(&now.id).await;
                    let place = place.map_err(|f| failed(f.of_reading(id)))?;
                    if Execd(place).ping().await.is_ok() {
                        return Ok(now.id);
                    }
                }
                "Failed" | "Terminated" | "Stopping" => {
                    let reason = now.status.reason.unwrap_or_else(|| now.status.state.clone());
                    return Err(failed(Error::Exhausted(format!("the server reports: {reason}"))));
                }
                _ => {}
            }
            if tokio::time::Instant::now() >= end {
                return Err(failed(Error::Deadline("start a sandbox at the server")));
            }
            tokio::time::sleep(START_POLL).await;
            now = server.get_sandbox(&remote).await.map_err(|f| failed(f.of_reading(id)))?;
        }
    }

    /// The state of a sandbox, as the server says.
    async fn state(&self, id: &SandboxId) -> Result<Status> {
        let record = self.current(id).await?;
        let Some(remote) = record.remote.clone() else { return Ok(status(&record)) };
        if record.ended.is_some() {
            if self.records()?.get(id)?.ended.is_none() {
                self.finish(id, EndCause::LeaseExpired).await?;
            }
            return Ok(status(&record));
        }
        let found = self.server()?.get_sandbox(&remote).await;
        match found {
            Ok(found) => match found.status.state.as_str() {
                "Terminated" | "Failed" | "Stopping" => {
                    let ended = self.lost(id, found.status.reason).await?;
                    Ok(status(&ended))
                }
                "Pausing" | "Paused" => Ok(Status { state: State::Paused, ..status(&record) }),
                _ => Ok(status(&record)),
            },
            Err(failure) if matches!(failure.status(), Some(404 | 410)) => {
                let ended = self.lost(id, None).await?;
                Ok(status(&ended))
            }
            Err(failure) => Err(failure.of_reading(id)),
        }
    }

    /// Records that the server has no sandbox any more.
    async fn lost(&self, id: &SandboxId, reason: Option<String>) -> Result<Record> {
        let reason = reason.unwrap_or_else(|| "the server has ended it".to_owned());
        let end = |record: &mut Record| {
            record.ended.get_or_insert((EndCause::ProcessesLost, reason));
        };
        self.records()?.change(id, end).await
    }

    /// Ends all commands of a sandbox; its files stay at the server until it is removed.
    async fn finish(&self, id: &SandboxId, cause: EndCause) -> Result<()> {
        let record = self.records()?.get(id)?;
        if record.ended.is_none() && record.remote.is_some() {
            let execd = self.execd(&record).await?;
            let remotes = record.execs.values().filter(|exec| exec.ending.is_none());
            for remote in remotes.filter_map(|exec| exec.remote.as_ref()) {
                let ended = execd.interrupt(remote).await;
                ended.map_err(|failure| failure.of_sandbox(id, "the end"))?;
            }
        }
        let end = |record: &mut Record| *record = mark_ended(record.clone(), cause);
        self.records()?.change(id, end).await.map(drop)
    }
}

/// The reason why the interface does not have a capability; `None` if it does.
const fn missing(capability: Capability) -> Option<&'static str> {
    match RuntimeName::OpenSandbox.declares(capability) {
        Support::No(reason) => Some(reason),
        Support::Yes | Support::Conditional(_) => None,
    }
}

#[async_trait]
impl Runtime for OpenSandbox {
    fn name(&self) -> &'static str {
        RuntimeName::OpenSandbox.as_str()
    }

    async fn available(&self) -> std::result::Result<(), Unsupported> {
        let server = self.0.server.as_ref().map_err(Clone::clone)?;
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
        let failed = |failure: Failure| failure.of_sandbox(id, "the removal");
        let wanted = [(OWNER, records.owner.as_str()), (ID, id.as_str())];
        // Also what a creation has left whose answer never came.
        let mut remotes: Vec<String> =
            server.list(&wanted).await.map_err(failed)?.into_iter().map(|found| found.id).collect();
        remotes.extend(records.find(id)?.and_then(|record| record.remote));
        for remote in remotes {
            server.delete(&remote).await.map_err(failed)?;
        }
        records.remove(id)
    }

    async fn attach(&self, id: &SandboxId, exec: &ExecId, from: Offsets) -> Result<Exec> {
        let record = self.current(id).await?;
        let is_fed = no_exec(&record, exec)?.is_fed;
        Ok(self.follow(id, exec, from, is_fed))
    }

    async fn signal(&self, id: &SandboxId, exec: &ExecId, signal: i32) -> Result<()> {
        self.send_signal(id, exec, signal).await
    }

    async fn kill(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.end_command(id, exec, Ending::Killed).await
    }

    async fn resize(&self, id: &SandboxId, exec: &ExecId, _size: WindowSize) -> Result<()> {
        no_exec(&self.current(id).await?, exec)?;
        Err(Self::refused(Capability::Terminal))
    }

    async fn acknowledge(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.forget(id, exec).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Status> {
        let status = self.state(id).await?;
        let running: Vec<_> = status.execs.iter().filter(|exec| exec.ending.is_none()).collect();
        for exec in &running {
            self.ending(id, &exec.id).await?;
        }
        let record = self.current(id).await?;
        let execs = crate::status::status(&record).execs;
        Ok(Status { execs, ..status })
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
            // Where the server does not answer, what is known here is the answer.
            found.push(self.state(&record.id).await.unwrap_or_else(|_| status(&record)));
        }
        Ok(found)
    }

    async fn renew(&self, id: &SandboxId, lease: Option<Duration>) -> Result<()> {
        let record = self.current(id).await?;
        running(&record, "be renewed")?;
        if let Some(remote) = record.remote.as_ref().filter(|_| !record.is_endless) {
            let time = lease.map_or(WITHOUT_LEASE, remote_lease);
            let renewed = self.server()?.renew(remote, time).await;
            renewed.map_err(|failure| failure.of_sandbox(id, "the renewal"))?;
        }
        let renew = |record: &mut Record| {
            record.lease_until_ms = lease.map(|time| now_ms().saturating_add(millis(time)));
        };
        self.records()?.change(id, renew).await.map(drop)
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        running(&self.current(id).await?, "be paused")?;
        Err(Self::refused(Capability::Pause))
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        running(&self.current(id).await?, "be resumed")?;
        Err(Self::refused(Capability::Pause))
    }

    async fn changes(&self, id: &SandboxId, _to: &Path) -> Result<WorkspaceChanges> {
        self.current(id).await?;
        Err(Error::Invalid(format!("the sandbox {id} has no workspace")))
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
