//! A word that one process says to another one that shares its memory. Saying and waiting allocate
//! nothing and make bare calls only.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::raw;

const NOT_YET: i32 = 0;
const SAID: i32 = 1;

/// How long one wait for a word is that may never come.
pub(crate) const LOOKING: Duration = Duration::from_millis(100);

/// A word that is said once: a number, which is not 0 any more once it is said.
#[derive(Debug, Default)]
pub(crate) struct Word(AtomicI32);

impl Word {
    /// Says it, and wakes who waits. All that was written before is seen by whoever has waited.
    pub(crate) fn say(&self) {
        self.0.store(SAID, Ordering::Release);
        let arguments = [self.0.as_ptr() as usize, libc::FUTEX_WAKE as usize, 1, 0, 0, 0];
        // SAFETY: wakes whoever waits on a valid word.
        unsafe { raw::syscall(libc::SYS_futex, arguments) };
    }

    /// Waits for it, however long that takes.
    pub(crate) fn wait(&self) {
        while !self.is_said() {
            self.sleep(None);
        }
    }

    /// Waits for it, so long at most.
    ///
    /// # Errors
    /// `ETIMEDOUT`.
    pub(crate) fn wait_at_most(&self, longest: Duration) -> Result<(), Errno> {
        let deadline = Instant::now() + longest;
        while !self.is_said() {
            if Instant::now() >= deadline {
                return Err(Errno::TIMEDOUT);
            }
            self.sleep(Some(LOOKING));
        }
        Ok(())
    }

    /// Whether it was said.
    fn is_said(&self) -> bool {
        self.0.load(Ordering::Acquire) == SAID
    }

    /// Sleeps until it may have been said.
    fn sleep(&self, at_most: Option<Duration>) {
        let timeout = at_most
            .map(|timeout| libc::timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (wait, not_yet) = (raw::signed(libc::FUTEX_WAIT), raw::signed(NOT_YET));
        let arguments = [self.0.as_ptr() as usize, wait, not_yet, timeout as usize, 0, 0];
        // SAFETY: the word and the time are valid for the call. Whatever it returns, the caller
        // looks again.
        unsafe { raw::syscall(libc::SYS_futex, arguments) };
    }
}
