//! Locks between processes. Each ends with its descriptor, so that a process that dies holds none.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use stockade_bundle::beneath::Dir;

use super::{Error, io_error};
use stockade_bundle::RelativePath;

/// Held shared while something is added, exclusively while something is removed.
const CONTENT: &str = "lock";
/// Held while the list of references is changed.
const REFERENCES: &str = "references.lock";
/// How long a lock is waited for. Only removals make others wait, and they are short.
const MAX_WAIT_SECONDS: u64 = 60;
/// How often it is tried.
const INTERVAL: Duration = Duration::from_millis(20);

/// The lock of those who add.
pub(super) fn shared(root: &Dir) -> Result<File, Error> {
    lock(root, CONTENT, FlockOperation::NonBlockingLockShared)
}

/// The lock of those who remove.
pub(super) fn exclusive(root: &Dir) -> Result<File, Error> {
    lock(root, CONTENT, FlockOperation::NonBlockingLockExclusive)
}

/// The lock of those who change the list of references.
pub(super) fn references(root: &Dir) -> Result<File, Error> {
    lock(root, REFERENCES, FlockOperation::NonBlockingLockExclusive)
}

fn lock(root: &Dir, name: &'static str, operation: FlockOperation) -> Result<File, Error> {
    let file = open(root, &RelativePath::literal(name))?;
    let deadline = Instant::now() + Duration::from_secs(MAX_WAIT_SECONDS);
    loop {
        match rustix::fs::flock(file.as_fd(), operation) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                thread::sleep(INTERVAL);
            }
            Err(Errno::WOULDBLOCK) => return Err(Error::Busy(MAX_WAIT_SECONDS)),
            Err(errno) => return Err(io_error("lock")(errno.into())),
        }
    }
}

fn open(root: &Dir, name: &RelativePath) -> Result<File, Error> {
    match root.create_file(name, 0o600) {
        Err(error) if error.errno() == Some(Errno::EXIST) => Ok(root.open_file(name)?),
        created => Ok(created?),
    }
}
