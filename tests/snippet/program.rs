//! The program that workers of the tests are forked from.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(stockade_snippet::worker::process())
}
