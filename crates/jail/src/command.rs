//! The command's own process: it enables the last walls between its first instruction and the exec.
//!
//! It runs in init's memory, and init may run at the same time. So everything that it needs is made
//! beforehand ([`Prepared`]), and it allocates nothing, formats nothing and never touches `errno`:
//! it reports a failed step as a number, which init turns into text.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, Ordering};

use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::landlock::Ruleset;
use crate::rlimits::ResourceLimits;
use crate::spec::Payload;
use crate::walls::Wall;
use crate::{capabilities, pty, raw, sys};

/// The search path when the environment has no `PATH`, as in `execvp(3)`.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// The source of the command's standard streams.
#[derive(Debug)]
pub(crate) enum Streams {
    /// Input, output and error.
    Pipes([OwnedFd; 3]),
    /// One terminal for all three.
    Terminal(OwnedFd),
}

impl Streams {
    /// The file descriptors that become input, output and error.
    pub(crate) fn each(&self) -> [BorrowedFd<'_>; 3] {
        match self {
            Self::Pipes(pipes) => pipes.each_ref().map(|pipe| pipe.as_fd()),
            Self::Terminal(terminal) => [terminal.as_fd(); 3],
        }
    }
}

/// Everything that the command's process needs.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) program: Program,
    /// The ids to take on, where they differ from init's.
    pub(crate) become_ids: Option<(u32, u32)>,
    /// The supplementary groups to take on with them.
    pub(crate) groups: Vec<Gid>,
    pub(crate) working_directory: CString,
    pub(crate) rlimits: ResourceLimits,
    /// The permission bits that new files do not get.
    pub(crate) umask: u32,
    /// The processors on which it starts, if not all.
    pub(crate) processors: Option<CpuSet>,
    /// A time of the coarse clock that must have passed before the program starts.
    pub(crate) not_before: Option<(i64, u32)>,
    /// The failed step, if any.
    pub(crate) failure: Failure,
}

/// What runs once the walls are enabled.
#[derive(Debug)]
pub(crate) enum Program {
    /// A function of this program.
    Function(fn() -> u8),
    /// A program.
    File {
        /// The paths to try, in order.
        candidates: Vec<CString>,
        /// Its arguments.
        arguments: Pointers,
        /// Its environment.
        environment: Pointers,
        /// The arguments of the shell that runs a file without `#!`, whose path is the second.
        script: Vec<AtomicPtr<libc::c_char>>,
    },
}

/// Strings, and the null-terminated list of pointers to them.
#[derive(Debug)]
pub(crate) struct Pointers {
    pointers: Vec<AtomicPtr<libc::c_char>>,
    _strings: Vec<CString>,
}

impl Pointers {
    fn new(strings: Vec<CString>) -> Self {
        let pointers = strings
            .iter()
            .map(|string| AtomicPtr::new(string.as_ptr().cast_mut()))
            .chain([AtomicPtr::new(std::ptr::null_mut())])
            .collect();
        Self { pointers, _strings: strings }
    }
}

/// The first `count` of the processors that this process may use, counted from one that differs
/// from process to process; `None` if there are no more than that.
pub(crate) fn processors(count: usize) -> Option<CpuSet> {
    let all = rustix::thread::sched_getaffinity(None).ok()?;
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
    if count == 0 || usable.len() <= count {
        return None;
    }
    let mut chosen = CpuSet::new();
    // Inside, every init has the number 1, so the clock makes the difference.
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let start = usize::try_from(now.tv_nsec / 1000).unwrap_or(0);
    for offset in 0..count {
        if let Some(cpu) = usable.get((start + offset) % usable.len()) {
            chosen.set(*cpu);
        }
    }
    Some(chosen)
}

/// The step of a command's start that failed, and the kernel's error number.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    step: AtomicU8,
    errno: AtomicI32,
}

