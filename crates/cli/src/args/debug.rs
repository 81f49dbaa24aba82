//! The arguments of `stockade debug`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use stockade_core::access::Effect;
use stockade_core::network::{AllowedHost, Policy, Rule};
use stockade_core::sandbox::{HostMount, LimitName, Limits, Root, User, Workspace};
use stockade_core::{ExecId, Problem, SandboxId, SandboxSpec, SnapshotId};
use stockade_core::{parse_bytes, parse_cpus, parse_duration};

#[derive(Debug, Args)]
pub struct Debug {
    #[command(subcommand)]
    pub part: DebugCommand,
}

impl Debug {
    /// Whether errors must be printed as JSON, too.
    pub const fn wants_json(&self) -> bool {
        matches!(&self.part, DebugCommand::Runtime(arguments) if arguments.json)
    }
}

#[derive(Debug, Subcommand)]
pub enum DebugCommand {
    /// Control the sandboxes of a keeper
    Runtime(Box<Runtime>),
    /// Write the program of the child workflow of a `<Sandbox>`
    Child(Child),
}

#[derive(Debug, Args)]
pub struct Child {
    /// The file that exports the workflow
    pub file: PathBuf,
    /// The id of the `<Sandbox>`
    pub sandbox: String,
    /// The directory to write it to
    pub directory: PathBuf,
    /// The input of the workflow, as JSON
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub input: String,
}

#[derive(Debug, Args)]
pub struct Runtime {
    /// How many pre-started sandboxes a keeper that starts now keeps ready
    #[arg(long, default_value_t = 0)]
    pub pool: usize,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub operation: Operation,
}

#[derive(Debug, Subcommand)]
pub enum Operation {
    /// Create a sandbox
    Create {
        /// The id of the new sandbox
        id: Id<SandboxId>,
        #[command(flatten)]
        spec: Spec,
    },
    /// Run a command; its exit code becomes this one's
    Exec(Box<Exec>),
    /// List the sandboxes
    List {
        /// Only those with this label
        #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
        label: Vec<(String, String)>,
    },
    /// Show a sandbox
    Inspect {
        /// The sandbox
        id: Id<SandboxId>,
    },
    /// Pause the processes of a sandbox
    Pause {
        /// The sandbox
        id: Id<SandboxId>,
    },
    /// Resume the processes of a sandbox
    Resume {
        /// The sandbox
        id: Id<SandboxId>,
    },
    /// Take a snapshot of a sandbox's files
    Snapshot {
        /// The sandbox
        id: Id<SandboxId>,
        /// The id of the new snapshot
        snapshot: Id<SnapshotId>,
    },
    /// Create a sandbox from a snapshot
    Restore {
        /// The snapshot
        snapshot: Id<SnapshotId>,
        /// The new sandbox's id
        id: Id<SandboxId>,
        #[command(flatten)]
        spec: Spec,
    },
    /// Connect the standard streams to a port or a socket of a sandbox
    Connect {
        /// The sandbox
        id: Id<SandboxId>,
        /// A port, or the path of a socket
        target: String,
    },
    /// List, read, write and remove files of a sandbox
    Files {
        /// The sandbox
        id: Id<SandboxId>,
        #[command(subcommand)]
        operation: Files,
    },
    /// Terminate a sandbox and delete its files
    Destroy {
        /// The sandbox
        id: Id<SandboxId>,
    },
    /// Print the keeper's counters
    Metrics,
}

