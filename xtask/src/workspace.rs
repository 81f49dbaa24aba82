//! The location of the workspace, its files, and functions that run programs in it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// The workspace of the current directory.
#[derive(Debug, Clone)]
pub(crate) struct Workspace {
    /// The directory of the workspace's `Cargo.toml`.
    pub(crate) root: PathBuf,
}

impl Workspace {
    /// Finds the workspace with cargo.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let manifest = output(
            cargo().args(["locate-project", "--workspace"]).args(["--message-format", "plain"]),
        )?;
        let root = Path::new(manifest.trim()).parent().context("Cargo.toml has no directory")?;
        Ok(Self { root: root.to_owned() })
    }

    /// A cargo command that starts in the root.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = cargo();
        command.current_dir(&self.root);
        command
    }

    /// The output of `cargo metadata` about the workspace, with or without its dependencies.
    pub(crate) fn metadata(&self, dependencies: bool) -> anyhow::Result<Value> {
        let mut command = self.cargo();
        command.args(["metadata", "--format-version", "1"]);
        if dependencies {
            // Packages that are never built for this platform need not be downloaded.
            command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
        } else {
            command.arg("--no-deps");
        }
        serde_json::from_str(&output(&mut command)?).context("cargo metadata is not JSON")
    }

    /// The directory that cargo builds into.
    pub(crate) fn target_directory(&self) -> anyhow::Result<PathBuf> {
        let metadata = self.metadata(false)?;
        let directory = metadata["target_directory"].as_str();
        Ok(PathBuf::from(directory.context("cargo metadata names no target directory")?))
    }

    /// The files of the project, as paths below the root: what git tracks or would track, or in a
    /// tree without git every file outside `target`.
    pub(crate) fn files(&self) -> anyhow::Result<Vec<String>> {
        let mut files = if self.root.join(".git").exists() {
            // The tree may belong to a user other than the one who checks it.
            let mut git = Command::new("git");
            git.current_dir(&self.root).args(["-c", "safe.directory=*", "ls-files", "-z"]);
            git.args(["--cached", "--others", "--exclude-standard", "--deduplicate"]);
            let listed = output(&mut git)?;
            listed.split_terminator('\0').map(str::to_owned).collect()
        } else {
            let mut walked = Vec::new();
            walk(&self.root, "", &mut walked)?;
            walked
        };
        files.retain(|path| self.root.join(path).is_file());
        files.sort();
        ensure!(!files.is_empty(), "{} holds no files", self.root.display());
        Ok(files)
    }
}

fn walk(directory: &Path, prefix: &str, found: &mut Vec<String>) -> anyhow::Result<()> {
    let entries =
        std::fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().with_context(|| format!("{prefix}{name:?} is not UTF-8"))?;
        let path = format!("{prefix}{name}");
        if !entry.file_type()?.is_dir() {
            found.push(path);
        } else if path != "target" && name != "node_modules" {
            walk(&entry.path(), &format!("{path}/"), found)?;
        }
    }
    Ok(())
}

/// The cargo that runs this program, or the one in `PATH`. It does not get the variables about this
/// program's package that `cargo run` sets: build scripts read them, so a dependency would be built
/// again whenever cargo is called alternately by a user and by this program.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_about_this_package(name)) {
        cargo.env_remove(name);
    }
    cargo
}

fn is_about_this_package(variable: &OsStr) -> bool {
    let name = variable.to_string_lossy();
    ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|start| name.starts_with(start))
}

/// The standard output of a program; an error when it fails.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("start {name}"))?;
    ensure!(
        output.status.success(),
        "{name}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    String::from_utf8(output.stdout).with_context(|| format!("{name} printed no UTF-8"))
}

/// Whether a program of that name is in `PATH`.
pub(crate) fn is_installed(program: &str) -> bool {
    find_program(program).is_some()
}

/// The program of that name in `PATH`.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_found_with_its_files() {
        let workspace = Workspace::find().unwrap();
        let files = workspace.files().unwrap();
        for expected in ["Cargo.toml", "xtask/src/workspace.rs"] {
            assert!(files.iter().any(|file| file == expected), "{expected}");
        }
        assert!(!files.iter().any(|file| file.starts_with(".git/")));
    }

    #[test]
    fn cargo_tests_crates_and_runs_the_program_of_the_product() {
        let metadata = Workspace::find().unwrap().metadata(false).unwrap();
        let members = metadata["workspace_default_members"].as_array().unwrap();
        let crates = |member: &&Value| member.as_str().unwrap().contains("/crates/");
        assert_eq!(members.iter().filter(crates).count(), members.len(), "{members:?}");
        let folders = std::fs::read_dir(Workspace::find().unwrap().root.join("crates")).unwrap();
        assert_eq!(members.len(), folders.count(), "{members:?}");
        let packages = metadata["packages"].as_array().unwrap();
        let programs: Vec<_> =
            packages.iter().filter_map(|package| package["default_run"].as_str()).collect();
        assert_eq!(programs, ["stockade"]);
    }

    #[test]
    fn without_git_the_tree_is_walked() {
        let mut walked = Vec::new();
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        walk(here, "", &mut walked).unwrap();
        assert!(walked.iter().any(|file| file == "src/workspace.rs"), "{walked:?}");
    }

    #[test]
    fn cargo_is_called_as_by_hand() {
        for name in ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_PKG_VERSION"] {
            assert!(is_about_this_package(OsStr::new(name)), "{name}");
        }
        for name in ["CARGO_TARGET_DIR", "CARGO_INCREMENTAL", "CARGO", "PATH"] {
            assert!(!is_about_this_package(OsStr::new(name)), "{name}");
        }
        // Cargo has set some for this test.
        let removed = cargo();
        let mut removed = removed.get_envs().filter(|(_, value)| value.is_none());
        assert!(removed.any(|(name, _)| name == "CARGO_MANIFEST_DIR"));
    }

    #[test]
    fn a_failing_program_is_an_error_with_its_reason() {
        let error = output(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().ends_with("exit status: 3: why"), "{error}");
        assert!(is_installed("sh"));
        assert!(!is_installed("no-such-program"));
    }
}
