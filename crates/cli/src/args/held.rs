//! The arguments of the commands that work on sandboxes that live on.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use stockade_core::network::Allowed;
use stockade_core::{parse_bytes, parse_duration};

use super::sandbox::{Pair, SandboxFlags, pair};

/// A time, or `none`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Until(pub(crate) Option<Duration>);

fn until(text: &str) -> Result<Until, String> {
    if text == "none" {
        return Ok(Until(None));
    }
    let length = parse_duration(text).map_err(|error| error.to_string())?;
    Ok(Until(Some(length)))
}

// Who does what is asked. (A doc comment here would become that of every command.)
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Way {
    /// Do it in this process, without a server; refused while another process has the data
    #[arg(long)]
    pub(crate) in_process: bool,
}

/// One sandbox.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// The sandbox's id, an unambiguous beginning of it, or `latest`
    pub(crate) id: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The sandbox's id: lower-case letters, digits and hyphens [default: one is made]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Show this directory inside as a copy-on-write view, at its own path unless another is named
    #[arg(long, value_name = "DIR[:PATH]")]
    pub(crate) workspace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) sandbox: SandboxFlags,
    /// How long it lives, such as 30m, or `none` [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = until)]
    pub(crate) ttl: Option<Until>,
    /// After how long without use it is paused; the next use resumes it
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) idle: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The sandbox's id, an unambiguous beginning of it, or `latest`
    pub(crate) id: String,
    /// Set a variable of the command's environment
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) env: Vec<Pair>,
    /// The directory that the command starts in
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// The user id that the command runs as
    #[arg(long, value_name = "UID")]
    pub(crate) user: Option<u32>,
    /// How long the command may take, such as 30s
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// How much the command may write to its output and errors together
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) max_output: Option<u64>,
    /// Give the command a terminal
    #[arg(long, conflicts_with_all = ["json", "detach"])]
    pub(crate) tty: bool,
    /// Print the operation's id and leave the command running; see `stockade logs`
    #[arg(long)]
    pub(crate) detach: bool,
    /// Capture the command's output and print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Shell {
    /// The sandbox's id, an unambiguous beginning of it, or `latest`
    pub(crate) id: String,
    /// The user id that the shell runs as
    #[arg(long, value_name = "UID")]
    pub(crate) user: Option<u32>,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Those that are terminated too
    #[arg(long)]
    pub(crate) all: bool,
    /// Only those with this label
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) label: Vec<Pair>,
    /// Print only ids
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Copy {
    /// A path of the host, or ID:PATH, or `-` for standard input
    pub(crate) from: OsString,
    /// A path of the host, or ID:PATH, or `-` for standard output
    pub(crate) to: OsString,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// What goes, each as ID:/PATH
    #[arg(required = true, value_name = "ID:/PATH")]
    pub(crate) path: Vec<OsString>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The operation that `stockade exec --detach` printed; or a run of a workflow, or `latest`
    pub(crate) operation: String,
    /// Wait for what is still to come, and end as the command does
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Only of this sandbox; or those of this run of a workflow, or of the `latest`
    pub(crate) id: Option<String>,
    /// Only those after this number
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub(crate) after: u64,
    /// Only those of a kind, such as `sandbox`, `node` or `run`, or of a type, such as NodeFinished
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// Wait for what is still to come
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Reach {
    /// The sandbox's id, an unambiguous beginning of it, or `latest`
    pub(crate) id: String,
    /// The hosts, at one port or at all, as of `create --allow`
    #[arg(value_name = "HOST[:PORT]", required = true)]
    pub(crate) hosts: Vec<Allowed>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Renew {
    /// The sandbox's id, an unambiguous beginning of it, or `latest`
    pub(crate) id: String,
    /// How long it lives from now on, such as 30m
    #[arg(value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) ttl: Duration,
    /// Let it end sooner than before, too
    #[arg(long)]
    pub(crate) shorten: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// Sandboxes: their ids, unambiguous beginnings of them, or `latest`
    #[arg(required = true)]
    pub(crate) id: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Snapshot {
    /// The sandbox's id, an unambiguous beginning of it, or `latest`
    pub(crate) id: String,
    /// The snapshot's id [default: one is made]
    #[arg(long = "as", value_name = "ID")]
    pub(crate) name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Collect {
    /// The sandbox's id, an unambiguous beginning of it, or `latest`
    pub(crate) id: String,
    /// Leave this path out, with what is below it
    #[arg(long, value_name = "PATH")]
    pub(crate) exclude: Vec<OsString>,
    /// How large the changes may be to become a bundle [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) max_bundle: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Snapshots {
    /// Remove this one
    #[arg(long, value_name = "ID")]
    pub(crate) remove: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The snapshot's id
    pub(crate) snapshot: String,
    /// The new sandbox
    #[command(flatten)]
    pub(crate) create: Create,
}

#[derive(Debug, Args)]
pub(crate) struct Prune {
    /// End those that run, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Tool {
    /// What to do
    #[command(subcommand)]
    pub(crate) what: ToolCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    /// List the tools
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Who does it
        #[command(flatten)]
        way: Way,
    },
    /// Run a tool in a sandbox and print its answer as JSON
    Run {
        /// The sandbox's id, an unambiguous beginning of it, or `latest`
        id: String,
        /// The tool's name
        tool: String,
        /// What it is called with, as a JSON object
        #[arg(default_value = "{}")]
        arguments: String,
        /// How long it may take [default: 30s]
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        timeout: Option<Duration>,
        /// Who does it
        #[command(flatten)]
        way: Way,
    },
}
