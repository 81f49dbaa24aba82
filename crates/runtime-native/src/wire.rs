//! The protocol between a client and the keeper: messages on a socket in the data directory. Each
//! has a head in JSON and a body of bytes; some carry descriptors.
//!
//! A connection starts with [`Request::Hello`] and carries one request at a time; each request gets
//! one response. After [`Answer::Attached`] come events until the last one, then the connection
//! accepts the next request. Both sides belong to the same user, so neither defends itself against
//! the other, but an invalid message ends the connection.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stockade_bundle::beneath::Timestamp;
use stockade_core::access::Rules;
use stockade_core::sandbox::{LimitChange, Root, User};
use stockade_core::{ExecId, Isolation, SandboxId, SandboxSpec, SnapshotId};

use stockade_runtime::{Ending, Offsets, State, Status, Stream, WindowSize};

/// The version of these messages. A client speaks to a keeper of its own version only; each version
/// keeps its sandboxes in a separate directory. [`Request::Hello`], [`Answer::Hello`] and
/// [`Request::Drain`] never change, so that a client can make a keeper of another version drain.
pub const PROTOCOL: u32 = 1;

/// A client's request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Asks for the keeper's version. The first message of every connection.
    Hello {
        /// The client's [`PROTOCOL`].
        protocol: u32,
    },
    /// Take no new sandboxes, and exit after the last one has ended.
    Drain,
    /// Create a sandbox.
    Create {
        /// Its id.
        id: SandboxId,
        /// Its specification.
        spec: Box<SandboxSpec>,
        /// Prepared layers, if its root is a snapshot or the host has no overlays. If the id
        /// already exists, they are ignored. If a locked uid range owns them, the descriptor of the
        /// lock is attached.
        layers: Option<Layers>,
        /// Whether it has the caller's subordinate ids.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        subordinate: bool,
        /// The container that another engine has made for it, whose init waits at the other end of
        /// the attached descriptor.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        container: Option<Box<Container>>,
    },
    /// End a sandbox and remove all its files.
    Destroy {
        /// The sandbox's id.
        id: SandboxId,
    },
    /// Query the status of a sandbox.
    Inspect {
        /// The sandbox's id.
        id: SandboxId,
    },
    /// Query the status of all sandboxes with these labels.
    List {
        /// The labels.
        labels: BTreeMap<String, String>,
    },
    /// Set a sandbox's lease, counted from now.
    Renew {
        /// The sandbox's id.
        id: SandboxId,
        /// The length of the lease; absent for no end.
        lease: Option<Duration>,
    },
    /// End every process of a sandbox and keep its files; answered when all have ended. A keeper of
    /// an older program closes the connection.
    End {
        /// The sandbox's id.
        id: SandboxId,
    },
    /// Change limits of a sandbox. A keeper of an older program closes the connection.
    ChangeLimits {
        /// The sandbox's id.
        id: SandboxId,
        /// The new values.
        change: LimitChange,
    },
    /// Stop every process of a sandbox.
    Pause {
        /// The sandbox's id.
        id: SandboxId,
    },
    /// Resume every process of a sandbox.
    Resume {
        /// The sandbox's id.
        id: SandboxId,
    },
    /// Keep a sandbox's processes stopped until this connection sends another request or is closed;
    /// answered with [`Answer::Held`].
    Hold {
        /// The sandbox's id.
        id: SandboxId,
    },
    /// Start a command, or attach to the one that was started under the same id. An input that is
    /// given whole is attached as a sealed file in memory.
    Execute {
        /// The sandbox's id.
        id: SandboxId,
        /// The command's id.
        exec: ExecId,
        /// Its description. The body holds its arguments and its environment ([`CommandStrings`]).
        command: Box<CommandHead>,
    },
    /// Attach to a command.
    Attach {
        /// The sandbox's id.
        id: SandboxId,
        /// The command's id.
        exec: ExecId,
        /// The offsets from which the client wants the output.
        from: Offsets,
    },
    /// Act on a command.
    Command {
        /// The sandbox's id.
        id: SandboxId,
        /// The command's id.
        exec: ExecId,
        /// The action.
        action: Action,
    },
    /// Connect to a server inside; answered with [`Answer::Connected`] and a descriptor.
    Connect {
        /// The sandbox's id.
        id: SandboxId,
        /// The address. A socket's path is the body.
        target: TargetHead,
    },
    /// The egress listeners of a sandbox's network; answered with [`Answer::Listeners`] and a
    /// descriptor for each of them.
    Listeners {
        /// The sandbox's id.
        id: SandboxId,
    },
    /// The file of the certificates that programs in a sandbox trust; answered with
    /// [`Answer::Trusted`] and a descriptor. A keeper of an older program closes the connection.
    Trusted {
        /// The sandbox's id.
        id: SandboxId,
    },
    /// The root directory of a sandbox; answered with [`Answer::Root`] and a descriptor.
    Root {
        /// The sandbox's id.
        id: SandboxId,
    },
    /// Whether a capability is available here: answered with [`Answer::Done`], or with
    /// [`Failure::Unsupported`].
    Supports {
        /// The name of the capability.
        capability: String,
    },
    /// Query the keeper's counters.
    Metrics,
}

