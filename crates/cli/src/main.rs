//! The `stockade` command: reads arguments, calls the rooms, presents what they
//! answer. No rule of the product lives here.

mod args;
mod commands;
mod doctor;
mod egress;
mod json;
mod problem;
mod processes;
mod remote;
mod review;
mod run;
mod server;
mod streams;
mod terminal;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(code) = processes::run(&words) {
        return code;
    }
    // Takes longest of all that a run needs, and goes on beside what is done here first.
    let _prepared = words.first().filter(|word| *word == "run").map(|_| stockade_jail::prepare());
    let arguments = match args::Arguments::read(&words) {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let json = arguments.command.wants_json();
    match commands::dispatch(arguments.command) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.present(json);
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Prints what clap says. Asked-for help is data; anything else is a failure of ours, which
/// `run` and `exec` tell apart from the command's by 125, and `up` from the run's by 4.
fn usage(error: &clap::Error) -> ExitCode {
    // When the stream is closed there is nobody to tell.
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    let word = std::env::args_os().nth(1).unwrap_or_default();
    match word.to_str() {
        Some("run" | "exec" | "shell") => ExitCode::from(125),
        Some("up" | "graph") => ExitCode::from(4),
        _ => ExitCode::from(2),
    }
}
