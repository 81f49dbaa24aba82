//! What a file has beside content, owner and mode: extended attributes, access control lists
//! among them (`xattr(7)`), and inode flags (`ioctl_iflags(2)`). A replaced file's are kept as
//! far as this process may; what a sandboxed command gave a file never reaches a project.

use std::fs::File;

use rustix::fs::{IFlags, Timespec, Timestamps, UTIME_NOW, XattrFlags};
use rustix::io::Errno;

use crate::attributes;

/// The rights that a program gets by being executed. Writing to a file takes them from it, and
/// so does replacing its content: they were given to the old one.
const CAPABILITIES: &[u8] = b"security.capability";

/// Gives the extended attributes of the file that is replaced to the new one. What this process
/// may not set, or the file system does not take, is left out.
pub(super) fn keep(old: &File, new: &File, is_same_content: bool) {
    let Ok(names) = attributes::names(old) else { return };
    for name in names {
        if name == CAPABILITIES && !is_same_content {
            continue;
        }
        if let Ok(value) = attributes::value(old, &name) {
            // Refused to this process: there is no better answer than to go without.
            let _ = rustix::fs::fsetxattr(new, name, &value, XattrFlags::empty());
        }
    }
}

/// Takes from a file all that a copy of its content would not have. `false` where that cannot
/// be.
pub(super) fn clear(file: &File) -> bool {
    match rustix::fs::ioctl_getflags(file) {
        Ok(flags) if flags.intersects(IFlags::all()) => return false,
        // The file system has no flags.
        Ok(_) | Err(Errno::NOTTY | Errno::OPNOTSUPP) => {}
        Err(_) => return false,
    }
    let Ok(names) = attributes::names(file) else { return false };
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    names.into_iter().all(|name| rustix::fs::fremovexattr(file, name).is_ok())
        && rustix::fs::futimens(file, &times).is_ok()
}
