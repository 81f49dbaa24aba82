//! The processes that are selected by the first argument. This module contains those that
//! `stockade` runs: the keeper and its helpers, and the processes of a pod. `stockade-server` has its own list.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

use stockade_runtime_native::bubblewrap::Launcher;
use stockade_runtime_native::keeper::{self, Options, helpers};

use crate::network_stub;
use crate::programs::{OWN_EXECUTABLE, check_build};

/// The first argument of the keeper; the build may follow, then the data directory and the size of the
/// pool.
pub const KEEPER: &str = "__keeper";
/// The first argument of the keeper of sandboxes that the program bubblewrap makes.
pub const BWRAP_KEEPER: &str = "__keeper-bwrap";
/// The first argument of a server that is started on demand, before the build and the data directory.
pub const SERVER: &str = "__server";
/// The first argument of the egress process, before the build.
pub const EGRESS: &str = "__egress";
/// The first argument of the process that downloads an image, before the build.
pub const DOWNLOAD: &str = "__download";
/// The first argument of the process that makes the TLS connections to a server, before the build.
pub const CONNECTOR: &str = "__connector";

/// Runs the process that the arguments select; `None` if they select none of these.
pub(crate) fn run(arguments: &[OsString]) -> Option<u8> {
    let (first, rest) = arguments.split_first()?;
    if first == helpers::ARGUMENT {
        return Some(helpers::run(rest));
    }
    if first == network_stub::ARGUMENT {
        return Some(network_stub::process());
    }
    if first == stockade_jail::EXECUTED_INIT {
        return Some(stockade_jail::executed_init(rest));
    }
    if first == stockade_pod::ARGUMENT {
        return Some(stockade_pod::run(rest));
    }
    if first == BWRAP_KEEPER {
        return Some(keeper(rest, Launcher::Bubblewrap));
    }
    (first == KEEPER).then(|| keeper(rest, Launcher::Own))
}

fn keeper(arguments: &[OsString], launcher: Launcher) -> u8 {
    let arguments = match check_build(arguments) {
        Ok(arguments) => arguments,
        Err(problem) => return failed(&problem.message),
    };
    let [data, pool] = arguments else { return 2 };
    let Some(pool) = pool.to_str().and_then(|text| text.parse().ok()) else {
        return 2;
    };
    let program = OWN_EXECUTABLE.into();
    let options = Options { data: PathBuf::from(data), pool, launcher, program };
    match keeper::run(&options) {
        Ok(_) => 0,
        Err(error) => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            failed(&text)
        }
    }
}

/// Reports to the parent process why the keeper did not start.
fn failed(reason: &str) -> u8 {
    let _ = writeln!(std::io::stderr(), "the keeper failed: {reason}");
    1
}
