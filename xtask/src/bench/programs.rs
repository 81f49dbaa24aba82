//! The benchmarks whose measuring is done by a program of its own, below `benches`: each is built
//! and started here.

use std::process::Command;

use crate::arguments::BenchOptions;
use crate::programs::that_measures;
use crate::workspace::Workspace;

/// How many rounds are counted where no other number is asked for: fewer of those that take longer.
const ROUNDS: usize = 300;
const LONG_ROUNDS: usize = 100;
const LONGEST_ROUNDS: usize = 50;

/// `cargo xtask bench durable`: what a durable step costs, over the engine alone. False when a
/// contender failed.
pub(crate) fn durable(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    let built = that_measures(workspace, "bench-durable")?;
    let mut command = Command::new(built.program);
    command.arg(options.rounds(LONG_ROUNDS).to_string());
    measured(command, options)
}

/// `cargo xtask bench runtime`: what a held sandbox costs. False when a contender failed.
pub(crate) fn runtime(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    let mut command = of_stockade(workspace, "bench-runtime", options.rounds(ROUNDS))?;
    command.arg(&options.docker_image);
    measured(command, options)
}

/// `cargo xtask bench service`: what an operation of the product costs. False when a contender
/// failed.
pub(crate) fn service(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    measured(of_stockade(workspace, "bench-service", options.rounds(ROUNDS))?, options)
}

/// `cargo xtask bench snippet`: what a snippet costs. False when a contender failed.
pub(crate) fn snippet(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    measured(of_stockade(workspace, "bench-snippet", options.rounds(ROUNDS))?, options)
}

/// `cargo xtask bench workflow`: what a run of a workflow costs. False when a contender failed.
pub(crate) fn workflow(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    let mut command = of_stockade(workspace, "bench-workflow", options.rounds(LONGEST_ROUNDS))?;
    // Those of the tests, unless somebody names others.
    let packages = workspace.target_directory()?.join("tmp/packages/npm/node_modules");
    if std::env::var_os(PACKAGES).is_none() && packages.is_dir() {
        command.env(PACKAGES, packages);
    }
    measured(command, options)
}

/// Names a directory of packages with zod in it.
const PACKAGES: &str = "STOCKADE_BENCH_PACKAGES";

/// A program that measures `stockade`, so many times.
fn of_stockade(workspace: &Workspace, example: &str, rounds: usize) -> anyhow::Result<Command> {
    let built = that_measures(workspace, example)?;
    let mut command = Command::new(built.program);
    command.arg(built.stockade).arg(rounds.to_string());
    Ok(command)
}

/// Lets it measure, and write a file where that is asked for.
fn measured(mut command: Command, options: &BenchOptions) -> anyhow::Result<bool> {
    command.arg(options.json.clone().unwrap_or_default());
    Ok(command.status()?.success())
}
