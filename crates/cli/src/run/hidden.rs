//! Programs that the host has and the sandbox does not show: what a user is told about a command
//! that was not found, or that is another one than outside.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use stockade_core::access::SYSTEM;
use stockade_core::ending::Step;
use stockade_core::sandbox::Root;
use stockade_core::{Ending, SandboxSpec};
use stockade_plan::environment::PATH;

/// The longest chain of links and interpreters that is followed.
const MAX_HOPS: usize = 16;
/// The longest first line of a script that the kernel reads (`BINPRM_BUF_SIZE`).
const MAX_LINE_BYTES: u64 = 256;
/// Directories of `/usr` have no better name than this; those of users are mounted with what lies
/// beside their programs.
const PROGRAM_DIRECTORIES: [&str; 2] = ["bin", "sbin"];

/// What the sandbox shows of the host.
pub(super) struct Shown<'a> {
    spec: &'a SandboxSpec,
    home: Option<&'a Path>,
}

impl<'a> Shown<'a> {
    pub(super) fn new(spec: &'a SandboxSpec, home: Option<&'a Path>) -> Self {
        Self { spec, home }
    }

    fn has(&self, path: &Path) -> bool {
        let workspace = self.spec.workspace.iter().map(|workspace| workspace.inside.as_path());
        let mounts = self.spec.mounts.iter().map(|mount| mount.inside.as_path());
        SYSTEM.iter().map(Path::new).chain(workspace).chain(mounts).any(|top| path.starts_with(top))
    }

    /// What the user can do about a command that did not start.
    pub(super) fn hint(&self, command: &[OsString], ending: &Ending) -> Option<String> {
        let Ending::NotRun { step: Step::RunProgram, .. } = ending else { return None };
        let name = command.first()?;
        if Path::new(name).components().count() > 1 || name.as_bytes().contains(&b'/') {
            let directory = self.spec.working_directory.as_deref()?;
            return self.missing(&directory.join(name));
        }
        let hidden = self.hidden_program(name, std::env::var_os("PATH").as_ref())?;
        let directory = hidden.parent()?.display().to_string();
        let needs = self.directories(&hidden);
        Some(format!(
            "{} exists on the host but is not visible in the sandbox; add {} --env PATH={directory}:{PATH}",
            hidden.display(),
            mounts(&needs)
        ))
    }

    /// That a command is another program than outside.
    pub(super) fn note(&self, command: &[OsString], ending: &Ending) -> Option<String> {
        let is_other = self.spec.root != Root::Host || self.spec.environment.contains_key("PATH");
        if is_other || matches!(ending, Ending::NotRun { .. }) {
            return None;
        }
        let name = command.first()?;
        if name.as_bytes().contains(&b'/') {
            return None;
        }
        let outside = first_on(name, std::env::var_os("PATH").as_ref()?)?;
        let inside = first_on(name, OsStr::new(PATH))?;
        let is_same = || Some(outside.canonicalize().ok()? == inside.canonicalize().ok()?);
        if self.has(&outside) || is_same() == Some(true) {
            return None;
        }
        let directory = outside.parent()?.display().to_string();
        Some(format!(
            "{} was {}, because {} is not visible in the sandbox; for that add {} --env PATH={directory}:{PATH}",
            name.to_string_lossy(),
            inside.display(),
            outside.display(),
            mounts(&self.directories(&outside))
        ))
    }

    /// The first link or interpreter on the way to a program that is not visible inside.
    fn missing(&self, program: &Path) -> Option<String> {
        let (from, to) = hops(program).into_iter().find(|(_, to)| !self.has(to))?;
        if !to.exists() {
            return Some(format!(
                "{} needs {}, which does not exist",
                from.display(),
                to.display()
            ));
        }
        Some(format!(
            "{} needs {}, which is not visible in the sandbox; add {}",
            from.display(),
            to.display(),
            mounts(&self.directories(program))
        ))
    }

    /// The directories that have to be mounted for a program.
    fn directories(&self, program: &Path) -> BTreeSet<PathBuf> {
        let all = hops(program).into_iter().map(|(_, to)| to).chain([program.to_owned()]);
        let hidden = all.filter(|path| !self.has(path));
        let all: BTreeSet<_> = hidden.filter_map(|path| self.directory_of(&path)).collect();
        let is_covered =
            |one: &PathBuf| all.iter().any(|other| other != one && one.starts_with(other));
        all.iter().filter(|one| !is_covered(one)).cloned().collect()
    }