#[derive(Debug, Subcommand)]
pub enum Files {
    /// List a directory
    List {
        /// The path inside
        path: PathBuf,
    },
    /// Write a file's content to standard output
    Read {
        /// The path inside
        path: PathBuf,
    },
    /// Write standard input to a file
    Write {
        /// The path inside
        path: PathBuf,
    },
    /// Remove a file or a directory
    Remove {
        /// The path inside
        path: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct Exec {
    /// The sandbox
    pub id: Id<SandboxId>,
    /// The command's id; attaches to it if it was started before
    #[arg(long)]
    pub exec: Option<Id<ExecId>>,
    /// Run the command in a terminal
    #[arg(long)]
    pub tty: bool,
    /// Connect the command to standard input
    #[arg(long, short)]
    pub input: bool,
    /// The user and group of the command
    #[arg(long, value_name = "UID:GID", value_parser = user)]
    pub user: Option<User>,
    /// The working directory of the command
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Set an environment variable
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub env: Vec<(String, String)>,
    /// Time limit of the command
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
    /// Output limit of the command
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub max_output: Option<u64>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

// What a sandbox is made from. (clap would use a doc comment here as that of every command.)
#[derive(Debug, Args)]
pub struct Spec {
    /// A directory with a root file system
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,
    /// Mount a directory of the host copy-on-write
    #[arg(long, value_name = "HOST:PATH", value_parser = path_pair)]
    workspace: Option<(PathBuf, PathBuf)>,
    /// Bind mount a file or directory of the host, read-only
    #[arg(long, value_name = "HOST:PATH", value_parser = path_pair)]
    mount: Vec<(PathBuf, PathBuf)>,
    /// Bind mount a file or directory of the host, writable
    #[arg(long, value_name = "HOST:PATH", value_parser = path_pair)]
    writable_mount: Vec<(PathBuf, PathBuf)>,
    /// Set an environment variable of every command
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    /// The user and group of commands
    #[arg(long, value_name = "UID:GID", value_parser = user)]
    user: Option<User>,
    /// Add a label
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    label: Vec<(String, String)>,
    /// The time after which the keeper ends the sandbox if its lease is not renewed
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    lease: Option<Duration>,
    /// Allow a host; an egress process must serve it
    #[arg(long, value_name = "HOST[:PORT]")]
    allow: Vec<AllowedHost>,
    /// Create the sandbox with a network, even without an allowed host
    #[arg(long)]
    network: bool,
    /// Memory limit of all processes together
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Processor limit of all processes together
    #[arg(long, value_name = "NUMBER", value_parser = parse_cpus)]
    cpus: Option<u64>,
    /// Maximum number of processes and threads
    #[arg(long, value_name = "NUMBER")]
    pids: Option<u64>,
    /// Disk limit of the sandbox's files
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    disk: Option<u64>,
    /// Continue without this limit if it cannot be enforced
    #[arg(long, value_name = "NAME", value_parser = limit)]
    best_effort: Vec<LimitName>,
}

impl Spec {
    pub fn into_spec(self) -> Result<SandboxSpec, Problem> {
        let rules = || self.allow.iter().cloned().map(Rule::from).collect();
        let policy = || Policy::new(Effect::Deny, rules());
        let network = (self.network || !self.allow.is_empty()).then(policy).transpose()?;
        let mount = |writable| {
            move |(host, inside): (PathBuf, PathBuf)| HostMount { host, inside, writable }
        };
        let writable = self.writable_mount.into_iter().map(mount(true));
        Ok(SandboxSpec {
            network,
            root: self.image.map_or(Root::Host, Root::Directory),
            workspace: self.workspace.map(|(host, inside)| Workspace { host, inside }),
            mounts: self.mount.into_iter().map(mount(false)).chain(writable).collect(),
            environment: stockade_core::bytes::values(self.env.into_iter().collect()),
            user: self.user,
            limits: Limits {
                memory_bytes: self.memory,
                cpu_millis: self.cpus,
                processes: self.pids,
                disk_bytes: self.disk,
                ..Limits::default()
            },
            best_effort: self.best_effort.into_iter().map(Into::into).collect(),
            labels: self.label.into_iter().collect(),
            lease: self.lease,
            ..SandboxSpec::default()
        })
    }
}

/// An id that clap reads.
#[derive(Debug, Clone)]
pub struct Id<T>(pub T);

impl<T: TryFrom<String>> std::str::FromStr for Id<T> {
    type Err = T::Error;

    fn from_str(text: &str) -> Result<Self, T::Error> {
        T::try_from(text.to_owned()).map(Self)
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
    parts
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "expected NAME=VALUE".to_owned())
}

/// Splits two paths, of which the second is absolute, so that names may contain colons.
fn path_pair(text: &str) -> Result<(PathBuf, PathBuf), String> {
    let at = text.rfind(":/").filter(|at| *at > 0);
    let at = at.ok_or_else(|| "expected HOST:PATH with an absolute PATH".to_owned())?;
    Ok((text[..at].into(), text[at + 1..].into()))
}

fn user(text: &str) -> Result<User, String> {
    let parts = text.split_once(':').map(|(user, group)| (user.parse(), group.parse()));
    match parts {
        Some((Ok(user), Ok(group))) => Ok(User { user, group }),
        _ => Err("expected UID:GID".to_owned()),
    }
}

fn limit(text: &str) -> Result<LimitName, String> {
    use LimitName::{Cpus, Disk, Memory, Processes};
    let known = [(Memory, "memory"), (Cpus, "cpus"), (Processes, "pids"), (Disk, "disk")];
    let found = known.into_iter().find(|(_, name)| *name == text).map(|(limit, _)| limit);
    found.ok_or_else(|| "expected memory, cpus, pids or disk".to_owned())
}
