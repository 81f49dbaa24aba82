//! The processes of the server's program that are started by their first argument: the server itself,
//! and those that run one of its engines behind walls of their own.

use std::ffi::OsString;
use std::path::PathBuf;

use stockade_host::Programs;
use stockade_script::worker::Program;
use stockade_snippet::worker;
use stockade_workflow::authoring::{self, Processes};
use stockade_workflow::engine;

use super::egress;
use crate::processes::{EGRESS, KEEPER, OURSELVES, SERVER};

/// The only argument of the process that runs a workflow file.
const REALM: &str = "__realm";
/// The first argument of the process that starts one command inside a confinement.
const COMMAND: &str = "__command";

/// Runs the process that the arguments name; `None` where they name none of these.
pub(crate) fn run(arguments: &[OsString]) -> Option<u8> {
    let (first, rest) = arguments.split_first()?;
    if first == SERVER {
        let [data] = rest else { return Some(2) };
        return Some(super::process(PathBuf::from(data)));
    }
    if first == worker::ARGUMENT {
        return Some(worker::process());
    }
    if first == REALM {
        return Some(authoring::process());
    }
    if first == EGRESS {
        return Some(egress::process());
    }
    (first == COMMAND).then(|| engine::command_process(rest))
}

/// The program that workers of snippets are forked from.
pub(crate) fn snippets() -> Program {
    Program { path: OURSELVES.into(), arguments: vec![worker::ARGUMENT.into()] }
}

/// The processes that workflow files run in, for one command.
pub(crate) fn realms() -> Processes {
    Processes::new(realm())
}

/// The processes that a host starts.
pub(crate) fn programs() -> Programs {
    Programs {
        keeper: vec![OURSELVES.into(), KEEPER.into()],
        realm: realm(),
        command: vec![OURSELVES.into(), COMMAND.into()],
        egress: crate::egress::program(),
    }
}

fn realm() -> Vec<OsString> {
    vec![OURSELVES.into(), REALM.into()]
}
