//! The packages of npm and PyPI that the tests use, installed below the target directory if that is
//! allowed: pinned by a lock file with hashes, and no script of them runs during installation.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::steps::Outcome;
use crate::workspace::{Workspace, is_installed};

/// The directory of the lock files.
const LOCKS: &str = "tests/packages";
/// Below the target directory: `CARGO_TARGET_TMPDIR` of the tests.
const INSTALLED: &str = "tmp/packages";
/// A copy of the lock file of what was installed.
const STAMP: &str = "installed";

/// The directories of packages of npm, and those of their lock files.
const DIRECTORIES: [(&str, &str); 3] = [("npm", ""), ("mcp", "mcp"), ("browser", "browser")];
/// Those that only `ci --all` installs.
const MORE_DIRECTORIES: [(&str, &str); 1] = [("computesdk", "computesdk")];

/// Installs the packages of npm in `node_modules` of a directory for each use.
pub(super) fn npm(workspace: &Workspace, all: bool) -> anyhow::Result<Outcome> {
    let more = if all { MORE_DIRECTORIES.as_slice() } else { &[] };
    for (name, locks) in DIRECTORIES.iter().chain(more) {
        match node_modules(workspace, name, Path::new(locks))? {
            Outcome::Passed => {}
            other => return Ok(other),
        }
    }
    Ok(Outcome::Passed)
}

