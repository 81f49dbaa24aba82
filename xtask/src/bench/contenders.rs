//! The contenders: the floor, Stockade, and comparable programs that run on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context as _, ensure};

use crate::arguments::BenchOptions;
use crate::workspace::{is_installed, output};

/// The contender that has a goal: a run as a user starts it.
pub(super) const RUN: &str = "stockade run";
/// The same with a copy of the system directories.
const PRIVATE_BASE: &str = "stockade run --private-base";

/// The contender to which ratios refer.
pub(super) const BASE: &str = "bwrap";
/// A sandbox of the library sandlock, and what of its time is the interpreter's.
const SANDLOCK: &str = "sandlock, with python";
const INTERPRETER: &str = "python alone";
const SANDLOCK_RUN: &str = "import sandlock, sys\n\
    paths = ['/usr', '/lib', '/lib64', '/bin', '/etc']\n\
    sys.exit(sandlock.Sandbox(fs_readable=paths).run(['/bin/true']).exit_code)";
const SANDLOCK_IMPORT: &str = "import sandlock";
/// The variable with the interpreter that has the library.
const PYTHON: &str = "STOCKADE_BENCH_PYTHON";

/// One command that is started repeatedly.
#[derive(Debug)]
pub(super) struct Contender {
    /// The name in the table.
    pub(super) name: &'static str,
    arguments: Vec<OsString>,
    directory: Option<PathBuf>,
    environment: Vec<(&'static str, PathBuf)>,
    /// It takes part in each round that is divisible by this: slow contenders run less often.
    pub(super) every: usize,
}

/// A comparable program that does not run here.
#[derive(Debug)]
pub(super) struct Skipped {
    /// The name it would have in the table.
    pub(super) name: &'static str,
    /// Why it does not run.
    pub(super) reason: String,
}

impl Contender {
    /// A command line with the caller's directory and environment.
    pub(super) fn new(name: &'static str, words: &[&str], every: usize) -> Self {
        let words = words.iter().map(OsString::from).collect();
        Self { name, arguments: words, directory: None, environment: Vec::new(), every }
    }

    /// The command, created again for each start; its output is discarded.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.arguments[0]);
        command.args(&self.arguments[1..]).envs(self.environment.iter().map(|(k, v)| (k, v)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }

    /// The command line as a user would write it.
    pub(super) fn line(&self) -> String {
        let program = Path::new(&self.arguments[0]);
        let program = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
        let rest = self.arguments[1..].iter().map(|word| word.to_string_lossy());
        std::iter::once(program).chain(rest).collect::<Vec<_>>().join(" ")
    }
}

/// A new git project and a data directory, removed at the end.
#[derive(Debug)]
pub(super) struct Scene {
    stockade: PathBuf,
    directory: PathBuf,
}

impl Scene {
    /// Creates the project and checks that the sandbox runs in it.
    pub(super) fn create(stockade: &Path) -> anyhow::Result<Self> {
        let nanoseconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
        let directory = std::env::temp_dir().join(format!("stockade-bench-{nanoseconds}"));
        std::fs::create_dir(&directory).context("make the scene's directory")?;
        let scene = Self { stockade: stockade.to_owned(), directory };
        std::fs::create_dir(scene.project()).context("make the project's directory")?;
        std::fs::write(scene.project().join("README.md"), "A project.\n")?;
        output(Command::new("git").args(["init", "--quiet"]).arg(scene.project()))
            .context("a git project is needed")?;
        output(scene.stockade(RUN, &["run", "--", "true"]).command().stderr(Stdio::piped()))
            .context("stockade does not run here")?;
        Ok(scene)
    }

