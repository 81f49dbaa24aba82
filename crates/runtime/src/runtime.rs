//! The trait of every sandbox backend, which lists all operations on a sandbox.
//!
//! `create`, `ship`, `execute`, `collect` and `cleanup` are the transport operations of Smithers.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use crate::egress::EgressListeners;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use stockade_core::sandbox::{LimitChange, Root, ServerElsewhere, User};
use stockade_core::{ExecId, Isolation, SandboxId, SandboxSpec, SnapshotId, StoredImage};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::capability::{Capability, Unsupported};
use crate::changes::{ChangesInPlace, WorkspaceChanges};
use crate::error::{Error, Result};
use crate::exec::{Command, Exec, ExecStatus, Offsets, WindowSize};
use crate::files::{Content, FileInfo, ReadRange, SandboxPath, WriteOptions};
use crate::state::State;
use crate::tree::{PackedTree, TreeSize};
use crate::usage::Usage;

/// A backend that holds sandboxes.
///
/// Every operation may be repeated with the same ids after its caller has crashed: completed work
/// is found, missing work is done, and nothing is done twice.
#[async_trait]
pub trait Runtime: Debug + Send + Sync {
    /// Its stable name, such as `native`.
    fn name(&self) -> &'static str;

    /// Whether what configures it is complete and valid, or what is wrong with it. A request for a runtime
    /// that is not configured is invalid.
    fn configured(&self) -> std::result::Result<(), Unsupported> {
        Ok(())
    }

    /// Whether sandboxes can be created with it here, or why not: its program or service is missing.
    async fn available(&self) -> std::result::Result<(), Unsupported> {
        Ok(())
    }

    /// Whether sandboxes can be created with it at a server elsewhere that a run has named, or why not.
    async fn reaches(&self, server: &ServerElsewhere) -> std::result::Result<(), Unsupported> {
        Err(Unsupported {
            reason: format!("its sandboxes are not at {}", server.url),
            remedy: None,
        })
    }

    /// Whether it supports a capability here, or why not.
    async fn supports(&self, capability: Capability) -> std::result::Result<(), Unsupported>;

    /// Whether its images are those of the store of the data directory, and not of an engine.
    fn has_stored_images(&self) -> bool {
        false
    }

    /// The name of an image with the digest of what it means now, so that it still means the same
    /// later. A runtime whose images are not told apart by digests returns the name as it is.
    ///
    /// # Errors
    /// [`Error::NoImage`] where there is none, and [`Error::Image`] for one that cannot be used.
    async fn resolve_image(&self, name: &str) -> Result<String> {
        Ok(name.to_owned())
    }

