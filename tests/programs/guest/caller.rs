//! The processes that call `stockade` in the machine, their control groups, and the results.

use std::ffi::OsString;
use std::fs::{create_dir_all, write};
use std::os::unix::fs::chown;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The argument with which this program enters a group: `enter GROUP USER PROGRAM…`.
pub(crate) const ENTER: &str = "enter";

/// A user in a control group.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The user's id, and that of the user's own group.
    pub(crate) user: u32,
    /// The directory of the control group.
    pub(crate) group: PathBuf,
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The exit code, or 128 plus the signal.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Caller {
    /// A program that is started in the group as the user; it replaces the process that entered the
    /// group, so that it is the only one there if there are no others.
    pub(crate) fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new("/init");
        command.arg(ENTER).arg(&self.group).arg(self.user.to_string()).arg(program).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the same until it ends.
    pub(crate) fn program(&self, program: &str, words: &[&str]) -> Outcome {
        Outcome::of(self.command(program, words).output().unwrap())
    }

    /// Runs `stockade WORDS` until it ends.
    pub(crate) fn stockade(&self, words: &[&str]) -> Outcome {
        self.program("stockade", words)
    }

    /// Runs `stockade run --json --discard OPTIONS -- WORDS` until it ends.
    pub(crate) fn run(&self, options: &[&str], words: &[&str]) -> Outcome {
        self.stockade(&arguments(options, words))
    }

    /// Starts the same and leaves it running.
    pub(crate) fn start(&self, options: &[&str], words: &[&str]) -> Running {
        self.spawn("stockade", &arguments(options, words))
    }

    /// Starts a program and leaves it running.
    pub(crate) fn spawn(&self, program: &str, words: &[&str]) -> Running {
        Running(Some(self.command(program, words).spawn().unwrap()))
    }

    /// A process that lives in the group until it is dropped.
    pub(crate) fn start_idle(&self) -> Running {
        self.spawn("probe", &["linger", "here"])
    }
}

fn arguments<'a>(options: &[&'a str], words: &[&'a str]) -> Vec<&'a str> {
    [&["run", "--json", "--discard"], options, &["--"], words].concat()
}

/// The other half of [`Caller::command`], in the new process.
pub(crate) fn enter(mut arguments: impl Iterator<Item = OsString>) -> ! {
    let group = PathBuf::from(arguments.next().unwrap());
    let user: u32 = arguments.next().unwrap().to_str().unwrap().parse().unwrap();
    write(group.join("cgroup.procs"), "0").unwrap();
    let home = Path::new("/home").join(user.to_string());
    let project = home.join("project");
    create_dir_all(&project).unwrap();
    for directory in [&home, &project] {
        chown(directory, Some(user), Some(user)).unwrap();
    }
    let error = Command::new(arguments.next().unwrap())
        .args(arguments)
        .env_clear()
        .env("HOME", &home)
        .env("PATH", "/usr/bin")
        .current_dir(project)
        .uid(user)
        .gid(user)
        .exec();
    panic!("exec: {error}");
}

impl Outcome {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
            code: output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap()),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    #[track_caller]
    pub(crate) fn ends_with(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// The one JSON object on standard output.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A running call; killed when dropped.
#[derive(Debug)]
pub(crate) struct Running(Option<Child>);

impl Running {
    /// The pid of the process that becomes the program.
    pub(crate) fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    /// Fails if it has ended.
    #[track_caller]
    pub(crate) fn assert_runs(&mut self) {
        if self.has_ended() {
            let output = self.0.take().unwrap().wait_with_output().unwrap();
            panic!("ended too soon: {:?}", Outcome::of(output));
        }
    }

    /// Waits for the end.
    pub(crate) fn finish(mut self) -> Outcome {
        Outcome::of(self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
