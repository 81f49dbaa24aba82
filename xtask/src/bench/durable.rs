//! `cargo xtask bench durable`: what a durable step costs. The measuring is done by
//! `benches/durable`, a program of its own over the engine; this builds it.

use anyhow::ensure;

use crate::arguments::BenchOptions;
use crate::workspace::Workspace;

/// Measures and prints the table; false when a contender failed.
pub(crate) fn run(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    let package = ["build", "--quiet", "--release", "--package", "stockade-durable"];
    let example = ["--example", "bench-durable"];
    ensure!(workspace.cargo().args(package).args(example).status()?.success(), "it does not build");
    let built = workspace.target_directory()?.join("release/examples/bench-durable");
    let json = options.json.clone().unwrap_or_default();
    let status =
        std::process::Command::new(built).arg(options.rounds.to_string()).arg(json).status()?;
    Ok(status.success())
}