fn node_modules(workspace: &Workspace, name: &str, locks: &Path) -> anyhow::Result<Outcome> {
    let lock = locks.join("package-lock.json");
    let dir = PackageDir::new(workspace, name, lock)?;
    if dir.is_current() {
        return Ok(Outcome::Passed);
    }
    if !is_installed("npm") {
        return Ok(Outcome::Skipped("npm is not installed".to_owned()));
    }
    dir.clear()?;
    for name in ["package.json", "package-lock.json"] {
        let from = workspace.root.join(LOCKS).join(locks).join(name);
        std::fs::copy(from, dir.directory.join(name))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    dir.install(&mut [npm])
}

/// The virtual environments, which need other versions of the same packages, and their lock files.
const ENVIRONMENTS: [(&str, &str); 9] = [
    ("python", "requirements.txt"),
    ("e2b", "e2b.txt"),
    ("e2b-old", "e2b-old.txt"),
    ("opensandbox", "opensandbox.txt"),
    ("opensandbox-old", "opensandbox-old.txt"),
    ("langchain", "langchain.txt"),
    ("langchain-e2b", "langchain-e2b.txt"),
    ("schemathesis", "schemathesis.txt"),
    ("sdk", "sdk.txt"),
];

/// Those of frameworks and of a server, which only `ci --all` installs: the name, the lock file, and the minor version
/// of Python 3 that the packages need.
const MORE_ENVIRONMENTS: [(&str, &str, u32); 5] = [
    ("hypercorn", "hypercorn.txt", 11),
    ("openai-agents", "openai-agents.txt", 10),
    ("smolagents", "smolagents.txt", 10),
    ("inspect", "inspect.txt", 12),
    ("harbor", "harbor.txt", 12),
];
/// The latest minor version of Python 3 that is looked for.
const LATEST_PYTHON: u32 = 14;

/// Installs the packages of PyPI in virtual environments.
pub(super) fn pypi(workspace: &Workspace, all: bool) -> anyhow::Result<Outcome> {
    for (name, lock) in ENVIRONMENTS {
        match environment(workspace, "python3", (name, lock))? {
            Outcome::Passed => {}
            other => return Ok(other),
        }
    }
    let mut skipped = None;
    for (name, lock, minor) in MORE_ENVIRONMENTS.iter().filter(|_| all) {
        let outcome = match python(*minor) {
            Some(python) => environment(workspace, &python, (*name, *lock))?,
            None => Outcome::Skipped(format!("{name} needs Python 3.{minor} or later")),
        };
        if let Outcome::Skipped(reason) = outcome {
            skipped = Some(reason);
        }
    }
    Ok(skipped.map_or(Outcome::Passed, Outcome::Skipped))
}

/// The name of an interpreter of Python 3 of this minor version or a later one.
fn python(minor: u32) -> Option<String> {
    let versions = (minor..=LATEST_PYTHON).map(|minor| format!("python3.{minor}"));
    std::iter::once("python3".to_owned()).chain(versions).find(|name| {
        let check = format!("import sys; sys.exit(sys.version_info < (3, {minor}))");
        let mut python = Command::new(name);
        python.args(["-c", &check]).stdin(Stdio::null());
        python.output().is_ok_and(|output| output.status.success())
    })
}

fn environment(
    workspace: &Workspace,
    python: &str,
    (name, lock): (&str, &str),
) -> anyhow::Result<Outcome> {
    let dir = PackageDir::new(workspace, name, lock)?;
    if dir.is_current() {
        return Ok(Outcome::Passed);
    }
    if !is_installed("python3") {
        return Ok(Outcome::Skipped("python3 is not installed".to_owned()));
    }
    dir.clear()?;
    let mut environment = Command::new(python);
    environment.args(["-m", "venv", "."]);
    let mut pip = Command::new(dir.directory.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip.args(["--require-hashes", "--only-binary", ":all:", "--requirement"]).arg(&dir.lock);
    dir.install(&mut [environment, pip])
}

/// A directory with the packages of a lock file.
struct PackageDir {
    directory: PathBuf,
    lock: PathBuf,
    lock_content: String,
}

impl PackageDir {
    fn new(workspace: &Workspace, name: &str, lock: impl AsRef<Path>) -> anyhow::Result<Self> {
        let lock = workspace.root.join(LOCKS).join(lock);
        let locked =
            std::fs::read_to_string(&lock).with_context(|| format!("read {}", lock.display()))?;
        let directory = workspace.target_directory()?.join(INSTALLED).join(name);
        Ok(Self { directory, lock, lock_content: locked })
    }

    fn stamp(&self) -> PathBuf {
        self.directory.join(STAMP)
    }

    fn is_current(&self) -> bool {
        std::fs::read_to_string(self.stamp()).is_ok_and(|installed| installed == self.lock_content)
    }

    fn clear(&self) -> anyhow::Result<()> {
        if self.directory.exists() {
            std::fs::remove_dir_all(&self.directory)?;
        }
        std::fs::create_dir_all(&self.directory)?;
        Ok(())
    }

    /// Runs the commands in the directory. A failure is a skip: the tests that need a package
    /// report it themselves.
    fn install(&self, commands: &mut [Command]) -> anyhow::Result<Outcome> {
        for command in commands {
            if let Err(error) = run_quietly(command, &self.directory) {
                return Ok(Outcome::Skipped(format!("cannot install: {error:#}")));
            }
        }
        std::fs::write(self.stamp(), &self.lock_content)?;
        Ok(Outcome::Passed)
    }
}

/// Runs a program in a directory; the error is its last line.
fn run_quietly(command: &mut Command, directory: &Path) -> anyhow::Result<()> {
    let command = command.current_dir(directory).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::bail!("{}", errors.lines().last().unwrap_or("it failed without a message").trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_is_found_by_its_version() {
        assert_eq!(python(0).as_deref(), is_installed("python3").then_some("python3"));
        assert_eq!(python(LATEST_PYTHON + 1), None);
    }

    #[test]
    fn what_is_installed_is_what_the_lock_says() {
        let directory = std::env::temp_dir().join(format!("stockade-ci-{}", std::process::id()));
        let dir = PackageDir {
            directory: directory.join("npm"),
            lock: PathBuf::new(),
            lock_content: "a 1.0".to_owned(),
        };
        assert!(!dir.is_current());
        dir.clear().unwrap();
        let failed = dir.install(&mut [Command::new("false")]).unwrap();
        assert!(matches!(failed, Outcome::Skipped(_)), "{failed:?}");
        assert!(!dir.is_current());
        assert_eq!(dir.install(&mut [Command::new("true")]).unwrap(), Outcome::Passed);
        assert!(dir.is_current());
        assert!(!PackageDir { lock_content: "a 2.0".to_owned(), ..dir }.is_current());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
