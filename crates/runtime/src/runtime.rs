//! The trait of every sandbox backend: the one list of what can be done to a sandbox.
//!
//! `create`, `ship`, `execute`, `collect` and `cleanup` are the transport operations of Smithers.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use crate::egress::EgressListeners;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use stockade_bundle::view::Gathered;
use stockade_core::sandbox::{Root, User};
use stockade_core::{ExecId, Isolation, SandboxId, SandboxSpec, SnapshotId};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::capability::{Capability, Unsupported};
use crate::error::{Error, Result};
use crate::exec::{Command, Exec, ExecStatus, Offsets, WindowSize};
use crate::files::{Content, FileInfo, ReadRange, SandboxPath, WriteOptions};
use crate::usage::Usage;

/// A backend that holds sandboxes.
///
/// Every operation may be called again with the same ids after its caller has crashed: what was
/// done is found, what was not is done, and nothing is done twice.
#[async_trait]
pub trait Runtime: Debug + Send + Sync {
    /// Its stable name, such as `native`.
    fn name(&self) -> &'static str;

    /// Whether it can do something here, and why not.
    async fn supports(&self, capability: Capability) -> std::result::Result<(), Unsupported>;

    /// Makes a sandbox and waits until commands can be started in it. With an id that exists and
    /// the same spec, answers with what there is.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the id exists with another spec; [`Error::Limit`],
    /// [`Error::Unsupported`], [`Error::Wall`] or [`Error::Invalid`] for what cannot be granted.
    async fn create(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<Status>;

    /// Copies a directory of the host to a directory inside, which is made. Nothing in it may be
    /// anything but a file, directory or link.
    ///
    /// # Errors
    /// [`Error::Host`] or [`Error::File`] for what could not be copied.
    async fn ship(&self, id: &SandboxId, from: &Path, to: &SandboxPath) -> Result<()>;

    /// Starts a command. With an exec id that exists, attaches to it from its beginning instead.
    /// That a program cannot be run is told as the command's ending.
    ///
    /// An input that is given whole ([`StandardInput::Whole`](crate::StandardInput::Whole)) is the
    /// command's with its start. Whoever is killed between, the caller, what holds the sandbox or
    /// anything on the way, the command reads all of it, or was never run and is not known under its
    /// id.
    ///
    /// # Errors
    /// [`Error::WrongState`] when the sandbox is paused or has ended; [`Error::OutcomeUnknown`]
    /// when the id was used, and what became of it is lost; [`Error::Invalid`] for a whole input
    /// with a terminal, or one that is longer than
    /// [`WHOLE_INPUT_BYTES`](crate::WHOLE_INPUT_BYTES); [`Error::Exhausted`] when the commands that
    /// run hold too much of it.
    async fn execute(&self, id: &SandboxId, exec: &ExecId, command: &Command) -> Result<Exec>;

    /// Copies a directory inside to a new directory of the host. Links stay as they are; pipes,
    /// sockets and devices are left out.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the copy would be larger than `limit_bytes` or hold more than a
    /// million files; then nothing is left of it.
    async fn collect(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        to: &Path,
        limit_bytes: u64,
    ) -> Result<()>;

    /// Ends a sandbox, whatever runs in it, and removes all that it had. Of one that does not
    /// exist it does the same.
    async fn cleanup(&self, id: &SandboxId) -> Result<()>;

    /// Hears of a command that was started, from these offsets on.
    async fn attach(&self, id: &SandboxId, exec: &ExecId, from: Offsets) -> Result<Exec>;

    /// Sends a signal to the command's process group. Of one that has ended, does nothing.
    async fn signal(&self, id: &SandboxId, exec: &ExecId, signal: i32) -> Result<()>;

    /// Kills a command with all that it has started, also what has left its process group. In a
    /// paused sandbox nothing else goes on for it.
    async fn kill(&self, id: &SandboxId, exec: &ExecId) -> Result<()>;

    /// Gives a command's terminal another size.
    async fn resize(&self, id: &SandboxId, exec: &ExecId, size: WindowSize) -> Result<()>;

    /// Lets go of what is kept of a command that has ended; its id is free again.
    async fn acknowledge(&self, id: &SandboxId, exec: &ExecId) -> Result<()>;

    /// What is known of a sandbox.
    ///
    /// # Errors
    /// [`Error::NoSandbox`].
    async fn inspect(&self, id: &SandboxId) -> Result<Status>;

    /// What a sandbox uses at this moment, as far as this can be told.
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

    /// Lets a sandbox live this long from now on, and no longer.
    async fn renew(&self, id: &SandboxId, lease: Option<Duration>) -> Result<()>;

    /// Stops every process. Of a paused sandbox, does nothing.
    async fn pause(&self, id: &SandboxId) -> Result<()>;

    /// Lets every process go on.
    async fn resume(&self, id: &SandboxId) -> Result<()>;

    /// Copies what a sandbox has changed in its workspace, since it began with it, to a new directory
    /// of the host: the upper layer of an overlay over the workspace, as
    /// [`Gathering::layer`](stockade_bundle::view::Gathering::layer) wants it. Processes are stopped
    /// meanwhile. One that is paused or has ended has changes too.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it has no workspace; then, as with every error, nothing is left of the
    /// directory.
    async fn changes(&self, id: &SandboxId, to: &Path) -> Result<Gathered>;

    /// The same of a sandbox as a snapshot has it.
    ///
    /// # Errors
    /// As [`Runtime::changes`].
    async fn snapshot_changes(&self, snapshot: &SnapshotId, to: &Path) -> Result<Gathered>;

    /// Keeps the state of the file system as it is now. Processes are stopped meanwhile.
    async fn snapshot(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<SnapshotInfo>;

    /// Removes a snapshot. Of one that does not exist it does the same. Sandboxes that began with
    /// it keep what they have.
    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<()>;

    /// Every snapshot.
    async fn snapshots(&self) -> Result<Vec<SnapshotInfo>>;

    /// Makes a sandbox whose file system begins as a snapshot has it.
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

    /// The only ways out of the network of a sandbox that was asked for with a policy
    /// ([`SandboxSpec::network`]): sockets in that network, at which everything arrives that is sent
    /// inside. Whoever is given them decides what is reached; as long as nobody takes what arrives,
    /// nothing is. They are the same sockets each time, so they can be asked for again by whoever
    /// comes after the one who had them.
    ///
    /// The sandbox's side has them too. They are of the right kinds, in the order of their fields and
    /// in the sandbox's own network; what somebody inside does with them otherwise is not to be
    /// relied on.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it has no such network, [`Error::NoSandbox`], [`Error::WrongState`]
    /// when it has ended, and [`Error::Unsupported`] where no sandbox can have one.
    async fn listeners(&self, id: &SandboxId) -> Result<EgressListeners> {
        self.inspect(id).await?;
        let reason = format!("the runtime `{}` does not support network policies", self.name());
        Err((Capability::Egress, Unsupported { reason, remedy: None }).into())
    }

    /// What a path leads to. A link at its end is not followed.
    async fn stat(&self, id: &SandboxId, path: &SandboxPath) -> Result<FileInfo>;

    /// What is in a directory, by name.
    async fn read_directory(&self, id: &SandboxId, path: &SandboxPath) -> Result<Vec<FileInfo>>;

    /// The content of a file. Links are followed, inside only.
    async fn read_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        range: ReadRange,
    ) -> Result<Content>;

    /// Writes a file: whole, or not at all. Gives its length in bytes.
    async fn write_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        content: Content,
        options: WriteOptions,
    ) -> Result<u64>;