    /// The images in its own store, for lists. A runtime without one has none.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn images(&self) -> Result<Vec<StoredImage>> {
        Ok(Vec::new())
    }

    /// Creates a sandbox and waits until commands can be started in it. If the id exists with the
    /// same spec, returns the status of the existing sandbox.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the id exists with another spec; [`Error::Limit`],
    /// [`Error::Unsupported`], [`Error::Wall`] or [`Error::Invalid`] for a request that cannot be
    /// granted.
    async fn create(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<Status>;

    /// Copies a directory of the host to a directory inside, which is created. It must contain only
    /// files, directories and links.
    ///
    /// # Errors
    /// [`Error::Host`] or [`Error::File`] for what could not be copied.
    async fn ship(&self, id: &SandboxId, from: &Path, to: &SandboxPath) -> Result<()>;

    /// Starts a command. If the exec id exists, attaches to the command from its beginning instead.
    /// That a program cannot be run is reported as the command's ending.
    ///
    /// A whole input ([`StandardInput::Whole`](crate::StandardInput::Whole)) is available to the
    /// command from its start. Whichever process is killed meanwhile, the caller, the one that
    /// holds the sandbox or any in between, the command reads all of it, or was never run and is
    /// unknown under its id.
    ///
    /// # Errors
    /// [`Error::WrongState`] when the sandbox is paused or has ended; [`Error::OutcomeUnknown`]
    /// when the id was used, and the result is lost; [`Error::Invalid`] for a whole input with a
    /// terminal, or one that is longer than [`WHOLE_INPUT_BYTES`](crate::WHOLE_INPUT_BYTES);
    /// [`Error::Exhausted`] when the whole inputs of running commands take too much space.
    async fn execute(&self, id: &SandboxId, exec: &ExecId, command: &Command) -> Result<Exec>;

    /// Copies a directory inside to a new directory of the host. Links are copied as links; pipes,
    /// sockets and devices are left out.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the copy would be larger than `limit_bytes` or contain more than a
    /// million files; then nothing is left of it.
    async fn collect(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        to: &Path,
        limit_bytes: u64,
    ) -> Result<()>;

    /// Ends every process of a sandbox, also of a paused one, and returns when they have ended. Its
    /// files remain until [`Runtime::cleanup`]. Has no effect on an ended sandbox.
    ///
    /// # Errors
    /// [`Error::NoSandbox`].
    async fn end(&self, id: &SandboxId) -> Result<()>;

    /// Ends a sandbox, whatever runs in it, and removes everything that belongs to it. Succeeds if
    /// it does not exist.
    async fn cleanup(&self, id: &SandboxId) -> Result<()>;

    /// Receives the events of a started command, from these offsets on.
    async fn attach(&self, id: &SandboxId, exec: &ExecId, from: Offsets) -> Result<Exec>;

    /// Sends a signal to the command's process group. Has no effect on an ended command.
    async fn signal(&self, id: &SandboxId, exec: &ExecId, signal: i32) -> Result<()>;

    /// Kills a command with all processes that it has started, including those that have left its
    /// process group. In a paused sandbox this resumes nothing else.
    async fn kill(&self, id: &SandboxId, exec: &ExecId) -> Result<()>;

    /// Changes the size of a command's terminal.
    async fn resize(&self, id: &SandboxId, exec: &ExecId, size: WindowSize) -> Result<()>;

    /// Discards the records of an ended command; its id is free again.
    async fn acknowledge(&self, id: &SandboxId, exec: &ExecId) -> Result<()>;

    /// The status of a sandbox.
    ///
    /// # Errors
    /// [`Error::NoSandbox`].
    async fn inspect(&self, id: &SandboxId) -> Result<Status>;

    /// The current resource use of a sandbox, as far as it can be determined.
    ///
    /// # Errors
    /// [`Error::NoSandbox`].
    async fn usage(&self, id: &SandboxId) -> Result<Usage> {
        self.inspect(id).await?;
        let reason = format!("the runtime `{}` does not measure resource usage", self.name());
        Ok(Usage { reasons: vec![reason], ..Usage::default() })
    }

    /// The sandboxes that have all these labels, by their ids.
    async fn list(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Status>>;

    /// Sets the lease of a sandbox, counted from now; `None` removes it. A sandbox whose lease
    /// expires has ended: its processes end, its files remain.
    async fn renew(&self, id: &SandboxId, lease: Option<Duration>) -> Result<()>;

    /// Changes limits of a sandbox whose processes run or are paused: for all of them, where the
    /// host limits them together, else for the commands that start from now on. A limit that is not
    /// named stays. The status has the new ones.
    ///
    /// # Errors
    /// [`Error::Limit`] for a limit that cannot change here, or not to this value; then none has
    /// changed. [`Error::NoSandbox`], and [`Error::WrongState`] when it has ended.
    async fn change_limits(&self, id: &SandboxId, change: &LimitChange) -> Result<()> {
        self.inspect(id).await?;
        match change.each().next() {
            None => Ok(()),
            Some((limit, _)) => Err(Error::Limit {
                limit,
                reason: format!("the runtime `{}` cannot change it", self.name()),
                remedy: "create another sandbox".to_owned(),
            }),
        }
    }

    /// Stops every process. Has no effect on a paused sandbox.
    async fn pause(&self, id: &SandboxId) -> Result<()>;

    /// Resumes every process.
    async fn resume(&self, id: &SandboxId) -> Result<()>;

    /// Copies the files that a sandbox has created or changed in its workspace, since it started with
    /// it, to a new directory of the host, each at its path below the workspace, and returns the
    /// rest of its changes. The files belong to this process's user unless that is root. Character
    /// devices and attributes of the directory are notes of the runtime, which a reader may ignore.
    /// Processes are stopped meanwhile. Also works for a paused or ended sandbox.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it has no workspace; then, as with every error, nothing is left of
    /// the directory.
    async fn changes(&self, id: &SandboxId, to: &Path) -> Result<WorkspaceChanges>;

    /// The same for the state of a sandbox in a snapshot.
    ///
    /// # Errors
    /// As [`Runtime::changes`].
    async fn snapshot_changes(&self, snapshot: &SnapshotId, to: &Path) -> Result<WorkspaceChanges>;

    /// The same without a copy, so that it needs no space on the disk: of an ended sandbox, or of its
    /// state in a snapshot, if one is named. The caller does not change the files. `None` if the
    /// runtime has to copy them.
    ///
    /// # Errors
    /// As [`Runtime::changes`].
    async fn changes_in_place(
        &self,
        id: &SandboxId,
        snapshot: Option<&SnapshotId>,
    ) -> Result<Option<ChangesInPlace>> {
        let _ = (id, snapshot);
        Ok(None)
    }

    /// Stores the current state of the file system. Processes are stopped meanwhile.
    async fn snapshot(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<SnapshotInfo>;

    /// Removes a snapshot. Succeeds if it does not exist. Sandboxes that started from it keep their
    /// files.
    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<()>;

    /// Every snapshot.
    async fn snapshots(&self) -> Result<Vec<SnapshotInfo>>;

    /// Creates a sandbox whose file system starts from a snapshot.
    async fn restore(
        &self,
        snapshot: &SnapshotId,
        id: &SandboxId,
        spec: &SandboxSpec,
    ) -> Result<Status> {
        let spec = SandboxSpec { root: Root::Snapshot(snapshot.clone()), ..spec.clone() };
        self.create(id, &spec).await
    }

    /// Connects to a port or socket inside.
    ///
    /// # Errors
    /// [`Error::Connect`] with `ConnectionRefused` when nothing listens there.
    async fn connect(&self, id: &SandboxId, target: &Target) -> Result<Box<dyn Connection>>;

    /// The only network access of a sandbox that was requested with a policy
    /// ([`SandboxSpec::network`]): sockets in that network, which receive all traffic from inside.
    /// The process that gets them decides what is reachable; while no process accepts from them,
    /// nothing is. They are the same sockets each time, so a successor of that process can request
    /// them again.
    ///
    /// The sandbox's side has them too. They are guaranteed to be of the right kinds, in the order
    /// of their fields and in the sandbox's own network; other uses of them by a process inside
    /// cannot be excluded.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it has no such network, [`Error::NoSandbox`], [`Error::WrongState`]
    /// when it has ended, and [`Error::Unsupported`] where no sandbox can have one.
    async fn listeners(&self, id: &SandboxId) -> Result<EgressListeners> {
        self.inspect(id).await?;
        let reason = format!("the runtime `{}` does not support network policies", self.name());
        Err((Capability::Egress, Unsupported { reason, remedy: None }).into())
    }

    /// Replaces the certificates (PEM) that programs inside find at
    /// [`TRUSTED_INSIDE`](stockade_core::network::TRUSTED_INSIDE), in a sandbox that was requested
    /// with a network policy. Programs that have read the old ones keep them. No process inside can
    /// change the file, and no snapshot contains it.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it has no such file, [`Error::NoSandbox`], [`Error::WrongState`] when
    /// it has ended, and [`Error::Unsupported`] where no sandbox can have one.
    async fn trust(&self, id: &SandboxId, certificates: &str) -> Result<()> {
        let _ = certificates;
        self.listeners(id).await.map(drop)?;
        let reason = format!("the runtime `{}` does not support secrets", self.name());
        Err((Capability::Egress, Unsupported { reason, remedy: None }).into())
    }

    /// Makes the socket of the ssh agent of a sandbox that was requested with one
    /// ([`SandboxSpec::ssh_agent`]). It replaces an earlier one. The process that accepts from it is
    /// the agent. Every user inside may connect; none can replace it.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it has no directory for it, [`Error::NoSandbox`], and
    /// [`Error::Unsupported`] where no sandbox can have one.
    async fn agent_socket(&self, id: &SandboxId) -> Result<UnixListener> {
        self.inspect(id).await?;
        let reason = format!("the runtime `{}` does not support ssh agents", self.name());
        Err((Capability::SshAgent, Unsupported { reason, remedy: None }).into())
    }

    /// The metadata of a path. A link at its end is not followed.
    async fn stat(&self, id: &SandboxId, path: &SandboxPath) -> Result<FileInfo>;

    /// The content of a directory, sorted by name.
    async fn read_directory(&self, id: &SandboxId, path: &SandboxPath) -> Result<Vec<FileInfo>>;

    /// The content of a file. Links are followed, but only inside.
    async fn read_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        range: ReadRange,
    ) -> Result<Content>;

    /// Writes a file completely or not at all. Returns its length in bytes.
    async fn write_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        content: Content,
        options: WriteOptions,
    ) -> Result<u64>;

    /// Creates a tree of files in a directory, from a stream of [`TreeWriter`](crate::TreeWriter). A
    /// new directory gets these permission bits. Existing directories are filled; files keep their
    /// owner and permissions; symbolic links in the way are replaced. What was created before an
    /// error stays.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Invalid`] where trees cannot be copied at once.
    async fn unpack(
        &self,
        id: &SandboxId,
        to: &SandboxPath,
        mode: u32,
        content: Content,
    ) -> Result<TreeSize> {
        drop((mode, content));
        self.inspect(id).await?;
        Err(Error::Invalid(format!("the runtime `{}` cannot copy a tree to {to}", self.name())))
    }

    /// The content of a directory as a stream for [`TreeReader`](crate::TreeReader). A directory in
    /// it that contains the name `mark` is skipped.
    ///
    /// # Errors
    /// As [`Runtime::unpack`].
    async fn pack(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        mark: Option<Vec<u8>>,
    ) -> Result<PackedTree> {
        drop(mark);
        self.inspect(id).await?;
        Err(Error::Invalid(format!("the runtime `{}` cannot copy the tree {from}", self.name())))
    }

    /// Creates a directory with missing parents. An existing one is no error.
    async fn make_directory(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        options: WriteOptions,
    ) -> Result<()>;

    /// Changes the permission bits, without set-id, or the owner of a file or directory. Links are
    /// followed, but only inside.
    async fn set_attributes(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> Result<()>;

    /// Renames a file or directory.
    async fn rename(&self, id: &SandboxId, from: &SandboxPath, to: &SandboxPath) -> Result<()>;

    /// Removes a file, or a directory with its content.
    async fn remove(&self, id: &SandboxId, path: &SandboxPath) -> Result<()>;
}

/// A port or socket inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A TCP port of the sandbox's own loopback.
    Tcp(u16),
    /// A stream socket at a path.
    Unix(SandboxPath),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(port) => write!(f, "port {port}"),
            Self::Unix(path) => write!(f, "the socket {path}"),
        }
    }
}

