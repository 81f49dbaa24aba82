//! The arguments of the commands that work on workflows and their runs.

use std::path::PathBuf;

use clap::Args;

use super::held::Way;

#[derive(Debug, Args)]
pub struct Init {
    /// Where to write it
    #[arg(default_value = ".")]
    pub directory: PathBuf,
}

#[derive(Debug, Args)]
pub struct Up {
    /// The file that exports the workflow
    pub file: PathBuf,
    /// What the workflow is given: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}")]
    pub input: String,
    /// The id of the run: letters, digits, `-`, `_` and `.` [default: one is made]
    #[arg(long, value_name = "ID")]
    pub run_id: Option<String>,
    /// Let the workflow read a variable, which is kept with the run
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// How many tasks are done at once, at most
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_concurrency: Option<u32>,
    /// How much each command of an agent or of a `<Sandbox>` may write, in bytes
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_output_bytes: Option<u64>,
    /// How long each command of an agent or of a `<Sandbox>` may take, in milliseconds
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub tool_timeout_ms: Option<u64>,
    /// Print the id of the run and do not wait for it
    #[arg(long, conflicts_with = "in_process")]
    pub detach: bool,
    /// Leave what comes of it in a directory, as the child of a `<Sandbox>` does
    #[arg(long, value_name = "DIR", requires = "in_process", hide = true)]
    pub result: Option<PathBuf>,
    /// Ask the host for sandboxes, from the directory of the result
    #[arg(long, requires = "result", hide = true)]
    pub nested: bool,
    /// Print one JSON object a line: what happens, then the run
    #[arg(long)]
    pub json: bool,
    /// Who does it
    #[command(flatten)]
    pub way: Way,
}

#[derive(Debug, Args)]
pub struct Resume {
    /// A run's id, or `latest`; or a sandbox's id, or an unambiguous beginning of it
    pub id: String,
    /// Go on with the workflow file as it is now, where it says something else than before
    #[arg(long, alias = "force")]
    pub accept_workflow_change: bool,
    /// Print the id of the run and do not wait for it
    #[arg(long, conflicts_with = "in_process")]
    pub detach: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Who does it
    #[command(flatten)]
    pub way: Way,
}

#[derive(Debug, Args)]
pub struct Runs {
    /// How many, the latest first
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    pub limit: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Who does it
    #[command(flatten)]
    pub way: Way,
}

#[derive(Debug, Args)]
pub struct Metrics {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Who does it
    #[command(flatten)]
    pub way: Way,
}

/// One run.
#[derive(Debug, Args)]
pub struct OneRun {
    /// The run's id, an unambiguous beginning of it, or `latest`
    pub id: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Who does it
    #[command(flatten)]
    pub way: Way,
}

#[derive(Debug, Args)]
pub struct Graph {
    /// The file that exports the workflow
    pub file: PathBuf,
    /// What the workflow is given: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}")]
    pub input: String,
    /// Let the workflow read a variable
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Approve {
    /// What is decided
    #[command(flatten)]
    pub decide: Decide,
    /// Of a sandbox's changes, accept only what is at or below this path, and decline the rest
    #[arg(long, value_name = "PATH")]
    pub only: Vec<std::ffi::OsString>,
    /// Accept changes that tools of this host run by themselves, such as hooks
    #[arg(long)]
    pub allow_executed: bool,
}

#[derive(Debug, Args)]
pub struct Decide {
    /// The run's id, an unambiguous beginning of it, or `latest`
    pub id: String,
    /// The task that asks
    pub task: String,
    /// What is said with it
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Who does it
    #[command(flatten)]
    pub way: Way,
}

#[derive(Debug, Args)]
pub struct Signal {
    /// The run's id, an unambiguous beginning of it, or `latest`
    pub id: String,
    /// The name of the signal
    pub name: String,
    /// What it says: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", default_value = "null")]
    pub payload: String,
    /// Which one of that name
    #[arg(long, value_name = "ID")]
    pub correlation_id: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Who does it
    #[command(flatten)]
    pub way: Way,
}
