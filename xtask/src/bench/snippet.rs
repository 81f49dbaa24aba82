//! `cargo xtask bench snippet`: what a snippet costs. The measuring is done by `benches/snippet`, a
//! program of its own; this builds it.

use anyhow::ensure;

use crate::arguments::BenchOptions;
use crate::workspace::Workspace;

/// Measures and prints the table; false when a contender failed.
pub(crate) fn run(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    let package = ["build", "--quiet", "--release", "--package", "stockade-cli"];
    let both = ["--bins", "--example", "bench-snippet"];
    ensure!(workspace.cargo().args(package).args(both).status()?.success(), "it does not build");
    let built = workspace.target_directory()?.join("release");
    let status = std::process::Command::new(built.join("examples/bench-snippet"))
        .arg(built.join("stockade"))
        .arg(options.rounds.to_string())
        .arg(options.json.clone().unwrap_or_default())
        .status()?;
    Ok(status.success())
}
