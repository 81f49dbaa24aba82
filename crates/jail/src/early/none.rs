//! Where no process begins before the program, for nobody has written it for this processor or C library.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

/// None.
pub(crate) fn take() -> Option<(libc::pid_t, OwnedFd)> {
    None
}

/// Does nothing, for nobody has taken any.
///
/// # Safety
/// Nothing is asked of the caller.
pub(crate) unsafe fn go_on(
    _stack: *mut libc::c_void,
    _enter: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    _argument: *mut libc::c_void,
) {
}

/// That it cannot be.
pub(crate) fn separated() -> Result<(), Errno> {
    Err(Errno::NOSYS)
}
