//! One step of `ci`: what it runs, and its result.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It ran and found nothing.
    Passed,
    /// It ran and found something, or could not finish: the reason.
    Failed(String),
    /// It cannot run here: the reason, and the remedy.
    Skipped(String),
}

impl Outcome {
    /// Passed when `good`, otherwise failed for that reason.
    pub(crate) fn of(good: bool, reason: &str) -> Self {
        if good { Self::Passed } else { Self::Failed(reason.to_owned()) }
    }

    /// The name in the table.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "FAILED",
            Self::Skipped(_) => "skipped",
        }
    }
}

/// The exit code of an xtask command that cannot run here. The last line of its output is the
/// reason.
pub(crate) const CANNOT_RUN: u8 = 77;

/// A named step that was not run yet.
pub(crate) struct Step {
    pub(super) name: &'static str,
    work: Work,
}

type Function = Box<dyn FnOnce() -> anyhow::Result<Outcome> + Send>;

enum Work {
    /// A function that prints nothing.
    Function(Function),
    /// A program.
    Program(Box<Command>),
}

impl Step {
    /// A step that runs a function, which prints nothing.
    pub(crate) fn function(
        name: &'static str,
        function: impl FnOnce() -> anyhow::Result<Outcome> + Send + 'static,
    ) -> Self {
        Self { name, work: Work::Function(Box::new(function)) }
    }

    /// A step that runs a program.
    pub(crate) fn program(name: &'static str, command: Command) -> Self {
        Self { name, work: Work::Program(Box::new(command)) }
    }

    /// A step that cannot run here.
    pub(crate) fn skipped(name: &'static str, reason: String) -> Self {
        Self::function(name, || Ok(Outcome::Skipped(reason)))
    }

    /// Runs it with the output of this process.
    pub(super) fn run_visibly(self) -> anyhow::Result<Outcome> {
        match self.work {
            Work::Function(function) => function(),
            Work::Program(mut command) => {
                let status = command.status().with_context(|| format!("start {command:?}"))?;
                Ok(Outcome::of(status.success(), &status.to_string()))
            }
        }
    }

    /// Runs it, and stores the output of a program in a file with its name in `directory`. A file,
    /// because with a pipe, a process that the program leaves behind would keep this one waiting
    /// for its end.
    pub(super) fn run_into(self, directory: &Path) -> anyhow::Result<(Outcome, String)> {
        let mut command = match self.work {
            Work::Function(function) => return Ok((function()?, String::new())),
            Work::Program(command) => command,
        };
        let path = log(directory, self.name);
        let file = File::create(&path).with_context(|| format!("make {}", path.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let status = command.status().with_context(|| format!("start {command:?}"))?;
        let written = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let written = String::from_utf8_lossy(&written).into_owned();
        let outcome = if status.code() == Some(CANNOT_RUN.into()) {
            Outcome::Skipped(written.lines().last().unwrap_or_default().to_owned())
        } else {
            let reason = format!("{status}: see its output, also in {}", path.display());
            Outcome::of(status.success(), &reason)
        };
        Ok((outcome, written))
    }
}

fn log(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{}.log", name.replace(' ', "-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Step {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Step::program("a step", command)
    }

    fn run(script: &str) -> (Outcome, String) {
        let dir = std::env::temp_dir().join(format!("stockade-step-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let outcome = shell(script).run_into(&dir).unwrap();
        std::fs::remove_dir_all(dir).unwrap();
        outcome
    }

    #[test]
    fn a_program_that_fails_is_not_passed() {
        assert_eq!(shell("true").run_visibly().unwrap(), Outcome::Passed);
        assert_eq!(
            shell("false").run_visibly().unwrap(),
            Outcome::Failed("exit status: 1".to_owned())
        );
        let missing = Step::program("a step", Command::new("no-such-program"));
        assert!(missing.run_visibly().is_err());
    }

    #[test]
    fn what_a_program_writes_is_kept_whatever_it_leaves_behind() {
        let (outcome, written) = run("echo out; echo error >&2; sleep 5 &");
        assert_eq!((outcome, written.as_str()), (Outcome::Passed, "out\nerror\n"));
    }

    #[test]
    fn a_program_that_cannot_run_says_why_in_its_last_line() {
        let (outcome, _) = run(&format!("echo begin; echo no kernel; exit {CANNOT_RUN}"));
        assert_eq!(outcome, Outcome::Skipped("no kernel".to_owned()));
        let (outcome, _) = run("exit 3");
        assert!(
            matches!(outcome, Outcome::Failed(reason) if reason.starts_with("exit status: 3: "))
        );
    }
}
