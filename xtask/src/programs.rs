//! The programs of this workspace that other commands start, built as those need them.
//!
//! Programs for tests are built for the whole workspace at once, as the tests are: cargo then gives
//! every dependency the same features, and builds it once.

use std::path::PathBuf;
use std::process::Command;

use anyhow::ensure;

use crate::workspace::Workspace;

/// The program of the product that people start.
const STOCKADE: &str = "stockade";

/// The arguments of `cargo build` for both programs of the product, which find each other in one
/// directory.
const PRODUCT: [&str; 4] = ["--bin", STOCKADE, "--bin", "stockade-server"];

/// The arguments of `cargo build` for the packages of both.
const PACKAGES: [&str; 4] = ["--package", "stockade-cli", "--package", "stockade-host"];

/// The program with the fuzz targets.
const FUZZ: &str = "stockade-fuzz";

/// The examples that crash others.
const CRASHES: &[&str] = &["crash", "crash-durable", "crash-service", "crash-workflow"];

/// The examples that tests start: of `stockade-test-programs`, and of crates that have one for
/// themselves.
const EXAMPLES_FOR_TESTS: &[&str] = &["echo", "probe", "realm", "release", "snippets"];

/// A program that was built, and `stockade`, which has `stockade-server` beside it.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) program: PathBuf,
    pub(crate) stockade: PathBuf,
}

/// `cargo xtask build`: builds what tests start, and gives the directory with it.
pub(crate) fn for_tests(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    build(workspace, EXAMPLES_FOR_TESTS)?;
    Ok(workspace.target_directory()?.join("debug"))
}

/// Builds what unit tests start: the process of a realm.
pub(crate) fn for_unit_tests(workspace: &Workspace) -> anyhow::Result<()> {
    let mut cargo = workspace.cargo();
    let status = cargo.args(["build", "--quiet", "--workspace", "--example", "realm"]).status()?;
    ensure!(status.success(), "realm does not build");
    Ok(())
}

/// The command that builds all tests, and all programs that anything of `cargo xtask ci` starts.
pub(crate) fn everything(workspace: &Workspace) -> Command {
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--workspace", "--tests"]);
    cargo.args(PRODUCT).args(["--bin", FUZZ]);
    for example in EXAMPLES_FOR_TESTS.iter().chain(&["guest"]).chain(CRASHES) {
        cargo.args(["--example", example]);
    }
    cargo
}

/// Builds the program with the fuzz targets; its path. With an example, so that cargo counts the
/// features that tests need as it does when it builds those.
pub(crate) fn that_fuzzes(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--quiet", "--workspace", "--bin", FUZZ, "--example", "probe"]);
    ensure!(cargo.status()?.success(), "{FUZZ} does not build");
    Ok(workspace.target_directory()?.join("debug").join(FUZZ))
}

/// Builds a program that crashes others, without optimization.
pub(crate) fn that_crashes(workspace: &Workspace, example: &str) -> anyhow::Result<Built> {
    build(workspace, &[example])?;
    built(workspace, "debug", example)
}

/// Builds a program that measures, and the product as the first command of README does.
pub(crate) fn that_measures(workspace: &Workspace, example: &str) -> anyhow::Result<Built> {
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--quiet", "--release"]).args(PACKAGES).args(PRODUCT);
    cargo.args(["--package", "stockade-test-programs", "--example", example]);
    ensure!(cargo.status()?.success(), "{STOCKADE}, {example} do not build");
    built(workspace, "release", example)
}

/// Builds the product as the first command of README does; its path.
pub(crate) fn released(workspace: &Workspace) -> anyhow::Result<PathBuf> {
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

fn built(workspace: &Workspace, profile: &str, example: &str) -> anyhow::Result<Built> {
    let directory = workspace.target_directory()?.join(profile);
    let program = directory.join("examples").join(example);
    Ok(Built { program, stockade: directory.join(STOCKADE) })
}
