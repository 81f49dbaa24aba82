//! `cargo xtask ci`: everything that must hold before a change is merged. It needs only cargo and a
//! C compiler, and runs as root or as an ordinary user. A step that cannot run here is reported as
//! skipped with its reason, never as passed.
//!
//! Compilation comes first, one step after another, because cargo uses all processors. Then the
//! tests run, which wait for other processes during a part of their time, concurrently with steps that
//! share nothing with them: lints, parsers, a database, an emulated machine. Steps that exhaust the
//! machine or kill processes on it come last.

mod packages;
mod registries;
pub(crate) mod report;
mod skip_log;
pub(crate) mod steps;

use std::process::Command;

use anyhow::Context as _;

use crate::arguments::{CiOptions, Suite};
use crate::workspace::{Workspace, is_installed, output};
use crate::{programs, suites};
use report::Report;
use skip_log::SkipLog;
use steps::Step;

/// How many seconds each fuzz target runs: enough to notice a parser that panics on its first
/// inputs; and with `--all`.
const FUZZ_SECONDS: [&str; 2] = ["5", "60"];

/// How many processes each crash suite kills, and with `--all`.
const KILLS: [&str; 2] = ["30", "300"];

/// The emulated machines, and with `--all` one that is reset while Stockade works.
const GUEST: [&[&str]; 2] = [&["guest"], &["guest", "--with-reset"]];

/// The ordinary user whose id is used when root runs the checks.
const ORDINARY_USER: &str = "1000";

/// Runs every step, even if others fail; true when none failed.
pub(crate) fn run(workspace: &Workspace, options: &CiOptions) -> anyhow::Result<bool> {
    let may_install = options.install || std::env::var_os("CI").is_some_and(|ci| ci == "true");
    let report = Report::new();
    if may_install {
        suites::install_nextest(workspace)?;
    }
    suites::require_nextest(workspace)?;
    let skips = SkipLog::create()?;
    let logs = workspace.target_directory()?.join("ci");
    std::fs::create_dir_all(&logs).with_context(|| format!("make {}", logs.display()))?;

    let lanes = vec![compile_steps(workspace)?, install_steps(workspace, may_install, options.all)];
    report.run_side_by_side(&logs, lanes);
    let lanes = vec![
        vec![suite_step(workspace, Suite::All, &skips, options.all)?],
        separate_steps(workspace, options)?,
    ];
    report.run_side_by_side(&logs, lanes);
    report.run_side_by_side(&logs, crashes(workspace, options)?);
    let mut last = vec![suite_step(workspace, Suite::Slow, &skips, options.all)?];
    if options.all {
        last.push(traces(workspace));
        last.push(postgres(workspace, &skips));
        last.push(xtask(workspace, "crash cluster", &["crash", "cluster", "--kills", "100"])?);
        last.extend(kubernetes(workspace, &skips));
    }
    report.run_side_by_side(&logs, vec![last]);

    let skipped_tests = skips.read()?;
    println!("\n{}{}", report.table(&skipped_tests), report.failures());
    Ok(report.is_good())
}

/// Checks of the sources, then the compilation of all that is tested.
fn compile_steps(workspace: &Workspace) -> anyhow::Result<Vec<Step>> {
    Ok(vec![
        fmt(workspace),
        xtask(workspace, "tidy", &["tidy"])?,
        deny(workspace),
        Step::program("build", programs::build_all_command(workspace)),
    ])
}

/// Packages that the tests use, and can do without.
fn install_steps(workspace: &Workspace, may_install: bool, all: bool) -> Vec<Step> {
    let (npm, pypi) = (workspace.clone(), workspace.clone());
    vec![
        Step::function("packages", move || packages::install(may_install)),
        Step::function("npm packages", move || registries::npm(&npm, all)),
        Step::function("pypi packages", move || registries::pypi(&pypi, all)),
    ]
}

/// Steps that share neither files nor limits with the tests.
fn separate_steps(workspace: &Workspace, options: &CiOptions) -> anyhow::Result<Vec<Step>> {
    let at = usize::from(options.all);
    Ok(vec![
        web(workspace)?,
        xtask(workspace, "guest", GUEST[at])?,
        clippy(workspace),
        xtask(workspace, "fuzz", &["fuzz", "--seconds", FUZZ_SECONDS[at]])?,
        xtask(workspace, "crash durable", &["crash", "durable", "--kills", KILLS[at]])?,
    ])
}

/// The tests of what only builds with the feature `otlp` have.
fn traces(workspace: &Workspace) -> Step {
    let mut cargo = workspace.cargo();
    cargo.args(["nextest", "run", "--profile", "ci", "--package", "stockade-host", "--lib"]);
    cargo.args(["--features", "otlp", "--filterset", "test(/^traces::/)"]);
    Step::program("traces", cargo)
}

/// What only builds with the feature `kubernetes`: the lints, and the tests against the double of a cluster, and
/// against a real one where there is one.
fn kubernetes(workspace: &Workspace, skips: &SkipLog) -> Vec<Step> {
    const PACKAGE: [&str; 4] =
        ["--package", "stockade-runtime-kubernetes", "--features", "kubernetes"];
    let mut clippy = workspace.cargo();
    clippy.arg("clippy").args(PACKAGE).args(["--tests", "--", "--deny", "warnings"]);
    // The server with pods, for the test that runs workflows in them.
    let mut server = workspace.cargo();
    server.args(["build", "--package", "stockade-host", "--features", "stockade-host/kubernetes"]);
    let mut nextest = workspace.cargo();
    nextest.args(["nextest", "run", "--profile", "ci"]).args(PACKAGE);
    nextest.env(skip_log::VARIABLE, skips.path());
    vec![
        Step::program("kubernetes clippy", clippy),
        Step::program("kubernetes server", server),
        Step::program("kubernetes", nextest),
    ]
}

