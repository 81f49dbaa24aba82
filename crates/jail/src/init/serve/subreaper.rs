//! The process between init and a command: it adopts all processes that the command starts and
//! leaves behind, and ends all of them on request.
//!
//! It shares init's memory and file descriptors and runs concurrently with init. So it allocates
//! nothing, touches nothing but its [`SharedState`] and the [`CommandSlot`] of its command, and makes bare system
//! calls only. It stays with a command until nothing that the command started is alive, and is then
//! available for another one.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, IntoRawFd as _, RawFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU64, Ordering};

use crate::channel::Channel;
use crate::command::{self, Failure, Prepared, Step, Streams};
use crate::control::wire;
use crate::landlock::Ruleset;
use crate::raw::{self, signed};
use crate::sys;
use crate::vm_helper::reserve_descriptors;

/// The signal that wakes a subreaper.
pub(super) const WAKE: i32 = libc::SIGUSR1;
/// No process has this number or a higher one (`PID_MAX_LIMIT`, `proc(5)`).
const PID_END: i32 = 4_194_304;
/// How long to wait for killed processes to end, in milliseconds.
const ROUND_MILLISECONDS: u32 = 2;

/// Subreapers make few and shallow calls.
const STACK_BYTES: usize = 32 << 10;
const COMMAND_STACK_BYTES: usize = 64 << 10;
const STACK_WORDS: usize = (STACK_BYTES + COMMAND_STACK_BYTES) / size_of::<u128>();

const NOT_STARTED: u8 = 1;
const EXITED: u8 = 2;
const GONE: u8 = 4;
/// The subreaper may report the end to the client itself.
const MAY_REPORT: u8 = 8;
/// It has done so.
const REPORTED: u8 = 16;

/// Where a subreaper sends its news.
#[derive(Debug)]
pub(super) struct ReportSinks<'a> {
    /// To init, which keeps it open.
    pub(super) wakeup: BorrowedFd<'a>,
    /// Init's client, for which the end of a command is the most urgent report.
    pub(super) client: Option<Rc<Channel>>,
}

/// A subreaper, as init sees it. It is dropped once it was reaped, or with init's memory.
#[derive(Debug)]
pub(super) struct Subreaper {
    process: i32,
    shared: Box<SharedState>,
}

/// What init shares with one subreaper.
#[derive(Debug)]
struct SharedState {
    /// The command to start next.
    work: AtomicPtr<CommandSlot>,
    /// No further command will follow.
    exits: AtomicBool,
    /// The command's stack below the subreaper's own.
    stack: Box<[MaybeUninit<u128>]>,
}

/// What init shares with a subreaper and one command.
#[derive(Debug)]
pub(super) struct CommandSlot {
    number: u64,
    prepared: Prepared,
    /// The inner ends of the command's streams; with a terminal the same three times.
    streams: [RawFd; 3],
    /// The streams are not closed yet.
    streams_open: AtomicBool,
    ruleset: Option<Rc<Ruleset>>,
    wakeup: RawFd,
    client: Option<Rc<Channel>>,
    state: AtomicU8,
    status: AtomicI32,
    command: AtomicI32,
    /// Signals that are still to be sent to the command, one bit for each.
    signals: AtomicU64,
    kill: AtomicBool,
}

/// The state of a command as read from its slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CommandState {
    /// The step that failed, and the kernel's error number.
    pub(super) not_started: Option<(Step, i32)>,
    /// The status as `wait(2)` gives it.
    pub(super) exited: Option<i32>,
    /// Init's client was notified that it ended and that nothing of it is alive.
    pub(super) reported: bool,
    /// No process of it is alive.
    pub(super) gone: bool,
}

impl Subreaper {
    /// Starts a subreaper with its first command.
    ///
    /// # Safety
    /// As for [`Subreaper::assign`].
    pub(super) unsafe fn start(slot: &CommandSlot) -> io::Result<Self> {
        let shared = Box::new(SharedState {
            work: AtomicPtr::new(std::ptr::from_ref(slot).cast_mut()),
            exits: AtomicBool::new(false),
            stack: Box::new_uninit_slice(STACK_WORDS),
        });
        reserve_descriptors();
        // The lower part is the stack of the command, which starts while the subreaper uses the
        // upper part.
        let top = shared.stack.as_ptr_range().end.cast_mut();
        // SAFETY: the stack is 16-byte aligned and grows down from its end; the post is kept. The
        // subreaper and its commands touch no memory of init except what they are given.
        let process = unsafe {
            libc::clone(
                subreaper,
                top.cast(),
                libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD,
                std::ptr::from_ref(&*shared).cast_mut().cast(),
            )
        };
        if process == -1 { Err(io::Error::last_os_error()) } else { Ok(Self { process, shared }) }
    }

