//! The Debian packages with programs that the tests use, installed if that is allowed.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::Context as _;

use super::steps::Outcome;
use crate::workspace::is_installed;
use crate::{apt, guest};

/// Each program that the tests use, with its Debian package.
const PROGRAMS: &[(&str, &str)] = &[
    ("bwrap", "bubblewrap"),
    ("newuidmap", "uidmap"),
    ("git", "git"),
    ("ssh", "openssh-client"),
    ("sshd", "openssh-server"),
    ("update-ca-certificates", "ca-certificates"),
    ("nginx", "nginx-light"),
    ("go", "golang-go"),
    ("dockerd", "docker.io"),
    ("busybox", "busybox-static"),
    ("docker-registry", "docker-registry"),
    ("skopeo", "skopeo"),
    ("chromium", "chromium"),
    ("pg_ctlcluster", "postgresql"),
    ("faketime", "faketime"),
    guest::PACKAGE,
];

/// Installs missing programs, if that is allowed. A failure is a skip: the tests that need a
/// missing program report it themselves.
pub(super) fn install(may_install: bool) -> anyhow::Result<Outcome> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(Outcome::Passed);
    }
    let names = missing.join(" ");
    if !may_install {
        return Ok(Outcome::Skipped(format!(
            "installing was not requested (`--install`): apt-get install {names}"
        )));
    }
    if !is_root()? {
        return Ok(Outcome::Skipped(format!("not root: sudo apt-get install {names}")));
    }
    if !is_installed("apt-get") {
        return Ok(Outcome::Skipped(format!("no apt-get here; missing: {names}")));
    }
    if apt_get("install", &missing).is_err() {
        // The package lists may be old, or empty as in a new container.
        let installed = apt_get("update", &[]).and_then(|()| apt_get("install", &missing));
        if let Err(error) = installed {
            return Ok(Outcome::Skipped(format!("cannot install {names}: {error:#}")));
        }
    }
    Ok(Outcome::Passed)
}

fn missing() -> Vec<&'static str> {
    let missing = PROGRAMS.iter().filter(|(program, _)| !is_installed(program));
    missing.map(|(_, package)| *package).collect()
}

/// Whether root runs the checks.
pub(super) fn is_root() -> anyhow::Result<bool> {
    Ok(std::fs::metadata("/proc/self").context("inspect /proc/self")?.uid() == 0)
}

fn apt_get(verb: &str, packages: &[&str]) -> anyhow::Result<()> {
    apt::get(verb, packages, Path::new("/"))
}
