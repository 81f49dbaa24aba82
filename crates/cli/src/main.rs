//! The `stockade` command: reads arguments, calls the rooms, presents what they
//! answer. No rule of the product lives here.

/// Writes a line to standard error. Where it cannot be written, there is nobody to tell.
macro_rules! say {
    ($($words:tt)*) => {{
        let mut to = std::io::stderr();
        let _ = std::io::Write::write_fmt(&mut to, format_args!("{}\n", format_args!($($words)*)));
    }};
}

mod args;
mod commands;
mod doctor;
mod egress;
mod json;
mod problem;
mod processes;
mod remote;
mod request;
mod review;
mod run;
mod server;
mod streams;
mod terminal;

use std::process::ExitCode;

use crate::problem::Failure;

#[global_allocator]
static ALLOCATOR: stockade_jail::InitAllocator = stockade_jail::InitAllocator;

fn main() -> ExitCode {
    ExitCode::from(run_arguments())
}

/// Does what the arguments ask; returns the exit code.
fn run_arguments() -> u8 {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(code) = processes::run(&words).or_else(|| server::processes::run(&words)) {
        return code;
    }
    let arguments = match args::Arguments::read(&words) {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let json = arguments.command.wants_json();
    match commands::dispatch(arguments.command) {
        Ok(code) => code,
        Err(failure) => failure.present(json),
    }
}

/// Prints what clap says. Asked-for help is data; anything else is a failure of ours, which
/// `run` and `exec` tell apart from the command's by 125, and `up` from the run's by 4.
fn usage(error: &clap::Error) -> u8 {
    let printed = error.print();
    if !error.use_stderr() {
        return match review::output::written(printed) {
            Ok(()) => 0,
            Err(problem) => Failure::from(problem).present(false),
        };
    }
    let word = std::env::args_os().nth(1).unwrap_or_default();
    match word.to_str() {
        Some("run" | "exec" | "shell") => 125,
        Some("up" | "graph") => 4,
        _ => 2,
    }
}
