//! The benchmarks that are separate programs, below `benches`: each is built and started here.

use std::process::Command;

use crate::arguments::{BenchOptions, DurableOptions};
use crate::programs::{for_benchmarks, for_postgres_benchmark};
use crate::workspace::Workspace;

/// The number of counted rounds, unless another number is given: fewer for benchmarks that take
/// longer.
const ROUNDS: usize = 300;
const LONG_ROUNDS: usize = 100;
const LONGEST_ROUNDS: usize = 50;
const EGRESS_ROUNDS: usize = 30;
const POSTGRES_ROUNDS: usize = 20;

/// `cargo xtask bench durable`: the cost of a durable step, beyond that of the engine. False when a
/// contender failed.
pub(crate) fn durable(workspace: &Workspace, options: &DurableOptions) -> anyhow::Result<bool> {
    let DurableOptions { bench: options, postgres } = options;
    if *postgres {
        let mut command = Command::new(for_postgres_benchmark(workspace)?);
        command.arg(options.rounds(POSTGRES_ROUNDS).to_string());
        return run_bench(command, options);
    }
    let built = for_benchmarks(workspace, "bench-durable")?;
    let mut command = Command::new(built.program);
    command.arg(options.rounds(LONG_ROUNDS).to_string());
    run_bench(command, options)
}

/// `cargo xtask bench runtime`: the cost of a persistent sandbox. False when a contender failed.
pub(crate) fn runtime(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    let mut command = stockade_bench(workspace, "bench-runtime", options.rounds(ROUNDS))?;
    command.arg(&options.docker_image);
    run_bench(command, options)
}

/// `cargo xtask bench service`: the cost of an operation of the product. False when a contender
/// failed.
pub(crate) fn service(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    run_bench(stockade_bench(workspace, "bench-service", options.rounds(ROUNDS))?, options)
}

/// `cargo xtask bench server`: what a client over TCP waits for. False when a request failed.
pub(crate) fn server(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    run_bench(stockade_bench(workspace, "bench-server", options.rounds(ROUNDS))?, options)
}

/// `cargo xtask bench egress`: the cost of the egress process. False when a connection failed.
pub(crate) fn egress(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    let built = for_benchmarks(workspace, "bench-egress")?;
    let mut command = Command::new(built.program);
    command.arg(options.rounds(EGRESS_ROUNDS).to_string());
    run_bench(command, options)
}

/// `cargo xtask bench snippet`: the cost of a snippet. False when a contender failed.
pub(crate) fn snippet(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    run_bench(stockade_bench(workspace, "bench-snippet", options.rounds(ROUNDS))?, options)
}

/// `cargo xtask bench workflow`: the cost of a workflow run. False when a contender failed.
pub(crate) fn workflow(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    let mut command = stockade_bench(workspace, "bench-workflow", options.rounds(LONGEST_ROUNDS))?;
    // The packages of the tests, unless the variable is set.
    let packages = workspace.target_directory()?.join("tmp/packages/npm/node_modules");
    if std::env::var_os(PACKAGES).is_none() && packages.is_dir() {
        command.env(PACKAGES, packages);
    }
    run_bench(command, options)
}

/// The variable that names a directory of packages that contains zod.
const PACKAGES: &str = "STOCKADE_BENCH_PACKAGES";

/// A program that measures `stockade` in this many rounds.
fn stockade_bench(workspace: &Workspace, example: &str, rounds: usize) -> anyhow::Result<Command> {
    let built = for_benchmarks(workspace, example)?;
    let mut command = Command::new(built.program);
    command.arg(built.stockade).arg(rounds.to_string());
    Ok(command)
}

/// Runs the benchmark, which writes a JSON file if requested.
fn run_bench(mut command: Command, options: &BenchOptions) -> anyhow::Result<bool> {
    command.arg(options.json.clone().unwrap_or_default());
    Ok(command.status()?.success())
}
