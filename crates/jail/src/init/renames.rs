//! Renames of directories on request of the supervisor (`directory_renames`): each is made by a child
//! of init, which restricts itself to what commands may do.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use super::moved_directory;
use crate::channel::{Channel, FromInit, Rename};
use crate::landlock::Ruleset;
use crate::sys::{self, ForkResult};

/// The renames that are under way.
#[derive(Debug)]
pub(crate) struct Renames {
    ruleset: Option<Ruleset>,
    /// The id of the request of each child.
    children: BTreeMap<libc::pid_t, u64>,
}

impl Renames {
    /// `ruleset` is that of the commands.
    pub(crate) const fn new(ruleset: Option<Ruleset>) -> Self {
        Self { ruleset, children: BTreeMap::new() }
    }

    /// Starts a rename, with the directories where the old and the new path start.
    pub(crate) fn start(&mut self, channel: &Channel, rename: &Rename, directories: &[OwnedFd]) {
        // SAFETY: init has a single thread.
        match unsafe { sys::fork() } {
            Ok(ForkResult::Child) => sys::exit_now(self.make(rename, directories)),
            Ok(ForkResult::Parent(child, _)) => _ = self.children.insert(child, rename.id),
            Err(_) => report(channel, rename.id, libc::EXDEV),
        }
    }

    /// A child of init has ended with this status of `wait(2)`.
    pub(crate) fn ended(&mut self, channel: &Channel, child: libc::pid_t, status: i32) {
        if let Some(id) = self.children.remove(&child) {
            let was_killed = !libc::WIFEXITED(status);
            report(channel, id, if was_killed { libc::EIO } else { libc::WEXITSTATUS(status) });
        }
    }

    /// The errno of a rename, or 0.
    fn make(&self, rename: &Rename, directories: &[OwnedFd]) -> i32 {
        let [old, new] = directories else { return libc::EXDEV };
        if self.ruleset.as_ref().is_some_and(|rules| rules.restrict().is_err()) {
            return libc::EXDEV;
        }
        match moved_directory::rename((old, &rename.old), (new, &rename.new), rename.flags) {
            Ok(()) => 0,
            Err(error) => error.raw_os_error(),
        }
    }
}

fn report(channel: &Channel, id: u64, errno: i32) {
    // If this fails, there is no supervisor, and init ends.
    let _ = channel.send(&FromInit::Renamed { id, errno }.encode(), &[]);
}