impl Failure {
    pub(crate) fn set(&self, step: Step, error: &io::Error) {
        self.errno.store(error.raw_os_error().unwrap_or(libc::EIO), Ordering::Relaxed);
        self.step.store(step as u8, Ordering::Release);
    }

    /// The failed step and the error number, if any.
    pub(crate) fn get(&self) -> Option<(Step, i32)> {
        let step = self.step.load(Ordering::Acquire);
        let step = Step::ALL.into_iter().find(|known| *known as u8 == step)?;
        Some((step, self.errno.load(Ordering::Relaxed)))
    }
}

/// A step of a command's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    Session = 1,
    Streams,
    Descriptors,
    Limits,
    Ids,
    Capabilities,
    Directory,
    Landlock,
    Exec,
    Start,
}

impl Step {
    const ALL: [Self; 10] = [
        Self::Session,
        Self::Streams,
        Self::Descriptors,
        Self::Limits,
        Self::Ids,
        Self::Capabilities,
        Self::Directory,
        Self::Landlock,
        Self::Exec,
        Self::Start,
    ];

    /// The wall that could not be enabled; `None` where the program itself is the cause.
    pub(crate) const fn wall(self) -> Option<Wall> {
        match self {
            Self::Session | Self::Streams | Self::Descriptors => Some(Wall::Inheritance),
            Self::Limits => Some(Wall::ResourceLimits),
            Self::Ids => Some(Wall::User),
            Self::Capabilities => Some(Wall::Capabilities),
            Self::Landlock => Some(Wall::Landlock),
            Self::Directory | Self::Exec | Self::Start => None,
        }
    }

    /// The step as text.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "start a session",
            Self::Streams => "install the streams",
            Self::Descriptors => "close the descriptors",
            Self::Limits => "set the limits of the process",
            Self::Ids => "switch to the command's ids",
            Self::Capabilities => "drop all capabilities",
            Self::Directory => "enter the working directory",
            Self::Landlock => "restrict by Landlock",
            Self::Exec => "run the program",
            Self::Start => "start a process",
        }
    }
}

impl Program {
    /// The program or function of a payload. A program without a slash in its name is searched for
    /// in the `PATH` of its environment.
    pub(crate) fn new(payload: &Payload, environment: &[CString]) -> Self {
        match payload {
            Payload::Function(function) => Self::Function(*function),
            Payload::Program(arguments) => Self::file(arguments.clone(), environment.to_vec()),
        }
    }

    /// See [`Program::new`].
    pub(crate) fn file(arguments: Vec<CString>, environment: Vec<CString>) -> Self {
        let candidates = match arguments.first() {
            None => Vec::new(),
            Some(name) if name.is_empty() => Vec::new(),
            Some(name) if name.as_bytes().contains(&b'/') => vec![name.clone()],
            Some(name) => {
                let path = environment
                    .iter()
                    .find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="))
                    .unwrap_or(DEFAULT_PATH);
                let directories = path.split(|byte| *byte == b':');
                let directories = directories.map(|d| if d.is_empty() { &b"."[..] } else { d });
                directories
                    .filter_map(|d| CString::new([d, b"/", name.as_bytes()].concat()).ok())
                    .collect()
            }
        };
        let arguments = Pointers::new(arguments);
        let script = [c"/bin/sh".as_ptr().cast_mut(), std::ptr::null_mut()]
            .into_iter()
            .chain(arguments.pointers.iter().skip(1).map(|p| p.load(Ordering::Relaxed)))
            .map(AtomicPtr::new)
            .collect();
        Self::File { candidates, arguments, environment: Pointers::new(environment), script }
    }
}

