//! Commands that tasks are done by: what is to be executed, and the places where that can be. A
//! command is executed in a sandbox, or in the confinement that all of this process is in, and
//! nowhere else.

mod adapters;
mod held;
pub(crate) mod helper;
mod here;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use stockade_api::{CommandLine, Ending};
use stockade_core::{Code, OwnerId, Problem};

pub(crate) use adapters::{Ready, ready};
pub(crate) use held::{Held, RUN};
pub use here::Inside;
pub(crate) use here::{Ends, Here};

/// How long a command may take that does not say.
pub(crate) const USUAL_LIMIT: Duration = Duration::from_secs(60 * 60);
/// How much a command may write, in bytes, where nobody says less: as much as is recorded of it.
pub(crate) const OUTPUT_LIMIT_BYTES: u64 = 16 << 20;

/// A command that is to be executed.
pub(crate) struct Job {
    /// Names this one try of a task. A command of the same name is found again, not begun again.
    pub(crate) name: String,
    /// Whose it is.
    pub(crate) owner: OwnerId,
    /// The run, or the run that has it below itself: what is left of it is found by this.
    pub(crate) run: String,
    /// The task.
    pub(crate) node: String,
    /// The directory that it works on a copy of.
    pub(crate) project: PathBuf,
    /// What is run.
    pub(crate) command: CommandLine,
    /// What it reads.
    pub(crate) input: Vec<u8>,
    /// What is added to its environment. It is recorded nowhere.
    pub(crate) environment: BTreeMap<String, String>,
    /// What its file system begins with; the host's own programs when absent.
    pub(crate) image: Option<String>,
    /// How long it may take.
    pub(crate) limit: Duration,
    /// How much it may write, in bytes.
    pub(crate) output_limit_bytes: u64,
}

/// What became of a command.
#[derive(Debug, Clone)]
pub(crate) struct Finished {
    /// How it ended.
    pub(crate) ending: Ending,
    /// The exit code, as a shell would give it.
    pub(crate) exit_code: Option<i32>,
    /// The last of what it wrote to its standard output.
    pub(crate) output: Vec<u8>,
    /// The last of what it wrote to its standard error.
    pub(crate) errors: Vec<u8>,
    /// Whether it wrote more than that.
    pub(crate) is_cut: bool,
    /// The bundle of what it changed in the project, which waits for a decision.
    pub(crate) bundle: Option<String>,
}

/// Where commands are executed.
#[async_trait]
pub(crate) trait Place: Debug + Send + Sync {
    /// Executes a command to its end, and leaves nothing of it but its answer and its changes.
    async fn execute(&self, job: &Job) -> Result<Finished, Problem>;

    /// Ends what is left of the commands of a run that was cancelled, or given up by a process that
    /// is gone.
    /// `tries` are the names of its tries that may be under way: they begin no command any more.
    async fn end(&self, owner: &OwnerId, run: &str, tries: &[String]);
}

/// Why a command cannot be executed where there is no place for it.
pub(crate) fn nowhere() -> Problem {
    Problem::new(
        Code::Unsupported,
        "there are no sandboxes here, and commands are executed nowhere else",
    )
}

/// Why a command cannot be executed that needs a network.
pub(crate) fn without_network(task: &str) -> String {
    format!(
        "the agent of task \"{task}\" needs the network, which it has in a <Sandbox allowNetwork> \
         only: have one around the task, and name the hosts in egress={{{{ allowHosts: [\"HOST\"] }}}}"
    )
}

/// The directory that commands of a workflow file work on: the nearest above it that has a `.git` or
/// a `package.json`, else its own.
pub(crate) fn project_of(file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or_else(|| Path::new("/"));
    let is_project =
        |folder: &&Path| folder.join(".git").exists() || folder.join("package.json").exists();
    folder.ancestors().find(is_project).unwrap_or(folder).to_owned()
}
