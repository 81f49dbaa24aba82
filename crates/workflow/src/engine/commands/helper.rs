//! The helper process that starts one command. As a subreaper it adopts the orphaned descendants of the
//! command, and kills them. It ends the command at its time limit, on SIGTERM, and when its own parent
//! has ended.

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
use stockade_core::ending::signal_exit_code;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

/// The exit code of a command that timed out, as in `timeout(1)`.
pub(crate) const TIMED_OUT: i32 = 124;
/// The interval at which the command is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The time limit for killing the remaining processes.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A command line that starts a helper, up to the program that the helper is to start.
pub(crate) fn command(
    helper: &[OsString],
    limit: Option<Duration>,
) -> std::io::Result<tokio::process::Command> {
    let missing = || std::io::Error::other("no helper process is available");
    let (program, first) = helper.split_first().ok_or_else(missing)?;
    let mut command = tokio::process::Command::new(program);
    // It must not receive the signals of a terminal: it ends with its parent.
    command.process_group(0);
    let limit = limit.map(|limit| limit.as_millis().to_string());
    command.args(first).arg(limit.unwrap_or_else(|| UNLIMITED.to_owned()));
    Ok(command)
}

/// Stands for the absence of a time limit.
const UNLIMITED: &str = "-";

/// Runs a command. The arguments are the time limit in milliseconds or `-`, the program, and its
/// arguments. Must be called in a separate process. Returns the exit code of the command, as a shell
/// would report it.
pub fn process(arguments: &[OsString]) -> u8 {
    let [limit, program, rest @ ..] = arguments else { return 2 };
    let limit = match limit.to_str().map(|limit| (limit, limit.parse().map(Duration::from_millis)))
    {
        Some((UNLIMITED, _)) => Duration::MAX,
        Some((_, Ok(limit))) => limit,
        _ => return 2,
    };
    let starter = getppid();
    let mut terminate = match TerminateSignal::listen() {
        Ok(terminate) => terminate,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "cannot handle signals: {error}");
            return 126;
        }
    };
    // Without this, orphans of the command are adopted by an ancestor of this process.
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
    let code = wait_for_exit(&mut command, limit, starter, &mut terminate);
    end(&command);
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Waits until the command has ended, its time limit has expired, or it is to be terminated.
fn wait_for_exit(
    command: &mut Child,
    limit: Duration,
    starter: Option<Pid>,
    terminate: &mut TerminateSignal,
) -> i32 {
    let started = Instant::now();
    loop {
        match command.try_wait() {
            Ok(Some(status)) => return exit_code(status),
            Err(_) => return 1,
            Ok(None) => {}
        }
        if started.elapsed() >= limit
            || getppid() != starter
            || terminate.received_within(POLL_INTERVAL)
        {
            return TIMED_OUT;
        }
    }
}

/// Whether SIGTERM was received. The default action of the signal would end this process and leave all
/// processes that the command has started.
struct TerminateSignal {
    runtime: tokio::runtime::Runtime,
    terminate: Signals,
}

impl TerminateSignal {
    fn listen() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let terminate = {
            let _within = runtime.enter();
            signal(SignalKind::terminate())?
        };
        Ok(Self { runtime, terminate })
    }

    /// Waits for the signal, at most for this time.
    fn received_within(&mut self, limit: Duration) -> bool {
        let received = async { tokio::time::timeout(limit, self.terminate.recv()).await.is_ok() };
        self.runtime.block_on(received)
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|it| i32::from(signal_exit_code(it)))).unwrap_or(1)
}

/// Kills all remaining processes of a command.
fn end(command: &Child) {
    let group = i32::try_from(command.id()).ok().and_then(Pid::from_raw);
    let deadline = Instant::now() + KILL_TIMEOUT;
    while Instant::now() < deadline {
        if let Some(group) = group {
            // The group may be empty already.
            let _ = kill_process_group(group, Signal::KILL);
        }
        for child in children() {
            let _ = kill_process(child, Signal::KILL);
        }
        match wait(WaitOptions::NOHANG) {
            // No process remains.
            Err(_) => return,
            Ok(Some(_)) => {}
            Ok(None) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

/// The child processes of this process.
fn children() -> Vec<Pid> {
    let ours = getpid().as_raw_nonzero().to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = processes.flatten().filter_map(|process| {
        let number = process.file_name().to_str()?.parse::<i32>().ok()?;
        let stat = fs::read_to_string(process.path().join("stat")).ok()?;
        // The fields after the name, which may contain any character: the state, then the parent.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
        (parent == ours).then_some(number)
    });
    numbers.filter_map(Pid::from_raw).collect()
}
