//! The snippet runner for commands and the server, with the library set from arguments.

pub(crate) mod libraries;

use std::collections::BTreeSet;
use std::sync::Arc;

use stockade_core::{Code, Problem};
use stockade_script::fetch::Fetcher;
use stockade_script::worker::{Error as WorkerError, JailError, NoZygote};
use stockade_snippet::library::{Selection, imports};
use stockade_snippet::{Error, Input, Options, Runner};

use stockade_cli::args::snippet::Libraries;
use stockade_cli::problem::caused;

/// A runner for any snippet; does not start a process yet.
pub(crate) fn runner(arguments: &Libraries) -> Result<Arc<Runner>, Problem> {
    start(arguments, Selection::All)
}

/// A runner for these snippets: only the imported modules of packages are read.
pub(crate) fn runner_for(arguments: &Libraries, inputs: &[Input]) -> Result<Arc<Runner>, Problem> {
    let mut selection = BTreeSet::new();
    let files = inputs.iter().flat_map(|input| input.files.iter().flatten());
    // The import that JSX implies is not in the source.
    if files.clone().any(|file| file.path.ends_with('x')) {
        return start(arguments, Selection::All);
    }
    let sources = inputs.iter().filter_map(|input| input.source.as_ref());
    for source in sources.chain(files.map(|file| &file.source)) {
        imports(source, &mut selection);
    }
    start(arguments, Selection::Imports(&selection))
}

fn start(arguments: &Libraries, selection: Selection<'_>) -> Result<Arc<Runner>, Problem> {
    let (imports, library) = libraries::select_library(arguments, selection)?;
    let fetcher = Fetcher::new(libraries::hosts(arguments)?);
    let options = Options::new(crate::programs::snippets());
    Ok(Arc::new(Runner::new(Options { imports, library, fetcher, ..options })))
}

/// Waits for a future in this thread.
pub(crate) fn wait_for<T>(work: impl Future<Output = T>) -> Result<T, Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| caused(Code::Io, &error))?.block_on(work))
}

/// Why there was no worker, and the remedy.
pub(crate) fn no_worker(error: &Error) -> Problem {
    match error {
        Error::Worker(WorkerError::NotReady(NoZygote::Jail(JailError::Wall {
            wall,
            step,
            source,
        }))) => stockade_cli::run::wall_problem(*wall, step, source),
        error => caused(Code::LaunchFailed, error),
    }
}
