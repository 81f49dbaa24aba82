//! The unit tests of the jail's control groups, which a host of version 1 cannot run in full.

use std::path::Path;

use crate::Check;
use crate::caller::Caller;
use crate::groups::{Groups, ROOT};

pub(crate) const CHECKS: &[Check] = &[("unit-tests", unit_tests)];

/// As root in the root of the hierarchy, where they may create any group. None may be skipped
/// except those of version 1, which does not exist here.
fn unit_tests(_: &Groups) -> String {
    let root = Caller { user: 0, group: Path::new(ROOT).to_owned() };
    let own = ["--test-threads=1", "--skip", "of_version_1", "cgroup::"];
    let outcome = root.program("jail-tests", &own);
    outcome.ends_with(0);
    assert!(!outcome.stderr.contains("SKIPPED"), "{}", outcome.stderr);
    let summary = outcome.stdout.lines().rfind(|line| line.starts_with("test result:"));
    summary.unwrap().to_owned()
}
