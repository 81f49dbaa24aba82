//! The crash suites other than that of the runtime: each is a separate program below
//! `tests/programs`, built and started here.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use super::seed;
use crate::arguments::CrashOptions;
use crate::programs::for_crash_tests;
use crate::workspace::Workspace;

/// `cargo xtask crash durable`: kills a process that executes workflows at every write and at random
/// under load. True when no workflow was lost and no recorded step ran again.
pub(crate) fn durable(workspace: &Workspace, options: &CrashOptions) -> anyhow::Result<bool> {
    let built = for_crash_tests(workspace, "crash-durable")?;
    crash_command(built.program, None, options)
}

/// `cargo xtask crash cluster`: kills, pauses and cuts off processes that execute workflows on one
/// PostgreSQL database, and restarts that. True when no workflow was lost, no recorded step ran again, and the
/// history is linearizable.
pub(crate) fn cluster(workspace: &Workspace, options: &CrashOptions) -> anyhow::Result<bool> {
    let built = for_crash_tests(workspace, "crash-cluster")?;
    crash_command(built.program, None, options)
}

/// `cargo xtask crash service`: kills the local server, the keeper and inits at random while clients
/// work. True when nothing was lost, done twice or left behind.
pub(crate) fn service(workspace: &Workspace, options: &CrashOptions) -> anyhow::Result<bool> {
    stockade_crash(workspace, "crash-service", options)
}

/// `cargo xtask crash workflow`: kills the local server while it executes workflow runs. True when
/// nothing was lost and no finished task was executed again.
pub(crate) fn workflow(workspace: &Workspace, options: &CrashOptions) -> anyhow::Result<bool> {
    stockade_crash(workspace, "crash-workflow", options)
}

fn stockade_crash(
    workspace: &Workspace,
    example: &str,
    options: &CrashOptions,
) -> anyhow::Result<bool> {
    let built = for_crash_tests(workspace, example)?;
    crash_command(built.program, Some(built.stockade), options)
}

fn crash_command(
    program: PathBuf,
    stockade: Option<PathBuf>,
    options: &CrashOptions,
) -> anyhow::Result<bool> {
    let status = Command::new(program)
        .arg("run")
        .args(stockade)
        .args([options.kills.to_string(), seed(options)?.to_string()])
        .status()
        .context("start the program that kills")?;
    Ok(status.success())
}
