//! One file for each command: what it prints and how it exits.

mod apply;
mod bundles;
mod debug;
mod diff;
mod doctor;
mod reject;
mod run;

pub(crate) use self::debug::Debug;
use crate::args::Command;
use crate::problem::Failure;

/// Runs a command; the exit code of the process.
pub(crate) fn dispatch(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Run(arguments) => run::run(&arguments).map_err(Failure::of_run),
        Command::Bundles(arguments) => Ok(bundles::run(&arguments)?),
        Command::Diff(arguments) => Ok(diff::run(&arguments)?),
        Command::Apply(arguments) => Ok(apply::run(&arguments)?),
        Command::Reject(arguments) => Ok(reject::run(&arguments)?),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Debug(arguments) => debug::run(*arguments),
    }
}
