//! The process between init and a command: it takes in whatever the command starts and leaves
//! behind, and ends all of it when it is told to.
//!
//! It shares init's memory and runs beside it. So it allocates nothing, touches nothing but its
//! [`Slot`] and makes bare calls only. It stays until nothing that the command started is alive.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};

use crate::command::{self, Failure, Prepared, Step};
use crate::landlock::Ruleset;
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

const STARTED: u8 = 1;
const NOT_STARTED: u8 = 2;
const EXITED: u8 = 4;
const GONE: u8 = 8;

/// What init shares with one subreaper and its command.
#[derive(Debug)]
pub(super) struct Slot {
    prepared: Prepared,
    /// The inner ends of the command's streams; with a terminal the same three times.
    streams: [RawFd; 3],
    ruleset: Option<Rc<Ruleset>>,
    news: RawFd,
    state: AtomicU8,
    status: AtomicI32,
    command: AtomicI32,
    kill: AtomicBool,
    stack: Box<[MaybeUninit<u128>]>,
}

/// What is seen of a command through its slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) started: bool,
    /// The step that failed, and the kernel's number.
    pub(super) not_started: Option<(Step, i32)>,
    /// The status as `wait(2)` gives it.
    pub(super) exited: Option<i32>,
    /// Nothing of it is alive.
    pub(super) gone: bool,
}

impl Slot {
    pub(super) fn new(
        prepared: Prepared,
        streams: [BorrowedFd<'_>; 3],
        ruleset: Option<Rc<Ruleset>>,
        news: BorrowedFd<'_>,
    ) -> Box<Self> {
        Box::new(Self {
            prepared,
            streams: streams.map(|stream| stream.as_raw_fd()),
            ruleset,
            news: news.as_raw_fd(),
            state: AtomicU8::new(0),
            status: AtomicI32::new(0),
            command: AtomicI32::new(0),
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
            started: state & STARTED != 0,
            not_started: (state & NOT_STARTED != 0)
                .then(|| self.prepared.failure.get().unwrap_or((Step::Exec, libc::EIO))),
            exited: (state & EXITED != 0).then(|| self.status.load(Ordering::Acquire)),
            gone: state & GONE != 0,
        }
    }

    /// The command's process id, once there is one.
    pub(super) fn command(&self) -> Option<i32> {
        Some(self.command.load(Ordering::Acquire)).filter(|pid| *pid > 0)
    }

    /// Asks the subreaper to end everything; it is to be woken then.
    pub(super) fn ask_to_kill(&self) {
        self.kill.store(true, Ordering::Release);
    }

    fn tell(&self, state: u8) {
        self.state.fetch_or(state, Ordering::Release);
        let one = 1_u64;
        let arguments = [signed(self.news), (&raw const one) as usize, 8, 0, 0, 0];
        // SAFETY: writes eight valid bytes to init's descriptor for news.
        unsafe { raw::syscall(libc::SYS_write, arguments) };
    }

    /// Closes everything but the descriptor for news and, `with_streams`, what the command needs.
    fn close_others(&self, with_streams: bool) {
        let ruleset = self.ruleset.as_ref().map_or(self.news, |rules| rules.as_fd().as_raw_fd());
        let [input, output, error] = self.streams;
        let mut kept =
            if with_streams { [input, output, error, ruleset, self.news] } else { [self.news; 5] };
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
    slot.close_others(true);
    match adopting.and_then(|_| start_command(slot)) {
        Ok(command) => {
            slot.close_others(false);
            slot.command.store(command, Ordering::Release);
            if slot.prepared.failure.get().is_none() {
                slot.tell(STARTED);
            }
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
        command::run(&slot.prepared, slot.streams, slot.ruleset.as_deref())
    }
    clone_below(slot, enter)
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
        loop {
            match raw::reap() {
                Ok(Some((pid, status))) if pid == command => {
                    if slot.prepared.failure.get().is_some() {
                        slot.tell(NOT_STARTED);
                    } else {
                        slot.status.store(status, Ordering::Release);
                        slot.tell(EXITED);
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                // There is no child any more.
                Err(_) => return slot.tell(GONE),
            }
        }
        let signals = raw::only(WAKE) | raw::only(libc::SIGCHLD);
        if slot.kill.load(Ordering::Acquire) {
            if slot.seen().exited.is_none() {
                // The most of it, at once.
                let _ = raw::kill(-command, libc::SIGKILL);
            }
            // There are children: when none was found, numbers have started anew.
            if !kill_children(end.unwrap_or_else(|| newest_process(slot)), |_| false) {
                end = Some(END);
            }
            raw::wait_for_signal(signals, Some(ROUND_MILLISECONDS));
        } else {
            raw::wait_for_signal(signals, None);
        }
    }
}

/// The number of a process that is made now: all others are likely to have lower ones.
fn newest_process(slot: &Slot) -> i32 {
    extern "C" fn leave(_: *mut libc::c_void) -> libc::c_int {
        sys::exit_now(0)
    }
    clone_below(slot, leave).unwrap_or(END)
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
    // SAFETY: init has a single thread, and the child ends at once.
    let newest = unsafe { sys::spawn_sharing_memory(&|| sys::exit_now(0)) };
    kill_children(newest.unwrap_or(END), is_subreaper)
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
