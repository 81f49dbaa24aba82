//! What a client and the keeper say to each other: messages on a socket in the data directory,
//! each a head in JSON and a body of bytes, some with descriptors.
//!
//! A connection begins with [`Request::Hello`], and carries one request at a time: each is
//! answered once. After [`Answer::Attached`] come events until the last, then the connection takes
//! the next request. Both sides belong to the same user, so neither defends itself against the
//! other, but a message that is not understood ends the connection.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stockade_bundle::beneath::Timestamp;
use stockade_core::access::Rules;
use stockade_core::sandbox::{Root, User};
use stockade_core::{ExecId, SandboxId, SandboxSpec, SnapshotId};

use stockade_runtime::{Ending, Offsets, State, Status, Stream, WindowSize};

/// The version of these messages. A client speaks to a keeper of its own version only; each
/// version keeps its sandboxes in a directory of its own. [`Request::Hello`], [`Answer::Hello`] and
/// [`Request::Drain`] never change, so that a keeper of another version can be told to make way.
pub const PROTOCOL: u32 = 1;

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Who are you? The first message of every connection.
    Hello {
        /// The client's [`PROTOCOL`].
        protocol: u32,
    },
    /// Take no new sandboxes, and end when the last one has.
    Drain,
    /// Make a sandbox.
    Create {
        /// Its id.
        id: SandboxId,
        /// What it is made from.
        spec: Box<SandboxSpec>,
        /// What it begins with when its root is a snapshot, or there can be no overlay. Where the id exists already, nothing
        /// is asked of them. With a range of ids that is locked, the lock comes along.
        layers: Option<Layers>,
    },
    /// End a sandbox and remove everything of it.
    Destroy {
        /// Which.
        id: SandboxId,
    },
    /// What is known of a sandbox?
    Inspect {
        /// Which.
        id: SandboxId,
    },
    /// What is known of all sandboxes with these labels?
    List {
        /// The labels.
        labels: BTreeMap<String, String>,
    },
    /// Let a sandbox live this long from now on.
    Renew {
        /// Which.
        id: SandboxId,
        /// How long; absent for ever.
        lease: Option<Duration>,
    },
    /// Stop every process of a sandbox.
    Pause {
        /// Which.
        id: SandboxId,
    },
    /// Let every process of a sandbox go on.
    Resume {
        /// Which.
        id: SandboxId,
    },
    /// Keep a sandbox's processes stopped as long as this connection takes no other request and
    /// is not closed; answered with [`Answer::Held`].
    Hold {
        /// Which.
        id: SandboxId,
    },
    /// Start a command, or attach to the one that was started under the same id. An input that it is
    /// given whole comes along, as a sealed file in memory.
    Execute {
        /// In which sandbox.
        id: SandboxId,
        /// The command's id.
        exec: ExecId,
        /// What it is. The body holds its arguments and its environment ([`Words`]).
        command: Box<CommandHead>,
    },
    /// Attach to a command.
    Attach {
        /// In which sandbox.
        id: SandboxId,
        /// The command's id.
        exec: ExecId,
        /// From where on its output is wanted.
        from: Offsets,
    },
    /// Do something to a command.
    Command {
        /// In which sandbox.
        id: SandboxId,
        /// The command's id.
        exec: ExecId,
        /// What.
        action: Action,
    },
    /// Connect to something inside; answered with [`Answer::Connected`] and a descriptor.
    Connect {
        /// In which sandbox.
        id: SandboxId,
        /// To what. A socket's path is the body.
        target: TargetHead,
    },
    /// The ways out of a sandbox's network; answered with [`Answer::Listeners`] and a descriptor for
    /// each of them.
    Listeners {
        /// Of which.
        id: SandboxId,
    },
    /// The root directory of a sandbox; answered with [`Answer::Root`] and a descriptor.
    Root {
        /// Of which.
        id: SandboxId,
    },
    /// Whether a capability can be had here: answered with [`Answer::Done`], or with
    /// [`Failure::Unsupported`].
    Supports {
        /// Which, by its name.
        capability: String,
    },
    /// What the keeper counts.
    Metrics,
}

