//! Process 1 of a pod: starts the keeper and, when a call asks for it, init; reaps what has lost its parent; and
//! ends every process of the sandbox when init has ended, which the kernel does where init is process 1 itself.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use crate::first::{Ask, DONE, LONGEST, SOCKET};
use crate::{ARGUMENT, DATA, INIT, KEEPER};

/// How long to wait before the keeper is started again.
const KEEPER_PAUSE: Duration = Duration::from_millis(100);
/// How long a call may take to send its line.
const LINE: Duration = Duration::from_secs(10);
/// How long a call waits for the last process to end.
const SETTLE: Duration = Duration::from_secs(20);

/// What runs below process 1.
#[derive(Debug, Default)]
struct Processes {
    keeper: Option<Pid>,
    init: Option<Pid>,
    /// Whether init has ended, and processes may be left of the sandbox.
    unsettled: bool,
}

/// The processes, and the news that there are none left.
#[derive(Debug, Default)]
struct Shared {
    processes: Mutex<Processes>,
    settled: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Processes> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs process 1 until the cluster ends the pod; returns an exit code if it cannot start.
pub(crate) fn run() -> u8 {
    match serve(Path::new(DATA)) {
        Ok(()) => 0,
        Err(error) => {
            let _ = writeln!(io::stderr(), "process 1 of the pod failed: {error}");
            1
        }
    }
}

/// Runs the init of the commands, which inherits what its own children lose.
pub(crate) fn init(socket: &Path) -> u8 {
    if rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_err() {
        return 1;
    }
    stockade_jail::container::run(socket)
}

fn serve(data: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data)?;
    let socket = data.join(SOCKET);
    // That of a container that was started again.
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&socket)?;
    let shared = Arc::new(Shared::default());
    let listening = Arc::clone(&shared);
    std::thread::Builder::new().name("asked".to_owned()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let shared = Arc::clone(&listening);
            let answer = move || {
                // A call that is gone needs no answer.
                let _ = answer(&shared, stream);
            };
            let _ = std::thread::Builder::new().name("answer".to_owned()).spawn(answer);
        }
    })?;
    loop {
        start_keeper(&shared, data)?;
        reap(&shared)?;
    }
}

fn start(arguments: &[OsString]) -> io::Result<Pid> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    // The environment of the image is for commands, which get it with their specification.
    command.env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    let child = command.spawn()?;
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("no process id"))
}

fn start_keeper(shared: &Shared, data: &Path) -> io::Result<()> {
    let mut processes = shared.lock();
    if processes.keeper.is_none() {
        processes.keeper = Some(start(&[KEEPER.into(), data.into(), "0".into()])?);
    }
    Ok(())
}

/// Waits for the end of a process, and does what follows from it.
fn reap(shared: &Shared) -> io::Result<()> {
    let ended = match wait(WaitOptions::empty()) {
        Ok(Some((pid, _))) => pid,
        Ok(None) | Err(rustix::io::Errno::INTR) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut processes = shared.lock();
    if processes.keeper == Some(ended) {
        processes.keeper = None;
        drop(processes);
        std::thread::sleep(KEEPER_PAUSE);
    } else if processes.init == Some(ended) {
        processes.init = None;
        processes.unsettled = true;
        let keeper = processes.keeper;
        drop(processes);
        let lost_keeper = end_all_but(keeper)?;
        let mut processes = shared.lock();
        if lost_keeper {
            processes.keeper = None;
        }
        processes.unsettled = false;
        shared.settled.notify_all();
    }
    Ok(())
}

/// Ends every process of the sandbox: all but this one, the keeper with its helpers, and calls, which alone have a
/// parent outside of the pod. Returns whether the keeper has ended meanwhile.
fn end_all_but(keeper: Option<Pid>) -> io::Result<bool> {
    let mut lost_keeper = false;
    loop {
        let mut left = false;
        for (process, parent) in running()? {
            let is_keeper = Some(process) == keeper || (keeper.is_some() && parent == keeper);
            if process.is_init() || is_keeper || parent.is_none() {
                continue;
            }
            left = true;
            // It may have ended by itself.
            let _ = kill_process(process, Signal::KILL);
        }
        while let Ok(Some((ended, _))) = wait(WaitOptions::NOHANG) {
            lost_keeper |= Some(ended) == keeper;
        }
        if !left {
            return Ok(lost_keeper);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The processes that are no zombies, with their parents.
fn running() -> io::Result<Vec<(Pid, Option<Pid>)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { continue };
        // It may have ended meanwhile.
        let Ok(text) = std::fs::read(Path::new("/proc").join(&name).join("stat")) else { continue };
        let Some((state, parent)) = parse_stat(&text) else { continue };
        if state != b'Z' {
            found.push((pid, Pid::from_raw(parent)));
        }
    }
    Ok(found)
}

/// The state and the parent in `/proc/PID/stat`, whose second field is a name with any bytes in parentheses.
fn parse_stat(text: &[u8]) -> Option<(u8, i32)> {
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    Some((state, fields.next()?.parse().ok()?))
}

fn answer(shared: &Shared, mut stream: UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(LINE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LONGEST)).read_line(&mut line)?;
    let answer = match Ask::parse(&line) {
        Some(Ask::Init(path)) => start_init(shared, path),
        Some(Ask::Settle) => settle(shared),
        None => "this is not known\n".to_owned(),
    };
    stream.write_all(answer.as_bytes())
}

fn start_init(shared: &Shared, socket: PathBuf) -> String {
    let mut processes = shared.lock();
    if processes.init.is_some() || processes.unsettled {
        return "there is a sandbox already\n".to_owned();
    }
    match start(&[ARGUMENT.into(), INIT.into(), socket.into()]) {
        Ok(pid) => {
            processes.init = Some(pid);
            DONE.to_owned()
        }
        Err(error) => format!("init cannot be started: {error}\n"),
    }
}

fn settle(shared: &Shared) -> String {
    let processes = shared.lock();
    let waited = shared.settled.wait_timeout_while(processes, SETTLE, |processes| {
        processes.init.is_some() || processes.unsettled
    });
    let is_late = match waited {
        Ok((_processes, result)) => result.timed_out(),
        Err(poisoned) => poisoned.into_inner().1.timed_out(),
    };
    if is_late { "processes are left\n".to_owned() } else { DONE.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_hides_no_parent() {
        assert_eq!(parse_stat(b"7 (a) Z 1) S 42 7 7 0"), Some((b'S', 42)));
        assert_eq!(parse_stat(b"7 (sh) Z 1 7"), Some((b'Z', 1)));
        for text in [&b"7"[..], b"7 (a", b"7 (a)", b"7 (a) S x"] {
            assert_eq!(parse_stat(text), None);
        }
    }

    #[test]
    fn this_process_is_among_those_that_run() {
        let own = rustix::process::getpid();
        assert!(running().unwrap().iter().any(|(pid, _)| *pid == own));
    }
}
