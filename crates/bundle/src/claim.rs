//! Directories that belong to one process at a time. Each is locked as long as its file
//! descriptor is open, so an unlocked directory is known to be abandoned.

use std::os::fd::AsFd as _;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::beneath::{self, Dir};
use crate::path::RelativePath;

/// How many names are tried for a new directory.
const ATTEMPTS: u32 = 1000;

/// Creates a new directory in `parent`, named after `prefix`, this process and a number, and
/// locks it.
pub fn claim(parent: &Dir, prefix: &str) -> Result<(RelativePath, Dir), beneath::Error> {
    let process = rustix::process::getpid().as_raw_nonzero();
    for attempt in 0..ATTEMPTS {
        let Ok(name) = RelativePath::new(format!("{prefix}{process}-{attempt}")) else { break };
        // The root user of a sandbox must pass through a view to its layers; the parent denies
        // access to all others.
        match parent.mkdir(&name, 0o711) {
            Err(error) if error.errno() == Some(Errno::EXIST) => continue,
            other => other?,
        }
        // Before it is locked, a sweep may remove it as abandoned.
        match parent.open_dir(&name) {
            Err(error) if error.errno() == Some(Errno::NOENT) => {}
            Err(error) => return Err(error),
            Ok(dir) if try_lock(&dir)? && dir.stat_self()?.links > 0 => return Ok((name, dir)),
            Ok(_) => {}
        }
    }
    Err(io_error("claim", Errno::EXIST))
}

/// Locks a directory; `false` where another process has it.
pub fn try_lock(dir: &Dir) -> Result<bool, beneath::Error> {
    match rustix::fs::flock(dir.as_fd(), FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(io_error("lock", errno)),
    }
}

fn io_error(operation: &'static str, errno: Errno) -> beneath::Error {
    beneath::Error::Io { operation, path: ".".to_owned(), source: errno.into() }
}