/// Layers that a client prepared: from a snapshot, or whole where there can be no overlay. The keeper
/// takes them over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// The name of a directory below the staging directory, which the client keeps locked
    /// meanwhile. It holds `upper`, and `workspace` when there is one.
    pub staged: String,
    /// What lies below `upper`; never a snapshot.
    pub root: Root,
    /// The first host id of the range that owns all in them. The sandbox gets this range:
    /// [`Range::handed_over`](stockade_jail::Range::handed_over). Absent where the ids are the
    /// same inside and outside.
    pub range_start: Option<u32>,
    /// How the workspace was begun with, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Begun>,
    /// Why they are whole trees, with nothing below: there can be no overlay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
}

/// How a sandbox, or the one that its snapshot is of, began with its workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// The directory of the host.
    pub host: PathBuf,
    /// When, by the clock that file systems stamp changes with.
    pub since: Timestamp,
    /// When the copy was complete, where it is one: what has an earlier stamp is as it was on the host.
    /// Absent where the version that made it did not note that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<Timestamp>,
}

/// What a sandbox on whole trees would be copied from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Below {
    /// The name of the skeleton that is the root's lower layer, where that is one.
    pub skeleton: Option<String>,
}

/// A command without its arguments and environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandHead {
    /// Where it starts, as bytes.
    pub working_directory: Option<Vec<u8>>,
    /// Whom it runs as.
    pub user: Option<User>,
    /// A terminal instead of pipes.
    pub terminal: Option<WindowSize>,
    /// Whether it has an input.
    pub takes_input: bool,
    /// Whether that is whole in the file that comes along. A keeper that does not know of this makes
    /// a pipe for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub input_is_given: bool,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// How much it may write.
    pub output_limit_bytes: Option<u64>,
}

/// Something that is done to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Send a signal to its process group.
    Signal(i32),
    /// Kill it with all that it has started; answered when all of it is gone.
    Kill,
    /// Give its terminal another size.
    Resize(WindowSize),
    /// Let the command see the end of its input, once every client has closed its descriptor.
    CloseInput,
    /// Forget it and its output.
    Acknowledge,
}

/// Something inside that takes connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetHead {
    /// A TCP port.
    Tcp(u16),
    /// A stream socket; its path is the message's body.
    Unix,
}

/// What the keeper says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Who the keeper is.
    Hello {
        /// Its [`PROTOCOL`].
        protocol: u32,
        /// The version of its program.
        version: String,
        /// Its process id.
        process: u32,
    },
    /// It is done.
    Done,
    /// What is known of a sandbox.
    Status(Box<Status>),
    /// What is known of several.
    List(Vec<Status>),
    /// The sandbox's processes are stopped, and the layers in its directory do not change.
    Held {
        /// What lies below the root's upper layer; never a snapshot.
        root: Root,
        /// Whether it has a workspace, and so a layer of that.
        workspace: bool,
        /// The host id that inside id 0 is; absent where the ids are the same inside and outside.
        host_start: Option<u32>,
        /// How it began with its workspace; absent where it has none, or where that was not noted by
        /// the version that made it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        begun: Option<Begun>,
        /// Why its layers are whole trees, where they are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        whole: Option<String>,
    },
    /// The command was started or found. The descriptor of its input comes along when it takes
    /// any: a pipe, or its terminal.
    Attached {
        /// Whether the input's descriptor is here.
        input: bool,
    },
    /// The connection, as a descriptor.
    Connected,
    /// The ways out of a network, as descriptors, in the order of the fields of
    /// [`Listeners`](stockade_runtime::EgressListeners).
    Listeners,
    /// The root directory, as a descriptor.
    Root {
        /// The host id that inside id 0 is; absent where the ids are the same inside and outside.
        host_start: Option<u32>,
        /// Whom files belong to when nobody is named.
        user: User,
        /// Which paths may be used how.
        #[serde(default, skip_serializing_if = "Rules::is_empty")]
        access: Rules,
    },
    /// What the keeper counts.
    Metrics(Metrics),
    /// It could not be done.
    Failed(Failure),
    /// Output of a command; the body holds the bytes.
    Output {
        /// Which stream.
        stream: Stream,
        /// How many bytes came before.
        offset: u64,
    },
    /// Output of a command that is not kept any more.
    Lost {
        /// Which stream.
        stream: Stream,
        /// The first byte's offset.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// The command has ended; the last event.
    Ended(Ending),
}

