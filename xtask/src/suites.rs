//! `cargo xtask test`: builds the programs that the tests of one kind start, and runs the tests.
//! They need nextest: it runs each test in a separate process, ends one that hangs, and does not
//! run those that fill memory, disk or the process table concurrently (`.config/nextest.toml`).

use std::process::Command;

use anyhow::ensure;

use crate::arguments::{Suite, TestOptions};
use crate::programs;
use crate::workspace::{Workspace, output};

/// The version of nextest that is installed if it is missing.
const NEXTEST: &str = "0.9.143";

/// The environment variable that names the directory of the programs for the tests.
const PROGRAMS: &str = "STOCKADE_TEST_PROGRAMS";

/// Runs them; true when none failed.
pub(crate) fn run(workspace: &Workspace, options: &TestOptions) -> anyhow::Result<bool> {
    require_nextest(workspace)?;
    if options.suite == Suite::Unit {
        programs::for_unit_tests(workspace)?;
    } else {
        programs::for_tests(workspace)?;
    }
    let mut nextest = nextest(workspace, options.suite)?;
    Ok(nextest.args(&options.names).status()?.success())
}

/// The tests that compare texts with the files in `tests/snapshots`.
const SNAPSHOTS: &str = "test(/^snapshots::|_match_their_snapshots$/)";

/// `cargo xtask snapshots`: runs the tests of snapshots, which then write the files.
pub(crate) fn update_snapshots(workspace: &Workspace) -> anyhow::Result<bool> {
    require_nextest(workspace)?;
    programs::for_tests(workspace)?;
    let mut nextest = nextest(workspace, Suite::E2e)?;
    nextest.args(["--lib", "--filterset", SNAPSHOTS]).env("INSTA_UPDATE", "always");
    Ok(nextest.status()?.success())
}

/// The command that runs tests, for the whole workspace together, as all programs are built.
pub(crate) fn nextest(workspace: &Workspace, suite: Suite) -> anyhow::Result<Command> {
    let mut cargo = workspace.cargo();
    cargo.env(PROGRAMS, workspace.target_directory()?.join("debug"));
    cargo.args(["nextest", "run", "--workspace"]);
    cargo.args(match suite {
        Suite::Unit => ["--lib", "--bins"].as_slice(),
        Suite::E2e => &["--test", "e2e"],
        Suite::Runtime => &["--test", "runtime"],
        Suite::Slow => &["--lib", "--bins", "--tests", "--run-ignored", "only"],
        Suite::All => &["--lib", "--bins", "--tests"],
    });
    Ok(cargo)
}

/// Fails with a remedy if nextest is missing.
pub(crate) fn require_nextest(workspace: &Workspace) -> anyhow::Result<()> {
    let command = install(workspace);
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let is_there = has_nextest(workspace);
    ensure!(is_there, "cargo-nextest is missing, which runs the tests: cargo {}", words.join(" "));
    Ok(())
}

/// Installs nextest if it is missing.
pub(crate) fn install_nextest(workspace: &Workspace) -> anyhow::Result<()> {
    if !has_nextest(workspace) {
        ensure!(install(workspace).status()?.success(), "cargo-nextest cannot be installed");
    }
    Ok(())
}

fn has_nextest(workspace: &Workspace) -> bool {
    output(workspace.cargo().args(["nextest", "--version"])).is_ok()
}

fn install(workspace: &Workspace) -> Command {
    let mut cargo = workspace.cargo();
    cargo.args(["install", "cargo-nextest", "--locked", "--version", NEXTEST]);
    cargo
}
