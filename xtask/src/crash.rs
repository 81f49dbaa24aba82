//! `cargo xtask crash runtime`: kills clients, keepers, their helpers and inits at random under
//! load, and checks what is left. `tests/programs/crash` does the work; this builds it.

pub(crate) mod programs;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::Context as _;

use crate::arguments::{CrashOptions, CrashRuntimeOptions};
use crate::programs::{RustWorkflow, for_crash_tests};
use crate::workspace::Workspace;

/// Runs it; true when nothing was lost, done twice or left behind.
pub(crate) fn run(workspace: &Workspace, options: &CrashRuntimeOptions) -> anyhow::Result<bool> {
    let built = for_crash_tests(workspace, "crash")?;
    let CrashRuntimeOptions { crash, user } = options;
    let seed = seed(crash)?;
    let dir = user.map(|_| ProgramCopy::with(&built)).transpose()?;
    let (program, stockade) = match dir.as_ref() {
        Some(ProgramCopy(place)) => (place.join("crash"), place.join("stockade")),
        None => (built.program, built.stockade),
    };
    let mut command = Command::new(program);
    command.arg("run").arg(stockade).args([crash.kills.to_string(), seed.to_string()]);
    if let Some(user) = user {
        command.uid(*user).gid(*user).current_dir("/");
    }
    let status = command.status().context("start the program that kills")?;
    Ok(status.success())
}

/// A directory with the programs, in which every user can execute them.
struct ProgramCopy(PathBuf);

impl ProgramCopy {
    fn with(built: &RustWorkflow) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("stockade-programs-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
        let dir = Self(path);
        let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        open(&dir.0).context("open the programs' directory to all")?;
        let server = built.stockade.with_file_name("stockade-server");
        for (from, name) in
            [(&built.program, "crash"), (&built.stockade, "stockade"), (&server, "stockade-server")]
        {
            let to = dir.0.join(name);
            fs::copy(from, &to).with_context(|| format!("copy {}", from.display()))?;
            open(&to).context("open a program to all")?;
        }
        Ok(dir)
    }
}

impl Drop for ProgramCopy {
    fn drop(&mut self) {
        // A leftover in the temporary directory does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The given seed, or one from the clock.
fn seed(options: &CrashOptions) -> anyhow::Result<u64> {
    match options.seed {
        Some(seed) => Ok(seed),
        None => Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs()),
    }
}
