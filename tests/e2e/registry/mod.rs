//! Images from registries: Debian's `docker-registry` on the loopback, with images that the tests
//! make and `skopeo` pushes; and a registry of the tests' own that answers slowly.

mod archives;
mod credentials;
pub(crate) mod interrupted;
mod pull;
pub(crate) mod sample;
mod server;

use std::process::Command;

use crate::harness::skip;

/// Whether the programs that a test needs are installed; if not, the test is recorded as skipped.
fn has_programs(test: &str) -> bool {
    for (program, argument) in [("docker-registry", "--version"), ("skopeo", "--version")] {
        let output = Command::new(program).arg(argument).output();
        if !output.is_ok_and(|output| output.status.success()) {
            skip(test, &format!("{program} is not installed (package {program})"));
            return false;
        }
    }
    true
}
