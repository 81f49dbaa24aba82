//! A command of a task, and the interface that executes it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use stockade_api::{CommandLine, Ending};
use stockade_core::{Code, OwnerId, Problem};

/// The label of the sandboxes of a run, whose value is the id of the run.
pub(crate) const RUN_LABEL: &str = "stockade.run";
/// The label of the sandbox of a `<Sandbox>`: its name in the run.
pub(crate) const SANDBOX_LABEL: &str = "stockade.sandbox";
/// The time limit of a command that specifies none.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// The maximum output of a command, in bytes: as much as is recorded of it.
pub(crate) const OUTPUT_LIMIT_BYTES: u64 = 16 << 20;

/// A command to execute.
pub(crate) struct Job {
    /// Identifies this attempt of a task. If a command with the same name exists, it is found and not
    /// started again.
    pub(crate) name: String,
    /// The owner of the run.
    pub(crate) owner: OwnerId,
    /// The run, or its root if it is a child run. Sandboxes that a crash leaves are found by this id.
    pub(crate) run: String,
    /// The name of the workspace in which it works, with others of the run.
    pub(crate) workspace: String,
    /// The directory that the command works on, itself or as a copy-on-write view.
    pub(crate) project: PathBuf,
    /// The command line.
    pub(crate) command: CommandLine,
    /// Its standard input.
    pub(crate) input: Vec<u8>,
    /// Variables that are added to its environment. They are not recorded anywhere.
    pub(crate) environment: BTreeMap<String, String>,
    /// The image of its file system; if absent, the programs of the host.
    pub(crate) image: Option<String>,
    /// The time limit.
    pub(crate) limit: Duration,
    /// The maximum size of its output, in bytes.
    pub(crate) output_limit_bytes: u64,
}

/// The result of a command.
#[derive(Debug, Clone)]
pub(crate) struct CommandResult {
    /// How it ended.
    pub(crate) ending: Ending,
    /// The exit code, as a shell would give it.
    pub(crate) exit_code: Option<i32>,
    /// The end of its standard output.
    pub(crate) output: Vec<u8>,
    /// The end of its standard error.
    pub(crate) errors: Vec<u8>,
    /// Whether the output was longer than the part that was retained.
    pub(crate) is_truncated: bool,
    /// The bundle of its changes to the project, which waits for a decision.
    pub(crate) bundle: Option<String>,
}

/// Executes commands.
#[async_trait]
pub(crate) trait Executor: Debug + Send + Sync {
    /// Executes a command to its end. The same job may be executed again until the end of its run, and has
    /// the same result.
    async fn execute(&self, job: &Job) -> Result<CommandResult, Problem>;

    /// Ends the workspaces of a run that has ended. Changes that are in no bundle become one.
    async fn end_run(&self, owner: &OwnerId, run: &str);

    /// Discards a bundle whose changes are also in a later one of the same workspace.
    async fn discard_bundle(&self, owner: &OwnerId, bundle: &str);

    /// Ends the commands of a cancelled run, including those that another process started.
    async fn end(&self, owner: &OwnerId, run: &str);
}

/// The error for a command if there is no executor.
pub(crate) fn no_executor() -> Problem {
    Problem::new(
        Code::Unsupported,
        "no sandbox can be created here, and commands run in sandboxes only",
    )
}

/// The error for a command that needs a network if there is none.
pub(crate) fn without_network(task: &str) -> String {
    format!(
        "the agent of task \"{task}\" needs the network: put the task into a <Sandbox allowNetwork>, and list the hosts in egress={{{{ allowHosts: [\"HOST\"] }}}}"
    )
}

/// The directory that the commands of a workflow file work on: the nearest one above the file that has
/// a `.git` or a `package.json`, or else the directory of the file.
pub(crate) fn project_of(file: &Path) -> PathBuf {
    crate::authoring::project_of(file.parent().unwrap_or_else(|| Path::new("/"))).to_owned()
}