/// Layers that a client prepared: from a snapshot, or complete copies on a host without overlays.
/// The keeper takes them over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// The name of a directory below the staging directory, which the client keeps locked
    /// meanwhile. It holds `upper`, and `workspace` when there is one.
    pub staged: String,
    /// The source of the layer below `upper`; never a snapshot.
    pub root: Root,
    /// The first host id of the uid range that owns all files in them. The sandbox gets this range:
    /// [`Range::adopt`](stockade_jail::Range::adopt). Absent if ids are the same inside
    /// and outside.
    pub range_start: Option<u32>,
    /// The initial state of the workspace, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<InitialState>,
    /// Why they are complete trees without a lower layer: the reason why overlays are unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
}

/// A container that another engine has made. Its mounts contain the layers of the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Container {
    /// The only user of its commands.
    pub user: User,
    /// The isolation that the engine and init put in force.
    pub isolation: Isolation,
}

/// The initial state of the workspace of a sandbox, or of the sandbox that its snapshot was taken
/// from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitialState {
    /// The directory of the host.
    pub host: PathBuf,
    /// The time of that state, by the clock of file system timestamps.
    pub since: Timestamp,
    /// When the copy was complete, if it is a copy: a file with an earlier timestamp is as it was
    /// on the host. Absent if the version that made the copy did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<Timestamp>,
}

/// The sources that a sandbox on complete trees would be copied from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LowerLayer {
    /// The name of the skeleton that is the root's lower layer, if it is one.
    pub skeleton: Option<String>,
}

/// A command without its arguments and environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandHead {
    /// Its working directory, as bytes.
    pub working_directory: Option<Vec<u8>>,
    /// The user that it runs as.
    pub user: Option<User>,
    /// The size of its terminal, if it has one instead of pipes.
    pub terminal: Option<WindowSize>,
    /// Whether it has an input.
    pub takes_input: bool,
    /// Whether the attached file holds the whole input. A keeper that does not know this field
    /// makes a pipe for the input.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub input_is_given: bool,
    /// Its timeout.
    pub timeout: Option<Duration>,
    /// Its output limit.
    pub output_limit_bytes: Option<u64>,
}

/// An action on a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Send a signal to its process group.
    Signal(i32),
    /// Kill it with all processes that it started; answered when all of them have ended.
    Kill,
    /// Resize its terminal.
    Resize(WindowSize),
    /// Let the command see the end of its input, once every client has closed its descriptor.
    CloseInput,
    /// Delete it and its output.
    Acknowledge,
}

/// A listening address inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetHead {
    /// A TCP port.
    Tcp(u16),
    /// A stream socket; its path is the message's body.
    Unix,
}

