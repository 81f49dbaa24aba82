//! A process that looks at renames for init, one after the other, until one is of a directory: that one it
//! makes, with the rights of the thread, and ends.
//!
//! A rename of a file costs no new process, and init waits for nothing that a command could delay.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;

use super::called::CalledRename;
use super::place::Place;
use super::thread::CallingThread;
use super::{Rights, moved_directory};
use crate::channel::Channel;
use crate::landlock::Ruleset;
use crate::refused_calls::CallListener;
use crate::sys::{self, ForkResult};

/// How many seconds it may take to find out what is renamed. Memory can be a file of the host that does not
/// answer.
const SECONDS_TO_READ: u32 = 5;
/// The answer that the kernel is to make the call.
const LEFT_TO_KERNEL: &[u8] = b"K";
/// The exit code of a worker that has made no rename. No error number is as high.
const UNUSED: i32 = 255;

/// What a worker needs to make a rename.
#[derive(Debug, Clone)]
pub(super) struct Means {
    pub(super) rights: Rights,
    /// That of the commands.
    pub(super) ruleset: Option<Rc<Ruleset>>,
}

/// The end of init.
#[derive(Debug)]
pub(super) struct Worker(Channel);

/// What a worker says about its rename.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The kernel is to make the call.
    LeftToKernel,
    /// Nothing yet.
    None,
    /// It ends.
    Ends,
}

/// How a worker has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// With the result of its rename: an errno, or 0.
    Made(i32),
    /// Without one: the kernel is to make the call.
    Unused,
}

impl Worker {
    /// Starts one.
    pub(super) fn start(listener: &CallListener, means: &Means) -> io::Result<(libc::pid_t, Self)> {
        let (ours, theirs) = Channel::pair()?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        // SAFETY: init has a single thread, and the processes that share its memory hold no lock.
        match unsafe { sys::fork() }? {
            ForkResult::Child => sys::exit_now(work(listener, means, &theirs)),
            ForkResult::Parent(process, _) => Ok((process, Self(ours))),
        }
    }

    /// Gives it a rename and the memory of the thread. Fails if it has ended.
    pub(super) fn give(&self, rename: &CalledRename, memory: &File) -> io::Result<()> {
        self.0.send(&rename.encode(), &[memory.as_fd()])
    }

    /// What it says about the rename.
    pub(super) fn answer(&self) -> Answer {
        match self.0.receive() {
            Ok(Some((bytes, _))) if bytes == LEFT_TO_KERNEL => Answer::LeftToKernel,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Answer::None,
            _ => Answer::Ends,
        }
    }
}

impl AsFd for Worker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Ending {
    /// The ending that `wait(2)` describes by this status.
    pub(super) const fn of(status: i32) -> Self {
        match libc::WIFEXITED(status) {
            true if libc::WEXITSTATUS(status) == UNUSED => Self::Unused,
            true => Self::Made(libc::WEXITSTATUS(status)),
            // It took too long to find out what is renamed.
            false if libc::WTERMSIG(status) == libc::SIGALRM => Self::Unused,
            false => Self::Made(libc::EIO),
        }
    }
}

/// In the worker: its exit code.
fn work(listener: &CallListener, means: &Means, channel: &Channel) -> i32 {
    let Ok(own) = listener.as_fd().try_clone_to_owned() else { return UNUSED };
    // Everything else would keep the streams of commands open.
    let rules = means.ruleset.as_ref().map(|rules| rules.as_fd());
    let kept = [own.as_fd(), channel.as_fd()].into_iter().chain(rules);
    let kept = kept.map(|descriptor| descriptor.as_raw_fd()).chain(0..=2);
    if sys::close_all_but(kept.collect()).is_err() {
        return UNUSED;
    }
    let listener = CallListener::new(own);
    while let Ok(Some((bytes, memory))) = channel.receive() {
        let Some(rename) = CalledRename::decode(&bytes) else { return UNUSED };
        sys::set_alarm(SECONDS_TO_READ);
        let found =
            memory.into_iter().next().and_then(|memory| find(&listener, means, &rename, memory));
        sys::set_alarm(0);
        if let Some((thread, old, new)) = found {
            // From here on a process of the thread's user may be able to trace this one.
            drop(listener);
            return make(means, &thread, (&old, &new), rename.flags).unwrap_or(UNUSED);
        }
        if channel.send(LEFT_TO_KERNEL, &[]).is_err() {
            return UNUSED;
        }
    }
    UNUSED
}

/// Makes a rename with the rights of the thread: its errno, or 0. `None` if the kernel is to make it.
fn make(
    means: &Means,
    thread: &CallingThread,
    (old, new): (&Place, &Place),
    flags: u32,
) -> Option<i32> {
    thread.take_on_ids()?;
    if let Some(rules) = &means.ruleset {
        rules.restrict().ok()?;
    }
    Some(match moved_directory::rename(old, new, flags) {
        Ok(()) => 0,
        Err(error) => error.raw_os_error(),
    })
}

/// The places of a rename of a directory on an overlay.
fn find(
    listener: &CallListener,
    means: &Means,
    rename: &CalledRename,
    memory: OwnedFd,
) -> Option<(CallingThread, Place, Place)> {
    let thread = CallingThread::new(rename.thread, File::from(memory), means.rights)?;
    thread.take_on_file_ids()?;
    let (old, new) = rename.find(&thread)?;
    // Only now is it certain that all of it belongs to the thread that has made the call.
    listener.is_waiting(rename.id).then_some((thread, old, new))
}
