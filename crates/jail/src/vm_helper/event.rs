//! A one-shot event between processes that share memory: one sets it, the others wait (`futex(2)`).
//!
//! Setting and waiting allocate nothing and make bare system calls only ([`crate::raw`]).

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::raw;

const UNSET: i32 = 0;
const SET: i32 = 1;

/// The longest single futex wait, where the setter may have died.
pub(crate) const WAIT_SLICE: Duration = Duration::from_millis(100);

/// An event that is set once.
#[derive(Debug, Default)]
pub(crate) struct Event(AtomicI32);

impl Event {
    /// Sets the event and wakes one waiter, which then sees all earlier writes.
    pub(crate) fn set(&self) {
        self.0.store(SET, Ordering::Release);
        let arguments = [self.0.as_ptr() as usize, libc::FUTEX_WAKE as usize, 1, 0, 0, 0];
        // SAFETY: wakes a waiter on a valid futex word.
        unsafe { raw::syscall(libc::SYS_futex, arguments) };
    }

    /// Waits until the event is set.
    pub(crate) fn wait(&self) {
        while !self.is_set() {
            self.sleep(None);
        }
    }

    /// Waits until the event is set, at most for this long.
    ///
    /// # Errors
    /// `ETIMEDOUT`.
    pub(crate) fn wait_timeout(&self, timeout: Duration) -> Result<(), Errno> {
        let deadline = Instant::now() + timeout;
        while !self.is_set() {
            if Instant::now() >= deadline {
                return Err(Errno::TIMEDOUT);
            }
            self.sleep(Some(WAIT_SLICE));
        }
        Ok(())
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire) == SET
    }

    /// Sleeps until the event may have been set.
    fn sleep(&self, at_most: Option<Duration>) {
        let timeout = at_most
            .map(|timeout| libc::timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (wait, unset) = (raw::signed(libc::FUTEX_WAIT), raw::signed(UNSET));
        let arguments = [self.0.as_ptr() as usize, wait, unset, timeout as usize, 0, 0];
        // SAFETY: the futex word and the time are valid for the call. Whatever it returns, the caller
        // checks the event again.
        unsafe { raw::syscall(libc::SYS_futex, arguments) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_goes_on_once_the_event_is_set_and_no_sooner() {
        let event = Event::default();
        assert_eq!(event.wait_timeout(Duration::from_millis(1)), Err(Errno::TIMEDOUT));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| event.wait());
            std::thread::sleep(Duration::from_millis(10));
            assert!(!waiter.is_finished());
            event.set();
        });
        assert_eq!(event.wait_timeout(Duration::ZERO), Ok(()));
    }
}
