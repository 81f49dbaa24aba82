//! The project's own commands, run as `cargo xtask COMMAND`. One file per command.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks here")]

mod apt;
mod arguments;
mod bench;
mod ci;
mod crash;
mod fuzz;
mod guest;
mod tidy;
mod workspace;

use std::process::ExitCode;

use arguments::Command;
use guest::Answer;
use workspace::Workspace;

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let command = match Command::parse(&given) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("{error:#}\n\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
    };
    match Workspace::find().and_then(|workspace| run(&command, &workspace)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one command; false when it ran and its answer is "no".
fn run(command: &Command, workspace: &Workspace) -> anyhow::Result<bool> {
    match command {
        Command::Help => {
            println!("{}", arguments::USAGE);
            Ok(true)
        }
        Command::Ci => ci::run(workspace),
        Command::Tidy => tidy::run(workspace),
        Command::BenchStart(options) => bench::start(workspace, options),
        Command::BenchRuntime(options) => bench::programs::runtime(workspace, options),
        Command::BenchDurable(options) => bench::programs::durable(workspace, options),
        Command::BenchService(options) => bench::programs::service(workspace, options),
        Command::BenchWorkflow(options) => bench::programs::workflow(workspace, options),
        Command::BenchSnippet(options) => bench::programs::snippet(workspace, options),
        Command::CrashRuntime(options) => crash::run(workspace, options),
        Command::CrashDurable(options) => crash::programs::durable(workspace, options),
        Command::CrashService(options) => crash::programs::service(workspace, options),
        Command::CrashWorkflow(options) => crash::programs::workflow(workspace, options),
        Command::Guest => match guest::run(workspace)? {
            Answer::Held => Ok(true),
            Answer::Broken => Ok(false),
            Answer::Missing(reason) => anyhow::bail!("{reason}"),
        },
        Command::Fuzz(options) => fuzz::run(workspace, options),
    }
}
