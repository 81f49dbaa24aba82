//! Sandboxes whose innermost namespaces the program bubblewrap makes: which launcher a keeper uses,
//! and whether that program is usable here. Everything else is the same for both launchers.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stockade_runtime::Unsupported;

/// The name of the program.
const PROGRAM: &str = "bwrap";
/// The oldest version that has all the arguments that are used.
const OLDEST: (u32, u32) = (0, 5);
/// Where the program is looked for if `PATH` is not set.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Why the sandboxes of bubblewrap have no capability for several users.
pub(crate) const ONE_USER: &str = "bubblewrap maps one user and one group only";
const INSTALL: &str = "apt-get install bubblewrap";
/// The settings with which a kernel refuses namespaces to ordinary users.
const ALLOW_NAMESPACES: &str = "sudo sysctl -w user.max_user_namespaces=65536 kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0";

/// What makes the innermost namespaces of a keeper's sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// Stockade itself.
    Own,
    /// The program bubblewrap.
    Bubblewrap,
}

impl Launcher {
    /// The name of the directory of its sandboxes in the data directory.
    pub(crate) const fn directory(self) -> &'static str {
        match self {
            Self::Own => "runtime",
            Self::Bubblewrap => "runtime-bwrap",
        }
    }
}

/// The path of the program, as `PATH` leads to it.
///
/// # Errors
/// It is not installed.
pub fn find() -> Result<PathBuf, Unsupported> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    find_in(&path).ok_or_else(|| Unsupported {
        reason: "the program `bwrap` is not installed".to_owned(),
        remedy: Some(INSTALL.to_owned()),
    })
}

fn find_in(path: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(PROGRAM))
        .find(is_program)
}

/// Checks that the program is installed, new enough, and may make namespaces here. Returns its path
/// and version. It takes the time of two short processes.
///
/// # Errors
/// Why it is not usable, and how to change that.
pub fn probe() -> Result<(PathBuf, String), Unsupported> {
    let program = find()?;
    let version = version(&program)?;
    let path = program.as_os_str();
    let words: [&OsStr; 13] = [
        "--unshare-user".as_ref(),
        "--unshare-pid".as_ref(),
        "--unshare-net".as_ref(),
        "--unshare-cgroup".as_ref(),
        "--ro-bind".as_ref(),
        "/".as_ref(),
        "/".as_ref(),
        "--proc".as_ref(),
        "/proc".as_ref(),
        "--clearenv".as_ref(),
        "--".as_ref(),
        path,
        "--version".as_ref(),
    ];
    match run(&program, &words) {
        Ok(_) => Ok((program, version)),
        Err(output) => {
            let output = output.trim().trim_start_matches("bwrap: ");
            let reason = format!("`{}` cannot make namespaces: {output}", program.display());
            Err(Unsupported { reason, remedy: Some(ALLOW_NAMESPACES.to_owned()) })
        }
    }
}

fn version(program: &Path) -> Result<String, Unsupported> {
    let unusable = |reason: String| Unsupported { reason, remedy: Some(INSTALL.to_owned()) };
    let output = run(program, &["--version".as_ref()]).map_err(|output| {
        unusable(format!("`{}` does not run: {}", program.display(), output.trim()))
    })?;
    let text = output.trim().trim_start_matches("bubblewrap ").to_owned();
    match parse_version(&text) {
        Some(found) if found >= OLDEST => Ok(text),
        Some(_) => {
            let (major, minor) = OLDEST;
            Err(unusable(format!(
                "`{}` has version {text}, and {major}.{minor} is the oldest that is supported",
                program.display()
            )))
        }
        None => Err(unusable(format!("`{}` is not bubblewrap", program.display()))),
    }
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Runs the program without an environment. Returns its output; as an error what it wrote about it.
fn run(program: &Path, words: &[&OsStr]) -> Result<String, String> {
    let command = Command::new(program).args(words).env_clear().stdin(Stdio::null()).output();
    let output = command.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    match String::from_utf8_lossy(&output.stderr) {
        text if text.trim().is_empty() => Err(output.status.to_string()),
        text => Err(text.into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_of_an_absolute_directory_is_found() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join(PROGRAM);
        let search = |directory: &Path| find_in(directory.as_os_str());
        assert_eq!(search(scratch.path()), None);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(search(scratch.path()), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(search(scratch.path()), Some(path));
        assert_eq!(search(Path::new("")), None);
        assert_eq!(search(Path::new(".")), None);
    }

    #[test]
    fn what_is_too_old_or_something_else_is_refused_with_the_remedy() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join(PROGRAM);
        for (output, expected) in
            [("bubblewrap 0.4.1", "has version 0.4.1"), ("hello", "is not bubblewrap")]
        {
            fs::write(&path, format!("#!/bin/sh\necho {output}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            let refused = version(&path).unwrap_err();
            assert!(refused.reason.contains(expected), "{refused:?}");
            assert_eq!(refused.remedy.as_deref(), Some(INSTALL));
        }
        assert!(parse_version("0.11.0").is_some_and(|version| version >= OLDEST));
        assert!(parse_version("1.0").is_some_and(|version| version >= OLDEST));
    }
}
