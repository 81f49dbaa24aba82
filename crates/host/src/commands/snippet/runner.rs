//! What runs snippets for the commands, with the library set that their arguments name.

use std::collections::BTreeSet;
use std::sync::Arc;

use stockade_core::{Code, Problem};
use stockade_script::fetch::Fetcher;
use stockade_script::worker::{Error as WorkerError, JailError, NoZygote};
use stockade_snippet::library::{Wanted, imports};
use stockade_snippet::{Error, Input, Options, Runner};

use super::libraries;
use stockade_cli::args::snippet::Libraries;
use stockade_cli::problem::caused;

/// What runs any snippet, and starts nothing yet.
pub(crate) fn runner(arguments: &Libraries) -> Result<Arc<Runner>, Problem> {
    start(arguments, Wanted::All)
}

/// What runs these snippets: packages are read as far as they are imported.
pub(super) fn runner_of(arguments: &Libraries, inputs: &[Input]) -> Result<Arc<Runner>, Problem> {
    let mut wanted = BTreeSet::new();
    let files = inputs.iter().flat_map(|input| input.files.iter().flatten());
    // What JSX imports is not written.
    if files.clone().any(|file| file.path.ends_with('x')) {
        return start(arguments, Wanted::All);
    }
    let sources = inputs.iter().filter_map(|input| input.source.as_ref());
    for source in sources.chain(files.map(|file| &file.source)) {
        imports(source, &mut wanted);
    }
    start(arguments, Wanted::Imports(&wanted))
}

fn start(arguments: &Libraries, wanted: Wanted<'_>) -> Result<Arc<Runner>, Problem> {
    let (imports, library) = libraries::chosen(arguments, wanted)?;
    let fetcher = Fetcher::new(libraries::hosts(arguments)?);
    let options = Options::new(crate::programs::snippets());
    Ok(Arc::new(Runner::new(Options { imports, library, fetcher, ..options })))
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
        }))) => stockade_cli::run::wall_refused(*wall, step, source),
        error => caused(Code::LaunchFailed, error),
    }
}
