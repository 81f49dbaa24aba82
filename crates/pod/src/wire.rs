//! The requests to a call, and the replies: operations of the trait, for the only sandbox of the pod.
//! What follows a request or a reply is written at its variant.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stockade_core::sandbox::{LimitChange, User};
use stockade_core::{ExecId, Isolation, SandboxId, SandboxSpec};
use stockade_runtime::{
    Command, Offsets, ReadRange, SandboxPath, StandardInput, WindowSize, WriteOptions,
};

use crate::fault::Fault;

/// A request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Start the sandbox, once. The reply has its status.
    Start {
        /// Its specification.
        spec: Box<SandboxSpec>,
        /// What the pod puts in force.
        isolation: Box<Isolation>,
    },
    /// Its status.
    Inspect,
    /// Its use of resources.
    Usage,
    /// Run a command. A whole input follows as a content; events follow the reply.
    Execute {
        /// The id of the command.
        exec: ExecId,
        /// The command.
        command: Box<CommandForm>,
    },
    /// The events of a command follow the reply.
    Attach {
        /// The command.
        exec: ExecId,
        /// From where on.
        from: Offsets,
    },
    /// The input of a command follows the reply as a content: each piece is accepted before the next one.
    Input {
        /// The command.
        exec: ExecId,
    },
    /// Send a signal to a command.
    Signal {
        /// The command.
        exec: ExecId,
        /// The signal.
        signal: i32,
    },
    /// Kill a command.
    Kill {
        /// The command.
        exec: ExecId,
    },
    /// Change the size of a terminal.
    Resize {
        /// The command.
        exec: ExecId,
        /// The size.
        size: WindowSize,
    },
    /// Forget a command.
    Acknowledge {
        /// The command.
        exec: ExecId,
    },
    /// End every process of the sandbox.
    End,
    /// Set the lease.
    Renew {
        /// The time from now on.
        lease: Option<Duration>,
    },
    /// Note the new limits, which the cluster has put in force.
    ChangeLimits {
        /// The change.
        change: LimitChange,
    },
    /// Connect to a TCP port of the loopback: contents follow the reply in both directions.
    ConnectTcp {
        /// The port.
        port: u16,
    },
    /// Connect to a socket: contents follow the reply in both directions.
    ConnectUnix {
        /// Its path.
        #[serde(with = "path_bytes")]
        path: SandboxPath,
    },
    /// The metadata of a path.
    Stat {
        /// The path.
        #[serde(with = "path_bytes")]
        path: SandboxPath,
    },
    /// The entries of a directory.
    ReadDirectory {
        /// The path.
        #[serde(with = "path_bytes")]
        path: SandboxPath,
    },
    /// A file: its content follows the reply.
    ReadFile {
        /// The path.
        #[serde(with = "path_bytes")]
        path: SandboxPath,
        /// The part.
        range: ReadRange,
    },
    /// Write a file, whose content follows the request.
    WriteFile {
        /// The path.
        #[serde(with = "path_bytes")]
        path: SandboxPath,
        /// How.
        options: WriteOptions,
    },
    /// Create a tree, which follows the request.
    Unpack {
        /// Where.
        #[serde(with = "path_bytes")]
        to: SandboxPath,
        /// The permission bits of the directory.
        mode: u32,
    },
    /// A tree: it follows the reply.
    Pack {
        /// Which.
        #[serde(with = "path_bytes")]
        from: SandboxPath,
        /// A name that marks directories that are left out.
        mark: Option<Vec<u8>>,
    },
    /// Create a directory.
    MakeDirectory {
        /// The path.
        #[serde(with = "path_bytes")]
        path: SandboxPath,
        /// How.
        options: WriteOptions,
    },
    /// Change permission bits or the owner.
    SetAttributes {
        /// The path.
        #[serde(with = "path_bytes")]
        path: SandboxPath,
        /// The permission bits.
        mode: Option<u32>,
        /// The owner.
        owner: Option<User>,
    },
    /// Rename.
    Rename {
        /// The old path.
        #[serde(with = "path_bytes")]
        from: SandboxPath,
        /// The new path.
        #[serde(with = "path_bytes")]
        to: SandboxPath,
    },
    /// Remove.
    Remove {
        /// The path.
        #[serde(with = "path_bytes")]
        path: SandboxPath,
    },
}

impl Request {
    /// What it does, as the verb of errors.
    #[must_use]
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Start { .. } => "start the sandbox",
            Self::Inspect => "inspect the sandbox",
            Self::Usage => "measure the sandbox",
            Self::Execute { .. } => "start a command",
            Self::Attach { .. } => "follow a command",
            Self::Input { .. } => "write input",
            Self::Signal { .. } => "send a signal",
            Self::Kill { .. } => "kill a command",
            Self::Resize { .. } => "resize a terminal",
            Self::Acknowledge { .. } => "forget a command",
            Self::End => "end the sandbox",
            Self::Renew { .. } => "renew the lease",
            Self::ChangeLimits { .. } => "change",
            Self::ConnectTcp { .. } | Self::ConnectUnix { .. } => "connect",
            Self::Stat { .. } => "inspect",
            Self::ReadDirectory { .. } => "list",
            Self::ReadFile { .. } => "read",
            Self::WriteFile { .. } => "write",
            Self::Unpack { .. } => "copy to",
            Self::Pack { .. } => "copy",
            Self::MakeDirectory { .. } => "create",
            Self::SetAttributes { .. } => "change",
            Self::Rename { .. } => "rename",
            Self::Remove { .. } => "remove",
        }
    }

    /// Whether it may be sent again when its reply was lost: it has the same effect then.
    #[must_use]
    pub const fn is_repeatable(&self) -> bool {
        !matches!(
            self,
            Self::Input { .. }
                | Self::Signal { .. }
                | Self::ConnectTcp { .. }
                | Self::ConnectUnix { .. }
                | Self::WriteFile { .. }
                | Self::Unpack { .. }
                | Self::Rename { .. }
                | Self::Remove { .. }
        )
    }
}

