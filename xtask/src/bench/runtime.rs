//! `cargo xtask bench runtime`: what a held sandbox costs. The measuring is done by
//! `benches/runtime`, a program of its own that is a client of the runtime; this builds it.

use anyhow::ensure;

use crate::arguments::BenchOptions;
use crate::workspace::Workspace;

/// Measures and prints the tables; false when a contender failed.
pub(crate) fn run(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    let package = ["build", "--quiet", "--release", "--package", "stockade-cli"];
    let both = ["--bins", "--example", "bench-runtime"];
    ensure!(workspace.cargo().args(package).args(both).status()?.success(), "it does not build");
    let built = workspace.target_directory()?.join("release");
    let json = options.json.clone().unwrap_or_default();
    let status = std::process::Command::new(built.join("examples/bench-runtime"))
        .arg(built.join("stockade"))
        .args([&options.rounds.to_string(), &options.docker_image])
        .arg(json)
        .status()?;
    Ok(status.success())
}
