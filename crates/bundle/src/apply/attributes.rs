//! What a file has beside content, owner and mode: extended attributes, access control lists
//! among them (`xattr(7)`), and inode flags (`ioctl_iflags(2)`). A replaced file's are kept as
//! far as this process may; what a sandboxed command gave a file never reaches a project.

use std::fs::File;

use rustix::fs::{IFlags, Timespec, Timestamps, UTIME_NOW, XattrFlags};
use rustix::io::Errno;

/// The longest list of names and the longest value that Linux has (`XATTR_LIST_MAX`,
/// `XATTR_SIZE_MAX`).
const MAX_BYTES: usize = 64 << 10;

/// The rights that a program gets by being executed. Writing to a file takes them from it, and
/// so does replacing its content: they were given to the old one.
const CAPABILITIES: &[u8] = b"security.capability";

/// Gives the extended attributes of the file that is replaced to the new one. What this process
/// may not set, or the file system does not take, is left out.
pub(super) fn keep(old: &File, new: &File, is_same_content: bool) {
    let Ok(names) = names(old) else { return };
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if name == CAPABILITIES && !is_same_content {
            continue;
        }
        let mut value = vec![0; MAX_BYTES];
        if let Ok(length) = rustix::fs::fgetxattr(old, name, &mut value[..]) {
            // Refused to this process: there is no better answer than to go without.
            let _ = rustix::fs::fsetxattr(new, name, &value[..length], XattrFlags::empty());
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
    let Ok(names) = names(file) else { return false };
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .all(|name| rustix::fs::fremovexattr(file, name).is_ok())
        && rustix::fs::futimens(file, &times).is_ok()
}

/// The names of a file's extended attributes, each ended by a NUL byte.
fn names(file: &File) -> Result<Vec<u8>, Errno> {
    let mut few = [0; 256];
    let length = match rustix::fs::flistxattr(file, &mut few[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        Err(Errno::RANGE) => {
            let mut names = vec![0; MAX_BYTES];
            let length = rustix::fs::flistxattr(file, &mut names[..])?;
            names.truncate(length);
            return Ok(names);
        }
        other => other?,
    };
    Ok(few[..length].to_vec())
}
