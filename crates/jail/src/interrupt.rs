//! A time limit for calls that should not block, but may: whether a read of a terminal blocks is a
//! flag of the open file description, which any process that shares it can change at any time.

use std::io;
use std::sync::Once;
use std::time::Duration;

/// Runs `call`, and interrupts what it waits for once the time limit has expired: the system call
/// then fails with `EINTR`, repeatedly until `call` has returned.
///
/// For a process with a single thread that does not use `SIGALRM` otherwise.
pub fn interrupt_after<T>(limit: Duration, call: impl FnOnce() -> T) -> io::Result<T> {
    static HANDLER: Once = Once::new();
    extern "C" fn interrupt(_signal: libc::c_int) {}
    HANDLER.call_once(|| {
        // SAFETY: the structure is fully initialised, and the handler does nothing. Without
        // SA_RESTART the interrupted call returns.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int) = interrupt;
            action.sa_sigaction = handler as libc::sighandler_t;
            libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
        }
    });
    set_timer(limit)?;
    let result = call();
    set_timer(Duration::ZERO)?;
    Ok(result)
}

/// Sends `SIGALRM` after this time and then periodically; zero disables it.
fn set_timer(after: Duration) -> io::Result<()> {
    let time = libc::timeval {
        tv_sec: libc::time_t::try_from(after.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_usec: after.subsec_micros().into(),
    };
    let timer = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: the structure outlives the call, and the old timer is not requested.
    let result =
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;
    use crate::testing::{ChildExit, in_child};

    #[test]
    fn a_read_that_blocks_is_interrupted_and_one_that_does_not_is_not() {
        let ended = in_child(|| {
            let (mut from, mut to) = std::io::pipe().unwrap();
            let limit = Duration::from_millis(20);
            let blocked = interrupt_after(limit, || from.read(&mut [0])).unwrap();
            assert_eq!(blocked.unwrap_err().kind(), io::ErrorKind::Interrupted);
            to.write_all(b"x").unwrap();
            let read = interrupt_after(limit, || from.read(&mut [0; 2])).unwrap();
            assert_eq!(read.unwrap(), 1);
            // Nothing is interrupted afterwards.
            std::thread::sleep(limit * 3);
            0
        });
        assert_eq!(ended, ChildExit::Exited(0));
    }
}
