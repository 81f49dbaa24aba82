//! `cargo xtask ci`: everything that must hold before a change is merged, from nothing but cargo
//! and a C compiler, as root or as an ordinary user. A step that cannot run here is reported as
//! skipped with its reason, never as passed.

mod packages;
mod registries;
mod report;
mod skip_log;

use std::num::NonZeroUsize;
use std::process::Command;

use anyhow::Context as _;

use crate::arguments::{CrashOptions, CrashRuntimeOptions, FuzzOptions};
use crate::guest::{self, Answer};
use crate::workspace::{Workspace, output};
use crate::{crash, fuzz, tidy};
use report::{Outcome, Report};
use skip_log::SkipLog;

/// How many seconds each fuzz target runs: enough to notice a parser that panics on the first
/// surprise.
const FUZZ_SECONDS: NonZeroUsize = NonZeroUsize::new(5).unwrap();

/// Whom root's runs lend themselves to.
const ORDINARY_USER: u32 = 1000;

/// Runs every step, whatever the others say; true when none failed.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    let skips = SkipLog::create()?;
    let mut report = Report::default();

    report.step("packages", packages::install);
    report.step("npm packages", || registries::npm(workspace));
    report.step("pypi packages", || registries::pypi(workspace));
    report.step("fmt", || component(workspace, "fmt", "rustfmt", &["--all", "--check"]));
    report.step("clippy", || {
        let arguments = ["--workspace", "--all-targets", "--", "-D", "warnings"];
        component(workspace, "clippy", "clippy", &arguments)
    });
    report.step("tests", || tests(workspace, &skips, Marked::Usual));
    report.step("slow", || tests(workspace, &skips, Marked::Slow));
    report.step("guest", || {
        Ok(match guest::run(workspace)? {
            Answer::Held => Outcome::Passed,
            Answer::Broken => Outcome::Failed("see the lines `guest:` above".to_owned()),
            Answer::Missing(reason) => Outcome::Skipped(reason),
        })
    });
    report.step("crash", || {
        let options = CrashRuntimeOptions { crash: CrashOptions::default(), user: None };
        Ok(Outcome::of(crash::run(workspace, &options)?, "see `FAULT` above"))
    });
    if packages::is_root()? {
        report.step("crash as user", || {
            let user = Some(ORDINARY_USER);
            let options = CrashRuntimeOptions { crash: CrashOptions::default(), user };
            Ok(Outcome::of(crash::run(workspace, &options)?, "see `FAULT` above"))
        });
    }
    report.step("crash durable", || {
        let clean = crash::programs::durable(workspace, &CrashOptions::default())?;
        Ok(Outcome::of(clean, "see `FAULT` above"))
    });
    report.step("crash service", || {
        let clean = crash::programs::service(workspace, &CrashOptions::default())?;
        Ok(Outcome::of(clean, "see `FAULT` above"))
    });
    report.step("crash workflow", || {
        let clean = crash::programs::workflow(workspace, &CrashOptions::default())?;
        Ok(Outcome::of(clean, "see `FAULT` above"))
    });
    report.step("tidy", || Ok(Outcome::of(tidy::run(workspace)?, "see the lines `tidy:` above")));
    report.step("deny", || deny(workspace));
    report.step("fuzz", || {
        let options = FuzzOptions { seconds: FUZZ_SECONDS, seed: None, target: None };
        Ok(Outcome::of(fuzz::run(workspace, &options)?, "see the lines `fuzz:` above"))
    });

    let skipped_tests = skips.read()?;
    println!("\n{}", report.table(&skipped_tests));
    Ok(report.is_good())
}

/// Runs `cargo NAME ARGUMENTS`, where `NAME` comes with a part of the toolchain that may be
/// missing.
fn component(
    workspace: &Workspace,
    name: &str,
    part: &str,
    arguments: &[&str],
) -> anyhow::Result<Outcome> {
    if output(workspace.cargo().args([name, "--version"])).is_err() {
        return Ok(Outcome::Skipped(format!("not installed: rustup component add {part}")));
    }
    run_visibly(workspace.cargo().arg(name).args(arguments))
}

/// Which tests, by their marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marked {
    /// Those that `cargo test` runs.
    Usual,
    /// Those with `#[ignore]`, which fill a gigabyte and would hold up everyday work.
    Slow,
}

/// Runs tests, with nextest where it is installed: it ends a test that hangs.
fn tests(workspace: &Workspace, skips: &SkipLog, marked: Marked) -> anyhow::Result<Outcome> {
    let mut cargo = workspace.cargo();
    if output(workspace.cargo().args(["nextest", "--version"])).is_ok() {
        cargo.args(["nextest", "run", "--workspace"]);
        if marked == Marked::Slow {
            cargo.args(["--run-ignored", "only"]);
        }
    } else {
        cargo.args(["test", "--workspace", "--no-fail-fast"]);
        if marked == Marked::Slow {
            cargo.args(["--", "--ignored"]);
        }
    }
    run_visibly(cargo.env(skip_log::VARIABLE, skips.path()))
}

fn deny(workspace: &Workspace) -> anyhow::Result<Outcome> {
    if output(workspace.cargo().args(["deny", "--version"])).is_err() {
        let reason = "cargo-deny is not installed; tidy checked bans, licences and sources";
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    run_visibly(workspace.cargo().args(["deny", "check", "bans", "licenses", "sources"]))
}

/// Runs a program whose output the user sees.
fn run_visibly(command: &mut Command) -> anyhow::Result<Outcome> {
    let status = command.status().with_context(|| format!("start {command:?}"))?;
    Ok(Outcome::of(status.success(), &status.to_string()))
}

#[cfg(test)]
mod checks {
    use super::*;

    #[test]
    fn a_program_that_fails_is_not_passed() {
        assert_eq!(run_visibly(&mut Command::new("true")).unwrap(), Outcome::Passed);
        assert_eq!(
            run_visibly(&mut Command::new("false")).unwrap(),
            Outcome::Failed("exit status: 1".to_owned())
        );
        assert!(run_visibly(&mut Command::new("no-such-program")).is_err());
    }

    #[test]
    fn a_missing_part_of_the_toolchain_is_a_skip_with_its_remedy() {
        let workspace = Workspace::find().unwrap();
        assert_eq!(
            component(&workspace, "no-such-part", "part", &[]).unwrap(),
            Outcome::Skipped("not installed: rustup component add part".to_owned())
        );
    }
}
