//! The arguments of the commands that work on persistent sandboxes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use stockade_core::network::AllowedHost;
use stockade_core::network::secret::BoundSecret;
use stockade_core::sandbox::RemoteWorkspace;
use stockade_core::{
    OrNone, State, parse_bytes, parse_bytes_or_none, parse_cpus, parse_duration,
    parse_duration_or_none,
};

use super::ports::{PublishedPort, published_port};
use super::runtime_name::RuntimeNameParser;
use super::sandbox_flags::{
    Pair, SandboxFlags, SecretFlags, TrafficFlags, UserArgument, VariableFlags, pair,
};

fn state(text: &str) -> Result<State, String> {
    text.parse().map_err(|_| {
        let known: Vec<_> = State::ALL.iter().map(|state| state.as_str()).collect();
        format!("there is no such state; it is one of: {}", known.join(", "))
    })
}

/// A signal by its name, with or without `SIG`, or by its number.
fn signal(text: &str) -> Result<i32, String> {
    const NAMES: [(&str, i32); 14] = [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("ABRT", 6),
        ("KILL", 9),
        ("USR1", 10),
        ("USR2", 12),
        ("PIPE", 13),
        ("ALRM", 14),
        ("TERM", 15),
        ("CONT", 18),
        ("STOP", 19),
        ("TSTP", 20),
        ("WINCH", 28),
    ];
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some((_, number)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Ok(*number);
    }
    let number = text.parse().ok().filter(|number| (1..=64).contains(number));
    number.ok_or_else(|| "expected a signal, such as TERM, INT or 15".to_owned())
}

// Which process executes the operations. (clap would use a doc comment here as that of every
// command.)
#[derive(Debug, Clone, Copy, Args)]
pub struct ServerMode {
    /// Work without a server; an error if another process uses the data directory
    #[arg(long)]
    pub in_process: bool,
}

