//! The private base: a copy of the host's system directories, from which sandboxes get their
//! programs instead of from the host's own files. A fault of the kernel that writes to the page
//! cache of a file that can only be read then reaches the copy, which nothing on the host executes.
//!
//! ```text
//! bases/
//!   <hex>/root/          the copy, named after the state of the host that it was made from
//!   <hex>/base.json      what it consists of
//!   new-*/               a copy that is being made, or that a killed maker left
//!   old-*/               a replaced copy that a sandbox still uses
//!   lock                 held by the one who makes or removes a copy
//! ```
//!
//! A copy gets its name when it is complete and on disk. Who uses one holds a shared lock on its
//! directory, and only a copy without such a lock is removed.
//!
//! The copy has the files and links that the caller may read, with their times, modes (without
//! set-id bits) and hard links; as root with their owners. It has no devices, sockets or pipes, and
//! no extended attributes.

mod copy;
mod fingerprint;
mod state;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use stockade_bundle::beneath;
use stockade_bundle::data::{self, DataDir};

pub use self::copy::Content;
use self::state::Bases;
pub use self::state::{Base, Pruned};

/// How often a copy is made again because the host's files changed meanwhile.
const MAX_ATTEMPTS: u32 = 3;

/// Why there is no private base.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk of the data directory has not enough space for the copy. Nothing was written.
    #[error(
        "the private base needs {} MiB on the disk of {}, where {} MiB are free",
        needed.div_ceil(1 << 20), path.display(), free >> 20
    )]
    NoSpace {
        /// The directory of the copies.
        path: PathBuf,
        /// The bytes that the copy needs, with a reserve.
        needed: u64,
        /// The bytes that are free.
        free: u64,
    },
    /// The disk of the data directory has not enough inodes for the copy. Nothing was written.
    #[error(
        "the private base needs {needed} files on the disk of {}, where {free} more are possible",
        path.display()
    )]
    NoInodes {
        /// The directory of the copies.
        path: PathBuf,
        /// The number of files and directories.
        needed: u64,
        /// How many more the disk can have.
        free: u64,
    },
    /// The system directories changed each time while they were copied.
    #[error("the host's system directories changed {MAX_ATTEMPTS} times while they were copied")]
    Changing,
    /// Another process makes or removes a copy.
    #[error("another process has been working on the private base for {0} minutes")]
    Busy(u64),
    /// There is no copy of the present state of the host.
    #[error("there is no private base of the present state of the host")]
    Missing,
    /// A directory of the host has more levels than can be copied.
    #[error("{} has too many levels of directories", .0.display())]
    TooDeep(PathBuf),
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// Something in the data directory or in the system directories cannot be read or written.
    #[error(transparent)]
    File(#[from] beneath::Error),
    /// Reading or writing failed.
    #[error("cannot {operation} for the private base")]
    Io {
        /// What was attempted.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Whether the disk has no space.
    pub fn is_full(&self) -> bool {
        let is_full =
            |kind| matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        match self {
            Self::NoSpace { .. } | Self::NoInodes { .. } => true,
            Self::File(error) => error.kind().is_some_and(is_full),
            Self::Io { source, .. } => is_full(source.kind()),
            _ => false,
        }
    }
}

/// What the maker of a copy is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It waits for another process that works on a copy.
    Waiting,
    /// It counts what is to be copied.
    Counting,
    /// It copies.
    Copying {
        /// What was copied.
        done: Content,
        /// What there is.
        all: Content,
    },
    /// It waits until the copy is on disk.
    Writing,
}

/// The copy of the present state of the host's directories `tops`.
///
/// # Errors
/// [`Error::Missing`] if it was not made.
pub fn current(data: &DataDir, tops: &[&Path]) -> Result<Base, Error> {
    let name = fingerprint::of(tops)?;
    Bases::open(data)?.find(&name)?.ok_or(Error::Missing)
}

/// The copy of the present state of the host's directories `tops`, made if it is missing.
///
/// # Errors
/// Why it cannot be made; then nothing of it remains.
pub fn ensure(
    data: &DataDir,
    tops: &[&Path],
    progress: &mut dyn FnMut(Progress),
) -> Result<Base, Error> {
    let bases = Bases::open(data)?;
    if let Some(base) = bases.find(&fingerprint::of(tops)?)? {
        return Ok(base);
    }
    make(&bases, tops, false, progress)
}

/// Makes the copy of the present state of the host again, even if there is one. Sandboxes that use
/// that keep it.
///
/// # Errors
/// As [`ensure`].
pub fn renew(
    data: &DataDir,
    tops: &[&Path],
    progress: &mut dyn FnMut(Progress),
) -> Result<Base, Error> {
    make(&Bases::open(data)?, tops, true, progress)
}

/// Removes the copies that no sandbox uses: all of them, or those of former states of the host.
///
/// # Errors
/// What cannot be read or removed.
pub fn prune(data: &DataDir, tops: &[&Path], all: bool) -> Result<Pruned, Error> {
    let bases = Bases::open(data)?;
    let _lock = bases.lock(&mut |_| {})?;
    let kept = if all { None } else { Some(fingerprint::of(tops)?) };
    bases.remove_unused(kept.as_deref())
}

fn make(
    bases: &Bases,
    tops: &[&Path],
    again: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Base, Error> {
    let _lock = bases.lock(progress)?;
    for _ in 0..MAX_ATTEMPTS {
        let name = fingerprint::of(tops)?;
        if !again && let Some(base) = bases.find(&name)? {
            // The process that held the lock has made it.
            return Ok(base);
        }
        // Their space is needed for the new one.
        bases.remove_unused(again.then_some(&*name))?;
        let unfinished = bases.copy(tops, progress)?;
        progress(Progress::Writing);
        if fingerprint::of(tops)? != name {
            unfinished.discard()?;
            continue;
        }
        return unfinished.publish(&name);
    }
    Err(Error::Changing)
}

fn io_error(operation: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Io { operation, source }
}
