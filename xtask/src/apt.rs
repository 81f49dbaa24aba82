//! Debian's package manager, in non-interactive mode.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// Runs `apt-get VERB PACKAGES` in a directory, in which `download` stores files; the error is its
/// last line.
pub(crate) fn get(verb: &str, packages: &[&str], directory: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("apt-get");
    // In the run level of maintenance, no package starts its service.
    command.env("RUNLEVEL", "1");
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).current_dir(directory);
    command.args(["-qq", "-o", "Acquire::Retries=2", "-o", "DPkg::Lock::Timeout=120", verb]);
    if verb == "install" {
        command.args(["--yes", "--no-install-recommends"]);
    }
    let output = command.args(packages).output().context("start apt-get")?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::bail!(
        "apt-get {verb}: {}",
        errors.lines().last().unwrap_or("it failed without a message").trim()
    )
}
