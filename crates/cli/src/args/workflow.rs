//! The arguments of the commands that work on workflows and their runs.

use std::path::PathBuf;

use clap::Args;

use super::held::Way;

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Where to write it
    #[arg(default_value = ".")]
    pub(crate) directory: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The file that exports the workflow
    pub(crate) file: PathBuf,
    /// What the workflow is given: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}")]
    pub(crate) input: String,
    /// The id of the run: letters, digits, `-`, `_` and `.` [default: one is made]
    #[arg(long, value_name = "ID")]
    pub(crate) run_id: Option<String>,
    /// Let the workflow read a variable, which is kept with the run
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// How many tasks are done at once, at most
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_concurrency: Option<u32>,
    /// How much each command of an agent or of a `<Sandbox>` may write, in bytes
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_output_bytes: Option<u64>,
    /// How long each command of an agent or of a `<Sandbox>` may take, in milliseconds
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) tool_timeout_ms: Option<u64>,
    /// Print the id of the run and do not wait for it
    #[arg(long, conflicts_with = "in_process")]
    pub(crate) detach: bool,
    /// Leave what comes of it in a directory, as the child of a `<Sandbox>` does
    #[arg(long, value_name = "DIR", requires = "in_process", hide = true)]
    pub(crate) result: Option<PathBuf>,
    /// Ask the host for sandboxes, from the directory of the result
    #[arg(long, requires = "result", hide = true)]
    pub(crate) nested: bool,
    /// Print one JSON object a line: what happens, then the run
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// A run's id, or `latest`; or a sandbox's id, or an unambiguous beginning of it
    pub(crate) id: String,
    /// Go on with the workflow file as it is now, where it says something else than before
    #[arg(long, alias = "force")]
    pub(crate) accept_workflow_change: bool,
    /// Print the id of the run and do not wait for it
    #[arg(long, conflicts_with = "in_process")]
    pub(crate) detach: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Runs {
    /// How many, the latest first
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    pub(crate) limit: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Metrics {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

/// One run.
#[derive(Debug, Args)]
pub(crate) struct OneRun {
    /// The run's id, an unambiguous beginning of it, or `latest`
    pub(crate) id: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Graph {
    /// The file that exports the workflow
    pub(crate) file: PathBuf,
    /// What the workflow is given: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}")]
    pub(crate) input: String,
    /// Let the workflow read a variable
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// What is decided
    #[command(flatten)]
    pub(crate) decide: Decide,
    /// Of a sandbox's changes, accept only what is at or below this path, and decline the rest
    #[arg(long, value_name = "PATH")]
    pub(crate) only: Vec<std::ffi::OsString>,
    /// Accept changes that tools of this host run by themselves, such as hooks
    #[arg(long)]
    pub(crate) allow_executed: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Decide {
    /// The run's id, an unambiguous beginning of it, or `latest`
    pub(crate) id: String,
    /// The task that asks
    pub(crate) task: String,
    /// What is said with it
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}

#[derive(Debug, Args)]
pub(crate) struct Signal {
    /// The run's id, an unambiguous beginning of it, or `latest`
    pub(crate) id: String,
    /// The name of the signal
    pub(crate) name: String,
    /// What it says: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", default_value = "null")]
    pub(crate) payload: String,
    /// Which one of that name
    #[arg(long, value_name = "ID")]
    pub(crate) correlation_id: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Who does it
    #[command(flatten)]
    pub(crate) way: Way,
}
