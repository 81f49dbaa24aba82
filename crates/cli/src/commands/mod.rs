//! One file for each command: its output and its exit codes.

mod apply;
mod bundles;
mod diff;
mod doctor;
pub mod held;
mod manual;
mod reject;
mod run;
pub mod workflow;

use stockade_core::{Code, Problem};

use crate::args::Command;
use crate::problem::Failure;

/// Runs a command; returns the exit code of the process.
pub(crate) fn dispatch(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Run(arguments) => run::run(&arguments).map_err(Failure::of_run),
        Command::Bundles(arguments) => Ok(bundles::run(&arguments)?),
        Command::Diff(arguments) => Ok(diff::run(&arguments)?),
        Command::Apply(arguments) => Ok(apply::run(&arguments)?),
        Command::Reject(arguments) => Ok(reject::run(&arguments)?),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Create(arguments) => held::create::run(*arguments),
        Command::Restore(arguments) => held::create::restore(*arguments),
        Command::Exec(arguments) => held::exec::run(*arguments).map_err(Failure::of_run),
        Command::Shell(arguments) => held::exec::shell(arguments).map_err(Failure::of_run),
        Command::Ls(arguments) => held::list::run(arguments),
        Command::Show(arguments) => held::show::run(arguments),
        Command::Cp(arguments) => held::copy::run(arguments),
        Command::Rm(arguments) => held::remove::run(arguments),
        Command::Logs(arguments) => held::logs::run(arguments),
        Command::Events(arguments) => held::events::run(arguments),
        Command::Start(arguments) => held::life::start(arguments),
        Command::Stop(arguments) => held::life::stop(arguments),
        Command::Pause(arguments) => held::life::pause(arguments),
        Command::Resume(arguments) => workflow::resume::run(arguments),
        Command::Init(arguments) => workflow::init::run(&arguments),
        Command::Up(arguments) => workflow::up::run(*arguments).map_err(Failure::of_workflow),
        Command::Runs(arguments) => workflow::runs::run(arguments),
        Command::Metrics(arguments) => workflow::metrics::run(arguments),
        Command::Inspect(arguments) => workflow::inspect::run(arguments),
        Command::Approve(arguments) => workflow::answer::approve(arguments),
        Command::Deny(arguments) => workflow::answer::deny(arguments),
        Command::Signal(arguments) => workflow::answer::signal(arguments),
        Command::Cancel(arguments) => workflow::answer::cancel(arguments),
        Command::Renew(arguments) => held::life::renew(arguments),
        Command::Allow(arguments) => held::reach::allow(arguments),
        Command::Refuse(arguments) => held::reach::refuse(arguments),
        Command::Kill(arguments) => held::life::kill(arguments),
        Command::Prune(arguments) => held::life::prune(arguments),
        Command::Snapshot(arguments) => held::snapshot::take(arguments),
        Command::Collect(arguments) => held::collect::run(arguments),
        Command::Snapshots(arguments) => held::snapshot::list(arguments),
        Command::Tool(arguments) => held::tool::run(arguments),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Man(arguments) => manual::page(&arguments),
        Command::Debug(_)
        | Command::Snippet(_)
        | Command::Mcp(_)
        | Command::Graph(_)
        | Command::Serve => Err(Problem::new(Code::Unsupported, "this needs an engine").into()),
    }
}
