//! `cargo xtask check`: the checks for everyday work. They take about three minutes if little was
//! changed since the last time, and find most of what `cargo xtask ci` would.

use crate::arguments::Suite;
use crate::ci::report::Report;
use crate::ci::steps::{Outcome, Step};
use crate::ci::{clippy, fmt};
use crate::workspace::Workspace;
use crate::{programs, suites, tidy};

/// Runs every step, even if others fail; true when none failed.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    suites::require_nextest(workspace)?;
    let report = Report::new();
    report.run(fmt(workspace));
    let root = workspace.clone();
    let is_tidy = move || Ok(Outcome::of(tidy::run(&root)?, "see the lines `tidy:` above"));
    report.run(Step::function("tidy", is_tidy));
    report.run(clippy(workspace));
    let root = workspace.clone();
    report.run(Step::function("build", move || {
        programs::for_unit_tests(&root).map(|()| Outcome::Passed)
    }));
    report.run(Step::program("unit tests", suites::nextest(workspace, Suite::Unit)?));
    println!("\n{}", report.table(&[]));
    Ok(report.is_good())
}
