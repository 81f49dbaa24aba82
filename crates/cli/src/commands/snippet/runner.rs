//! What runs snippets for the commands, with the library set that their arguments name.

use std::sync::Arc;

use stockade_core::{Code, Problem};
use stockade_script::worker::{Error as WorkerError, JailError, NoZygote};
use stockade_snippet::{Error, Options, Runner};

use super::libraries;
use crate::args::snippet::Libraries;
use crate::problem::caused;

/// What runs snippets, and starts nothing yet.
pub(crate) fn runner(arguments: &Libraries) -> Result<Arc<Runner>, Problem> {
    let (imports, library) = libraries::chosen(arguments)?;
    let options = Options::new(crate::processes::snippets());
    Ok(Arc::new(Runner::new(Options { imports, library, ..options })))
}

/// Waits for something that is done in this thread.
pub(crate) fn wait_for<T>(work: impl Future<Output = T>) -> Result<T, Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| caused(Code::Io, &error))?.block_on(work))
}

/// Why there was no worker, and what helps.
pub(crate) fn no_worker(error: &Error) -> Problem {
    match error {
        Error::Worker(WorkerError::NotReady(NoZygote::Jail(JailError::Wall {
            wall,
            step,
            source,
        }))) => crate::run::wall_refused(*wall, step, source),
        error => caused(Code::LaunchFailed, error),
    }
}
