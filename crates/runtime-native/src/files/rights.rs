//! The rights with which a file operation inside runs, and the translation between host ids and
//! inside ids.
//!
//! An operation that creates files runs with exactly the rights of the inside user who will own
//! them: whatever symbolic links and renames other users inside prepare, it reaches nothing that
//! this user could not reach. Operations that read, move and remove run for the owner of the
//! sandbox, who is above all its users: permission bits do not stop them, but only for files that
//! belong to ids of the sandbox, like `capable_wrt_inode_uidgid` in the kernel. Files that belong
//! to no inside id, such as the host's programs, are readable only as far as the ordinary user may
//! read them.

use std::io;

use rustix::io::Errno;
use stockade_bundle::beneath::Stat;
use stockade_core::sandbox::User;
use stockade_jail::{as_file_user, with_caller_rights};

use stockade_runtime::{Capability, Error, Result};

/// How many ids a uid range has. The last one is init's own.
const COUNT: u32 = 65_536;
/// The inside owner of files whose host owner has no inside id (`user_namespaces(7)`, "overflow").
const NOBODY: u32 = 65_534;

/// The ids of a sandbox.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ids {
    /// The host id of inside id 0; absent if the only id is the caller's own.
    pub(super) host_start: Option<u32>,
    /// The ordinary user.
    pub(super) user: User,
}

impl Ids {
    /// The requested inside user.
    pub(super) fn check_user(self, user: Option<User>) -> Result<User> {
        let user = user.unwrap_or(self.user);
        match self.host_start {
            None if user != self.user => Err(Error::Unsupported {
                capability: Capability::Users,
                reason: format!("its only user is {}:{}", self.user.user, self.user.group),
                remedy: None,
            }),
            Some(_) if user.user.max(user.group) >= COUNT - 1 => {
                Err(Error::Invalid(format!("no user inside is {}:{}", user.user, user.group)))
            }
            _ => Ok(user),
        }
    }

    /// Runs a function with exactly the rights of an inside user, and no umask.
    pub(super) fn as_user<T: Send>(
        self,
        user: User,
        operation: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        let (user, group) = match self.host_start {
            Some(start) => (start.saturating_add(user.user), start.saturating_add(user.group)),
            None => {
                let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
                (user.as_raw(), group.as_raw())
            }
        };
        as_file_user(user, group, operation)
    }

    /// Runs a function with the caller's rights, as the inside root: the kernel creates no name in
    /// a file system of a sandbox for an id that is not mapped there (`EOVERFLOW`).
    pub(super) fn as_owner<T: Send>(
        self,
        operation: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        match self.host_start {
            Some(start) => as_file_user(start, start, || with_caller_rights(operation)),
            None => operation(),
        }
    }

    /// Reads the file of `stat` with the owner's rights if it belongs to the sandbox, else with the
    /// ordinary user's. In a read-only mount, no group is mapped: there the caller's rights are no
    /// rights, and each user inside reads what is its own.
    pub(super) fn reading<T: Send>(
        self,
        stat: &Stat,
        operation: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        if self.owns(stat) {
            return operation();
        }
        self.as_user(self.mapped(stat.uid).unwrap_or(self.user), operation)
    }

    /// Whether the owner's rights cover a file. If the only id is the caller's own, the kernel
    /// decides.
    pub(super) fn owns(self, stat: &Stat) -> bool {
        self.is_in_range(stat.uid) && self.is_in_range(stat.gid)
    }

    /// Whether a host id is one of the sandbox's. If the only id is the caller's own, the kernel decides.
    pub(super) fn is_in_range(self, id: u32) -> bool {
        self.host_start.is_none_or(|start| id.checked_sub(start).is_some_and(|id| id < COUNT))
    }

    /// Opens an entry that lies in a directory of the sandbox, if it is the owner's or everyone may
    /// read it.
    pub(super) fn opening<T: Send>(
        self,
        stat: &Stat,
        bits: u32,
        operation: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        if stat.mode & bits == bits {
            operation()
        } else if self.is_in_range(stat.uid) {
            self.reading(stat, operation)
        } else {
            Err(Errno::ACCESS.into())
        }
    }

    /// Looks up something below a directory of this host user.
    pub(super) fn looking_up<T: Send>(
        self,
        host_user: u32,
        operation: impl Fn() -> io::Result<T> + Sync,
    ) -> io::Result<T> {
        match (operation(), self.mapped(host_user)) {
            (Err(error), Some(user)) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.as_user(user, &operation)
            }
            (done, _) => done,
        }
    }

    /// The inside user with a host id.
    fn mapped(self, host_user: u32) -> Option<User> {
        let user = host_user.checked_sub(self.host_start?).filter(|user| *user < COUNT)?;
        Some(User { user, group: self.user.group })
    }

    /// The inside owner of a file.
    pub(super) fn inside(self, stat: &Stat) -> User {
        let id = |host: u32, own: u32| match self.host_start {
            Some(start) => host.checked_sub(start).filter(|id| *id < COUNT).unwrap_or(NOBODY),
            None if host == own => own,
            None => NOBODY,
        };
        User { user: id(stat.uid, self.user.user), group: id(stat.gid, self.user.group) }
    }
}
