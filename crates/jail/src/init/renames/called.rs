//! A rename as a thread has called it: what its registers say, and which names they lead to.

use libc::c_long;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::place::Place;
use super::thread::CallingThread;
use crate::refused_calls::FollowedCall;

/// The type of an overlay, `OVERLAYFS_SUPER_MAGIC` of linux/magic.h.
const OVERLAY: u64 = 0x794c_7630;

/// The registers of a rename.
#[derive(Debug)]
pub(super) struct CalledRename {
    old: Name,
    new: Name,
    /// The flags of `renameat2(2)`.
    pub(super) flags: u32,
}

/// A path in the memory of a thread.
#[derive(Debug)]
struct Name {
    /// The descriptor of the directory where it starts.
    start: i32,
    address: u64,
}

impl CalledRename {
    /// The rename that this call is, if a child of init could make it.
    pub(super) fn of(call: &FollowedCall) -> Option<Self> {
        let [first, second, third, fourth, fifth, _] = call.arguments();
        let here = |address| Name { start: libc::AT_FDCWD, address };
        let at = |start, address| Name { start: low_half(start), address };
        let (old, new, flags) = match c_long::from(call.number()) {
            libc::SYS_rename => (here(first), here(second), 0),
            libc::SYS_renameat => (at(first, second), at(third, fourth), 0),
            libc::SYS_renameat2 => {
                (at(first, second), at(third, fourth), low_half(fifth).cast_unsigned())
            }
            _ => return None,
        };
        // Two directories that change places cannot be moved one by one.
        (flags & !libc::RENAME_NOREPLACE == 0).then_some(Self { old, new, flags })
    }

    /// The old and the new place, if a directory on an overlay is renamed.
    pub(super) fn find(&self, thread: &CallingThread) -> Option<(Place, Place)> {
        let old = self.old.find(thread)?;
        if !is_directory_on_overlay(&old) {
            return None;
        }
        Some((old, self.new.find(thread)?))
    }
}

impl Name {
    fn find(&self, thread: &CallingThread) -> Option<Place> {
        let path = thread.read_path(self.address)?;
        let root = thread.root()?;
        let start = match path.first() {
            Some(b'/') => root.try_clone().ok()?,
            _ => thread.directory(self.start)?,
        };
        Place::find(&root, start, &path)
    }
}

fn is_directory_on_overlay(place: &Place) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let is_directory = rustix::fs::statat(&place.parent, &place.name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
    is_directory
        && rustix::fs::openat(&place.parent, &place.name, flags, Mode::empty())
            .and_then(rustix::fs::fstatfs)
            .is_ok_and(|system| system.f_type.cast_unsigned() == OVERLAY)
}

/// The low half of an argument, which is what the kernel uses of an `int`.
const fn low_half(argument: u64) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "the kernel ignores the high half")]
    (argument as u32).cast_signed()
}
