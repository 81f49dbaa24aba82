//! The process of a realm, and that of a command, as the binary `stockade` runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some((first, rest)) = arguments.split_first()
        && first == "command"
    {
        return stockade_workflow::engine::command_process(rest).into();
    }
    stockade_workflow::authoring::process().into()
}