    /// The directory of a program: with its libraries where that is a directory of its own.
    fn directory_of(&self, program: &Path) -> Option<PathBuf> {
        let directory = program.parent()?;
        let above = directory.parent().filter(|above| {
            let is_home = self.home.is_some_and(|home| home.starts_with(above));
            let is_own = above.components().count() > 2
                && above.file_name().is_some_and(|name| name != ".local");
            !is_home && is_own
        });
        let is_of_programs = directory
            .file_name()
            .is_some_and(|name| PROGRAM_DIRECTORIES.iter().any(|known| name == *known));
        Some(above.filter(|_| is_of_programs).unwrap_or(directory).to_owned())
    }

    /// The path of a program on the host, if the sandbox does not contain it.
    fn hidden_program(&self, name: &OsStr, path: Option<&OsString>) -> Option<PathBuf> {
        std::env::split_paths(path?)
            .map(|directory| directory.join(name))
            .find(|candidate| !self.has(candidate) && candidate.is_file())
    }
}

/// The flags that mount these directories.
fn mounts(directories: &BTreeSet<PathBuf>) -> String {
    let flags =
        directories.iter().map(|directory| format!("--mount {0}:{0}:ro", directory.display()));
    flags.collect::<Vec<_>>().join(" ")
}

fn first_on(name: &OsStr, path: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    std::env::split_paths(path).map(|directory| directory.join(name)).find(is_program)
}

/// The links and interpreters that lead from a program to what the kernel executes, each with the
/// file that names it.
fn hops(program: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    let mut at = program.to_owned();
    while found.len() < MAX_HOPS {
        let next = match std::fs::read_link(&at) {
            Ok(target) => at.parent().unwrap_or(&at).join(target),
            Err(_) => match interpreter(&at) {
                Some(interpreter) => interpreter,
                None => break,
            },
        };
        found.push((at, next.clone()));
        at = next;
    }
    found
}

/// The program that a script's first line names.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    let file = std::fs::File::open(script).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    file.take(MAX_LINE_BYTES).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let path = line.split(|byte| matches!(byte, b' ' | b'\t')).next()?;
    let path = PathBuf::from(OsStr::from_bytes(path));
    path.is_absolute().then_some(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use stockade_core::sandbox::Workspace;

    use super::*;

    #[test]
    fn a_link_and_an_interpreter_outside_are_named_with_their_mounts() {
        let top = tempfile::tempdir().unwrap();
        let (project, tool) = (top.path().join("p"), top.path().join("home/.pyenv"));
        std::fs::create_dir_all(project.join(".venv/bin")).unwrap();
        std::fs::create_dir_all(tool.join("bin")).unwrap();
        std::fs::write(tool.join("bin/python"), "#!/bin/sh\n").unwrap();
        symlink(tool.join("bin/python"), project.join(".venv/bin/python")).unwrap();
        let script = format!("#!{} -s\nx\n", tool.join("bin/python").display());
        std::fs::write(project.join("script"), script).unwrap();
        std::fs::write(project.join("lost"), "#!/no/such/program\n").unwrap();
        let spec = SandboxSpec {
            workspace: Some(Workspace { host: project.clone(), inside: project.clone() }),
            working_directory: Some(project),
            ..SandboxSpec::default()
        };
        let shown = Shown::new(&spec, None);
        let ending = Ending::NotRun { errno: 2, step: Step::RunProgram };
        let hint = |name: &str| shown.hint(&[name.into()], &ending).unwrap_or_default();
        let mount = format!("--mount {0}:{0}:ro", tool.display());
        for name in [".venv/bin/python", "./script"] {
            assert!(hint(name).contains(&mount), "{}", hint(name));
        }
        assert!(hint("./lost").contains("/no/such/program, which does not exist"));
        assert_eq!(hint("./nosuch"), "");
        assert_eq!(shown.hint(&["./script".into()], &Ending::Exited(1)), None);
    }

    #[test]
    fn a_home_is_not_named_as_a_whole() {
        let spec = SandboxSpec::default();
        let shown = Shown::new(&spec, Some(Path::new("/home/me")));
        for (program, directory) in [
            ("/home/me/bin/x", "/home/me/bin"),
            ("/home/me/.local/bin/x", "/home/me/.local/bin"),
            ("/home/me/.cargo/bin/cargo", "/home/me/.cargo"),
            ("/opt/bin/x", "/opt/bin"),
            ("/opt/tool/bin/x", "/opt/tool"),
        ] {
            assert_eq!(shown.directory_of(Path::new(program)).unwrap(), Path::new(directory));
        }
    }
}