/// The pages that are checked in are what their sources give.
fn web(workspace: &Workspace) -> anyhow::Result<Step> {
    if !is_installed("npm") {
        return Ok(Step::skipped("web", "npm is not installed".to_owned()));
    }
    xtask(workspace, "web", &["web", "--check"])
}

/// The tests of the service and of workflows with their records on PostgreSQL instead of SQLite, but
/// for those about the file: that it is full, damaged, or of an earlier version.
fn postgres(workspace: &Workspace, skips: &SkipLog) -> Step {
    const OF_A_FILE: &str = "not test(/full_disk|^old_database::|^cases$|_unrecorded_start_is_made_again$\
        |^nothing_is_removed_without_a_bundle$|^secrets::contents_are_nowhere_in_the_database$/)";
    if !is_installed("pg_ctlcluster") {
        let reason = "there is no PostgreSQL server: apt-get install postgresql";
        return Step::skipped("postgres", reason.to_owned());
    }
    let mut nextest = workspace.cargo();
    nextest.args(["nextest", "run", "-p", "stockade-service", "-p", "stockade-workflow"]);
    nextest.args(["--profile", "ci", "-E", OF_A_FILE]);
    nextest.env(skip_log::VARIABLE, skips.path()).env("STOCKADE_TEST_DATABASE", "postgres");
    Step::program("postgres", nextest)
}

/// Steps that kill processes under load, which mostly wait: two suites at a time.
fn crashes(workspace: &Workspace, options: &CiOptions) -> anyhow::Result<Vec<Vec<Step>>> {
    let kills = KILLS[usize::from(options.all)];
    let crash = |name, suite: &[&str]| {
        xtask(workspace, name, &[&["crash"], suite, &["--kills", kills]].concat())
    };
    let mut keepers = vec![crash("crash", &["runtime"])?];
    if packages::is_root()? {
        keepers.push(crash("crash as user", &["runtime", "--user", ORDINARY_USER])?);
    }
    let servers =
        vec![crash("crash service", &["service"])?, crash("crash workflow", &["workflow"])?];
    Ok(vec![keepers, servers])
}

/// The sources are formatted.
pub(crate) fn fmt(workspace: &Workspace) -> Step {
    component(workspace, "fmt", "rustfmt", &["--all", "--check"])
}

/// No lint reports anything for any target.
pub(crate) fn clippy(workspace: &Workspace) -> Step {
    let arguments = ["--workspace", "--all-targets", "--", "-D", "warnings"];
    component(workspace, "clippy", "clippy", &arguments)
}

/// Runs `cargo NAME ARGUMENTS`, where `NAME` belongs to a component of the toolchain that may be
/// missing.
fn component(workspace: &Workspace, name: &'static str, part: &str, arguments: &[&str]) -> Step {
    if output(workspace.cargo().args([name, "--version"])).is_err() {
        return Step::skipped(name, format!("not installed: rustup component add {part}"));
    }
    let mut cargo = workspace.cargo();
    cargo.arg(name).args(arguments);
    Step::program(name, cargo)
}

fn deny(workspace: &Workspace) -> Step {
    if output(workspace.cargo().args(["deny", "--version"])).is_err() {
        let reason = "cargo-deny is not installed; tidy checked bans, licences and sources";
        return Step::skipped("deny", reason.to_owned());
    }
    let mut cargo = workspace.cargo();
    cargo.args(["deny", "check", "bans", "licenses", "sources"]);
    Step::program("deny", cargo)
}

/// Tests, which record in the skip log that they could not run. With `all`, also those that the
/// configuration leaves out by default.
fn suite_step(
    workspace: &Workspace,
    suite: Suite,
    skips: &SkipLog,
    all: bool,
) -> anyhow::Result<Step> {
    let name = if suite == Suite::Slow { "slow tests" } else { "tests" };
    let mut nextest = suites::nextest(workspace, suite)?;
    nextest.args(["--profile", "ci"]);
    nextest.env(skip_log::VARIABLE, skips.path());
    if all {
        nextest.arg("--ignore-default-filter");
    }
    Ok(Step::program(name, nextest))
}

/// A command of this program in a separate process, so that its output can be captured.
fn xtask(workspace: &Workspace, name: &'static str, arguments: &[&str]) -> anyhow::Result<Step> {
    let mut command = Command::new(std::env::current_exe().context("find this program")?);
    command.args(arguments).current_dir(&workspace.root);
    Ok(Step::program(name, command))
}

#[cfg(test)]
mod checks {
    use super::*;
    use steps::Outcome;

    #[test]
    fn a_missing_part_of_the_toolchain_is_a_skip_with_its_remedy() {
        let workspace = Workspace::find().unwrap();
        let step = component(&workspace, "no-such-part", "part", &[]);
        assert_eq!(
            step.run_visibly().unwrap(),
            Outcome::Skipped("not installed: rustup component add part".to_owned())
        );
    }
}