    fn project(&self) -> PathBuf {
        self.directory.join("project")
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// A stockade command in the project.
    fn stockade(&self, name: &'static str, arguments: &[&str]) -> Contender {
        let mut contender = Contender::new(name, arguments, 1);
        contender.arguments.insert(0, self.stockade.clone().into());
        contender.directory = Some(self.project());
        contender.environment = vec![("STOCKADE_DATA_DIR", self.data())];
        contender
    }

    /// The contenders that can run here, and those that cannot.
    pub(super) fn contenders(&self, options: &BenchOptions) -> (Vec<Contender>, Vec<Skipped>) {
        let mut contenders = vec![
            Contender::new("floor", &["/bin/true"], 1),
            self.stockade("stockade run --discard", &["run", "--discard", "--", "true"]),
            self.stockade(RUN, &["run", "--", "true"]),
        ];
        let mut skipped = Vec::new();
        if options.private_base {
            let copied = output(self.stockade("base", &["base"]).command().stderr(Stdio::piped()));
            match copied {
                Ok(_) => {
                    contenders.push(self.stockade(
                        PRIVATE_BASE,
                        &["run", "--discard", "--private-base", "--", "true"],
                    ));
                }
                Err(error) => {
                    skipped.push(Skipped { name: PRIVATE_BASE, reason: format!("{error:#}") });
                }
            }
        }
        let peers = [
            (BASE, bwrap()),
            ("docker run", docker(&options.docker_image)),
            (SANDLOCK, sandlock(SANDLOCK, SANDLOCK_RUN)),
            (INTERPRETER, sandlock(INTERPRETER, SANDLOCK_IMPORT)),
        ];
        for (name, peer) in peers {
            match peer {
                Ok(contender) => contenders.push(contender),
                Err(error) => skipped.push(Skipped { name, reason: format!("{error:#}") }),
            }
        }
        (contenders, skipped)
    }

    /// A command that changed nothing leaves no bundle, and no view except idle ones: otherwise the
    /// numbers measure something else.
    pub(super) fn check_clean(&self) -> anyhow::Result<()> {
        for kind in ["bundles", "views"] {
            let Ok(entries) = std::fs::read_dir(self.data().join(kind)) else { continue };
            let is_spare = |name: &OsString| name.to_string_lossy().starts_with("spare-");
            let names = entries.map(|entry| Ok(entry?.file_name()));
            let names = names.collect::<std::io::Result<Vec<_>>>()?;
            let count = names.iter().filter(|name| !is_spare(name)).count();
            ensure!(count == 0, "`stockade run -- true` left {count} {kind}");
        }
        Ok(())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // A leftover in the temporary directory does no harm.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn bwrap() -> anyhow::Result<Contender> {
    ensure!(is_installed("bwrap"), "bwrap is not installed");
    let words = [
        "bwrap",
        "--unshare-all",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "true",
    ];
    checked(Contender::new("bwrap", &words, 1))
}

fn docker(image: &str) -> anyhow::Result<Contender> {
    ensure!(is_installed("docker"), "docker is not installed");
    output(Command::new("docker").args(["version", "--format", "{{.Server.Version}}"]))
        .context("no engine answers")?;
    output(Command::new("docker").args(["image", "inspect", image]))
        .with_context(|| format!("the engine has no image `{image}`"))?;
    let words = ["docker", "run", "--rm", "--network", "none", image, "true"];
    checked(Contender::new("docker run", &words, 10))
}

/// A library for Python (`pip install sandlock`), which has no program of its own: the time is that of the
/// interpreter and of one sandbox. The interpreter alone is a contender beside it.
fn sandlock(name: &'static str, script: &str) -> anyhow::Result<Contender> {
    let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".to_owned());
    ensure!(is_installed(&python), "{python} is not installed");
    let contender = Contender::new(name, &[&python, "-c", script], 5);
    checked(contender).with_context(|| {
        format!("`{python} -m pip install sandlock`, or {PYTHON}=/a/venv/bin/python")
    })
}

/// The contender, if it runs at all.
fn checked(contender: Contender) -> anyhow::Result<Contender> {
    output(contender.command().stderr(Stdio::piped()))?;
    Ok(contender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_names_the_program_without_its_directory() {
        assert_eq!(Contender::new("a", &["/usr/bin/env", "-i", "true"], 1).line(), "env -i true");
    }

    #[test]
    fn a_peer_that_does_not_run_is_not_measured() {
        assert!(checked(Contender::new("a", &["false"], 1)).is_err());
        assert!(checked(Contender::new("a", &["no-such-program"], 1)).is_err());
        assert!(checked(Contender::new("a", &["true"], 1)).is_ok());
    }
}