    /// Gives it another command, after [`GONE`] was seen for the previous one.
    ///
    /// # Safety
    /// The slot may be dropped only when [`GONE`] was seen, or the subreaper was reaped and
    /// everything that it had started is dead.
    pub(super) unsafe fn assign(&self, slot: &CommandSlot) {
        self.shared.work.store(std::ptr::from_ref(slot).cast_mut(), Ordering::Release);
        self.wake();
    }

    /// Whether the subreaper is this process.
    pub(super) const fn is(&self, process: i32) -> bool {
        self.process == process
    }

    /// Its process id.
    pub(super) const fn process(&self) -> i32 {
        self.process
    }

    /// Tells it to exit, as no further command will follow.
    pub(super) fn exit(&self) {
        self.shared.exits.store(true, Ordering::Release);
        self.wake();
    }

    /// Wakes it, in case it was stopped from inside.
    pub(super) fn wake(&self) {
        // It may have ended, which is detected elsewhere.
        let _ = raw::kill(self.process, WAKE);
        let _ = raw::kill(self.process, libc::SIGCONT);
    }
}

impl CommandSlot {
    pub(super) fn new(
        number: u64,
        prepared: Prepared,
        streams: Streams,
        ruleset: Option<Rc<Ruleset>>,
        sinks: ReportSinks<'_>,
    ) -> Box<Self> {
        Box::new(Self {
            number,
            prepared,
            streams: match streams {
                Streams::Pipes(pipes) => pipes.map(|pipe| pipe.into_raw_fd()),
                Streams::Terminal(terminal) => [terminal.into_raw_fd(); 3],
            },
            streams_open: AtomicBool::new(true),
            ruleset,
            wakeup: sinks.wakeup.as_raw_fd(),
            state: AtomicU8::new(if sinks.client.is_some() { MAY_REPORT } else { 0 }),
            client: sinks.client,
            status: AtomicI32::new(0),
            command: AtomicI32::new(0),
            signals: AtomicU64::new(0),
            kill: AtomicBool::new(false),
        })
    }

    pub(super) fn snapshot(&self) -> CommandState {
        let state = self.state.load(Ordering::Acquire);
        CommandState {
            not_started: (state & NOT_STARTED != 0)
                .then(|| self.prepared.failure.get().unwrap_or((Step::Exec, libc::EIO))),
            exited: (state & EXITED != 0).then(|| self.status.load(Ordering::Acquire)),
            reported: state & REPORTED != 0,
            gone: state & GONE != 0,
        }
    }

    /// Lets only init report the end, unless it was already reported.
    pub(super) fn leave_reports_to_init(&self) {
        self.state.fetch_and(!MAY_REPORT, Ordering::AcqRel);
    }

    /// Whether the command is about to execute its program.
    pub(super) fn is_starting(&self) -> bool {
        self.command.load(Ordering::SeqCst) == 0 && !self.snapshot().gone
    }

    /// Sends a signal to the command's process group, immediately or once it has executed its
    /// program.
    pub(super) fn signal(&self, signal: i32) {
        self.signals.fetch_or(raw::only(signal), Ordering::SeqCst);
        self.send_signals();
    }

    /// Sends the pending signals, unless there is no command yet. Whichever of the two comes later,
    /// init with the signal or the subreaper with the command, sees what the other has stored.
    fn send_signals(&self) {
        let command = self.command.load(Ordering::SeqCst);
        if command == 0 {
            return;
        }
        let signals = self.signals.swap(0, Ordering::SeqCst);
        for signal in (1..=64).filter(|signal| signals & raw::only(*signal) != 0) {
            // The command's own process group, or the command alone before it has one.
            if raw::kill(-command, signal).is_err() {
                let _ = raw::kill(command, signal);
            }
        }
    }