/// Enables the last walls and executes the program. The exit code on failure is a shell's: 127 for
/// a program that was not found, 126 for one that could not be run; 125 for a wall.
pub(crate) fn run(prepared: &Prepared, streams: [RawFd; 3], landlock: Option<&Ruleset>) -> ! {
    if let Err((step, error)) = confine(prepared, streams, landlock) {
        prepared.failure.set(step, &error);
        sys::exit_now(125);
    }
    let error = match &prepared.program {
        Program::Function(function) => sys::exit_now(function().into()),
        Program::File { candidates, arguments, environment, script } => {
            exec(candidates, arguments, environment, script)
        }
    };
    prepared.failure.set(Step::Exec, &error);
    sys::exit_now(if error.raw_os_error() == Some(libc::ENOENT) { 127 } else { 126 })
}

fn confine(
    prepared: &Prepared,
    streams: [RawFd; 3],
    landlock: Option<&Ruleset>,
) -> Result<(), (Step, io::Error)> {
    let at = |step| move |error: Errno| (step, io::Error::from(error));
    rustix::process::setsid().map_err(at(Step::Session))?;
    // SAFETY: the caller keeps the streams open until this process has left its memory.
    let streams = streams.map(|stream| unsafe { BorrowedFd::borrow_raw(stream) });
    install_streams(streams).map_err(|error| (Step::Streams, error))?;
    sys::close_on_exec_from(3).map_err(|error| (Step::Descriptors, error))?;
    prepared.rlimits.apply().map_err(|error| (Step::Limits, error))?;
    if let Some((user, group)) = prepared.become_ids {
        become_ids(user, group, &prepared.groups).map_err(at(Step::Ids))?;
        capabilities::drop_all().map_err(|error| (Step::Capabilities, error))?;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(prepared.umask));
    if let Some(processors) = &prepared.processors {
        // It saves threads only: the limit holds without it.
        let _ = sched_setaffinity(None, processors);
    }
    rustix::process::chdir(prepared.working_directory.as_c_str()).map_err(at(Step::Directory))?;
    if let Some(ruleset) = landlock {
        ruleset.restrict().map_err(|error| (Step::Landlock, error))?;
    }
    raw::block_only(0);
    if let Some(instant) = prepared.not_before {
        wait_until_after(instant);
    }
    Ok(())
}

/// Takes on the ids of the command's user, with these supplementary groups and no others.
pub(crate) fn become_ids(user: u32, group: u32, groups: &[Gid]) -> rustix::io::Result<()> {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    rustix::thread::set_thread_groups(groups)?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)
}

fn install_streams(streams: [BorrowedFd<'_>; 3]) -> io::Result<()> {
    let [input, output, error] = streams;
    if input.as_raw_fd() == output.as_raw_fd() {
        pty::make_controlling(input)?;
    }
    // All three descriptors are above 2, because 0 to 2 are never free here.
    rustix::stdio::dup2_stdin(input)?;
    rustix::stdio::dup2_stdout(output)?;
    rustix::stdio::dup2_stderr(error)?;
    Ok(())
}

/// Waits until the coarse clock, with which file systems stamp changes, has passed `instant`.
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

/// `execvp(3)`; returns only when no candidate could be run.
fn exec(
    candidates: &[CString],
    arguments: &Pointers,
    environment: &Pointers,
    script: &[AtomicPtr<libc::c_char>],
) -> io::Error {
    let environment = &environment.pointers;
    let attempt = |path: &CStr| {
        let error = sys::exec(path, &arguments.pointers, environment);
        if error.raw_os_error() != Some(libc::ENOEXEC) {
            return error;
        }
        // The shell runs a script without `#!`, as in execvp.
        if let Some(second) = script.get(1) {
            second.store(path.as_ptr().cast_mut(), Ordering::Relaxed);
        }
        sys::exec(c"/bin/sh", script, environment)
    };
    if let [only] = candidates {
        return attempt(only);
    }
    let mut refused = None;
    for candidate in candidates {
        let error = attempt(candidate);
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            Some(libc::EACCES) => refused = Some(error),
            _ => return error,
        }
    }
    refused.unwrap_or_else(|| Errno::NOENT.into())
}
