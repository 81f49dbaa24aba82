//! `cargo xtask crash workflow`: kills the local server while it does runs of workflows. The work is
//! done by `tests/crash-workflow`, a program of its own; this builds it.

use std::process::Command;

use anyhow::{Context as _, ensure};

use super::seed;
use crate::arguments::CrashOptions;
use crate::workspace::Workspace;

/// Runs it; true when nothing was lost or done again that was finished.
pub(crate) fn run(workspace: &Workspace, options: &CrashOptions) -> anyhow::Result<bool> {
    let package = ["build", "--quiet", "--package", "stockade-cli"];
    let both = ["--bins", "--example", "crash-workflow"];
    let built = workspace.cargo().args(package).args(both).status()?;
    ensure!(built.success(), "stockade does not build");
    let built = workspace.target_directory()?.join("debug");
    let status = Command::new(built.join("examples/crash-workflow"))
        .arg("run")
        .arg(built.join("stockade"))
        .args([options.kills.to_string(), seed(options)?.to_string()])
        .status()
        .context("start the program that kills")?;
    Ok(status.success())
}
