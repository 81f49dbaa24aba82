//! The processes of a realm and of a command, as the binary `stockade` runs them.

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
