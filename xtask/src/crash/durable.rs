//! `cargo xtask crash durable`: kills a process that executes workflows at every write and at
//! random under load. The work is done by `tests/crash-durable`, a program of its own.

use anyhow::ensure;

use super::seed;
use crate::arguments::CrashOptions;
use crate::workspace::Workspace;

/// Runs it; true when no workflow was lost and no recorded step ran again.
pub(crate) fn run(workspace: &Workspace, options: &CrashOptions) -> anyhow::Result<bool> {
    let package = ["build", "--quiet", "--package", "stockade-durable"];
    let built = workspace.cargo().args(package).args(["--example", "crash-durable"]).status()?;
    ensure!(built.success(), "the harness does not build");
    let program = workspace.target_directory()?.join("debug/examples/crash-durable");
    let status = std::process::Command::new(program)
        .args(["run", &options.kills.to_string(), &seed(options)?.to_string()])
        .status()?;
    Ok(status.success())
}
