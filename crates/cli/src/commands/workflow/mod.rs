//! The commands that work on workflows and their runs, one file for each kind. What is data goes to
//! stdout, what is said about it to stderr.

pub(super) mod answer;
pub(super) mod events;
pub mod follow;
pub(super) mod init;
pub(super) mod inspect;
pub(super) mod metrics;
pub(super) mod resume;
pub(super) mod runs;
pub mod up;

use std::collections::BTreeMap;

use serde_json::Value;
use stockade_api::variables::{MAX_OUTPUT_BYTES, TOOL_TIMEOUT_MS};
use stockade_api::{FindRun, LATEST, Run, RunById};
use stockade_core::{Code, Problem};

use crate::problem::Failure;
use crate::remote::Remote;

/// The most that is read as an input.
const MAX_INPUT_BYTES: u64 = 16 << 20;

/// A value that a person gives: JSON, or the name of a file behind `@`.
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

/// The run that a person names: by its id, an unambiguous beginning of it, or `latest`.
async fn find(remote: &Remote, name: &str) -> Result<Run, Failure> {
    let request = FindRun { name: name.to_owned() };
    Ok(remote.workflows.find(remote.caller(), request).await?)
}

/// The run that a person names who may mean something else: by its id, or `latest`. What else has a
/// name is not hidden by the beginning of a run's.
async fn known(remote: &Remote, name: &str) -> Result<Option<Run>, Failure> {
    let found = if name == LATEST {
        remote.workflows.find(remote.caller(), FindRun { name: name.to_owned() }).await
    } else {
        remote.workflows.run(remote.caller(), RunById { id: name.to_owned() }).await
    };
    match found {
        Err(problem) if problem.code == Code::NotFound => Ok(None),
        found => Ok(Some(found?)),
    }
}

/// The same failure, unless it is that no sandbox has the name: then nothing has it.
pub(super) fn unless_nothing(failure: Failure, name: &str) -> Failure {
    if failure.code() != Code::NotFound || name == LATEST {
        return failure;
    }
    let message = format!("there is no workflow run and no sandbox {name}");
    let problem = Problem::new(Code::NotFound, message).remedied_by("stockade runs");
    Failure::from(problem).of_workflow()
}

/// Variables that say how a run is done, not what: each run has those of the command that starts it.
const OF_THE_ENGINE: [&str; 4] = [
    "SMITHERS_MAX_CONCURRENT_SANDBOXES",
    "STOCKADE_MAX_CONCURRENT_SANDBOXES",
    MAX_OUTPUT_BYTES,
    TOOL_TIMEOUT_MS,
];

/// The variables that a workflow may read: with a value, or with the one that this process has.
pub fn environment(given: &[String]) -> Result<BTreeMap<String, String>, Problem> {
    let variable = |given: &String| match given.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok(Some((name.to_owned(), value.to_owned()))),
        Some(_) => {
            let message = format!("{given:?} is not NAME or NAME=VALUE");
            Err(Problem::new(Code::InvalidInput, message))
        }
        None => Ok(std::env::var(given).ok().map(|value| (given.clone(), value))),
    };
    let own = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
    let of_the_engine = OF_THE_ENGINE.into_iter().filter_map(own).map(Ok);
    let given = given.iter().filter_map(|given| variable(given).transpose());
    of_the_engine.chain(given).collect()
}