/// A message from the keeper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The keeper's version.
    Hello {
        /// Its [`PROTOCOL`].
        protocol: u32,
        /// The version of its program.
        version: String,
        /// Its process id.
        process: u32,
    },
    /// The request succeeded.
    Done,
    /// The status of a sandbox.
    Status(Box<Status>),
    /// The status of several sandboxes.
    List(Vec<Status>),
    /// The sandbox's processes are stopped, and the layers in its directory do not change.
    Held {
        /// The source of the root's lower layer; never a snapshot.
        root: Root,
        /// Whether it has a workspace, and so a workspace layer.
        workspace: bool,
        /// The host id of inside id 0; absent if ids are the same inside and outside.
        host_start: Option<u32>,
        /// The initial state of its workspace; absent if it has none, or if the version that made
        /// the sandbox did not record it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        begun: Option<InitialState>,
        /// Why its layers are complete trees, if they are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        whole: Option<String>,
    },
    /// The command was started or found. If it takes input, the descriptor of its input is
    /// attached: a pipe, or its terminal.
    Attached {
        /// Whether the input's descriptor is attached.
        input: bool,
    },
    /// The connection, as a descriptor.
    Connected,
    /// The egress listeners of a network, as descriptors, in the order of the fields of
    /// [`Listeners`](stockade_runtime::EgressListeners).
    Listeners,
    /// The file of the trusted certificates, as a descriptor for writing.
    Trusted,
    /// The root directory, as a descriptor.
    Root {
        /// The host id of inside id 0; absent if ids are the same inside and outside.
        host_start: Option<u32>,
        /// The owner of new files if the request names none.
        user: User,
        /// The access rules.
        #[serde(default, skip_serializing_if = "Rules::is_empty")]
        access: Rules,
    },
    /// The keeper's counters.
    Metrics(Metrics),
    /// The request failed.
    Failed(Failure),
    /// Output of a command; the body holds the bytes.
    Output {
        /// The stream.
        stream: Stream,
        /// How many bytes of the stream came before.
        offset: u64,
    },
    /// Output of a command that is no longer stored.
    Lost {
        /// The stream.
        stream: Stream,
        /// The offset of the first lost byte.
        offset: u64,
        /// How many bytes are lost.
        length: u64,
    },
    /// The names of the system calls that were refused while the command ran.
    RefusedCalls(Vec<String>),
    /// The command has ended; the last event.
    Ended(Ending),
}

/// Counters since the keeper started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// Sandboxes that exist.
    pub sandboxes: u64,
    /// Unused jails in the pool.
    pub pool_ready: u64,
    /// Unused jails that are being started.
    pub pool_filling: u64,
    /// Sandboxes that were made from a jail of the pool.
    pub pool_hits: u64,
    /// Sandboxes that had to wait for a new jail.
    pub pool_misses: u64,
    /// Commands that were started.
    pub commands: u64,
    /// Sandboxes that this keeper took over from an earlier one.
    pub adopted: u64,
    /// Sandboxes whose lease ended.
    pub expired: u64,
    /// Inits that broke the protocol and were killed for it.
    pub distrusted: u64,
}

/// An [`Error`](stockade_runtime::Error) as it is sent to the client, without the parts that the
/// client knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// See [`Error::NoSandbox`](stockade_runtime::Error::NoSandbox).
    NoSandbox,
    /// See [`Error::NoExec`](stockade_runtime::Error::NoExec).
    NoExec,
    /// See [`Error::NoSnapshot`](stockade_runtime::Error::NoSnapshot).
    NoSnapshot(SnapshotId),
    /// See [`Error::NoImage`](stockade_runtime::Error::NoImage).
    NoImage(String),
    /// See [`Error::Image`](stockade_runtime::Error::Image).
    Image(String),
    /// There is no private base of the present state of the host; the client makes it.
    NoBase,
    /// See [`Error::Conflict`](stockade_runtime::Error::Conflict).
    Conflict(String),
    /// See [`Error::WrongState`](stockade_runtime::Error::WrongState); the client knows its
    /// request.
    WrongState(State),
    /// See [`Error::Unsupported`](stockade_runtime::Error::Unsupported); the capability by its
    /// name.
    Unsupported {
        /// The capability.
        capability: String,
        /// Why.
        reason: String,
        /// The remedy.
        remedy: Option<String>,
    },
    /// See [`Error::Limit`](stockade_runtime::Error::Limit).
    Limit {
        /// The limit.
        limit: stockade_core::sandbox::LimitName,
        /// Why not.
        reason: String,
        /// The remedy.
        remedy: String,
    },
    /// See [`Error::Exceeded`](stockade_runtime::Error::Exceeded).
    Exceeded {
        /// The limit.
        limit: stockade_core::sandbox::LimitName,
        /// Why.
        reason: String,
        /// The remedy.
        remedy: String,
    },
    /// See [`Error::Wall`](stockade_runtime::Error::Wall).
    Wall {
        /// The wall.
        wall: String,
        /// Why not.
        reason: String,
        /// If the unavailable wall is an overlay: the sources for a new request with complete
        /// layers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        without_overlay: Option<LowerLayer>,
    },
    /// See [`Error::PathRefused`](stockade_runtime::Error::PathRefused).
    PathRefused(String),
    /// See [`Error::Invalid`](stockade_runtime::Error::Invalid).
    Invalid(String),
    /// See [`Error::Exhausted`](stockade_runtime::Error::Exhausted).
    Exhausted(String),
    /// See [`Error::File`](stockade_runtime::Error::File).
    File {
        /// The file.
        path: String,
        /// The kernel's error number.
        errno: i32,
    },
    /// See [`Error::Connect`](stockade_runtime::Error::Connect).
    Connect {
        /// The port or socket.
        target: String,
        /// The kernel's error number.
        errno: i32,
    },
    /// See [`Error::Host`](stockade_runtime::Error::Host).
    Host {
        /// The file.
        path: String,
        /// The kernel's error number.
        errno: i32,
    },
    /// See [`Error::OutcomeUnknown`](stockade_runtime::Error::OutcomeUnknown).
    OutcomeUnknown(String),
    /// See [`Error::Unreachable`](stockade_runtime::Error::Unreachable).
    Unreachable {
        /// The unreachable peer.
        what: String,
        /// The kernel's error number.
        errno: i32,
    },
    /// See [`Error::Deadline`](stockade_runtime::Error::Deadline).
    Deadline,
    /// The keeper drains for another version and takes no new sandboxes.
    Draining,
}

