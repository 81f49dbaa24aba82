//! A child process that shares this one's memory and file descriptors and runs concurrently
//! (`CLONE_VM`, `CLONE_FILES`), so that slow system calls of both overlap.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::event::{Event, WAIT_SLICE};
use crate::sys::{self, Stack};

/// The child, and what it shares with this process. Dropping it kills and reaps the child.
#[derive(Debug)]
pub(crate) struct VmProcess<S> {
    process: OwnedFd,
    task: Box<Task<S>>,
    _stack: Stack,
}

#[derive(Debug)]
struct Task<S> {
    work: fn(&S),
    shared: S,
}

impl<S: Sync> VmProcess<S> {
    /// Starts a child that does `work`, and then exits.
    ///
    /// # Errors
    /// The error of mmap(2) or clone(2).
    ///
    /// # Safety
    /// `work` must allocate nothing, must touch nothing but what is shared, and must make bare
    /// system calls only: even `errno` is the parent's. The stack must be large enough for it.
    pub(crate) unsafe fn start(shared: S, stack_bytes: usize, work: fn(&S)) -> io::Result<Self> {
        reserve_descriptors();
        let task = Box::new(Task { work, shared });
        let mut stack = Stack::new(stack_bytes)?;
        let mut descriptor: RawFd = -1;
        // SAFETY: the stack and the task live until the child is dead (`Drop`), and the caller is
        // responsible for what `work` does. The kernel writes the descriptor.
        let pid = unsafe {
            libc::clone(
                enter::<S>,
                stack.top(),
                libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_PIDFD | libc::SIGCHLD,
                (&raw const *task).cast_mut().cast(),
                &raw mut descriptor,
            )
        };
        if pid == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened this descriptor for us.
        let process = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self { process, task, _stack: stack })
    }

    /// What both processes use.
    pub(crate) fn shared(&self) -> &S {
        &self.task.shared
    }

    /// Waits for an event that the child sets, at most for this long, and not beyond the child's death.
    ///
    /// # Errors
    /// `ETIMEDOUT`, also where the child has died without setting the event.
    pub(crate) fn wait(&self, event: &Event, timeout: Duration) -> Result<(), Errno> {
        let deadline = Instant::now() + timeout;
        loop {
            // Checked first: an event that was set before the death counts.
            let is_dead = self.is_dead();
            match event.wait_timeout(if is_dead { Duration::ZERO } else { WAIT_SLICE }) {
                Err(Errno::TIMEDOUT) if !is_dead && Instant::now() < deadline => {}
                result => return result,
            }
        }
    }

    fn is_dead(&self) -> bool {
        let mut death = [PollFd::new(&self.process, PollFlags::IN)];
        poll(&mut death, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// Kills the child and reaps it.
    pub(crate) fn kill(&self) {
        sys::kill_and_reap(&self.process);
    }

    /// Kills and reaps the child, but leaves its stack and the shared value mapped until this
    /// process ends, because unmapping takes longer. Shared file descriptors stay open.
    pub(crate) fn leak(self) {
        self.kill();
        std::mem::forget(self);
    }
}

impl<S> Drop for VmProcess<S> {
    fn drop(&mut self) {
        sys::kill_and_reap(&self.process);
    }
}

/// Makes the table of file descriptors large enough for both processes beforehand. If a table grows
/// while two processes share it, the process that opens a file waits for an RCU grace period
/// (`expand_files` in the kernel): ten milliseconds and more.
pub(crate) fn reserve_descriptors() {
    const MANY: RawFd = 255;
    // Where the limit is lower the table does not grow either.
    let _ = eventfd(0, EventfdFlags::CLOEXEC).and_then(|one| fcntl_dupfd_cloexec(one, MANY));
}

extern "C" fn enter<S>(task: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the argument is in a box that outlives this process.
    let task = unsafe { &*task.cast::<Task<S>>() };
    (task.work)(&task.shared);
    sys::exit_now(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ChildExit, in_child};

    #[test]
    fn nobody_waits_for_an_event_beyond_the_death_of_its_setter() {
        let ended = in_child(|| {
            let timeout = Duration::from_secs(600);
            let start = |work: fn(&Event)| {
                // SAFETY: these functions allocate nothing.
                unsafe { VmProcess::start(Event::default(), 64 * 1024, work) }.unwrap()
            };
            let silent = start(|_| {});
            assert_eq!(silent.wait(silent.shared(), timeout), Err(Errno::TIMEDOUT));
            let killed = start(Event::wait);
            killed.kill();
            assert_eq!(killed.wait(killed.shared(), timeout), Err(Errno::TIMEDOUT));
            let setting = start(Event::set);
            assert_eq!(setting.wait(setting.shared(), timeout), Ok(()));
            0
        });
        assert_eq!(ended, ChildExit::Exited(0));
    }
}
