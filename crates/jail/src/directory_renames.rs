//! Renames of directories where the overlay cannot do them: one that an ordinary user has mounted fails
//! with `EXDEV` for each directory of its lower layer (the kernel's `filesystems/overlayfs.rst`,
//! `redirect_dir`).
//!
//! ```text
//!   thread inside ── rename ──► supervisor ── paths and directories ──► init ── a child moves ──┐
//!                 ◄── errno ──            ◄───────────── errno ─────────────────────────────────┘
//! ```
//!
//! The supervisor reads which names are meant and looks at the old one, nothing else: the rename itself
//! is made by a child of init, which has the rights of every command of the jail and no more. So it does
//! not matter if a process changes a name while it is read. Every doubt lets the kernel make the call,
//! with the result that it has without any of this.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use libc::c_long;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};

use crate::channel::{Channel, Rename, ToInit};
use crate::refused_calls::{CallListener, FollowedCall, PostponedCall};

/// How many renames may be under way until no further calls are received. One turn may add its calls.
const MAX_WAITING: usize = 16;
/// The maximal length of a path, with its NUL (`PATH_MAX` of linux/limits.h).
const PATH_BYTES: usize = 4096;
/// The smallest page of memory: what lies in one page can be read at once.
const PAGE_BYTES: usize = 4096;
/// The type of an overlay, `OVERLAYFS_SUPER_MAGIC` of linux/magic.h.
const OVERLAY: u64 = 0x794c_7630;
/// The lines of `/proc/PID/status` that name the ids of a process.
const ID_LINES: [&str; 3] = ["Uid:", "Gid:", "Groups:"];

/// The renames of one jail that are not left to the kernel.
#[derive(Debug, Default)]
pub(crate) struct DirectoryRenames {
    waiting: BTreeMap<u64, PostponedCall>,
    last: u64,
    /// A process has given up rights that init still has, so nothing is renamed for any more.
    is_over: bool,
}

impl DirectoryRenames {
    /// Whether further calls may be received.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING
    }

    /// Decides about one call: it continues, or init gets a request for it. `init` is the process id
    /// of init.
    pub(crate) fn decide(
        &mut self,
        call: FollowedCall<'_>,
        channel: &Channel,
        init: i32,
    ) -> io::Result<()> {
        if c_long::from(call.number()) == libc::SYS_landlock_restrict_self {
            self.is_over = true;
        }
        let rename = (!self.is_over).then(|| DirectoryRename::read(&call, init));
        let Some(found) = rename.flatten() else { return call.proceed() };
        let DirectoryRename { flags, old, new, directories } = found;
        let id = self.last.wrapping_add(1);
        let rename = ToInit::Rename(Rename { id, flags, old, new });
        let directories = directories.each_ref().map(|directory| directory.as_fd());
        if channel.send(&rename.encode(), &directories).is_err() {
            return call.proceed();
        }
        self.last = id;
        self.waiting.insert(id, call.postpone());
        Ok(())
    }

    /// Init has reported the result of a rename: an errno, or 0.
    pub(crate) fn complete(&mut self, id: u64, errno: i32, listener: Option<&CallListener>) {
        if let (Some(call), Some(listener)) = (self.waiting.remove(&id), listener) {
            // The process may have been killed meanwhile.
            let _ = listener.complete(&call, errno);
        }
    }
}

/// A rename of a directory on an overlay.
struct DirectoryRename {
    flags: u32,
    old: Vec<u8>,
    new: Vec<u8>,
    /// Where the old and the new path start.
    directories: [OwnedFd; 2],
}

impl DirectoryRename {
    /// What a thread wants to rename, if that is a directory on an overlay and the thread has init's
    /// ids.
    fn read(call: &FollowedCall<'_>, init: i32) -> Option<Self> {
        let [first, second, third, fourth, fifth, _] = call.arguments();
        let here = libc::AT_FDCWD;
        let ((old_at, old), (new_at, new), flags) = match c_long::from(call.number()) {
            libc::SYS_rename => ((here, first), (here, second), 0),
            libc::SYS_renameat => ((low_half(first), second), (low_half(third), fourth), 0),
            libc::SYS_renameat2 => {
                let flags = low_half(fifth).cast_unsigned();
                ((low_half(first), second), (low_half(third), fourth), flags)
            }
            _ => return None,
        };
        // Two directories that change places cannot be moved one by one.
        if flags & !libc::RENAME_NOREPLACE != 0 {
            return None;
        }
        let thread = call.thread();
        let memory = File::open(format!("/proc/{thread}/mem")).ok()?;
        let old = read_path(&memory, old)?;
        let old_directory = start(thread, old_at, &old)?;
        if !is_directory_on_overlay(old_directory.as_fd(), &old) {
            return None;
        }
        let new = read_path(&memory, new)?;
        let directories = [old_directory, start(thread, new_at, &new)?];
        let has_ids_of_init = ids(thread)? == ids(init)?;
        (has_ids_of_init && call.is_waiting()).then_some(Self { flags, old, new, directories })
    }
}

/// The low half of an argument, which is what the kernel uses of an `int`.
const fn low_half(argument: u64) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "the kernel ignores the high half")]
    (argument as u32).cast_signed()
}

/// A path in the memory of a process, without its NUL. `None` for an empty one, and where it cannot be
/// read.
fn read_path(memory: &File, address: u64) -> Option<Vec<u8>> {
    let mut path = Vec::new();
    let mut at = address;
    while path.len() < PATH_BYTES {
        let mut page = [0; PAGE_BYTES];
        let before = usize::try_from(at).ok()? % PAGE_BYTES;
        let read = memory.read_at(&mut page[before..], at).ok().filter(|read| *read > 0)?;
        let read = &page[before..before + read];
        if let Some(end) = read.iter().position(|byte| *byte == 0) {
            path.extend(&read[..end]);
            return (!path.is_empty() && path.len() < PATH_BYTES).then_some(path);
        }
        path.extend(read);
        at = at.checked_add(read.len().try_into().ok()?)?;
    }
    None
}

/// The directory at which a path of a thread starts.
fn start(thread: i32, descriptor: i32, path: &[u8]) -> Option<OwnedFd> {
    let directory = match (path.first(), descriptor) {
        (Some(b'/'), _) => format!("/proc/{thread}/root"),
        (_, libc::AT_FDCWD) => format!("/proc/{thread}/cwd"),
        (_, descriptor) => format!("/proc/{thread}/fd/{descriptor}"),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, directory, flags, Mode::empty()).ok()
}

/// Whether a path is a directory on an overlay, or may be. No link leads out of the jail.
fn is_directory_on_overlay(start: BorrowedFd<'_>, path: &[u8]) -> bool {
    let below = match path.first() {
        Some(b'/') => ResolveFlags::IN_ROOT,
        _ => ResolveFlags::BENEATH,
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_MAGICLINKS | below;
    match rustix::fs::openat2(start, path, flags, Mode::empty(), resolve) {
        Ok(found) => {
            let is_directory = rustix::fs::fstat(&found)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
            is_directory
                && rustix::fs::fstatfs(&found)
                    .is_ok_and(|system| system.f_type.cast_unsigned() == OVERLAY)
        }
        // The path leads to an ancestor first: init's child finds out.
        Err(error) => error == rustix::io::Errno::XDEV,
    }
}

/// The lines with the ids of a process or thread.
fn ids(process: i32) -> Option<Vec<String>> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let is_id = |line: &&str| ID_LINES.iter().any(|name| line.starts_with(name));
    Some(status.lines().filter(is_id).map(str::to_owned).collect())
}
