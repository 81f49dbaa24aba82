//! One call about which the filter has asked, from its receipt to its answer
//! (`seccomp_unotify(2)`).

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use crate::seccomp::{self, Call};

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE` of linux/seccomp.h, since Linux 5.5.
const CONTINUE: u32 = 1;

/// A call whose thread waits for the answer.
#[derive(Debug)]
pub(super) struct Notification {
    /// By which the kernel knows it.
    pub(super) id: u64,
    /// The thread, by its id in this process's namespace; 0 if it is not in it.
    pub(super) thread: i32,
    pub(super) call: Call,
}

impl Notification {
    /// Receives the next call; blocks while there is none. Fails with `ENOENT` if its process was
    /// killed or interrupted meanwhile.
    pub(super) fn receive(listener: &OwnedFd) -> io::Result<Self> {
        // SAFETY: the structure consists of numbers; the kernel wants it to be zero.
        let mut notification: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, (&raw mut notification).cast())?;
        let libc::seccomp_notif { id, pid, data, .. } = notification;
        let number = data.nr.cast_unsigned();
        let call = Call { architecture: data.arch, number, arguments: data.args };
        Ok(Self { id, thread: pid.cast_signed(), call })
    }

    /// Lets the call fail with an errno, or succeed without having been made where that is 0.
    pub(super) fn answer(&self, listener: &OwnedFd, errno: i32) -> io::Result<()> {
        self.respond(listener, -errno, 0)
    }

    /// Lets the kernel make the call. Only for calls that the filter allows: what the process changes
    /// meanwhile does not matter then. Another one is refused as ever.
    pub(super) fn proceed(&self, listener: &OwnedFd) -> io::Result<()> {
        match seccomp::is_followed(self.call.number) {
            true => self.respond(listener, 0, CONTINUE),
            false => self.answer(listener, seccomp::errno(&self.call)),
        }
    }

    fn respond(&self, listener: &OwnedFd, error: i32, flags: u32) -> io::Result<()> {
        // SAFETY: the structure consists of numbers.
        let mut response: libc::seccomp_notif_resp = unsafe { std::mem::zeroed() };
        response.id = self.id;
        response.error = error;
        response.flags = flags;
        match ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, (&raw mut response).cast()) {
            // The process no longer waits, but it has made the call.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            sent => sent,
        }
    }
}

/// `SECCOMP_IOCTL_NOTIF_SET_FLAGS` and `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP` of linux/seccomp.h, since Linux 6.6.
const SET_FLAGS: libc::Ioctl = 0x4008_2104;
const SYNC_WAKE_UP: libc::c_ulong = 1;

/// Lets the kernel run the process that answers on the processor of the thread that waits, which takes less time.
/// Without this, on an older kernel, everything is the same.
pub(super) fn wake_on_same_processor(listener: &OwnedFd) {
    // SAFETY: the request takes a number.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
}

/// Whether the thread of the call with this id still waits: what was read of the thread before belongs to
/// it, and not to another one that got its number.
pub(super) fn is_waiting(listener: &OwnedFd, mut id: u64) -> bool {
    ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_ID_VALID, (&raw mut id).cast()).is_ok()
}

fn ioctl(listener: &OwnedFd, request: libc::Ioctl, argument: *mut libc::c_void) -> io::Result<()> {
    // SAFETY: the callers pass the structure that belongs to the request, and it outlives the call.
    match unsafe { libc::ioctl(listener.as_raw_fd(), request, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
