//! The process between init and a command: it takes in whatever the command starts and leaves
//! behind, and ends all of it when it is told to.
//!
//! It shares init's memory and runs beside it. So it allocates nothing, touches nothing but its
//! [`Slot`] and makes bare calls only. It stays until nothing that the command started is alive.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};

use crate::command::{self, Failure, Prepared, Step};
use crate::control::wire;
use crate::landlock::Ruleset;
use crate::processors::Processors;
use crate::raw::{self, signed};
use crate::sys;

/// What wakes a subreaper.
pub(super) const WAKE: i32 = libc::SIGUSR1;
/// No process has this number or a higher one (`PID_MAX_LIMIT`, `proc(5)`).
const END: i32 = 4_194_304;
/// How long to wait for killed processes to be gone, in milliseconds.
const ROUND_MILLISECONDS: u32 = 2;

/// Init and its subreapers make few and shallow calls.
const STACK_BYTES: usize = 32 << 10;
const COMMAND_STACK_BYTES: usize = 64 << 10;
const WORDS: usize = (STACK_BYTES + COMMAND_STACK_BYTES) / size_of::<u128>();

const NOT_STARTED: u8 = 1;
const EXITED: u8 = 2;
const GONE: u8 = 4;
/// The subreaper may tell the client of the end itself.
const MAY_TELL: u8 = 8;
/// It has.
const TOLD: u8 = 16;

/// Where a subreaper's news go.
#[derive(Debug)]
pub(super) struct Wires<'a> {
    /// To init.
    pub(super) news: BorrowedFd<'a>,
    /// To init's client, who waits for nothing as much as for the end of a command.
    pub(super) client: Option<BorrowedFd<'a>>,
}

/// What init shares with one subreaper and its command.
#[derive(Debug)]
pub(super) struct Slot {
    number: u64,
    prepared: Prepared,
    /// The inner ends of the command's streams; with a terminal the same three times.
    streams: [RawFd; 3],
    ruleset: Option<Rc<Ruleset>>,
    news: RawFd,
    client: Option<RawFd>,
    /// Those of init, and so of the command.
    processors: Processors,
    state: AtomicU8,
    status: AtomicI32,
    command: AtomicI32,
    /// Signals that are still to be sent to the command, one bit for each.
    signals: AtomicU64,
    kill: AtomicBool,
    stack: Box<[MaybeUninit<u128>]>,
}

/// What is seen of a command through its slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// The step that failed, and the kernel's number.
    pub(super) not_started: Option<(Step, i32)>,
    /// The status as `wait(2)` gives it.
    pub(super) exited: Option<i32>,
    /// Init's client knows of that.
    pub(super) told: bool,
    /// Nothing of it is alive.
    pub(super) gone: bool,
}