/// The reply to a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It was done; the result.
    Done(Value),
    /// It failed. In place of an event or the end of a content too.
    Failed(Fault),
    /// Bytes of a stream that are no longer stored, as an event.
    Lost {
        /// Whether of the standard error.
        is_error: bool,
        /// The offset of the first.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// The names of refused system calls, as an event.
    RefusedCalls(Vec<String>),
    /// How much of a tree has been written, between pieces of its content.
    Packed {
        /// Paths.
        paths: u64,
        /// Bytes of their contents.
        bytes: u64,
    },
    /// The end of a command, as the last event.
    Ended(stockade_runtime::Ending),
}

/// A command, as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandForm {
    arguments: Vec<Vec<u8>>,
    environment: Vec<(Vec<u8>, Vec<u8>)>,
    working_directory: Option<Vec<u8>>,
    user: Option<User>,
    terminal: Option<WindowSize>,
    input: InputForm,
    timeout: Option<Duration>,
    output_limit_bytes: Option<u64>,
}

/// The kind of an input. Its bytes follow the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum InputForm {
    Empty,
    Streamed,
    Whole,
}

impl CommandForm {
    /// The form of a command. The bytes of a whole input are not in it.
    #[must_use]
    pub fn new(command: &Command) -> Self {
        let bytes = |text: &OsStr| text.as_bytes().to_vec();
        Self {
            arguments: command.arguments.iter().map(|word| bytes(word)).collect(),
            environment: command
                .environment
                .iter()
                .map(|(name, value)| (bytes(name), bytes(value)))
                .collect(),
            working_directory: command
                .working_directory
                .as_ref()
                .map(|path| bytes(path.as_path().as_os_str())),
            user: command.user,
            terminal: command.terminal,
            input: match command.input {
                StandardInput::Empty => InputForm::Empty,
                StandardInput::Streamed => InputForm::Streamed,
                StandardInput::Whole(_) => InputForm::Whole,
            },
            timeout: command.timeout,
            output_limit_bytes: command.output_limit_bytes,
        }
    }

    /// Whether its input follows the request.
    #[must_use]
    pub fn has_whole_input(&self) -> bool {
        self.input == InputForm::Whole
    }

    /// The command, with a whole input if it has one.
    ///
    /// # Errors
    /// [`stockade_runtime::Error::Invalid`] for a working directory that is no path.
    pub fn into_command(self, whole: Vec<u8>) -> stockade_runtime::Result<Command> {
        let environment: BTreeMap<_, _> = self
            .environment
            .into_iter()
            .map(|(name, value)| (OsString::from_vec(name), OsString::from_vec(value)))
            .collect();
        let directory = self.working_directory.map(OsString::from_vec);
        Ok(Command {
            arguments: self.arguments.into_iter().map(OsString::from_vec).collect(),
            environment,
            working_directory: directory.map(SandboxPath::new).transpose()?,
            user: self.user,
            terminal: self.terminal,
            input: match self.input {
                InputForm::Empty => StandardInput::Empty,
                InputForm::Streamed => StandardInput::Streamed,
                InputForm::Whole => StandardInput::Whole(whole),
            },
            timeout: self.timeout,
            output_limit_bytes: self.output_limit_bytes,
        })
    }
}

/// Paths as bytes: they need not be text.
mod path_bytes {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use stockade_runtime::SandboxPath;

    pub(super) fn serialize<S: Serializer>(path: &SandboxPath, to: S) -> Result<S::Ok, S::Error> {
        path.as_path().as_os_str().as_bytes().serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<SandboxPath, D::Error> {
        let bytes = Vec::<u8>::deserialize(from)?;
        SandboxPath::new(OsString::from_vec(bytes)).map_err(serde::de::Error::custom)
    }
}

/// The sandbox of every pod, as its keeper knows it: the id outside is not told to what runs inside.
pub(crate) fn sandbox() -> Result<SandboxId, stockade_runtime::Error> {
    Ok(SandboxId::new("sandbox")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_travels_with_any_bytes() {
        let command = Command {
            arguments: vec![OsString::from_vec(vec![0xff, b'a']), "b c".into()],
            environment: [("A".into(), OsString::from_vec(vec![0xfe]))].into(),
            input: StandardInput::Whole(b"secret".to_vec()),
            timeout: Some(Duration::from_millis(1500)),
            ..Command::default()
        };
        let text = serde_json::to_string(&CommandForm::new(&command)).unwrap();
        assert!(!text.contains("secret"));
        let form: CommandForm = serde_json::from_str(&text).unwrap();
        assert!(form.has_whole_input());
        assert_eq!(form.into_command(b"secret".to_vec()).unwrap(), command);
    }
}