    /// Requests that the subreaper ends everything; the caller must wake it afterwards.
    pub(super) fn request_kill(&self) {
        self.kill.store(true, Ordering::Release);
    }

    /// Records the state and wakes init.
    fn set_state(&self, state: u8) {
        self.state.fetch_or(state, Ordering::Release);
        wake_init(self.wakeup);
    }

    /// Records that nothing is left; the slot must not be used after this. A client that receives
    /// the command's end from here receives it once, and before any other report. That report
    /// counts only if init has not dropped the client meanwhile.
    fn finish(&self, bits: u8) {
        let is_reported_here =
            bits & EXITED != 0 && !self.kill.load(Ordering::Acquire) && self.report_to_client();
        let is_reported = |state: u8| is_reported_here && state & MAY_REPORT != 0;
        let all =
            |state: u8| Some(state | bits | GONE | if is_reported(state) { REPORTED } else { 0 });
        let wakeup = self.wakeup;
        // The closure never returns `None`.
        let (Ok(state) | Err(state)) =
            self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, all);
        if !is_reported(state) {
            wake_init(wakeup);
        }
    }

    /// Reports the command's end to init's client; false when there is none or it does not receive.
    fn report_to_client(&self) -> bool {
        let may = self.state.load(Ordering::Acquire) & MAY_REPORT != 0;
        let Some(client) = self.client.as_ref().filter(|_| may) else { return false };
        let client = client.as_fd().as_raw_fd();
        let report = wire::finished(self.number, self.status.load(Ordering::Acquire));
        let flags = raw::signed(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        let bytes = report.as_ptr() as usize;
        let arguments = [raw::signed(client), bytes, report.len(), flags, 0, 0];
        // SAFETY: the bytes are valid for the call.
        raw::check(unsafe { raw::syscall(libc::SYS_sendto, arguments) }).is_ok()
    }

    /// Closes the inner ends of the command's streams, once.
    fn close_streams(&self) {
        if !self.streams_open.swap(false, Ordering::AcqRel) {
            return;
        }
        let [input, output, error] = self.streams;
        let others = if input == output { None } else { Some([output, error]) };
        for stream in [input].into_iter().chain(others.into_iter().flatten()) {
            let arguments = [signed(stream), 0, 0, 0, 0, 0];
            // SAFETY: the slot owns this descriptor, and no other code closes it.
            unsafe { raw::syscall(libc::SYS_close, arguments) };
        }
    }
}

impl Drop for CommandSlot {
    fn drop(&mut self) {
        self.close_streams();
    }
}

/// Wakes init to check its commands.
fn wake_init(wakeup: RawFd) {
    let one = 1_u64;
    let arguments = [signed(wakeup), (&raw const one) as usize, 8, 0, 0, 0];
    // SAFETY: writes eight valid bytes to init's descriptor for news.
    unsafe { raw::syscall(libc::SYS_write, arguments) };
}

extern "C" fn subreaper(shared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the argument is a post that init keeps until this process has been reaped.
    let shared = unsafe { &*shared.cast::<SharedState>().cast_const() };
    loop {
        let work = shared.work.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: init keeps a slot that it has given until it has seen that nothing is left, which
        // `run_command` records last.
        if let Some(slot) = unsafe { work.cast_const().as_ref() } {
            run_command(slot, &shared.stack);
        } else if shared.exits.load(Ordering::Acquire) {
            sys::exit_now(0);
        } else {
            raw::wait_for_signal(raw::only(WAKE), None);
        }
    }
}

/// Starts a command and stays with it until its end.
fn run_command(slot: &CommandSlot, stack: &[MaybeUninit<u128>]) {
    let arguments = [signed(libc::PR_SET_CHILD_SUBREAPER), 1, 0, 0, 0, 0];
    // SAFETY: takes numbers.
    let adopting = raw::check(unsafe { raw::syscall(libc::SYS_prctl, arguments) });
    let started = adopting.and_then(|_| start_command(slot, stack));
    slot.close_streams();
    match started {
        Ok(command) => {
            slot.command.store(command, Ordering::SeqCst);
            slot.send_signals();
            reap_all(slot, command);
        }
        Err(error) => {
            slot.prepared.failure.set(Step::Start, &error);
            slot.finish(NOT_STARTED);
        }
    }
}