/// The longest message, head and body together, in bytes; a longer one is sent in a file in memory.
pub const MESSAGE_BYTES: usize = 64 * 1024;

/// Encodes a message: the head's length, the head, the body.
///
/// # Errors
/// The serde error for a value that has no JSON form.
pub fn encode(head: &impl Serialize, body: &[u8]) -> serde_json::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, head)?;
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(body);
    Ok(bytes)
}

/// The head and the body of a message; `None` for invalid bytes.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<(T, &'a [u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (head, body) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    Some((serde_json::from_slice(head).ok()?, body))
}

/// A command's arguments and its environment as `NAME=value`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandStrings {
    /// The arguments.
    pub arguments: Vec<Vec<u8>>,
    /// The environment.
    pub environment: Vec<Vec<u8>>,
}

impl CommandStrings {
    /// Encodes the words as bytes: each ends in NUL. The number of arguments comes first and
    /// separates the two lists. `None` when a word contains a NUL byte.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let words = || self.arguments.iter().chain(&self.environment);
        if words().any(|word| word.contains(&0)) {
            return None;
        }
        let mut bytes = u32::try_from(self.arguments.len()).ok()?.to_le_bytes().to_vec();
        for word in words() {
            bytes.extend_from_slice(word);
            bytes.push(0);
        }
        Some(bytes)
    }

    /// Decodes the words.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        if rest.last().is_some_and(|last| *last != 0) {
            return None;
        }
        let mut arguments: Vec<Vec<u8>> = rest
            .split_inclusive(|byte| *byte == 0)
            .map(|word| word[..word.len() - 1].to_vec())
            .collect();
        if arguments.len() < count {
            return None;
        }
        let environment = arguments.split_off(count);
        Some(Self { arguments, environment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_its_head_and_its_body() {
        let head = Answer::Output { stream: Stream::Error, offset: 7 };
        let bytes = encode(&head, b"\0body").unwrap();
        assert_eq!(decode::<Answer>(&bytes), Some((head, &b"\0body"[..])));
        assert_eq!(decode::<Answer>(&bytes[..10]), None);
        assert_eq!(decode::<Answer>(b""), None);
    }

    #[test]
    fn words_may_hold_any_byte_but_nul() {
        let words = CommandStrings {
            arguments: vec![b"echo".to_vec(), Vec::new(), b"\xff\n".to_vec()],
            environment: vec![b"A=b".to_vec()],
        };
        assert_eq!(CommandStrings::decode(&words.encode().unwrap()), Some(words));
        assert_eq!(
            CommandStrings::decode(&CommandStrings::default().encode().unwrap()),
            Some(CommandStrings::default())
        );
        let bad = CommandStrings { arguments: vec![b"\0".to_vec()], environment: Vec::new() };
        assert_eq!(bad.encode(), None);
        assert_eq!(CommandStrings::decode(&[9, 0, 0, 0, b'a', 0]), None);
        assert_eq!(CommandStrings::decode(&[1, 0, 0, 0, b'a']), None);
    }
}