/// A connection to a server inside: bytes in both directions.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin + Debug {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + Debug> Connection for T {}

/// Why a sandbox has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// Its processes ended without a request: they were killed, or they failed.
    #[default]
    ProcessesLost,
    /// The host was restarted.
    HostRestarted,
    /// Its lease expired.
    LeaseExpired,
    /// A client requested it.
    Requested,
}

/// The status of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its id.
    pub id: SandboxId,
    /// Its state.
    pub state: State,
    /// Why it has ended, in words, if it has.
    pub reason: Option<String>,
    /// Why it has ended, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_cause: Option<EndCause>,
    /// Its labels, by which it can be found.
    pub labels: BTreeMap<String, String>,
    /// When it was created, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// The remaining lease; absent when it has none.
    pub lease_left: Option<Duration>,
    /// Which walls and limits are in force.
    pub isolation: Isolation,
    /// The commands that were started in it and not acknowledged.
    pub execs: Vec<ExecStatus>,
}

/// The metadata of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// Its id.
    pub id: SnapshotId,
    /// The sandbox from which it was taken.
    pub sandbox: SandboxId,
    /// When it was taken, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// The disk use of its files, in bytes.
    pub size_bytes: u64,
}

/// The error for a capability that is not supported here.
impl From<(Capability, Unsupported)> for Error {
    fn from((capability, Unsupported { reason, remedy }): (Capability, Unsupported)) -> Self {
        Self::Unsupported { capability, reason, remedy }
    }
}
