//! The properties of a file besides content, owner and mode: extended attributes, including
//! access control lists (`xattr(7)`), and inode flags (`ioctl_iflags(2)`). Those of a replaced
//! file are kept as far as this process may; those that a sandboxed command set on a file never
//! reach a project.

use std::fs::File;

use rustix::fs::{IFlags, Timespec, Timestamps, UTIME_NOW, XattrFlags};
use rustix::io::Errno;

use crate::attributes;

/// The rights that a program gets when it is executed. The kernel removes them when a file is
/// written, and so does a replacement of its content: they were granted to the old one.
const CAPABILITIES: &[u8] = b"security.capability";

/// Copies the extended attributes of the replaced file to the new one. Attributes that this
/// process may not set, or that the file system does not accept, are left out.
pub(super) fn copy_attributes(old: &File, new: &File, is_same_content: bool) {
    let Ok(names) = attributes::names(old) else { return };
    for name in names {
        if name == CAPABILITIES && !is_same_content {
            continue;
        }
        if let Ok(value) = attributes::value(old, &name) {
            // If this process may not set it, it is left out.
            let _ = rustix::fs::fsetxattr(new, name, &value, XattrFlags::empty());
        }
    }
}

/// Removes all properties from a file that a copy of its content would not have. `false` if
/// that is impossible.
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
