//! The programs of the distribution that the tests use, installed where that is allowed.

use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::report::Outcome;
use crate::workspace::is_installed;

/// Each program that the tests use, with its Debian package.
const PROGRAMS: &[(&str, &str)] =
    &[("bwrap", "bubblewrap"), ("newuidmap", "uidmap"), ("git", "git")];

/// Installs what is missing. A failure is a skip: the tests that need a missing program say so
/// themselves.
pub(super) fn install() -> anyhow::Result<Outcome> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(Outcome::Passed);
    }
    let names = missing.join(" ");
    if !is_root()? {
        return Ok(Outcome::Skipped(format!("not root: sudo apt-get install {names}")));
    }
    if !is_installed("apt-get") {
        return Ok(Outcome::Skipped(format!("no apt-get here; missing: {names}")));
    }
    if apt_get("install", &missing).is_err() {
        // The lists of packages may be old, or empty as in a fresh container.
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

fn is_root() -> anyhow::Result<bool> {
    Ok(std::fs::metadata("/proc/self").context("look at /proc/self")?.uid() == 0)
}

/// Runs apt-get without questions; the error is its last line.
fn apt_get(verb: &str, packages: &[&str]) -> anyhow::Result<()> {
    println!("apt-get {verb} {}", packages.join(" "));
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command.args(["-qq", "-o", "Acquire::Retries=2", "-o", "DPkg::Lock::Timeout=120", verb]);
    if verb == "install" {
        command.args(["--yes", "--no-install-recommends"]);
    }
    let output = command.args(packages).output().context("start apt-get")?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::bail!("{}", errors.lines().last().unwrap_or("apt-get failed without a word").trim())
}
