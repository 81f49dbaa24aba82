//! A process that shares the memory and the descriptors of this one and runs at the same time: for
//! slow system calls that need not be waited for one after the other.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use crate::sys::{self, Stack};
use crate::word::{LOOKING, Word};

/// The process, and what it shares with this one. Dropping it ends it and waits for that.
#[derive(Debug)]
pub(crate) struct Beside<S> {
    process: OwnedFd,
    task: Box<Task<S>>,
    _stack: Stack,
}

#[derive(Debug)]
struct Task<S> {
    work: fn(&S),
    shared: S,
}

impl<S: Sync> Beside<S> {
    /// Starts a process that does `work`, and then ends.
    ///
    /// # Errors
    /// What mmap(2) or clone(2) said.
    ///
    /// # Safety
    /// `work` may allocate nothing and touch nothing but what is shared, and all that it calls must
    /// be bare, for not even `errno` is its own. The stack must be enough for it.
    pub(crate) unsafe fn start(shared: S, stack_bytes: usize, work: fn(&S)) -> io::Result<Self> {
        make_room_for_descriptors();
        let task = Box::new(Task { work, shared });
        let mut stack = Stack::new(stack_bytes)?;
        let mut descriptor: RawFd = -1;
        // SAFETY: the stack and the task live until the process is dead (`Drop`), and what it does
        // is the caller's to answer for. The kernel writes the descriptor.
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

    /// Waits for a word that the process is to say, so long at most, and not beyond its end.
    ///
    /// # Errors
    /// `ETIMEDOUT`, also where it has ended without a word.
    pub(crate) fn expect(&self, word: &Word, longest: Duration) -> Result<(), Errno> {
        let deadline = Instant::now() + longest;
        loop {
            // Its end is looked for first: what it said before counts.
            let has_ended = self.has_ended();
            match word.wait_at_most(if has_ended { Duration::ZERO } else { LOOKING }) {
                Err(Errno::TIMEDOUT) if !has_ended && Instant::now() < deadline => {}
                heard => return heard,
            }
        }
    }

    fn has_ended(&self) -> bool {
        let mut end = [PollFd::new(&self.process, PollFlags::IN)];
        poll(&mut end, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ended| ended > 0)
    }

    /// Ends the process before its work is done.
    pub(crate) fn end(&self) {
        crate::launch::end(&self.process);
    }

    /// Ends the process, and leaves what it shared with this one to the end of this one. The descriptors
    /// stay open.
    pub(crate) fn leave(self) {
        self.end();
        std::mem::forget(self);
    }
}

impl<S> Drop for Beside<S> {
    fn drop(&mut self) {
        crate::launch::end(&self.process);
    }
}

/// Has the kernel make the table of descriptors larger than both processes will need. When it grows
/// later, and two processes share it, whoever opens the one too many waits until all processors have
/// been elsewhere (`expand_files` of the kernel): ten milliseconds and more.
pub(crate) fn make_room_for_descriptors() {
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
    use crate::testing::{Ended, in_child};

    #[test]
    fn who_ends_without_a_word_is_not_waited_for() {
        let ended = in_child(|| {
            let longest = Duration::from_secs(600);
            let start = |work: fn(&Word)| {
                // SAFETY: what these do allocates nothing.
                unsafe { Beside::start(Word::default(), 64 * 1024, work) }.unwrap()
            };
            let silent = start(|_| {});
            assert_eq!(silent.expect(silent.shared(), longest), Err(Errno::TIMEDOUT));
            let killed = start(Word::wait);
            killed.end();
            assert_eq!(killed.expect(killed.shared(), longest), Err(Errno::TIMEDOUT));
            let saying = start(Word::say);
            assert_eq!(saying.expect(saying.shared(), longest), Ok(()));
            0
        });
        assert_eq!(ended, Ended::Exited(0));
    }
}
