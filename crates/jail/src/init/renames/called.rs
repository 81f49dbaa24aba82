//! A rename as a thread has called it: what its registers say, and which names they lead to.

use libc::c_long;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::place::Place;
use super::thread::CallingThread;
use crate::refused_calls::FollowedCall;

/// The type of an overlay, `OVERLAYFS_SUPER_MAGIC` of linux/magic.h.
const OVERLAY: u64 = 0x794c_7630;

/// The length of a rename in a message.
const BYTES: usize = 40;

/// The registers of a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CalledRename {
    /// By which the listener knows the call.
    pub(super) id: u64,
    /// The thread that has made it.
    pub(super) thread: i32,
    old: Name,
    new: Name,
    /// The flags of `renameat2(2)`.
    pub(super) flags: u32,
}

/// A path in the memory of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        let (id, thread) = (call.id(), call.thread());
        (flags & !libc::RENAME_NOREPLACE == 0).then_some(Self { id, thread, old, new, flags })
    }

    /// The rename in a message.
    pub(super) fn encode(&self) -> [u8; BYTES] {
        let Self { id, thread, old, new, flags } = self;
        let long = [id, &old.address, &new.address].map(|number| number.to_le_bytes());
        let short = [thread, &old.start, &new.start, &flags.cast_signed()];
        let short = short.map(|number| number.to_le_bytes());
        let mut bytes = [0; BYTES];
        let parts = long.as_flattened().iter().chain(short.as_flattened());
        bytes.iter_mut().zip(parts).for_each(|(byte, part)| *byte = *part);
        bytes
    }

    /// The rename that a message contains.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (long, short) = bytes.split_at_checked(24)?;
        let (long, []) = long.as_chunks() else { return None };
        let (short, []) = short.as_chunks() else { return None };
        let &[id, old_address, new_address] = long else { return None };
        let &[thread, old_start, new_start, flags] = short else { return None };
        let name = |start, address| Name {
            start: i32::from_le_bytes(start),
            address: u64::from_le_bytes(address),
        };
        Some(Self {
            id: u64::from_le_bytes(id),
            thread: i32::from_le_bytes(thread),
            old: name(old_start, old_address),
            new: name(new_start, new_address),
            flags: u32::from_le_bytes(flags),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_survives_the_way() {
        let old = Name { start: libc::AT_FDCWD, address: 1 };
        let new = Name { start: 7, address: u64::MAX };
        let rename = CalledRename { id: 1 << 60, thread: 40, old, new, flags: 1 };
        let bytes = rename.encode();
        assert_eq!(CalledRename::decode(&bytes), Some(rename));
        assert_eq!(CalledRename::decode(&bytes[1..]), None);
        assert_eq!(CalledRename::decode(&[&bytes[..], &[0]].concat()), None);
    }
}
