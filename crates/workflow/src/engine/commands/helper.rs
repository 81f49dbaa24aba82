//! The process that starts one command and ends all that it leaves: it takes in what forks away from
//! it. It knows nothing but its arguments, and ends its command when its time is up, when it is told
//! to, and when who started it is gone.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, kill_process_group,
    set_child_subreaper, wait,
};
use stockade_core::ending::of_signal;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

/// The exit code of a command whose time was up, as `timeout(1)` has it.
pub(crate) const TIMED_OUT: i32 = 124;
/// How often it is looked whether something has ended.
const LOOKING: Duration = Duration::from_millis(5);
/// How long ending may take.
const ENDING: Duration = Duration::from_secs(5);

/// What starts a helper, up to the program of its command.
pub(crate) fn command(
    helper: &[OsString],
    limit: Option<Duration>,
) -> std::io::Result<tokio::process::Command> {
    let missing = || std::io::Error::other("there is no helper");
    let (program, first) = helper.split_first().ok_or_else(missing)?;
    let mut command = tokio::process::Command::new(program);
    // What a terminal sends is not meant for it: it ends with who started it.
    command.process_group(0);
    let limit = limit.map(|limit| limit.as_millis().to_string());
    command.args(first).arg(limit.unwrap_or_else(|| UNLIMITED.to_owned()));
    Ok(command)
}

/// Instead of a time: as long as it likes.
const UNLIMITED: &str = "-";

/// Runs a command: how long it may take in milliseconds or `-`, the program, and its arguments. Must
/// be called in a process of its own. The exit code is the command's, as a shell would give it.
pub fn process(arguments: &[OsString]) -> u8 {
    let [limit, program, rest @ ..] = arguments else { return 2 };
    let limit = match limit.to_str().map(|limit| (limit, limit.parse().map(Duration::from_millis)))
    {
        Some((UNLIMITED, _)) => Duration::MAX,
        Some((_, Ok(limit))) => limit,
        _ => return 2,
    };
    let starter = getppid();
    let mut asked = match Asked::listening() {
        Ok(asked) => asked,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "cannot hear signals: {error}");
            return 126;
        }
    };
    // Without this, what forks away is left to whoever is above.
    let _ = set_child_subreaper(Some(getpid()));
    let started = Command::new(program).args(rest).process_group(0).spawn();
    let mut command = match started {
        Ok(command) => command,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{}: {error}", program.display());
            let is_missing = error.kind() == std::io::ErrorKind::NotFound;
            return if is_missing { 127 } else { 126 };
        }
    };
    let code = waited(&mut command, limit, starter, &mut asked);
    end(&command);
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Waits for the end of a command, of its time, or of whoever wants it.
fn waited(command: &mut Child, limit: Duration, starter: Option<Pid>, asked: &mut Asked) -> i32 {
    let begun = Instant::now();
    loop {
        match command.try_wait() {
            Ok(Some(status)) => return code_of(status),
            Err(_) => return 1,
            Ok(None) => {}
        }
        if begun.elapsed() >= limit || getppid() != starter || asked.within(LOOKING) {
            return TIMED_OUT;
        }
    }
}

/// Whether somebody asks for the end (SIGTERM). Unheard, that would end this process and leave all
/// that the command started.
struct Asked {
    runtime: tokio::runtime::Runtime,
    terminate: Signals,
}

impl Asked {
    fn listening() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let terminate = {
            let _within = runtime.enter();
            signal(SignalKind::terminate())?
        };
        Ok(Self { runtime, terminate })
    }

    /// Waits for that, so long at most.
    fn within(&mut self, limit: Duration) -> bool {
        let heard = async { tokio::time::timeout(limit, self.terminate.recv()).await.is_ok() };
        self.runtime.block_on(heard)
    }
}

fn code_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|it| i32::from(of_signal(it)))).unwrap_or(1)
}

/// Ends all that is left of a command.
fn end(command: &Child) {
    let group = i32::try_from(command.id()).ok().and_then(Pid::from_raw);
    let deadline = Instant::now() + ENDING;
    while Instant::now() < deadline {
        if let Some(group) = group {
            // A group that is empty already is no failure.
            let _ = kill_process_group(group, Signal::KILL);
        }
        for child in children() {
            let _ = kill_process(child, Signal::KILL);
        }
        match wait(WaitOptions::NOHANG) {
            // Nothing is left.
            Err(_) => return,
            Ok(Some(_)) => {}
            Ok(None) => std::thread::sleep(LOOKING),
        }
    }
}

/// The processes whose parent this is.
fn children() -> Vec<Pid> {
    let ours = getpid().as_raw_nonzero().to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = processes.flatten().filter_map(|process| {
        let number = process.file_name().to_str()?.parse::<i32>().ok()?;
        let told = fs::read_to_string(process.path().join("stat")).ok()?;
        // After the name, which may hold anything: the state, then the parent.
        let parent = told.rsplit_once(')')?.1.split_whitespace().nth(1)?;
        (parent == ours).then_some(number)
    });
    numbers.filter_map(Pid::from_raw).collect()
}