impl Slot {
    pub(super) fn new(
        number: u64,
        prepared: Prepared,
        streams: [BorrowedFd<'_>; 3],
        ruleset: Option<Rc<Ruleset>>,
        wires: Wires<'_>,
    ) -> Box<Self> {
        Box::new(Self {
            number,
            prepared,
            streams: streams.map(|stream| stream.as_raw_fd()),
            ruleset,
            news: wires.news.as_raw_fd(),
            client: wires.client.map(|client| client.as_raw_fd()),
            processors: Processors::own(),
            state: AtomicU8::new(if wires.client.is_some() { MAY_TELL } else { 0 }),
            status: AtomicI32::new(0),
            command: AtomicI32::new(0),
            signals: AtomicU64::new(0),
            kill: AtomicBool::new(false),
            stack: Box::new_uninit_slice(WORDS),
        })
    }

    /// Starts the subreaper, which starts the command; gives the subreaper's process id.
    ///
    /// # Safety
    /// The slot may be dropped only when the subreaper was reaped, and after [`GONE`] was seen or
    /// everything that it had started is dead. Its streams may be closed at once.
    pub(super) unsafe fn start(&self) -> io::Result<i32> {
        // The lower part is the command's, which is entered from the upper one.
        let top = self.stack.as_ptr_range().end.cast_mut();
        // SAFETY: the stack is 16-byte aligned and grows down from its end; the caller keeps the
        // slot alive. The subreaper and the command touch no other memory of init's.
        let pid = unsafe {
            libc::clone(
                subreaper,
                top.cast(),
                libc::CLONE_VM | libc::SIGCHLD,
                std::ptr::from_ref(self).cast_mut().cast(),
            )
        };
        if pid == -1 { Err(io::Error::last_os_error()) } else { Ok(pid) }
    }

    pub(super) fn seen(&self) -> Seen {
        let state = self.state.load(Ordering::Acquire);
        Seen {
            not_started: (state & NOT_STARTED != 0)
                .then(|| self.prepared.failure.get().unwrap_or((Step::Exec, libc::EIO))),
            exited: (state & EXITED != 0).then(|| self.status.load(Ordering::Acquire)),
            told: state & TOLD != 0,
            gone: state & GONE != 0,
        }
    }

    /// Has the end told by init alone, unless it was told already.
    pub(super) fn leave_telling_to_init(&self) {
        self.state.fetch_and(!MAY_TELL, Ordering::AcqRel);
    }

    /// Whether the command is on its way to become another program.
    pub(super) fn is_starting(&self) -> bool {
        self.command.load(Ordering::SeqCst) == 0 && !self.seen().gone
    }

    /// Sends a signal to the command's process group, at once or when it has become another program.
    pub(super) fn signal(&self, signal: i32) {
        self.signals.fetch_or(raw::only(signal), Ordering::SeqCst);
        self.send_signals();
    }

    /// Sends what is to be sent, unless there is no command yet: whoever is later, init with the
    /// signal or the subreaper with the command, sees what the other one has stored.
    fn send_signals(&self) {
        let command = self.command.load(Ordering::SeqCst);
        if command == 0 {
            return;
        }
        let signals = self.signals.swap(0, Ordering::SeqCst);
        for signal in (1..=64).filter(|signal| signals & raw::only(*signal) != 0) {
            // Its own process group, or the command alone before it has one.
            if raw::kill(-command, signal).is_err() {
                let _ = raw::kill(command, signal);
            }
        }
    }

    /// Asks the subreaper to end everything; it is to be woken then.
    pub(super) fn ask_to_kill(&self) {
        self.kill.store(true, Ordering::Release);
    }

    /// Notes it and wakes init.
    fn tell(&self, state: u8) {
        self.state.fetch_or(state, Ordering::Release);
        let one = 1_u64;
        let arguments = [signed(self.news), (&raw const one) as usize, 8, 0, 0, 0];
        // SAFETY: writes eight valid bytes to init's descriptor for news.
        unsafe { raw::syscall(libc::SYS_write, arguments) };
    }

    /// Notes that nothing is left, after this. A client that hears of the command's end from here
    /// hears of it once, and before it hears of anything else: what it was told counts only while
    /// init has not lost it.
    fn note_all(&self, news: u8) {
        let told = news & EXITED != 0 && !self.kill.load(Ordering::Acquire) && self.tell_client();
        let all = |state: u8| {
            let told = if told && state & MAY_TELL != 0 { TOLD } else { 0 };
            Some(state | news | GONE | told)
        };
        // The function never refuses.
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, all);
    }

