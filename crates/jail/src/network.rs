//! The jail's network: its own loopback and nothing else.
//!
//! Making a network namespace is by far the slowest step of a launch, so a
//! helper process makes it while the jail's first process builds the mounts.

use std::io;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::LinkNameSpaceType;

/// How long the namespace may take on a machine under heavy load.
const DEADLINE: Duration = Duration::from_secs(20);
/// The helper makes a few calls and holds a small structure.
const STACK_BYTES: usize = 64 * 1024;
/// What the helper says before it has an answer.
const WORKING: i32 = -1;

/// A network namespace in the making.
#[derive(Debug)]
pub(crate) struct Pending {
    helper: OwnedFd,
    shared: Box<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// [`WORKING`], then 0 or the number of an error.
    answer: AtomicI32,
    stack: Vec<u128>,
}

impl Pending {
    /// Starts the helper. It shares this process's memory and nothing else, and makes only bare
    /// calls on a stack of its own.
    pub(crate) fn start() -> io::Result<Self> {
        let mut shared = Box::new(Shared {
            answer: AtomicI32::new(WORKING),
            stack: vec![0; STACK_BYTES / size_of::<u128>()],
        });
        let mut descriptor: RawFd = -1;
        let stack = shared.stack.as_mut_ptr_range().end;
        // SAFETY: the stack is 16-byte aligned and grows down from its end; it and the answer
        // live in the box, which is dropped only after the helper is dead (`Drop`). The helper
        // allocates nothing and touches nothing else. The kernel writes the descriptor.
        let pid = unsafe {
            libc::clone(
                helper,
                stack.cast(),
                libc::CLONE_VM | libc::CLONE_PIDFD | libc::SIGCHLD,
                (&raw const shared.answer).cast_mut().cast(),
                &raw mut descriptor,
            )
        };
        if pid == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened this descriptor for us.
        Ok(Self { helper: unsafe { OwnedFd::from_raw_fd(descriptor) }, shared })
    }

    /// Waits until the namespace is whole, and enters it.
    pub(crate) fn enter(self) -> io::Result<()> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.shared.answer.load(Ordering::Acquire) {
                WORKING if Instant::now() > deadline => return Err(io::ErrorKind::TimedOut.into()),
                WORKING => wait_while_working(&self.shared.answer),
                0 => break,
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
        let network = Some(LinkNameSpaceType::Network);
        Ok(rustix::thread::move_into_link_name_space(self.helper.as_fd(), network)?)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        crate::launch::end(&self.helper);
    }
}

/// Sleeps until the answer may have changed, a tenth of a second at most.
fn wait_while_working(answer: &AtomicI32) {
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    // SAFETY: the word and the time are valid for the call. Whatever it returns, the caller
    // looks again.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            answer.as_ptr(),
            libc::FUTEX_WAIT,
            WORKING,
            &raw const timeout,
        );
    }
}

/// The helper: makes the namespace, tells the answer and stays until it is killed, for the
/// namespace is entered through it.
extern "C" fn helper(answer: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the argument is the answer in a box that outlives this process.
    let answer = unsafe { &*answer.cast::<AtomicI32>() };
    let errno = match make() {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    };
    answer.store(errno, Ordering::Release);
    // SAFETY: wakes whoever waits on a valid word; then sleeps.
    unsafe {
        libc::syscall(libc::SYS_futex, answer.as_ptr(), libc::FUTEX_WAKE, 1);
        loop {
            libc::syscall(libc::SYS_pause);
        }
    }
}

/// A new namespace with its loopback up (`netdevice(7)`).
fn make() -> io::Result<()> {
    // SAFETY: bare calls; the request is valid, and all zero but for a short, zero-ended name
    // and the flags. A new namespace's loopback has no other flag that would be lost by this.
    unsafe {
        check(libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNET))?;
        let socket = check(libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_DGRAM, 0))?;
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l'.cast_signed();
        request.ifr_name[1] = b'o'.cast_signed();
        #[expect(clippy::cast_possible_truncation, reason = "both flags fit in 16 bits")]
        {
            request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        }
        check(libc::syscall(libc::SYS_ioctl, socket, libc::SIOCSIFFLAGS, &raw const request))?;
    }
    Ok(())
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
