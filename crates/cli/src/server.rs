//! The local server as a process of this program: what `stockade serve` is, and what a command starts
//! that needs a server.

mod egress;
pub(crate) mod processes;

use std::path::PathBuf;

use stockade_host::{Lifetime, Options};

use crate::problem::Failure;

/// Serves as a process that was started on demand. A failure is printed on the standard output, for the
/// process that started it.
fn process(data: PathBuf) -> u8 {
    // Signals of the starter's terminal are not for a server.
    let _ = rustix::process::setsid();
    match run(data, Lifetime::WhileNeeded) {
        Ok(()) => 0,
        Err(failure) => {
            let _ = failure.present(true);
            1
        }
    }
}

/// Serves until there is nothing to do, or a signal stops it.
pub(crate) fn run(data: PathBuf, lifetime: Lifetime) -> Result<(), Failure> {
    let variable = |name: &str| std::env::var_os(name);
    let options = Options::for_server(data.clone(), processes::programs(), variable)?;
    stockade_host::run(options, lifetime, || {
        if lifetime == Lifetime::UntilStopped {
            say!("stockade: serving {} (Ctrl-C ends it)", data.display());
        }
    })?;
    Ok(())
}
