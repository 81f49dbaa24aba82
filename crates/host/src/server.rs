//! The local server as a process of this program: for `stockade serve`, and for commands that need
//! a server.

use std::ffi::OsString;
use std::path::PathBuf;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stockade_cli::eprint_line;
use stockade_cli::problem::{Failure, Form};
use stockade_cli::programs::check_build;
use stockade_core::{Code, Problem};

use crate::options::Options;
use crate::programs;
use crate::serve::{self, Lifetime};

/// Runs a server that was started on demand. A failure is printed on the standard output, for the
/// process that started it.
pub(crate) fn process(arguments: &[OsString]) -> u8 {
    // Terminal signals for the starting process must not reach the server.
    let _ = rustix::process::setsid();
    let served = check_build(arguments).map_err(Failure::from).and_then(|arguments| {
        let [data] = arguments else {
            return Err(Problem::new(Code::InvalidInput, "a server has one data directory").into());
        };
        run(PathBuf::from(data), Lifetime::WhileNeeded, |name| std::env::var_os(name))
    });
    match served {
        Ok(()) => 0,
        Err(failure) => {
            let _ = failure.present(Form::Json);
            1
        }
    }
}

/// Keeps the memory of this process out of dumps: the values of secrets pass through it. With a limit
/// of one byte a dump is also not given to a program that collects dumps (`core(5)`).
fn refuse_core_dumps() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Core);
    let current = Some(maximum.map_or(1, |maximum| maximum.min(1)));
    // Lowering a limit is always allowed.
    let _ = setrlimit(Resource::Core, Rlimit { current, maximum });
}

/// The variable of [`crate::settings::Settings::database_url`].
const DATABASE_URL: &str = "STOCKADE_DATABASE_URL";

fn text_of_url(url: OsString) -> Result<String, Problem> {
    url.into_string().map_err(|_| {
        Problem::new(Code::InvalidInput, format!("{DATABASE_URL} is not text"))
            .remedied_by(format!("unset {DATABASE_URL}"))
    })
}

/// Serves until it is idle, or a signal stops it. `variable` has the settings.
pub(crate) fn run(
    data: PathBuf,
    lifetime: Lifetime,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<(), Failure> {
    refuse_core_dumps();
    let is_listener = matches!(lifetime, Lifetime::UntilStopped(_));
    // Only a server that somebody started by name uses another database.
    let url = is_listener.then(|| variable(DATABASE_URL)).flatten();
    let mut options = Options::for_server(data.clone(), programs::programs()?, variable)?;
    if let Some(settings) = &mut options.sandboxes {
        settings.database_url = url.map(text_of_url).transpose()?;
    }
    serve::run(options, lifetime, |url| {
        if !is_listener {
            return;
        }
        eprint_line!("stockade: serving {} (Ctrl-C stops it)", data.display());
        match url {
            Some(url) => eprint_line!("stockade: listening on {url}"),
            None => eprint_line!(
                "stockade: the port 8080 is in use, so that only commands on this host are served; \
                 for another port: stockade serve --listen 127.0.0.1:0"
            ),
        }
    })?;
    Ok(())
}