    /// Tells init's client of the command's end; false when it is not there or does not listen.
    fn tell_client(&self) -> bool {
        let may = self.state.load(Ordering::Acquire) & MAY_TELL != 0;
        let Some(client) = self.client.filter(|_| may) else { return false };
        let report = wire::exited(self.number, self.status.load(Ordering::Acquire));
        let flags = raw::signed(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        let bytes = report.as_ptr() as usize;
        let arguments = [raw::signed(client), bytes, report.len(), flags, 0, 0];
        // SAFETY: the bytes are valid for the call.
        raw::check(unsafe { raw::syscall(libc::SYS_sendto, arguments) }).is_ok()
    }

    /// Closes everything but the descriptors for news.
    fn close_others(&self) {
        let mut kept = [self.news, self.client.unwrap_or(self.news)];
        kept.sort_unstable();
        let mut first = 0;
        for descriptor in kept.map(i32::cast_unsigned) {
            if descriptor > first {
                close_range(first, descriptor - 1);
            }
            first = first.max(descriptor + 1);
        }
        close_range(first, u32::MAX);
    }
}

fn close_range(first: u32, last: u32) {
    let arguments = [first as usize, last as usize, 0, 0, 0, 0];
    // SAFETY: closes descriptors of a process that uses none of them again.
    unsafe { raw::syscall(libc::SYS_close_range, arguments) };
}

extern "C" fn subreaper(slot: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the argument is a slot that init keeps until this process has been reaped.
    let slot = unsafe { &*slot.cast::<Slot>().cast_const() };
    let arguments = [signed(libc::PR_SET_CHILD_SUBREAPER), 1, 0, 0, 0, 0];
    // SAFETY: takes numbers.
    let adopting = raw::check(unsafe { raw::syscall(libc::SYS_prctl, arguments) });
    match adopting.and_then(|_| start_command(slot)) {
        Ok(command) => {
            slot.close_others();
            slot.command.store(command, Ordering::SeqCst);
            slot.send_signals();
            stay(slot, command);
        }
        Err(error) => {
            slot.prepared.failure.set(Step::Start, &error);
            slot.tell(NOT_STARTED | GONE);
        }
    }
    sys::exit_now(0)
}

/// Starts the command and waits until it has left this memory.
fn start_command(slot: &Slot) -> io::Result<i32> {
    extern "C" fn enter(slot: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the subreaper waits, and init keeps the slot.
        let slot = unsafe { &*slot.cast::<Slot>().cast_const() };
        slot.processors.free();
        command::run(&slot.prepared, slot.streams, slot.ruleset.as_deref())
    }
    // The command begins where the subreaper is, which waits for it.
    slot.processors.tie();
    let command = clone_below(slot, enter);
    slot.processors.free();
    command
}

/// Runs a function in a child that shares the memory, on the lower part of the stack, and waits
/// until the child has left it.
fn clone_below(
    slot: &Slot,
    enter: extern "C" fn(*mut libc::c_void) -> libc::c_int,
) -> io::Result<i32> {
    let start = slot.stack.as_ptr().cast::<u8>();
    // SAFETY: the lower part of the stack, which grows down from its end, is used by nobody else;
    // this process does not go on until the child has become another program or ended.
    let pid = unsafe {
        let top = start.add(COMMAND_STACK_BYTES).cast_mut();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(enter, top.cast(), flags, std::ptr::from_ref(slot).cast_mut().cast())
    };
    // What failed is told in `errno`, which is init's too; there is one likely reason.
    if pid == -1 { Err(io::Error::from_raw_os_error(libc::EAGAIN)) } else { Ok(pid) }
}

/// Reaps and, when it is told to, kills, until nothing is left.
fn stay(slot: &Slot, command: i32) {
    let mut end = None;
    loop {
        let mut news = 0;
        loop {
            match raw::reap() {
                Ok(Some((pid, status))) if pid == command => {
                    if slot.prepared.failure.get().is_some() {
                        news |= NOT_STARTED;
                    } else {
                        slot.status.store(status, Ordering::Release);
                        news |= EXITED;
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                // There is no child any more. Init is woken by this process's end.
                Err(_) => return slot.note_all(news),
            }
        }
        if news != 0 {
            slot.tell(news);
        }
        let signals = raw::only(WAKE) | raw::only(libc::SIGCHLD);
        if slot.kill.load(Ordering::Acquire) {
            if slot.seen().exited.is_none() {
                // The most of it, at once.
                let _ = raw::kill(-command, libc::SIGKILL);
            }
            // There are children: when none was found, numbers have started anew.
            if !kill_children(end.unwrap_or_else(newest_process), |_| false) {
                end = Some(END);
            }
            raw::wait_for_signal(signals, Some(ROUND_MILLISECONDS));
        } else {
            raw::wait_for_signal(signals, None);
        }
    }
}

/// The number of a process that is made now: all others are likely to have lower ones.
///
/// It has memory of its own and is not waited for: with everything else it may be stopped before it
/// has ended by itself.
fn newest_process() -> i32 {
    let arguments = [signed(libc::SIGCHLD), 0, 0, 0, 0, 0];
    // SAFETY: makes a copy of this process, which ends at once.
    match unsafe { raw::syscall(libc::SYS_clone, arguments) } {
        0 => sys::exit_now(0),
        pid => match i32::try_from(pid) {
            Ok(pid) if pid > 0 => {
                let _ = raw::kill(pid, libc::SIGKILL);
                pid
            }
            _ => END,
        },
    }
}

/// Kills every child of the calling process below this number, but those that are spared; false
/// when there was none.
fn kill_children(end: i32, spared: impl Fn(i32) -> bool) -> bool {
    let mut found = false;
    for pid in 2..end {
        if raw::is_child(pid) && !spared(pid) {
            // It is not reaped, so the number is still its own.
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

/// Wakes a subreaper, which may have been stopped from inside.
pub(super) fn wake(subreaper: i32) {
    // It may be gone, which is seen elsewhere.
    let _ = raw::kill(subreaper, WAKE);
    let _ = raw::kill(subreaper, libc::SIGCONT);
}

/// The failure of a command that was refused before it had a subreaper.
pub(super) fn refused(step: Step, error: &io::Error) -> (Step, i32) {
    let failure = Failure::default();
    failure.set(step, error);
    failure.get().unwrap_or((step, libc::EIO))
}