/// What the keeper counts since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// Sandboxes that exist.
    pub sandboxes: u64,
    /// Never-used jails that wait.
    pub pool_ready: u64,
    /// Never-used jails that are being made.
    pub pool_filling: u64,
    /// Sandboxes that were made from a jail that waited.
    pub pool_hits: u64,
    /// Sandboxes that had to wait for a jail of their own.
    pub pool_misses: u64,
    /// Commands that were started.
    pub commands: u64,
    /// Sandboxes that were found again after another keeper had ended.
    pub adopted: u64,
    /// Sandboxes whose lease ended.
    pub expired: u64,
    /// Inits that broke the rules, and were killed for it.
    pub distrusted: u64,
}

/// An [`Error`](stockade_runtime::Error) on its way to the client, without what the client knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// See [`Error::NoSandbox`](stockade_runtime::Error::NoSandbox).
    NoSandbox,
    /// See [`Error::NoExec`](stockade_runtime::Error::NoExec).
    NoExec,
    /// See [`Error::NoSnapshot`](stockade_runtime::Error::NoSnapshot).
    NoSnapshot(SnapshotId),
    /// See [`Error::Conflict`](stockade_runtime::Error::Conflict).
    Conflict(String),
    /// See [`Error::WrongState`](stockade_runtime::Error::WrongState); the client knows what it asked for.
    WrongState(State),
    /// See [`Error::Unsupported`](stockade_runtime::Error::Unsupported); the capability by its name.
    Unsupported {
        /// Which.
        capability: String,
        /// Why.
        reason: String,
        /// What would help.
        remedy: Option<String>,
    },
    /// See [`Error::Limit`](stockade_runtime::Error::Limit).
    Limit {
        /// Which.
        limit: stockade_core::sandbox::LimitName,
        /// Why not.
        reason: String,
        /// What would help.
        remedy: String,
    },
    /// See [`Error::Exceeded`](stockade_runtime::Error::Exceeded).
    Exceeded {
        /// Which.
        limit: stockade_core::sandbox::LimitName,
        /// Why.
        reason: String,
        /// What would help.
        remedy: String,
    },
    /// See [`Error::Wall`](stockade_runtime::Error::Wall).
    Wall {
        /// Which.
        wall: String,
        /// Why not.
        reason: String,
        /// Where it was an overlay that cannot be had: what could be asked for with whole layers
        /// instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        without_overlay: Option<Below>,
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
        /// What.
        what: String,
        /// The kernel's error number.
        errno: i32,
    },
    /// See [`Error::Deadline`](stockade_runtime::Error::Deadline).
    Deadline,
    /// The keeper makes way for another version, and takes no new sandboxes.
    Draining,
}

/// The longest message, head and body together, in bytes; a longer one travels in a file in
/// memory.
pub const MESSAGE_BYTES: usize = 64 * 1024;

/// The bytes of a message: the head's length, the head, the body.
///
/// # Errors
/// What serde says of a value that is no JSON.
pub fn encode(head: &impl Serialize, body: &[u8]) -> serde_json::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, head)?;
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(body);
    Ok(bytes)
}

/// The head and the body of a message; `None` for bytes that are none.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<(T, &'a [u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (head, body) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    Some((serde_json::from_slice(head).ok()?, body))
}

/// A command's arguments and its environment as `NAME=value`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words {
    /// The arguments.
    pub arguments: Vec<Vec<u8>>,
    /// The environment.
    pub environment: Vec<Vec<u8>>,
}

impl Words {
    /// The words as bytes: each ends in NUL, and an empty list entry parts the two lists by its
    /// count in front. `None` when a word holds a NUL byte.
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

    /// The words that bytes are.
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
        let words = Words {
            arguments: vec![b"echo".to_vec(), Vec::new(), b"\xff\n".to_vec()],
            environment: vec![b"A=b".to_vec()],
        };
        assert_eq!(Words::decode(&words.encode().unwrap()), Some(words));
        assert_eq!(Words::decode(&Words::default().encode().unwrap()), Some(Words::default()));
        let bad = Words { arguments: vec![b"\0".to_vec()], environment: Vec::new() };
        assert_eq!(bad.encode(), None);
        assert_eq!(Words::decode(&[9, 0, 0, 0, b'a', 0]), None);
        assert_eq!(Words::decode(&[1, 0, 0, 0, b'a']), None);
    }
}
