//! One file for each command: what it prints and how it exits.

mod doctor;
mod run;

use crate::args::Command;
use crate::problem::Failure;

/// Runs a command; the exit code of the process.
pub(crate) fn dispatch(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Run(arguments) => run::run(&arguments).map_err(Failure::of_run),
        Command::Doctor(arguments) => doctor::run(&arguments),
        _ => Err(Failure::from(stockade_core::Problem::new(
            stockade_core::Code::InvalidInput,
            "not yet",
        ))),
    }
}
