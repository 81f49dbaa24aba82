//! The jail's network: its own loopback and nothing else.
//!
//! Making a network namespace is by far the slowest step of a launch, so a
//! helper process makes it while the jail's first process builds the mounts.

use std::io;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::LinkNameSpaceType;

use crate::raw;
use crate::sys::Stack;

/// How long the namespace may take on a machine under heavy load.
const DEADLINE: Duration = Duration::from_secs(20);
/// The helper makes a few calls and holds a small structure.
const STACK_BYTES: usize = 64 * 1024;
/// What the helper says before it has an answer.
const WORKING: i32 = -1;

/// A network namespace in the making.
#[derive(Debug)]
pub(crate) struct Pending {
    helper: Helper,
}

/// The helper process, which is over once it has answered. Dropping this waits for its end.
#[derive(Debug)]
pub(crate) struct Helper {
    process: OwnedFd,
    shared: Box<Shared>,
    _stack: Stack,
}

#[derive(Debug)]
struct Shared {
    /// [`WORKING`], then 0 or the number of an error.
    answer: AtomicI32,
    /// The namespace, once the answer is 0.
    namespace: AtomicI32,
}

impl Pending {
    /// Starts the helper. It shares this process's memory and descriptors and nothing else, and
    /// makes only bare calls on a stack of its own.
    pub(crate) fn start() -> io::Result<Self> {
        let shared =
            Box::new(Shared { answer: AtomicI32::new(WORKING), namespace: AtomicI32::new(-1) });
        let mut stack = Stack::new(STACK_BYTES)?;
        let mut descriptor: RawFd = -1;
        // SAFETY: the stack and the answer live until the helper is dead (`Drop`). The helper
        // allocates nothing and touches nothing else. The kernel writes the descriptor.
        let pid = unsafe {
            libc::clone(
                helper,
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
        Ok(Self { helper: Helper { process, shared, _stack: stack } })
    }

    /// Waits until the namespace is whole, and enters it. The helper is about to end.
    pub(crate) fn enter(self) -> io::Result<Helper> {
        let shared = &self.helper.shared;
        let deadline = Instant::now() + DEADLINE;
        loop {
            match shared.answer.load(Ordering::Acquire) {
                WORKING if Instant::now() > deadline => return Err(io::ErrorKind::TimedOut.into()),
                WORKING => wait_while_working(&shared.answer),
                0 => break,
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
        // SAFETY: the helper has opened this descriptor for us and does nothing with it any more.
        let namespace = unsafe { OwnedFd::from_raw_fd(shared.namespace.load(Ordering::Relaxed)) };
        let network = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(namespace.as_fd(), network)?;
        Ok(self.helper)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        crate::launch::end(&self.process);
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

/// The helper: makes the namespace, tells the answer and ends.
extern "C" fn helper(shared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the argument is in a box that outlives this process.
    let shared = unsafe { &*shared.cast::<Shared>() };
    let errno = match make() {
        Ok(namespace) => {
            shared.namespace.store(namespace, Ordering::Relaxed);
            0
        }
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    };
    shared.answer.store(errno, Ordering::Release);
    let wake = [shared.answer.as_ptr() as usize, libc::FUTEX_WAKE as usize, 1, 0, 0, 0];
    // SAFETY: wakes whoever waits on a valid word.
    unsafe { raw::syscall(libc::SYS_futex, wake) };
    crate::sys::exit_now(0)
}

/// A new namespace with its loopback up (`netdevice(7)`), as a descriptor that is closed on exec.
fn make() -> io::Result<RawFd> {
    /// A socket's network namespace (since Linux 4.10), and setting an interface's flags
    /// (linux/sockios.h).
    const SIOCGSKNS: usize = 0x894c;
    const SIOCSIFFLAGS: usize = 0x8914;
    // SAFETY: all zero is an interface's name of no length and no flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed();
    request.ifr_name[1] = b'o'.cast_signed();
    // A new namespace's loopback has no other flag that would be lost by this.
    #[expect(clippy::cast_possible_truncation, reason = "both flags fit in 16 bits")]
    {
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    }
    let request = (&raw const request) as usize;
    let kind = raw::signed(libc::SOCK_DGRAM | libc::SOCK_CLOEXEC);
    call(libc::SYS_unshare, [raw::signed(libc::CLONE_NEWNET), 0, 0])?;
    let socket = call(libc::SYS_socket, [raw::signed(libc::AF_INET), kind, 0])?;
    call(libc::SYS_ioctl, [socket, SIOCSIFFLAGS, request])?;
    let namespace = call(libc::SYS_ioctl, [socket, SIOCGSKNS, 0])?;
    call(libc::SYS_close, [socket, 0, 0])?;
    RawFd::try_from(namespace).map_err(|_| io::ErrorKind::Other.into())
}

fn call(number: libc::c_long, [a, b, c]: [usize; 3]) -> io::Result<usize> {
    // SAFETY: `make` passes numbers, and a request that is valid for the call.
    raw::check(unsafe { raw::syscall(number, [a, b, c, 0, 0, 0]) })
}
