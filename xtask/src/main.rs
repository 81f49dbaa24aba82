//! The project's own commands, run as `cargo xtask COMMAND`. One file per command.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks here")]

mod apt;
mod arguments;
mod bench;
mod check;
mod ci;
mod clients;
mod crash;
mod dist;
mod fuzz;
mod guest;
mod programs;
mod sdk;
mod simulate;
mod suites;
mod tidy;
mod web;
mod workspace;

use std::process::ExitCode;

use arguments::{Arguments, Bench, Command, Crash};
use ci::steps::CANNOT_RUN;
use clap::Parser as _;
use guest::Outcome;
use workspace::Workspace;

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    match Workspace::find().and_then(|workspace| run(&command, &workspace)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one command: it fails if it ran and its result is negative.
fn run(command: &Command, workspace: &Workspace) -> anyhow::Result<ExitCode> {
    let is_good = match command {
        Command::Check => check::run(workspace),
        Command::Test(options) => suites::run(workspace, options),
        Command::Snapshots => suites::update_snapshots(workspace),
        Command::Ci(options) => ci::run(workspace, options),
        Command::Build => programs::for_tests(workspace).map(|_| true),
        Command::Dist(options) => dist::run(workspace, options),
        Command::Tidy => tidy::run(workspace),
        Command::Guest(options) => match guest::run(workspace, options.with_reset)? {
            Outcome::Passed => Ok(true),
            Outcome::Failed => Ok(false),
            Outcome::Missing(reason) => {
                eprintln!("{reason}");
                return Ok(ExitCode::from(CANNOT_RUN));
            }
        },
        Command::Bench(bench) => match bench {
            Bench::Start(options) => bench::start(workspace, options),
            Bench::Clients(options) => bench::clients::run(workspace, options),
            Bench::Runtime(options) => bench::programs::runtime(workspace, options),
            Bench::Durable(options) => bench::programs::durable(workspace, options),
            Bench::Server(options) => bench::programs::server(workspace, options),
            Bench::Service(options) => bench::programs::service(workspace, options),
            Bench::Egress(options) => bench::programs::egress(workspace, options),
            Bench::Snippet(options) => bench::programs::snippet(workspace, options),
            Bench::Workflow(options) => bench::programs::workflow(workspace, options),
        },
        Command::Crash(crash) => match crash {
            Crash::Runtime(options) => crash::run(workspace, options),
            Crash::Durable(options) => crash::programs::durable(workspace, options),
            Crash::Cluster(options) => crash::programs::cluster(workspace, options),
            Crash::Service(options) => crash::programs::service(workspace, options),
            Crash::Workflow(options) => crash::programs::workflow(workspace, options),
        },
        Command::Clients => clients::run(workspace),
        Command::Simulate(options) => simulate::run(options),
        Command::Sdk => sdk::run(workspace),
        Command::Web(options) => web::run(workspace, options.check),
        Command::Fuzz(options) => fuzz::run(workspace, options),
    };
    Ok(if is_good? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
