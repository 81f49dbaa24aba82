//! `cargo xtask crash runtime`: kills clients, keepers, their helpers and inits at random under load,
//! and looks at what is left. The work is done by `tests/crash`, a program of its own; this builds
//! it.

pub(crate) mod durable;
pub(crate) mod service;
pub(crate) mod workflow;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context as _, ensure};

use crate::arguments::CrashOptions;
use crate::workspace::Workspace;

/// Runs it; true when nothing was lost, done twice or left behind.
pub(crate) fn run(workspace: &Workspace, options: &CrashOptions) -> anyhow::Result<bool> {
    let package = ["build", "--quiet", "--package", "stockade-cli"];
    let built = workspace.cargo().args(package).args(["--bins", "--example", "crash"]).status()?;
    ensure!(built.success(), "stockade does not build");
    let built = workspace.target_directory()?.join("debug");
    let seed = seed(options)?;
    let place = options.user.map(|_| Place::with_programs_of(&built)).transpose()?;
    let (crash, stockade) = match &place {
        Some(Place(place)) => (place.join("crash"), place.join("stockade")),
        None => (built.join("examples/crash"), built.join("stockade")),
    };
    let mut command = Command::new(crash);
    command.arg("run").arg(stockade).args([options.kills.to_string(), seed.to_string()]);
    if let Some(user) = options.user {
        command.uid(user).gid(user).current_dir("/");
    }
    let status = command.status().context("start the program that kills")?;
    Ok(status.success())
}

/// A directory with the programs where every user can run them.
struct Place(PathBuf);

impl Place {
    fn with_programs_of(built: &Path) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("stockade-programs-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
        let place = Self(path);
        let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        open(&place.0).context("open the programs' directory to all")?;
        for (program, name) in [("examples/crash", "crash"), ("stockade", "stockade")] {
            let (from, to) = (built.join(program), place.0.join(name));
            fs::copy(&from, &to).with_context(|| format!("copy {}", from.display()))?;
            open(&to).context("open a program to all")?;
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Left in the temporary directory, it harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The seed that was given, else one of the clock.
fn seed(options: &CrashOptions) -> anyhow::Result<u64> {
    match options.seed {
        Some(seed) => Ok(seed),
        None => Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs()),
    }
}
