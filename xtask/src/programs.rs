//! The programs of this workspace that other commands start, built as those need them.
//!
//! Programs for tests are built for the whole workspace together, as the tests are: then cargo
//! selects the same features for every dependency, and builds it once.

use std::path::PathBuf;
use std::process::Command;

use anyhow::ensure;

use crate::workspace::Workspace;

/// The product's program that users start.
const STOCKADE: &str = "stockade";

/// The arguments of `cargo build` for both programs of the product, which need to be in one
/// directory.
const PRODUCT: [&str; 4] = ["--bin", STOCKADE, "--bin", "stockade-server"];

/// The arguments of `cargo build` for the packages of both.
const PACKAGES: [&str; 4] = ["--package", "stockade-cli", "--package", "stockade-host"];

/// The program with the fuzz targets.
const FUZZ: &str = "stockade-fuzz";

/// The examples that kill other processes.
const CRASHES: &[&str] = &["crash", "crash-durable", "crash-service", "crash-workflow"];

/// The examples that tests start: those of `stockade-test-programs`, and those that crates have for
/// their own tests.
const EXAMPLES_FOR_TESTS: &[&str] = &["echo", "probe", "realm", "release", "snippets"];

/// A program that was built, and `stockade` with `stockade-server` in the same directory.
#[derive(Debug)]
pub(crate) struct RustWorkflow {
    pub(crate) program: PathBuf,
    pub(crate) stockade: PathBuf,
}

/// `cargo xtask build`: builds the programs that tests start, and returns their directory.
pub(crate) fn for_tests(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    build(workspace, EXAMPLES_FOR_TESTS)?;
    Ok(workspace.target_directory()?.join("debug"))
}

/// Builds the program that unit tests start: the process of a realm.
pub(crate) fn for_unit_tests(workspace: &Workspace) -> anyhow::Result<()> {
    let mut cargo = workspace.cargo();
    let status = cargo.args(["build", "--quiet", "--workspace", "--example", "realm"]).status()?;
    ensure!(status.success(), "realm does not build");
    Ok(())
}

/// The command that builds all tests, and all programs that `cargo xtask ci` starts.
pub(crate) fn build_all_command(workspace: &Workspace) -> Command {
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--workspace", "--tests"]);
    cargo.args(PRODUCT).args(["--bin", FUZZ]);
    for example in EXAMPLES_FOR_TESTS.iter().chain(&["guest"]).chain(CRASHES) {
        cargo.args(["--example", example]);
    }
    cargo
}

/// Builds the program with the fuzz targets; its path. Together with an example, so that cargo
/// selects the same features as when it builds the tests.
pub(crate) fn for_fuzzing(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--quiet", "--workspace", "--bin", FUZZ, "--example", "probe"]);
    ensure!(cargo.status()?.success(), "{FUZZ} does not build");
    Ok(workspace.target_directory()?.join("debug").join(FUZZ))
}

/// Builds a program that kills other processes, without optimization.
pub(crate) fn for_crash_tests(
    workspace: &Workspace,
    example: &str,
) -> anyhow::Result<RustWorkflow> {
    build(workspace, &[example])?;
    built(workspace, "debug", example)
}

/// Builds a benchmark, and the product like the first command of README.
pub(crate) fn for_benchmarks(workspace: &Workspace, example: &str) -> anyhow::Result<RustWorkflow> {
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--quiet", "--release"]).args(PACKAGES).args(PRODUCT);
    cargo.args(["--package", "stockade-test-programs", "--example", example]);
    ensure!(cargo.status()?.success(), "{STOCKADE}, {example} do not build");
    built(workspace, "release", example)
}

/// Builds the benchmark of PostgreSQL, which is a workspace of its own; its path.
pub(crate) fn for_postgres_benchmark(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let target = workspace.target_directory()?.join("bench-postgres");
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--quiet", "--release", "--locked", "--manifest-path"]);
    cargo.arg(workspace.root.join("benches/postgres/Cargo.toml")).arg("--target-dir").arg(&target);
    ensure!(cargo.status()?.success(), "bench-postgres does not build");
    Ok(target.join("release/bench-postgres"))
}

/// Builds the product like the first command of README; its path.
pub(crate) fn release_programs(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--quiet", "--release"]).args(PACKAGES).args(PRODUCT);
    ensure!(cargo.status()?.success(), "{STOCKADE} does not build");
    Ok(workspace.target_directory()?.join("release").join(STOCKADE))
}

/// The arguments of `cargo build` for the product and examples, without optimization.
pub(crate) fn arguments<'a>(examples: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["build", "--quiet", "--workspace"];
    arguments.extend(PRODUCT);
    arguments.extend(examples.iter().flat_map(|example| ["--example", example]));
    arguments
}

fn build(workspace: &Workspace, examples: &[&str]) -> anyhow::Result<()> {
    let status = workspace.cargo().args(arguments(examples)).status()?;
    ensure!(status.success(), "{STOCKADE}, {} do not build", examples.join(", "));
    Ok(())
}

fn built(workspace: &Workspace, profile: &str, example: &str) -> anyhow::Result<RustWorkflow> {
    let directory = workspace.target_directory()?.join(profile);
    let program = directory.join("examples").join(example);
    Ok(RustWorkflow { program, stockade: directory.join(STOCKADE) })
}
