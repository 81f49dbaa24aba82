//! A second process that raises walls beside the jail's first one: it makes the network, which takes
//! longest of all, and then `/dev` and `/proc`, while the first one does all else.
//!
//! It shares memory and descriptors with the first process and runs at the same time. So it
//! allocates nothing, touches nothing but what is meant for it, and makes bare calls on a stack of
//! its own. It ends before the command starts.

use std::io;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::LinkNameSpaceType;

use crate::fixtures::{Fixtures, Step};
use crate::mounts::{At as _, Failure};
use crate::sys::Stack;
use crate::walls::Wall;
use crate::{network, raw};

/// How long it may take on a machine under heavy load.
const DEADLINE: Duration = Duration::from_secs(20);
/// The helper makes a few calls and holds small structures.
const STACK_BYTES: usize = 64 * 1024;

/// What is not there yet.
const NOT_YET: i32 = 0;
const DONE: i32 = 1;

/// The helper. Dropping this waits for its end.
#[derive(Debug)]
pub(crate) struct Helper {
    process: OwnedFd,
    shared: Box<Shared>,
    _stack: Stack,
}

#[derive(Debug, Default)]
struct Shared {
    /// What is to be attached, once `entered` says so.
    fixtures: OnceLock<Fixtures>,
    /// Whether the inside ids are to be taken on first.
    take_ids: AtomicU8,
    /// [`DONE`] once the jail's root is that of both processes.
    entered: AtomicI32,
    /// [`DONE`] once there is nothing left to do, or something has failed.
    over: AtomicI32,
    /// The network's namespace.
    network: AtomicI32,
    /// The step that failed, and its error number.
    failed: AtomicU8,
    errno: AtomicI32,
}

impl Helper {
    /// Starts the helper, which begins with the network.
    pub(crate) fn start() -> io::Result<Self> {
        let shared = Box::<Shared>::default();
        let mut stack = Stack::new(STACK_BYTES)?;
        let mut descriptor: RawFd = -1;
        // SAFETY: the stack and what is shared live until the helper is dead (`Drop`). The helper
        // allocates nothing and touches nothing else. The kernel writes the descriptor.
        let pid = unsafe {
            libc::clone(
                run,
                stack.top(),
                libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_PIDFD | libc::SIGCHLD,
                (&raw const *shared).cast_mut().cast(),
                &raw mut descriptor,
            )
        };
        if pid == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened this descriptor for us.
        let process = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self { process, shared, _stack: stack })
    }

    /// Has the helper attach these. The jail's root must have been entered, and its ids be mapped;
    /// with `take_ids` the helper takes on the inside ids, which are not its own yet.
    pub(crate) fn furnish(&self, fixtures: Fixtures, take_ids: bool) {
        // Called once: nothing is there yet.
        let _ = self.shared.fixtures.set(fixtures);
        self.shared.take_ids.store(take_ids.into(), Ordering::Relaxed);
        tell(&self.shared.entered);
    }

    /// Waits until all is done, and enters the network. The helper is about to end.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let words = |text: &'static str| move || text.to_owned();
        let shared = &self.shared;
        let deadline = Instant::now() + DEADLINE;
        while shared.over.load(Ordering::Acquire) == NOT_YET {
            if Instant::now() > deadline {
                return Err(Errno::TIMEDOUT).at(Wall::Network, words("wait for the helper"));
            }
            wait(&shared.over, Some(Duration::from_millis(100)));
        }
        let failed = shared.failed.load(Ordering::Relaxed);
        if let Some(step) = Step::ALL.into_iter().find(|step| *step as u8 == failed) {
            let error = io::Error::from_raw_os_error(shared.errno.load(Ordering::Relaxed));
            return Err(error).at(step.wall(), words(step.words()));
        }
        // SAFETY: the helper has opened this descriptor for us and does nothing with it any more.
        let network = unsafe { OwnedFd::from_raw_fd(shared.network.load(Ordering::Relaxed)) };
        let kind = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(network.as_fd(), kind)
            .at(Wall::Network, words("enter the network"))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        crate::launch::end(&self.process);
    }
}

/// The helper's own code.
extern "C" fn run(shared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the argument is in a box that outlives this process.
    let shared = unsafe { &*shared.cast::<Shared>() };
    if let Err((step, errno)) = work(shared) {
        shared.errno.store(errno.raw_os_error(), Ordering::Relaxed);
        shared.failed.store(step as u8, Ordering::Relaxed);
    }
    tell(&shared.over);
    crate::sys::exit_now(0)
}

fn work(shared: &Shared) -> Result<(), (Step, Errno)> {
    let network = network::make().map_err(|errno| (Step::Network, errno))?;
    shared.network.store(network, Ordering::Relaxed);
    while shared.entered.load(Ordering::Acquire) == NOT_YET {
        wait(&shared.entered, None);
    }
    if shared.take_ids.load(Ordering::Relaxed) != 0 {
        crate::command::become_ids(0, 0).map_err(|errno| (Step::Ids, errno))?;
    }
    // Both are the caller's, as they were when this process began.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::chdir(c"/").map_err(|errno| (Step::Dev, errno))?;
    shared.fixtures.get().map_or(Ok(()), Fixtures::attach)
}

/// Sets a word to [`DONE`] and wakes the other process.
fn tell(word: &AtomicI32) {
    word.store(DONE, Ordering::Release);
    let arguments = [word.as_ptr() as usize, libc::FUTEX_WAKE as usize, 1, 0, 0, 0];
    // SAFETY: wakes whoever waits on a valid word.
    unsafe { raw::syscall(libc::SYS_futex, arguments) };
}

/// Sleeps until a word may have changed, so long at most.
fn wait(word: &AtomicI32, at_most: Option<Duration>) {
    let timeout =
        at_most.map(|timeout| libc::timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let (wait, not_yet) = (raw::signed(libc::FUTEX_WAIT), raw::signed(NOT_YET));
    let arguments = [word.as_ptr() as usize, wait, not_yet, timeout as usize, 0, 0];
    // SAFETY: the word and the time are valid for the call. Whatever it returns, the caller looks
    // again.
    unsafe { raw::syscall(libc::SYS_futex, arguments) };
}
