//! The arguments of the commands that work on workflows and their runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use stockade_core::network::secret::BoundSecret;
use stockade_core::{parse_bytes, parse_duration};

use super::sandbox::ServerMode;

#[derive(Debug, Args)]
pub struct Init {
    /// The directory to write to
    #[arg(default_value = ".")]
    pub directory: PathBuf,
}

#[derive(Debug, Args)]
pub struct Up {
    /// The file that exports the workflow
    #[arg(required_unless_present = "from")]
    pub file: Option<PathBuf>,
    /// Start from a step of another run instead: with its program, input and environment, what had
    /// ended when the step started, and the files of the project as they were then, in a directory of
    /// their own. Nothing of the other run changes
    #[arg(long, value_name = "RUN:STEP[#ITERATION]", conflicts_with_all = ["file", "input", "env", "env_file", "max_concurrency", "max_output", "tool_timeout", "result"])]
    pub from: Option<String>,
    /// The new or empty directory for these files [default: one beside the project]
    #[arg(long, value_name = "DIR", requires = "from")]
    pub directory: Option<PathBuf>,
    /// The input of the workflow: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}")]
    pub input: String,
    /// The id of the run: letters, digits, `-`, `_` and `.` [default: generated]
    #[arg(long, value_name = "ID")]
    pub run_id: Option<String>,
    /// Make an environment variable visible to the workflow; its value is stored with the run
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Make the environment variables that a file lists visible to the workflow, one NAME=VALUE or
    /// NAME per line; --env takes precedence
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Let a `<Sandbox>` that names this secret in `egress.secretBindings` use the value of the
    /// environment variable in requests to that host, without seeing it. The value is stored
    /// nowhere; after a restart of the server, give it again with `resume --secret`
    #[arg(long, value_name = "NAME@HOST[:PORT]")]
    pub secret: Vec<BoundSecret>,
    /// Maximum number of tasks that run at once
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_concurrency: Option<u32>,
    /// Output limit of each command of an agent or a `<Sandbox>`
    #[arg(long, alias = "max-output-bytes", value_name = "SIZE", value_parser = parse_bytes)]
    pub max_output: Option<u64>,
    /// Time limit of each command of an agent or a `<Sandbox>`, such as 30s
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub tool_timeout: Option<Duration>,
    /// The same in milliseconds
    #[arg(long, hide = true, conflicts_with = "tool_timeout", value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub tool_timeout_ms: Option<u64>,
    /// Print the id of the run without waiting for it
    #[arg(long, short, conflicts_with = "in_process")]
    pub detach: bool,
    /// Write the result to a directory, like the child of a `<Sandbox>`
    #[arg(long, value_name = "DIR", requires = "in_process", hide = true)]
    pub result: Option<PathBuf>,
    /// Request nested sandboxes from the host, through the result directory
    #[arg(long, requires = "result", hide = true)]
    pub nested: bool,
    /// Print one JSON object per line: the events, then the run
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Resume {
    /// A run's id, or `latest`; or ids of sandboxes, or unique prefixes of them
    #[arg(required = true)]
    pub id: Vec<String>,
    /// Continue with the current workflow file, even if it has changed
    #[arg(long, alias = "force")]
    pub accept_workflow_change: bool,
    /// Execute the denied task of a run again, which asks again
    #[arg(long)]
    pub retry: bool,
    /// Give the value of a secret of the run again, from the environment variable of its name
    #[arg(long, value_name = "NAME@HOST[:PORT]")]
    pub secret: Vec<BoundSecret>,
    /// Print the id of the run without waiting for it
    #[arg(long, short, conflicts_with = "in_process")]
    pub detach: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Runs {
    /// Maximum number of runs, latest first
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    pub limit: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Metrics {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

// One run. (clap would use a doc comment here as that of every command.)
#[derive(Debug, Args)]
pub struct OneRun {
    /// The run's id, a unique prefix of it, or `latest`
    pub id: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Graph {
    /// The file that exports the workflow
    pub file: PathBuf,
    /// The input of the workflow: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}")]
    pub input: String,
    /// Make an environment variable visible to the workflow
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Make the environment variables that a file lists visible to the workflow, one NAME=VALUE or
    /// NAME per line; --env takes precedence
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Print a picture in the format SVG
    #[arg(long, conflicts_with = "json")]
    pub svg: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Approve {
    /// The decision
    #[command(flatten)]
    pub decide: Decide,
    /// Accept only the sandbox's changes at or below this path, and decline the rest
    #[arg(long, value_name = "PATH")]
    pub only: Vec<std::ffi::OsString>,
    /// Accept changes to files that tools of this host execute by themselves, such as hooks
    #[arg(long)]
    pub allow_executed: bool,
}

#[derive(Debug, Args)]
pub struct Decide {
    /// The run's id, a unique prefix of it, or `latest`
    pub id: String,
    /// The task that waits for the decision
    pub task: String,
    /// A note to store with the decision
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}

#[derive(Debug, Args)]
pub struct Signal {
    /// The run's id, a unique prefix of it, or `latest`
    pub id: String,
    /// The name of the signal
    pub name: String,
    /// The payload: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", default_value = "null")]
    pub payload: String,
    /// The correlation id, if the workflow waits for a signal with one
    #[arg(long, value_name = "ID")]
    pub correlation_id: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which server executes it
    #[command(flatten)]
    pub server_mode: ServerMode,
}
