//! The command's own process: from its first instruction to the exec, the last
//! walls go up. It borrows init's memory and keeps nothing there.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

use crate::channel::{Channel, FromInit};
use crate::inside::report;
use crate::landlock::{Access, Place};
use crate::mounts::{At as _, Failure};
use crate::spec::{JailSpec, Payload};
use crate::walls::Wall;
use crate::{landlock, pty, sys};

/// Where programs are looked for when the environment has no `PATH`, as `execvp(3)` does.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// What becomes the command's standard streams.
#[derive(Debug)]
pub(crate) enum Streams {
    /// Input, output and error.
    Pipes([OwnedFd; 3]),
    /// One terminal for all three.
    Terminal(OwnedFd),
}

impl Streams {
    /// The numbers of the descriptors.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        match self {
            Self::Pipes(pipes) => pipes.iter().map(AsRawFd::as_raw_fd).collect(),
            Self::Terminal(terminal) => vec![terminal.as_raw_fd()],
        }
    }
}

/// Raises the last walls and becomes the program. The exit code on failure is a shell's:
/// 127 for a program that was not found, 126 for one that could not be run.
pub(crate) fn run(
    spec: &JailSpec,
    channel: &Channel,
    streams: &Streams,
    writable: &[CString],
    landlock: bool,
) -> ! {
    if let Err(failure) = confine(spec, streams, writable, landlock) {
        report(channel, failure);
        sys::exit_now(125);
    }
    let error = match &spec.command.payload {
        Payload::Function(function) => sys::exit_now(function().into()),
        Payload::Program(arguments) => exec(arguments, &spec.command.environment),
    };
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    // Init sees the exit code when this cannot be sent.
    let _ = channel.send(&FromInit::ExecFailed { errno }.encode(), &[]);
    sys::exit_now(if errno == libc::ENOENT { 127 } else { 126 })
}

fn confine(
    spec: &JailSpec,
    streams: &Streams,
    writable: &[CString],
    landlock: bool,
) -> Result<(), Failure> {
    let words = |text: &'static str| move || text.to_owned();
    rustix::process::setsid().at(Wall::Inheritance, words("start a session"))?;
    install_streams(streams).at(Wall::Inheritance, words("install the streams"))?;
    sys::close_on_exec_from(3).at(Wall::Inheritance, words("close the descriptors"))?;
    spec.rlimits.apply().at(Wall::ResourceLimits, words("set the limits of the process"))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::chdir(spec.command.working_directory.as_c_str())
        .at(Wall::Root, || format!("enter {}", spec.command.working_directory.to_string_lossy()))?;
    if landlock {
        restrict(writable)?;
    }
    sys::reset_signals();
    if let Some(instant) = spec.command.not_before {
        wait_until_after(instant);
    }
    Ok(())
}

fn restrict(writable: &[CString]) -> Result<(), Failure> {
    let rules: Vec<_> =
        [(Place::Path(c"/"), Access::ReadExecute), (Place::Path(c"/dev"), Access::Devices)]
            .into_iter()
            .chain(writable.iter().map(|path| (Place::Path(path.as_c_str()), Access::Write)))
            .collect();
    landlock::restrict(&rules)
        .map(drop)
        .map_err(io::Error::from)
        .at(Wall::Landlock, || "restrict by Landlock".to_owned())
}

fn install_streams(streams: &Streams) -> io::Result<()> {
    let [input, output, error] = match streams {
        Streams::Pipes(pipes) => pipes.each_ref(),
        Streams::Terminal(terminal) => {
            pty::make_controlling(terminal)?;
            [terminal; 3]
        }
    };
    // All three are above 2: the supervisor keeps its own standard streams open.
    rustix::stdio::dup2_stdin(input.as_fd())?;
    rustix::stdio::dup2_stdout(output.as_fd())?;
    rustix::stdio::dup2_stderr(error.as_fd())?;
    Ok(())
}

/// Waits until the coarse clock, which file systems stamp changes with, has passed `instant`.
fn wait_until_after(instant: (i64, u32)) {
    use rustix::time::{ClockId, Timespec, clock_gettime};
    let tick = Timespec { tv_sec: 0, tv_nsec: 200_000 };
    loop {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        if (now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0)) != instant {
            return;
        }
        let _ = rustix::thread::nanosleep(&tick);
    }
}

/// `execvp(3)`: without a slash in its name, the program is looked for along `PATH`.
fn exec(arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let Some(program) = arguments.first() else { return Errno::INVAL.into() };
    let argument_pointers = pointers(arguments);
    let environment_pointers = pointers(environment);
    let attempt = |path: &CStr| {
        let error = sys::exec(path, &argument_pointers, &environment_pointers);
        if error.raw_os_error() != Some(libc::ENOEXEC) {
            return error;
        }
        // A script without `#!` is the shell's, as execvp has it.
        let mut script = vec![c"/bin/sh".as_ptr(), path.as_ptr()];
        script.extend(&argument_pointers[1..]);
        sys::exec(c"/bin/sh", &script, &environment_pointers)
    };
    if program.as_bytes().contains(&b'/') {
        return attempt(program);
    }
    let path = environment
        .iter()
        .find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="))
        .unwrap_or(DEFAULT_PATH);
    let mut refused = None;
    for directory in path.split(|b| *b == b':') {
        let directory = if directory.is_empty() { &b"."[..] } else { directory };
        let Ok(candidate) = CString::new([directory, b"/", program.as_bytes()].concat()) else {
            continue;
        };
        let error = attempt(&candidate);
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            Some(libc::EACCES) => refused = Some(error),
            _ => return error,
        }
    }
    refused.unwrap_or_else(|| Errno::NOENT.into())
}
