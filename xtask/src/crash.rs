//! `cargo xtask crash runtime`: kills clients, keepers and inits at random under load, and looks
//! at what is left. The work is done by `tests/crash`, a program of its own; this builds it.

pub(crate) mod durable;

use std::time::SystemTime;

use anyhow::ensure;

use crate::arguments::CrashOptions;
use crate::workspace::Workspace;

/// Runs it; true when nothing was lost, done twice or left behind.
pub(crate) fn run(workspace: &Workspace, options: &CrashOptions) -> anyhow::Result<bool> {
    let package = ["build", "--quiet", "--package", "stockade-cli"];
    let built = workspace.cargo().args(package).args(["--bins", "--example", "crash"]).status()?;
    ensure!(built.success(), "stockade does not build");
    let built = workspace.target_directory()?.join("debug");
    let seed = seed(options)?;
    let status = std::process::Command::new(built.join("examples/crash"))
        .arg("run")
        .arg(built.join("stockade"))
        .args([options.kills.to_string(), seed.to_string()])
        .status()?;
    Ok(status.success())
}

/// The seed that was given, else one of the clock.
fn seed(options: &CrashOptions) -> anyhow::Result<u64> {
    match options.seed {
        Some(seed) => Ok(seed),
        None => Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs()),
    }
}
