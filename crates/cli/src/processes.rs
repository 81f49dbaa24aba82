//! The processes that Stockade starts from itself, by their first argument. Here are the keeper and its
//! helpers; those that need an engine are in `server/processes`.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

use stockade_runtime_native::keeper::{self, Options, helpers};

/// The first argument of the keeper, before the data directory and the size of the pool.
pub(crate) const KEEPER: &str = "__keeper";
/// The first argument of a server that is started on demand, before the data directory.
pub(crate) const SERVER: &str = "__server";
/// The only argument of the egress process.
pub(crate) const EGRESS: &str = "__egress";
/// This very program, also where it was replaced meanwhile.
pub(crate) const OURSELVES: &str = "/proc/self/exe";

/// Runs the process that the arguments name; `None` where they name none of these.
pub(crate) fn run(arguments: &[OsString]) -> Option<u8> {
    let (first, rest) = arguments.split_first()?;
    if first == helpers::ARGUMENT {
        return Some(helpers::run(rest));
    }
    (first == KEEPER).then(|| keeper(rest))
}

fn keeper(arguments: &[OsString]) -> u8 {
    let [data, pool] = arguments else { return 2 };
    let Some(pool) = pool.to_str().and_then(|text| text.parse().ok()) else {
        return 2;
    };
    let options = Options { data: PathBuf::from(data), pool, program: OURSELVES.into() };
    match keeper::run(&options) {
        Ok(_) => 0,
        Err(error) => {
            let mut text = format!("no keeper: {error}");
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            // The process that started it reads this.
            let _ = writeln!(std::io::stderr(), "{text}");
            1
        }
    }
}
