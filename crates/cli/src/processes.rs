//! The processes that Stockade starts from itself: the local server, the keeper and its helpers, and
//! what workers of snippets are forked from. Nobody types their arguments, and what they say goes
//! into the keeper's log.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

use stockade_host::Programs;
use stockade_runtime::native::keeper::{self, Options, helpers};
use stockade_script::worker::Program;
use stockade_snippet::worker;
use stockade_workflow::authoring::Processes;

use crate::{egress, server};

/// The first argument of the keeper, before the data directory and the size of the pool.
pub(crate) const KEEPER: &str = "__keeper";
/// The only argument of the process that runs a workflow file.
const REALM: &str = "__realm";
/// The only argument of the process that is the way out of a run's sandbox.
pub(crate) const EGRESS: &str = "__egress";
/// The first argument of the process that starts one command inside a confinement.
const COMMAND: &str = "__command";
/// This very program, also where it was replaced meanwhile.
pub(crate) const OURSELVES: &str = "/proc/self/exe";

/// Runs the process that the arguments name; `None` when they are a person's.
pub(crate) fn run(arguments: &[OsString]) -> Option<u8> {
    let (first, rest) = arguments.split_first()?;
    if first == helpers::ARGUMENT {
        return Some(helpers::run(rest));
    }
    if first == server::SERVER {
        let [data] = rest else { return Some(2) };
        return Some(server::process(PathBuf::from(data)));
    }
    if first == worker::ARGUMENT {
        return Some(worker::process());
    }
    if first == REALM {
        return Some(stockade_workflow::authoring::process());
    }
    if first == EGRESS {
        return Some(egress::process());
    }
    if first == COMMAND {
        return Some(stockade_workflow::engine::command_process(rest));
    }
    (first == KEEPER).then(|| keeper(rest))
}

/// The program that workers of snippets are forked from.
pub(crate) fn snippets() -> Program {
    Program { path: OURSELVES.into(), arguments: vec![worker::ARGUMENT.into()] }
}

/// The processes that a host starts.
pub(crate) fn programs() -> Programs {
    Programs {
        keeper: vec![OURSELVES.into(), KEEPER.into()],
        realm: realm(),
        command: vec![OURSELVES.into(), COMMAND.into()],
        egress: egress::program(),
    }
}

/// The processes that workflow files run in, for one command.
pub(crate) fn realms() -> Processes {
    Processes::new(realm())
}

fn realm() -> Vec<OsString> {
    vec![OURSELVES.into(), REALM.into()]
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
            // Whoever started it reads this.
            let _ = writeln!(std::io::stderr(), "{text}");
            1
        }
    }
}