// One sandbox. (clap would use a doc comment here as that of every command.)
#[derive(Debug, Args)]
pub struct OneSandbox {
    /// The sandbox's id, a unique prefix of it, or `latest`
    pub id: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Sandboxes {
    /// Ids of sandboxes, unique prefixes of them, or `latest`
    #[arg(required = true)]
    pub id: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

/// The action when a sandbox expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnExpiry {
    Stop,
    Terminate,
}

#[derive(Debug, Args)]
pub struct Create {
    /// The sandbox's id: lower-case letters, digits and hyphens [default: generated]
    #[arg(long, alias = "name", value_name = "ID")]
    pub id: Option<String>,
    /// Mount this directory as a copy-on-write view, at its own path or at PATH
    #[arg(long, value_name = "DIR[:PATH]")]
    pub workspace: Option<PathBuf>,
    /// Use the workspace of this name of a service elsewhere. It is deleted with the sandbox, unless
    /// `keep` is given
    #[arg(
        long,
        value_name = "NAME[,snapshot=ID][,keep]",
        value_parser = remote_workspace,
        requires = "runtime"
    )]
    pub remote_workspace: Option<RemoteWorkspace>,
    #[command(flatten)]
    pub sandbox: SandboxFlags,
    #[command(flatten)]
    pub secrets: SecretFlags,
    /// Reach the allowed hosts through this HTTP proxy of the host's network, or with `env` through
    /// that of the caller's HTTPS_PROXY; needs a network policy. It is stored, so it cannot have a
    /// password. Names are checked by the policy and resolved by the proxy, so their addresses are
    /// not checked
    #[arg(long, value_name = "URL|env")]
    pub upstream_proxy: Option<OsString>,
    /// Give the sandbox an ssh agent that signs what FILE permits: logins at hosts, and messages such as
    /// commits of git, with keys of this ssh agent, of files or of the vault. The keys stay outside
    #[arg(long, value_name = "FILE", conflicts_with = "in_process")]
    pub ssh_agent: Option<PathBuf>,
    /// Publish a port: connections to HOST on this host reach the port INSIDE as long as the sandbox
    /// lives. Only processes of this user may connect, unless ADDRESS is not of the loopback
    #[arg(
        long,
        short,
        value_name = "[ADDRESS:]HOST:INSIDE",
        value_parser = published_port,
        conflicts_with = "in_process"
    )]
    pub publish: Vec<PublishedPort>,
    /// Time limit of each command that has none of its own, such as 10m, or `none`
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_or_none)]
    pub timeout: Option<OrNone<Duration>>,
    /// Time to live, such as 30m or 7d, or `none` [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_or_none)]
    pub ttl: Option<OrNone<Duration>>,
    /// When its time to live is over, or its processes are lost: `stop` keeps its files for a day,
    /// `terminate` removes them. Changes in the workspace become a bundle in both cases
    #[arg(long, value_enum, default_value_t = OnExpiry::Stop, value_name = "ACTION")]
    pub on_expiry: OnExpiry,
    /// Keep the files of the stopped sandbox until it is killed, instead of for a day
    #[arg(long)]
    pub keep: bool,
    /// The runtime that holds the sandbox [default: native]
    #[arg(long, value_name = "NAME", value_parser = RuntimeNameParser)]
    pub runtime: Option<String>,
    /// The runtime that is used if that of --runtime is not usable here, or lacks what is requested
    #[arg(
        long,
        value_name = "NAME",
        requires = "runtime",
        value_parser = RuntimeNameParser,
        hide_possible_values = true
    )]
    pub fallback_runtime: Option<String>,
    /// Pause the sandbox after this time without use, or `none`; the next use resumes it
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_or_none)]
    pub idle: Option<OrNone<Duration>>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Exec {
    /// The sandbox's id, a unique prefix of it, or `latest`
    pub id: String,
    #[command(flatten)]
    pub variables: VariableFlags,
    #[command(flatten)]
    pub secrets: SecretFlags,
    /// Give this command alone a secret of the vault in an environment variable: a name or id of
    /// `stockade secrets list`, or a `.ffsecret` file, and `#FIELD` if it has several. The command sees
    /// the value. Can be repeated
    #[arg(long, value_name = "NAME=SECRET", value_parser = pair)]
    pub secret_env: Vec<Pair>,
    /// The working directory of the command; a relative path starts where commands start
    #[arg(long, short = 'w', alias = "workdir", value_name = "DIR")]
    pub cwd: Option<OsString>,
    /// The user id of the command, and the group id if it differs
    #[arg(long, short, value_name = "UID[:GID]")]
    pub user: Option<UserArgument>,
    /// How long the command may take, such as 30s or 1h30m, or `none`
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_or_none)]
    pub timeout: Option<OrNone<Duration>>,
    /// Maximum size of standard output and standard error together, or `none`
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes_or_none)]
    pub max_output: Option<OrNone<u64>>,
    /// Give the command a terminal
    #[arg(long, short, conflicts_with = "json")]
    pub tty: bool,
    /// Connect standard input to the command (the default, unless it is detached: then
    /// `stockade attach` can write to it)
    #[arg(long, short, conflicts_with = "json")]
    pub interactive: bool,
    /// Run the command in the background and print its id; see `stockade ps`, `logs`, `attach`,
    /// `wait` and `kill`
    #[arg(long, short)]
    pub detach: bool,
    /// Capture the command's output and print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Shell {
    /// The sandbox's id, a unique prefix of it, or `latest`
    pub id: String,
    #[command(flatten)]
    pub variables: VariableFlags,
    /// The directory in which the shell starts
    #[arg(long, short = 'w', alias = "workdir", value_name = "DIR")]
    pub cwd: Option<OsString>,
    /// The user id of the shell, and the group id if it differs
    #[arg(long, short, value_name = "UID[:GID]")]
    pub user: Option<UserArgument>,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct List {
    /// Include terminated sandboxes
    #[arg(long, short)]
    pub all: bool,
    /// Only sandboxes in this state, such as `stopped`. Can be repeated
    #[arg(long, value_name = "STATE", conflicts_with = "all", value_parser = state)]
    pub state: Vec<State>,
    /// Only sandboxes with this label
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub label: Vec<Pair>,
    /// Print only ids
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Copy {
    /// Paths of the host, or ID:PATH, or `-` for standard input. The last part of a path in a sandbox can be
    /// a pattern, such as '*.log'
    #[arg(required = true, value_name = "FROM")]
    pub from: Vec<OsString>,
    /// A path of the host, or ID:PATH, or `-` for standard output; a directory if several are copied
    #[arg(required = true)]
    pub to: OsString,
    /// Leave out what matches a pattern, in the form of a line of a .gitignore file; can be repeated
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<OsString>,
    /// Leave out what the patterns in a file match, such as a .gitignore file; can be repeated
    #[arg(long, value_name = "FILE")]
    pub exclude_from: Vec<PathBuf>,
    /// Delete what the copied directories do not have from their destinations, except what is excluded
    #[arg(long)]
    pub delete: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Remove {
    /// The files and directories to remove, as ID:PATH; a relative path starts where commands start
    #[arg(required = true, value_name = "ID:PATH")]
    pub path: Vec<OsString>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Logs {
    /// A command, as `stockade ps` prints it; or a workflow run, or `latest`
    pub operation: String,
    /// Only this task of the workflow run
    pub task: Option<String>,
    /// Wait for more output, and exit with the command's exit code
    #[arg(long, short)]
    pub follow: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Events {
    /// Only events of this sandbox or workflow run, or of the `latest` run
    pub id: Option<String>,
    /// Only events after this number
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub after: u64,
    /// Only events of a kind, such as `sandbox`, `node` or `run`, or of a type, such as NodeFinished
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,
    /// Wait for further events
    #[arg(long, short)]
    pub follow: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct AllowHosts {
    /// The sandbox's id, a unique prefix of it, or `latest`
    pub id: String,
    /// The hosts, on one port or on all, as with `create --allow`
    #[arg(value_name = "HOST[:PORT]", required_unless_present = "allow_internal")]
    pub hosts: Vec<AllowedHost>,
    /// Allow connections to a name also if it leads to a private network, as with `create
    /// --allow-internal`
    #[arg(long, value_name = "NAME[:PORT]")]
    pub allow_internal: Vec<AllowedHost>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct NetworkChange {
    /// The sandbox's id, a unique prefix of it, or `latest`
    pub id: String,
    /// The hosts, on one port or on all, as with `create --allow`
    #[arg(value_name = "HOST[:PORT]", required = true)]
    pub hosts: Vec<AllowedHost>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Secret {
    /// What to do
    #[command(subcommand)]
    pub what: SecretCommand,
}

#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Give a running sandbox the values of secrets: those of this program's own environment
    /// variables
    #[command(after_help = super::examples::SECRET_SET)]
    Set {
        /// The sandbox's id, a unique prefix of it, or `latest`
        id: String,
        /// The secrets, as with `create --secret`. The hosts that are named here replace those of
        /// before
        #[arg(value_name = "NAME@HOST[:PORT]", required = true)]
        secrets: Vec<BoundSecret>,
        /// From now on refuse requests that contain the placeholder of a secret and are for a host
        /// that the secret is not bound to
        #[arg(long)]
        strict_secrets: bool,
        /// Use the value of this secret of the vault, instead of those of environment variables
        #[arg(long, value_name = "SECRET[#FIELD]")]
        stored: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Which server executes it
        #[command(flatten)]
        server_mode: ServerMode,
    },
    /// Take secrets away from a sandbox
    #[command(after_help = super::examples::SECRET_RM)]
    Rm {
        /// The sandbox's id, a unique prefix of it, or `latest`
        id: String,
        /// The names of the secrets
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Which server executes it
        #[command(flatten)]
        server_mode: ServerMode,
    },
}

impl SecretCommand {
    /// Whether errors must be printed as JSON, too.
    pub const fn wants_json(&self) -> bool {
        match self {
            Self::Set { json, .. } | Self::Rm { json, .. } => *json,
        }
    }
}

#[derive(Debug, Args)]
pub struct Renew {
    /// Ids of sandboxes, unique prefixes of them, or `latest`
    #[arg(required = true)]
    pub id: Vec<String>,
    /// The time to live from now on, such as 30m or 7d, or `none`
    #[arg(value_name = "DURATION", value_parser = parse_duration_or_none)]
    pub ttl: OrNone<Duration>,
    /// Also accept an end that is earlier than the current one
    #[arg(long)]
    pub shorten: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Update {
    /// Ids of sandboxes, unique prefixes of them, or `latest`
    #[arg(required = true)]
    pub id: Vec<String>,
    /// Memory limit of all processes together, such as 512M
    #[arg(long, short, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Processor limit of all processes together, such as 0.5
    #[arg(long, value_name = "NUMBER", value_parser = parse_cpus)]
    pub cpus: Option<u64>,
    /// Maximum number of processes and threads
    #[arg(long, alias = "pids-limit", value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub pids: Option<u64>,
    #[command(flatten)]
    pub traffic: TrafficFlags,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Kill {
    /// Ids of sandboxes, unique prefixes of them, or `latest`; or commands, as `stockade ps` prints
    /// them. A command is ended with everything that it has started
    #[arg(required = true, value_name = "ID|ID/COMMAND")]
    pub id: Vec<String>,
    /// Send this signal to commands instead, such as TERM
    #[arg(long, short, value_name = "SIGNAL", value_parser = signal)]
    pub signal: Option<i32>,
    /// Delete the changes in their workspaces instead of making bundles of them
    #[arg(long)]
    pub discard: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Snapshot {
    /// The sandbox's id, a unique prefix of it, or `latest`
    pub id: String,
    /// The snapshot's id [default: generated]
    #[arg(long = "as", value_name = "ID")]
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Collect {
    /// Ids of sandboxes, unique prefixes of them, or `latest`
    #[arg(required = true)]
    pub id: Vec<String>,
    /// Exclude this path and everything below it
    #[arg(long, value_name = "PATH")]
    pub exclude: Vec<OsString>,
    /// Maximum size of the bundle, or `none` [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes_or_none)]
    pub max_bundle: Option<OrNone<u64>>,
    /// Maximum number of changed paths of the bundle; a directory that git ignores counts as one if
    /// many paths in it changed [default: 200000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub max_paths: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Snapshots {
    /// Remove this snapshot
    #[arg(long, value_name = "ID")]
    pub remove: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Restore {
    /// The snapshot's id
    pub snapshot: String,
    /// The new sandbox
    #[command(flatten)]
    pub create: Create,
}

#[derive(Debug, Args)]
pub struct Prune {
    /// Also terminate running sandboxes, and those that were created with --keep
    #[arg(long, short)]
    pub all: bool,
    /// Delete the changes in their workspaces instead of making bundles of them
    #[arg(long)]
    pub discard: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Tool {
    /// What to do
    #[command(subcommand)]
    pub what: ToolCommand,
}

#[derive(Debug, Subcommand)]
pub enum ToolCommand {
    /// List the tools
    #[command(after_help = super::examples::TOOL_LS)]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Which server executes it
        #[command(flatten)]
        server_mode: ServerMode,
    },
    /// Run a tool in a sandbox and print its result as JSON
    #[command(after_help = super::examples::TOOL_RUN)]
    Run {
        /// The sandbox's id, a unique prefix of it, or `latest`
        id: String,
        /// The tool's name
        tool: String,
        /// The arguments, as a JSON object
        #[arg(default_value = "{}")]
        arguments: String,
        /// Time limit, such as 30s or 1h30m [default: 30s]
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        timeout: Option<Duration>,
        /// Which server executes it
        #[command(flatten)]
        server_mode: ServerMode,
    },
}

/// The workspace of a service elsewhere in an argument.
fn remote_workspace(text: &str) -> Result<RemoteWorkspace, String> {
    let mut parts = text.split(',');
    let name = parts.next().unwrap_or_default().to_owned();
    let mut workspace = RemoteWorkspace { name, ..RemoteWorkspace::default() };
    for part in parts {
        match part.split_once('=') {
            None if part == "keep" => workspace.keep = true,
            Some(("snapshot", id)) => workspace.snapshot = Some(id.to_owned()),
            _ => return Err(format!("{part:?} is neither `keep` nor `snapshot=ID`")),
        }
    }
    workspace.check()?;
    Ok(workspace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_elsewhere_is_named_with_its_snapshot() {
        let full = remote_workspace("runner,snapshot=snap_1,keep").unwrap();
        let snapshot = Some("snap_1".to_owned());
        assert_eq!(full, RemoteWorkspace { name: "runner".to_owned(), snapshot, keep: true });
        assert!(!remote_workspace("runner").unwrap().keep);
        for wrong in ["", "a/b", "a,kept", "a,snapshot=", "a,snapshot", "a,keep=yes"] {
            assert!(remote_workspace(wrong).is_err(), "{wrong}");
        }
    }
}
