//! What is known of the thread that waits for its rename: its memory, its directories and its ids.
//!
//! All of it is at the thread's disposal. Init itself opens the memory, which only an ancestor may where Yama
//! restricts `ptrace(2)`; everything else happens in a worker, which may wait for what it reads.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};

use super::Rights;
use super::ids::{Ids, SingleIds};
use crate::{capabilities, command, sys};

/// The maximal length of a path, with its NUL (`PATH_MAX` of linux/limits.h).
const PATH_BYTES: usize = 4096;
/// The smallest page of memory: what lies in one page can be read at once.
const PAGE_BYTES: usize = 4096;

/// A thread that waits for its rename.
#[derive(Debug)]
pub(super) struct CallingThread {
    id: i32,
    memory: File,
    /// Its ids, if the process that renames takes them on.
    ids: Option<SingleIds>,
}

/// Opens the memory of a thread; `None` if nothing may be renamed for it.
pub(super) fn open_memory(thread: i32, rights: Rights) -> Option<File> {
    let open = || File::open(format!("/proc/{thread}/mem")).ok();
    match rights {
        Rights::OfInit => open(),
        Rights::OfThread { below } => {
            let ids = Ids::of(thread)?.below(below)?;
            // The kernel compares the ids of the process with those that init has for files.
            let own = sys::set_file_ids(ids.user, ids.group);
            let memory = open();
            sys::set_file_ids(own.0, own.1);
            // A change of ids resets it (`prctl(2)`).
            sys::prctl(libc::PR_SET_DUMPABLE, 0).ok()?;
            memory
        }
    }
}

impl CallingThread {
    /// `memory` is that of the thread. `None` if nothing may be renamed for it.
    pub(super) fn new(id: i32, memory: File, rights: Rights) -> Option<Self> {
        let ids = match rights {
            Rights::OfInit => None,
            Rights::OfThread { below } => Some(Ids::of(id)?.below(below)?),
        };
        Some(Self { id, memory, ids })
    }

    /// Gives this process the rights to files that the thread has. Until [`CallingThread::take_on_ids`] no process of
    /// the thread's user may trace or signal it.
    pub(super) fn take_on_file_ids(&self) -> Option<()> {
        let Some(ids) = &self.ids else { return Some(()) };
        rustix::thread::set_thread_groups(&ids.supplementary()).ok()?;
        sys::set_file_ids(ids.user, ids.group);
        (sys::file_ids() == (ids.user, ids.group)).then_some(())
    }

    /// Gives this process the ids of the thread and no capability: where it does not take on ids, both must
    /// have the same.
    pub(super) fn take_on_ids(&self) -> Option<()> {
        let Some(ids) = &self.ids else {
            return (Ids::of(self.id)? == Ids::of("self")?).then_some(());
        };
        command::become_ids(ids.user, ids.group, &ids.supplementary()).ok()?;
        capabilities::drop_all().ok()
    }

    /// A path in its memory, without its NUL. `None` for an empty one, and where it cannot be read.
    pub(super) fn read_path(&self, address: u64) -> Option<Vec<u8>> {
        let mut path = Vec::new();
        let mut at = address;
        while path.len() < PATH_BYTES {
            let mut page = [0; PAGE_BYTES];
            let before = usize::try_from(at).ok()? % PAGE_BYTES;
            let read = self.memory.read_at(&mut page[before..], at);
            let read = read.ok().filter(|read| *read > 0)?;
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

    /// The directory that is open at a descriptor of it, or its current one.
    pub(super) fn directory(&self, descriptor: i32) -> Option<OwnedFd> {
        match descriptor {
            libc::AT_FDCWD => self.open_directory("cwd"),
            descriptor => self.open_directory(&format!("fd/{descriptor}")),
        }
    }

    /// Its root, which must be that of this process.
    pub(super) fn root(&self) -> Option<OwnedFd> {
        let root = self.open_directory("root")?;
        let own =
            rustix::fs::openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        (identity(root.as_fd())? == identity(own.as_fd())?).then_some(root)
    }

    fn open_directory(&self, link: &str) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = format!("/proc/{}/{link}", self.id);
        rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()
    }
}

/// A directory and its mount, which is of one namespace only.
fn identity(directory: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
    let found = rustix::fs::statx(directory, c"", AtFlags::EMPTY_PATH, wanted).ok()?;
    Some((found.stx_ino, found.stx_mnt_id))
}