    /// Makes a directory, and those that are missing on the way. One that exists is no error.
    async fn make_directory(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        options: WriteOptions,
    ) -> Result<()>;

    /// Gives a file or directory other permission bits, without set-id, or another owner. Links
    /// are followed, inside only.
    async fn set_attributes(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> Result<()>;

    /// Gives a file or directory another name.
    async fn rename(&self, id: &SandboxId, from: &SandboxPath, to: &SandboxPath) -> Result<()>;

    /// Removes a file, or a directory with all that is in it.
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

/// A connection to something inside: bytes both ways.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin + Debug {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + Debug> Connection for T {}

/// What a sandbox is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is being made.
    Creating,
    /// Commands can be started in it.
    Running,
    /// Its processes are stopped.
    Paused,
    /// Its processes are gone; its files are still there.
    Ended,
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Creating => "being created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Ended => "ended",
        })
    }
}

/// What is known of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its id.
    pub id: SandboxId,
    /// What it is doing.
    pub state: State,
    /// Why it has ended, where it has.
    pub reason: Option<String>,
    /// What it can be found by.
    pub labels: BTreeMap<String, String>,
    /// When it was made, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// How long its lease still is; absent when it has none.
    pub lease_left: Option<Duration>,
    /// Which walls and limits are in force.
    pub isolation: Isolation,
    /// The commands that were started in it and not acknowledged.
    pub execs: Vec<ExecStatus>,
}

/// What is known of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// Its id.
    pub id: SnapshotId,
    /// The sandbox that it is of.
    pub sandbox: SandboxId,
    /// When it was taken, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// What its files take on disk, in bytes.
    pub size_bytes: u64,
}

/// The error for something that cannot be done here.
impl From<(Capability, Unsupported)> for Error {
    fn from((capability, Unsupported { reason, remedy }): (Capability, Unsupported)) -> Self {
        Self::Unsupported { capability, reason, remedy }
    }
}
