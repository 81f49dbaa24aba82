//! Overlays that belong to the host: root mounts them before the jail has them. Only such an overlay
//! records renames of directories, in attributes that no process in the jail can write (the kernel's
//! `filesystems/overlayfs.rst`, "renaming directories").
//!
//! Permissions inside are the same as in an overlay that the jail mounts: the kernel asks for those of
//! the program on the overlay first, and only then acts on the layers as the one who mounted it.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::attach::{LAYERS_DIR, attach_mount};
use crate::mounts;
use crate::sys::{self, ForkResult, KillOnDrop, single_thread};

/// How long another process may take to mount an overlay.
const DEADLINE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// A detached overlay over the clone of a tree, with `upper` and `work` in the clone of another.
///
/// # Errors
/// Errors of the kernel; the caller must be root of the host and have a single thread.
pub(crate) fn make(lower: &OwnedFd, view: &OwnedFd, synced: bool) -> io::Result<OwnedFd> {
    match overlay(lower, view, synced) {
        // Before Linux 6.15 the layers had to be attached.
        Err(Errno::INVAL) => make_attached(lower, view, synced),
        made => Ok(made?),
    }
}

fn overlay(lower: &OwnedFd, view: &OwnedFd, synced: bool) -> rustix::io::Result<OwnedFd> {
    let (lower, view) = (lower.as_raw_fd(), view.as_raw_fd());
    mounts::new_overlay(
        &[format!("/proc/self/fd/{lower}")],
        &format!("/proc/self/fd/{view}/upper"),
        &format!("/proc/self/fd/{view}/work"),
        (synced, true),
    )
}

/// The same in another process, which has the same descriptors and mounts of its own.
fn make_attached(lower: &OwnedFd, view: &OwnedFd, synced: bool) -> io::Result<OwnedFd> {
    single_thread()?;
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: this process has a single thread, checked above.
    match unsafe { sys::clone_process(libc::CLONE_NEWNS | libc::CLONE_FILES, None) }? {
        ForkResult::Child => {
            let made = attached(lower, view, synced);
            let answer = made.map_or_else(|errno| -errno.raw_os_error(), OwnedFd::into_raw_fd);
            let mut write = fs::File::from(write);
            // Without an answer the parent reports that.
            let _ = write.write_all(&answer.to_ne_bytes());
            // SAFETY: ends this process without running destructors, which would close the
            // descriptors of the parent.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent(_, child) => {
            let mut answer = [0; 4];
            let mut read = fs::File::from(read);
            // The other end is open in this process too, so the end of the child is no end of file.
            let mut ready = [PollFd::new(&read, PollFlags::IN), PollFd::new(&child, PollFlags::IN)];
            poll(&mut ready, Some(&DEADLINE))?;
            let is_answered = ready[0].revents().contains(PollFlags::IN);
            let _child = KillOnDrop(Some(child));
            if !is_answered {
                return Err(io::ErrorKind::TimedOut.into());
            }
            read.read_exact(&mut answer)?;
            drop(write);
            match i32::from_ne_bytes(answer) {
                errno if errno < 0 => Err(io::Error::from_raw_os_error(-errno)),
                // SAFETY: the child opened it in the shared table of descriptors and left it.
                descriptor => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
            }
        }
    }
}

fn attached(lower: &OwnedFd, view: &OwnedFd, synced: bool) -> rustix::io::Result<OwnedFd> {
    mounts::separate().map_err(|failure| Errno::from_raw_os_error(failure.errno))?;
    for layer in [lower, view] {
        attach_mount(layer, Path::new(LAYERS_DIR))?;
    }
    overlay(lower, view, synced)
}
