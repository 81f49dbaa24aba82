//! Namespaces that are made before it is known what the jail will be: all but that of processes,
//! which comes with the jail's first. A run begins with them and puts its spec together meanwhile.
//!
//! They are made by a process that shares the memory of this one and runs at the same time. So it
//! allocates nothing, touches nothing but what is meant for it, and makes bare calls on a stack of
//! its own. The jail is forked from it, as a child of this process, while this one waits; then it
//! ends.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::time::Duration;

use crate::beside::Beside;
use crate::processors::Processors;
use crate::sys::{self, Side};
use crate::word::Word;
use crate::{capabilities, network, raw};

/// How long it may take on a machine under heavy load.
const DEADLINE: Duration = Duration::from_secs(20);
/// The first process of a jail goes on with a copy of this stack. Costs nothing until it is touched.
const STACK_BYTES: usize = 1 << 20;

/// All that is made but the network and that of processes.
pub(crate) const OTHERS: i32 = sys::NAMESPACES & !libc::CLONE_NEWPID;

/// What the next launch takes.
static PREPARED: Mutex<Option<Maker>> = Mutex::new(None);

/// Namespaces for the next launch of this process, as long as it lives. Dropping it ends what was
/// begun, where no launch has taken it.
#[derive(Debug)]
pub struct Prepared(());

/// Begins to make namespaces for the next [`crate::launch`], which is as good without them. The
/// caller must have a single thread.
pub fn prepare() -> Prepared {
    let maker = Maker::start();
    if let Ok(mut prepared) = PREPARED.lock() {
        // A launch finds out what cannot be made, and tells.
        *prepared = maker.ok();
    }
    Prepared(())
}

impl Drop for Prepared {
    fn drop(&mut self) {
        drop(take());
    }
}

/// What was prepared for the launch that asks.
pub(crate) fn take() -> Option<Maker> {
    PREPARED.lock().ok()?.take()
}

/// The process that makes the namespaces. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct Maker(Beside<Shared>);

/// The first process of a jail, seen from its parent.
pub(crate) type Forked = (libc::pid_t, OwnedFd);

#[derive(Debug, Default)]
struct Shared {
    /// The process that this one ends with.
    parent: libc::pid_t,
    /// The processors that the parent may run on.
    processors: Processors,
    /// The namespaces are there, or cannot be.
    apart: Word,
    /// What is in them is there, or cannot be.
    made: Word,
    /// The process is to fork.
    wanted: Word,
    /// It has, or cannot.
    forked: Word,
    /// The error number of what failed; 0 as long as nothing has.
    errno: AtomicI32,
    /// The control group to fork into, one more than its descriptor; 0 for none.
    group: AtomicI32,
    /// What the child runs in its copy of the memory: a `&mut dyn FnMut()` that never returns.
    child: AtomicPtr<libc::c_void>,
    pid: AtomicI32,
    descriptor: AtomicI32,
}

impl Maker {
    fn start() -> io::Result<Self> {
        let parent = rustix::process::getpid().as_raw_nonzero().get();
        let processors = Processors::own();
        let shared = Shared { parent, processors, ..Shared::default() };
        // SAFETY: `run` allocates nothing, touches nothing else and makes bare calls.
        unsafe { Beside::start(shared, STACK_BYTES, processors, run) }.map(Self)
    }

    /// Waits until the namespaces are there, while what is in them is still made. The process whose
    /// number this returns is in them, and ids can be mapped there.
    ///
    /// # Errors
    /// What was said to the making.
    pub(crate) fn wait_until_apart(&self) -> io::Result<libc::pid_t> {
        self.0.expect(&self.0.shared().apart, DEADLINE)?;
        self.check()?;
        Ok(self.0.pid())
    }

    /// Forks a child of this process into what was made and into all other namespaces of a jail. It
    /// runs `child`, which must not return.
    ///
    /// Returns none where nothing was forked, for it could not be prepared or forked.
    ///
    /// # Errors
    /// Who was to fork ended or took too long, and nobody knows whether it has. The child, where there
    /// is one, ends with this process.
    ///
    /// # Safety
    /// This process must have a single thread: the child goes on with a copy of its memory, and
    /// with nobody else in it.
    pub(crate) unsafe fn fork(
        &self,
        group: Option<BorrowedFd<'_>>,
        mut child: &mut dyn FnMut(),
    ) -> io::Result<Option<Forked>> {
        let shared = self.0.shared();
        if self.0.expect(&shared.made, DEADLINE).is_err() || self.check().is_err() {
            return Ok(None);
        }
        let group = group.map_or(0, |group| group.as_raw_fd() + 1);
        shared.group.store(group, Ordering::Relaxed);
        shared.child.store((&raw mut child).cast(), Ordering::Relaxed);
        shared.wanted.say();
        if self.0.expect(&shared.forked, DEADLINE).is_err() {
            // Then it forks nothing any more.
            self.0.end();
        }
        if self.check().is_err() {
            return Ok(None);
        }
        let pid = shared.pid.load(Ordering::Relaxed);
        if pid == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // SAFETY: the kernel has opened this descriptor for this process, which nobody else owns.
        let init = unsafe { OwnedFd::from_raw_fd(shared.descriptor.load(Ordering::Relaxed)) };
        Ok(Some((pid, init)))
    }

