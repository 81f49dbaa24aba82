//! The program from which the workers of the tests are forked.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(stockade_snippet::worker::process())
}
