//! The commands that work on workflow files and workflow runs, one file for each kind. Data goes to
//! stdout, messages go to stderr.

pub(super) mod answer;
mod effect;
pub(super) mod events;
pub mod follow;
pub(super) mod holder;
pub(super) mod init;
pub(super) mod inspect;
mod live;
pub(super) mod metrics;
pub(super) mod runs;
pub mod up;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stockade_api::variables::{MAX_OUTPUT_BYTES, TOOL_TIMEOUT_MS};
use stockade_api::{FindRun, LATEST, ListRuns, Run, RunById, SecretValue};
use stockade_core::network::secret::BoundSecret;
use stockade_core::{Code, Problem};
use stockade_egress_control::Credential;

use crate::args::sandbox_flags::VariableFlags;
use crate::problem::Failure;
use crate::remote::Remote;
use crate::review::current_project;
use crate::{secrets, variables};

/// The most bytes that are read as an input.
const MAX_INPUT_BYTES: u64 = 16 << 20;

/// How many runs are searched for the latest one of a project.
const MAX_RUNS: u32 = 1000;

/// The problem that no run is of the current project.
pub(super) fn no_latest() -> Failure {
    let message = "there are no runs of workflow files in this project";
    let problem = Problem::new(Code::NotFound, message)
        .because("`latest` is a run of the current project; others can be named by their ids")
        .remedied_by("stockade runs");
    problem.into()
}

/// A value that a user passes: JSON, or the name of a file after `@`.
pub fn value(given: &str, what: &str) -> Result<Value, Problem> {
    use std::io::Read as _;
    let text = match given.strip_prefix('@') {
        None => given.to_owned(),
        Some(path) => {
            let mut text = String::new();
            std::fs::File::open(path)
                .and_then(|file| file.take(MAX_INPUT_BYTES).read_to_string(&mut text))
                .map_err(|error| {
                    Problem::new(Code::InvalidInput, format!("cannot read {path}"))
                        .because(error.to_string())
                })?;
            text
        }
    };
    serde_json::from_str(&text).map_err(|error| {
        Problem::new(Code::InvalidInput, format!("the {what} is not JSON"))
            .because(error.to_string())
    })
}

/// The run of a file of the current project that was started last, without child runs.
pub(super) async fn latest(remote: &Remote) -> Result<Option<Run>, Failure> {
    let project = current_project()?;
    let request = ListRuns { limit: MAX_RUNS };
    let runs = remote.workflows.runs(remote.caller(), request).await?;
    let is_own = |run: &Run| {
        let directory = Path::new(&run.file).parent();
        run.parent_id.is_none() && directory.is_some_and(|directory| project.has(directory))
    };
    Ok(runs.into_iter().find(is_own))
}

/// Finds a run by its id, a unique prefix of it, or `latest`.
async fn find(remote: &Remote, name: &str) -> Result<Run, Failure> {
    if name == LATEST {
        return latest(remote).await?.ok_or_else(no_latest);
    }
    let request = FindRun { name: name.to_owned() };
    Ok(remote.workflows.find(remote.caller(), request).await?)
}

/// Finds a run by its full id, or `latest`, if the name may also mean something else. A prefix of a
/// run's id is not accepted, so that it cannot hide another object of that name.
pub(super) async fn find_exact(remote: &Remote, name: &str) -> Result<Option<Run>, Failure> {
    if name == LATEST {
        return latest(remote).await;
    }
    match remote.workflows.run(remote.caller(), RunById { id: name.to_owned() }).await {
        Err(problem) if problem.code == Code::NotFound => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// The same failure, unless it is that no sandbox has the name: then the new message says that no
/// run has it, either.
pub(super) fn or_no_run_or_sandbox(failure: Failure, name: &str) -> Failure {
    if failure.code() != Code::NotFound || name == LATEST {
        return failure;
    }
    let message = format!("there is no workflow run and no sandbox {name}");
    let problem = Problem::new(Code::NotFound, message).remedied_by("stockade runs");
    Failure::from(problem).for_workflow()
}

/// Variables that control how a run is executed, not what it does: each run gets the values of the
/// command that starts it.
const ENGINE_VARIABLES: [&str; 4] = [
    "SMITHERS_MAX_CONCURRENT_SANDBOXES",
    "STOCKADE_MAX_CONCURRENT_SANDBOXES",
    MAX_OUTPUT_BYTES,
    TOOL_TIMEOUT_MS,
];

/// The variables that a workflow may read: with the given value, or with the one in this process.
///
/// # Errors
/// [`Code::InvalidInput`] for an invalid assignment, a file that cannot be read, or a value that is
/// not UTF-8.
pub fn environment(
    given: &[String],
    files: &[PathBuf],
) -> Result<BTreeMap<String, String>, Problem> {
    let own = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
    let mut all: BTreeMap<_, _> = ENGINE_VARIABLES.into_iter().filter_map(own).collect();
    let flags = VariableFlags {
        env: given.iter().map(OsString::from).collect(),
        env_file: files.to_vec(),
        profile: Vec::new(),
    };
    for (name, value) in variables::read(&flags)? {
        // A workflow is a JavaScript program, whose strings are text.
        let value = String::from_utf8(value.0).map_err(|_| {
            Problem::new(Code::InvalidInput, format!("the value of {name} is not UTF-8 text"))
        })?;
        all.insert(name, value);
    }
    Ok(all)
}
/// The values of secrets, from the caller's variables.
///
/// # Errors
/// As [`secrets::read`].
pub(crate) fn secret_values(
    bound: &[BoundSecret],
) -> Result<BTreeMap<String, SecretValue>, Problem> {
    let value = |Credential { binding, value }| Some((binding.credential, SecretValue(value?)));
    Ok(secrets::read(bound)?.into_iter().filter_map(value).collect())
}