/// Starts the command and waits until it has left this memory.
fn start_command(slot: &CommandSlot, stack: &[MaybeUninit<u128>]) -> io::Result<i32> {
    extern "C" fn enter(slot: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the subreaper waits, and init keeps the slot.
        let slot = unsafe { &*slot.cast::<CommandSlot>().cast_const() };
        command::run(&slot.prepared, slot.streams, slot.ruleset.as_deref())
    }
    clone_below(slot, stack, enter)
}

/// Runs a function in a child that shares the memory, on the lower part of the stack, and waits
/// until the child has left this memory.
fn clone_below(
    slot: &CommandSlot,
    stack: &[MaybeUninit<u128>],
    enter: extern "C" fn(*mut libc::c_void) -> libc::c_int,
) -> io::Result<i32> {
    let start = stack.as_ptr().cast::<u8>();
    // SAFETY: the lower part of the stack, which grows down from its end, is not used by anything
    // else; this process does not continue until the child has executed another program or ended.
    let pid = unsafe {
        let top = start.add(COMMAND_STACK_BYTES).cast_mut();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(enter, top.cast(), flags, std::ptr::from_ref(slot).cast_mut().cast())
    };
    // The cause is in `errno`, which is shared with init, so it is not read; there is one likely
    // cause.
    if pid == -1 { Err(io::Error::from_raw_os_error(libc::EAGAIN)) } else { Ok(pid) }
}

/// Reaps and, on request, kills processes until none is left.
fn reap_all(slot: &CommandSlot, command: i32) {
    let mut end = None;
    loop {
        let mut bits = 0;
        loop {
            match raw::reap() {
                Ok(Some((pid, status))) if pid == command => {
                    if slot.prepared.failure.get().is_some() {
                        bits |= NOT_STARTED;
                    } else {
                        slot.status.store(status, Ordering::Release);
                        bits |= EXITED;
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                // There are no children any more. The end of this process wakes init.
                Err(_) => return slot.finish(bits),
            }
        }
        if bits != 0 {
            slot.set_state(bits);
        }
        let signals = raw::only(WAKE) | raw::only(libc::SIGCHLD);
        if slot.kill.load(Ordering::Acquire) {
            if slot.snapshot().exited.is_none() {
                // This kills most of the processes immediately.
                let _ = raw::kill(-command, libc::SIGKILL);
            }
            // There are children: if none was found, process numbers have wrapped around.
            if !kill_children(end.unwrap_or_else(newest_process), |_| false) {
                end = Some(PID_END);
            }
            raw::wait_for_signal(signals, Some(ROUND_MILLISECONDS));
        } else {
            raw::wait_for_signal(signals, None);
        }
    }
}

/// The number of a process that is created now: all others probably have lower ones.
///
/// It has its own memory and is not waited for: it may be stopped together with everything else
/// before it has exited by itself.
fn newest_process() -> i32 {
    let arguments = [signed(libc::SIGCHLD), 0, 0, 0, 0, 0];
    // SAFETY: makes a copy of this process, which exits immediately.
    match unsafe { raw::syscall(libc::SYS_clone, arguments) } {
        0 => sys::exit_now(0),
        pid => match i32::try_from(pid) {
            Ok(pid) if pid > 0 => {
                let _ = raw::kill(pid, libc::SIGKILL);
                pid
            }
            _ => PID_END,
        },
    }
}

/// Kills every child of the calling process below this number, except those that are spared; false
/// when there was none.
fn kill_children(end: i32, spared: impl Fn(i32) -> bool) -> bool {
    let mut found = false;
    for pid in 2..end {
        if raw::is_child(pid) && !spared(pid) {
            // It is not reaped, so the number is not reused.
            let _ = raw::kill(pid, libc::SIGKILL);
            found = true;
        }
    }
    found
}

/// Kills every child of init that is no subreaper; false when there was none.
pub(super) fn kill_orphans(is_subreaper: impl Fn(i32) -> bool) -> bool {
    kill_children(newest_process(), is_subreaper)
}

/// The failure of a command that failed before it had a subreaper.
pub(super) fn refused(step: Step, error: &io::Error) -> (Step, i32) {
    let failure = Failure::default();
    failure.set(step, error);
    failure.get().unwrap_or((step, libc::EIO))
}
