//! One file for each command: its output and its exit codes.

mod apply;
mod audit;
mod base;
mod branch;
mod bundles;
mod commits;
mod complete;
mod df;
mod diff;
mod difftool;
mod doctor;
mod explain;
mod history;
mod hunks;
mod image;
mod keys;
mod login;
mod manual;
pub mod mcp;
mod policy;
pub mod print;
mod refused_calls;
mod reject;
mod resume;
mod run;
pub mod sandbox;
mod trust;
mod undo;
mod vault;
mod volume;
pub mod workflow;
mod workspace;

use stockade_core::{Code, Problem};

use crate::args::Command;
use crate::args::mcp::McpCommand;
use crate::problem::Failure;
use crate::remote::chosen::chosen;

/// Runs a command; returns the exit code of the process.
pub(crate) fn dispatch(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Run(arguments) if chosen().is_some() => {
            sandbox::elsewhere::run(*arguments).map_err(Failure::for_run)
        }
        Command::Run(arguments) if sandbox::run_held::runtime(&arguments).is_some() => {
            sandbox::run_held::run(*arguments).map_err(Failure::for_run)
        }
        Command::Run(arguments) => run::run(&arguments).map_err(Failure::for_run),
        Command::Bundles(arguments) => Ok(bundles::run(&arguments)?),
        Command::Diff(arguments) if arguments.commits => Ok(commits::diff(&arguments)?),
        Command::Diff(arguments) => Ok(diff::run(&arguments)?),
        Command::Apply(arguments) => Ok(apply::run(&arguments)?),
        Command::Reject(arguments) => reject::run(&arguments),
        Command::Undo(arguments) => Ok(undo::run(&arguments)?),
        Command::History(arguments) => Ok(history::run(&arguments)?),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Trust(arguments) => trust::run(&arguments),
        Command::Df(arguments) => df::run(&arguments),
        Command::Volume(arguments) => volume::run(&arguments),
        Command::Cache(arguments) => volume::cache::run(&arguments),
        Command::Base(arguments) => base::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Create(arguments) => sandbox::create::run(*arguments),
        Command::Restore(arguments) => sandbox::create::restore(*arguments),
        Command::Exec(arguments) => sandbox::exec::run(*arguments).map_err(Failure::for_run),
        Command::Shell(arguments) => sandbox::exec::shell(arguments).map_err(Failure::for_run),
        Command::Ls(arguments) => sandbox::list::run(arguments),
        Command::Show(arguments) => sandbox::show::run(arguments),
        Command::Cp(arguments) => sandbox::copy::run(arguments),
        Command::Sync(arguments) => sandbox::sync::run(*arguments),
        Command::Workspace(arguments) => workspace::run(arguments),
        Command::Rm(arguments) => sandbox::remove::run(arguments),
        Command::Forward(arguments) => sandbox::forward::run(arguments),
        Command::Open(arguments) => sandbox::open::run(arguments),
        Command::Ps(arguments) => sandbox::ps::run(arguments),
        Command::Attach(arguments) => sandbox::rejoin::run(arguments).map_err(Failure::for_run),
        Command::Wait(arguments) => sandbox::ps::wait(arguments).map_err(Failure::for_run),
        Command::Logs(arguments) => sandbox::logs::run(arguments),
        Command::Events(arguments) => sandbox::events::run(arguments),
        Command::Start(arguments) => sandbox::lifecycle::start(arguments),
        Command::Stop(arguments) => sandbox::lifecycle::stop(arguments),
        Command::Pause(arguments) => sandbox::lifecycle::pause(arguments),
        Command::Resume(arguments) => resume::run(arguments),
        Command::Init(arguments) => workflow::init::run(&arguments),
        Command::Up(arguments) => workflow::up::run(*arguments).map_err(Failure::for_workflow),
        Command::Runs(arguments) => workflow::runs::run(arguments),
        Command::Metrics(arguments) => workflow::metrics::run(arguments),
        Command::Inspect(arguments) => workflow::inspect::run(arguments),
        Command::Approve(arguments) => workflow::answer::approve(arguments),
        Command::Deny(arguments) => workflow::answer::deny(arguments),
        Command::Signal(arguments) => workflow::answer::signal(arguments),
        Command::Cancel(arguments) => workflow::answer::cancel(arguments),
        Command::Renew(arguments) => sandbox::lifecycle::renew(arguments),
        Command::Update(arguments) => sandbox::lifecycle::update(arguments),
        Command::Allow(arguments) => sandbox::network::allow(arguments),
        Command::Refuse(arguments) => sandbox::network::refuse(arguments),
        Command::Secret(arguments) => sandbox::secret::run(arguments),
        Command::Kill(arguments) => sandbox::lifecycle::kill(arguments),
        Command::Prune(arguments) => sandbox::lifecycle::prune(arguments),
        Command::Snapshot(arguments) => sandbox::snapshot::take(arguments),
        Command::Collect(arguments) => sandbox::collect::run(arguments),
        Command::Snapshots(arguments) => sandbox::snapshot::list(arguments),
        Command::Image(arguments) => image::run(arguments),
        Command::Tool(arguments) => sandbox::tool::run(arguments),
        Command::Keys(arguments) => keys::run(arguments),
        Command::Policy(arguments) => policy::run(&arguments),
        Command::Secrets(arguments) => vault::run(arguments),
        Command::Audit(arguments) => audit::run(&arguments),
        Command::Login(arguments) => login::login(&arguments),
        Command::Logout(arguments) => login::logout(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Complete(arguments) => complete::run(&arguments),
        Command::Man(arguments) => manual::page(&arguments),
        // The parser has replaced it, unless it has flags.
        Command::Help(_) => {
            Err(Problem::new(Code::InvalidInput, "`stockade help` takes a command")
                .remedied_by("stockade --help")
                .into())
        }
        Command::Mcp(arguments) => match arguments.what {
            Some(McpCommand::Wrap(arguments)) => mcp::wrap(*arguments).map_err(Failure::for_run),
            None => Err(no_engine()),
        },
        Command::Debug(_)
        | Command::Snippet(_)
        | Command::Graph(_)
        | Command::Serve(_)
        | Command::Backup(_)
        | Command::Migrate(_) => Err(no_engine()),
    }
}

fn no_engine() -> Failure {
    Problem::new(Code::Unsupported, "this needs an engine").into()
}