    fn check(&self) -> io::Result<()> {
        match self.0.shared().errno.load(Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// The process's own code.
fn run(shared: &Shared) {
    end_with(shared.parent);
    let made = network::separate(OTHERS).and_then(|()| {
        shared.apart.say();
        network::bring_up()
    });
    match made {
        Ok(network) => {
            let arguments = [raw::signed(network), 0, 0, 0, 0, 0];
            // SAFETY: closes the descriptor that was just opened, which nobody else knows.
            unsafe { raw::syscall(libc::SYS_close, arguments) };
        }
        Err(errno) => shared.errno.store(errno.raw_os_error(), Ordering::Relaxed),
    }
    // New rights have undone it (`prctl(2)`).
    end_with(shared.parent);
    shared.apart.say();
    shared.made.say();
    if !shared.wanted.is_said() {
        // What the jail's first process does not find done, it does.
        let _ = capabilities::empty_bounding_set();
    }
    if shared.processors.are_several() {
        // The jail's spec will be ready soon. Where somebody else has use for this processor he waits until
        // it is, or for a millisecond.
        (0..16).for_each(|_| shared.wanted.look());
    }
    shared.wanted.wait();
    // What is forked may run where the parent may.
    shared.processors.free();
    if let Err(error) = fork(shared) {
        shared.errno.store(error.raw_os_error().unwrap_or(libc::EIO), Ordering::Relaxed);
    }
    shared.forked.say();
}

/// Has this process end with its parent, which may have ended already.
fn end_with(parent: libc::pid_t) {
    let signal = raw::signed(libc::SIGKILL);
    let arguments = [raw::signed(libc::PR_SET_PDEATHSIG), signal, 0, 0, 0, 0];
    // SAFETY: both take numbers.
    let present = unsafe {
        raw::syscall(libc::SYS_prctl, arguments);
        raw::syscall(libc::SYS_getppid, [0; 6])
    };
    if present != i64::from(parent) {
        sys::exit_now(0);
    }
}

fn fork(shared: &Shared) -> io::Result<()> {
    let group = match shared.group.load(Ordering::Relaxed) {
        0 => None,
        // SAFETY: who waits for the fork keeps it open.
        descriptor => Some(unsafe { BorrowedFd::borrow_raw(descriptor - 1) }),
    };
    let flags = libc::CLONE_NEWPID | libc::CLONE_PARENT;
    // SAFETY: the only one who runs in this memory waits for this.
    match unsafe { sys::clone_process(flags, group) }? {
        Side::Parent(pid, init) => {
            shared.descriptor.store(init.into_raw_fd(), Ordering::Relaxed);
            shared.pid.store(pid, Ordering::Relaxed);
        }
        Side::Child => {
            let child = shared.child.load(Ordering::Relaxed).cast::<&mut dyn FnMut()>();
            // SAFETY: a copy of what `Maker::fork` has put there and keeps until it has heard of
            // this fork; nobody else is in this memory.
            unsafe { (*child)() };
            sys::exit_now(1)
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ended, in_child, skipped, wait_for};

    #[test]
    fn a_child_of_the_caller_is_forked_into_what_was_prepared() {
        let ended = in_child(|| {
            let maker = Maker::start().unwrap();
            let network =
                |whose: &str| std::fs::read_link(format!("/proc/{whose}/ns/net")).unwrap();
            let (outer, mut told) = (network("self"), vec![7]);
            let Ok(process) = maker.wait_until_apart() else { return 77 };
            let inner = network(&process.to_string());
            assert_ne!(inner, outer);
            let mut child = || {
                told.push(8);
                let is_apart = network("self") == inner && std::process::id() == 1;
                sys::exit_now(if is_apart && told == [7, 8] { 3 } else { 4 });
            };
            // SAFETY: the process that `in_child` makes has a single thread.
            let forked = unsafe { maker.fork(None, &mut child) };
            let Ok(Some((pid, _init))) = forked else { return 77 };
            i32::from(wait_for(pid) != Ended::Exited(3) || told != [7])
        });
        if ended == Ended::Exited(77) {
            skipped("namespaces of users cannot be made here");
            return;
        }
        assert_eq!(ended, Ended::Exited(0));
    }

    #[test]
    fn what_was_begun_ends_with_who_began_it() {
        let ended = in_child(|| {
            // What is orphaned is left to this process.
            sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1).unwrap();
            for round in 0..200 {
                // SAFETY: the process that `in_child` makes has a single thread.
                let (pid, starter) = match unsafe { sys::clone_process(0, None) }.unwrap() {
                    Side::Parent(pid, starter) => (pid, starter),
                    Side::Child => {
                        let _prepared = prepare();
                        std::thread::sleep(DEADLINE);
                        sys::exit_now(0)
                    }
                };
                std::thread::sleep(Duration::from_micros(round * 10));
                rustix::process::pidfd_send_signal(&starter, rustix::process::Signal::KILL)
                    .unwrap();
                assert_eq!(wait_for(pid), Ended::Killed(libc::SIGKILL));
            }
            // Waits for every one of them.
            while !matches!(sys::reap(true), Ok(sys::Waited::NoChildren)) {}
            0
        });
        assert_eq!(ended, Ended::Exited(0));
    }

    #[test]
    fn what_nobody_takes_ends() {
        let ended = in_child(|| {
            drop(prepare());
            assert!(take().is_none());
            // There is no child left to wait for.
            i32::from(!matches!(sys::reap(true), Ok(sys::Waited::NoChildren)))
        });
        assert_eq!(ended, Ended::Exited(0));
    }
}
