//! The process of a realm, as the binary `stockade` runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    stockade_workflow::authoring::process()
}
