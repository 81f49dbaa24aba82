//! Space on the disk of the data directory that is kept for operations that free more: to kill a sandbox
//! or to remove a snapshot, a record must be written first.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{FallocateFlags, OFlags};
use stockade_api::{Caller, Result};
use stockade_core::Code;

/// The size of the reserve: more than the records of a few operations take.
const BYTES: u64 = 4 << 20;
/// The reserve is at most this part of its file system.
const PART: u64 = 16;
/// What is tried when the disk has no space for all of it: a half, a quarter and so on.
const SHARES: [u64; 5] = [1, 2, 4, 8, 16];
/// How often, and for how long, an operation that has used it tries to fill it again.
const REFILLS: u32 = 10;
const REFILL_INTERVAL: Duration = Duration::from_millis(100);
/// The file in the data directory.
const NAME: &str = "reserve";

/// The reserve of a data directory.
#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    /// How many operations use the space now.
    users: Mutex<u32>,
}

/// The space of the reserve is free until this is dropped.
#[derive(Debug)]
pub(crate) struct Released<'a>(&'a Reserve);

impl Reserve {
    /// The reserve of a data directory. It is filled as far as there is space.
    pub(crate) fn of(data: &Path) -> Self {
        let reserve = Self { path: data.join(NAME), users: Mutex::default() };
        reserve.fill();
        reserve
    }

    /// Fills it again, unless it is in use. On a full disk it stays as it is, and is filled later.
    pub(crate) fn fill(&self) {
        self.is_filled();
    }

    /// Fills it, and returns whether nothing of it is missing.
    fn is_filled(&self) -> bool {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        *users > 0 || fill(&self.path).unwrap_or(true)
    }

    /// Waits a while until there is space to fill it: files that an operation has removed are still
    /// being deleted.
    async fn refill(&self) {
        for _ in 0..REFILLS {
            if self.is_filled() {
                return;
            }
            tokio::time::sleep(REFILL_INTERVAL).await;
        }
    }

    /// Frees its space; `None` if it has none.
    pub(crate) fn release(&self) -> Option<Released<'_>> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let file = open(&self.path).ok()?;
        if *users == 0 && file.metadata().ok()?.len() == 0 {
            return None;
        }
        file.set_len(0).ok()?;
        *users += 1;
        Some(Released(self))
    }
}

impl Drop for Released<'_> {
    fn drop(&mut self) {
        let mut users = self.0.users.lock().unwrap_or_else(PoisonError::into_inner);
        *users -= 1;
        drop(users);
        self.0.fill();
    }
}

/// Runs an operation that frees space. If its record does not fit on the disk, it is run again with the
/// space of the reserve, and without the caller's key: the attempt under that key continues later and
/// finds that the work is done.
pub(crate) async fn with_reserve<T, F: Future<Output = Result<T>>>(
    reserve: Option<&Reserve>,
    caller: &Caller,
    operation: impl Fn(Caller) -> F,
) -> Result<T> {
    match operation(caller.clone()).await {
        Err(problem) if problem.code == Code::StorageFull => {
            let Some(reserve) = reserve else { return Err(problem) };
            let Some(released) = reserve.release() else { return Err(problem) };
            let done = operation(Caller { idempotency_key: None, ..caller.clone() }).await;
            drop(released);
            if done.is_ok() {
                // Before the caller, or another program, uses the space.
                reserve.refill().await;
            }
            done
        }
        done => done,
    }
}

fn open(path: &Path) -> io::Result<File> {
    let no_link = i32::try_from(OFlags::NOFOLLOW.bits()).map_err(io::Error::other)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(no_link).open(path)
}

/// Returns whether the whole of it is filled.
fn fill(path: &Path) -> io::Result<bool> {
    let mut file = open(path)?;
    let disk = rustix::fs::fstatvfs(&file)?;
    let whole = BYTES.min(disk.f_blocks.saturating_mul(disk.f_frsize) / PART);
    let filled = file.metadata()?.len();
    fill_with(&mut file, whole, filled, allocate)
}

/// Makes the file of which `filled` bytes exist as long as it can be, up to `whole`.
fn fill_with(
    file: &mut File,
    whole: u64,
    filled: u64,
    mut allocate: impl FnMut(&mut File, u64) -> io::Result<()>,
) -> io::Result<bool> {
    // The records of the operation that used it remain, so it may not fit any more as a whole.
    for length in SHARES.map(|share| whole / share) {
        if filled >= length || allocate(file, length).is_ok() {
            return Ok(length == whole);
        }
        // A part of it would not be known as such.
        file.set_len(filled)?;
    }
    Ok(false)
}

fn allocate(file: &mut File, length: u64) -> io::Result<()> {
    match rustix::fs::fallocate(&*file, FallocateFlags::empty(), 0, length) {
        Err(rustix::io::Errno::OPNOTSUPP) => {
            file.rewind()?;
            let written = io::copy(&mut io::Read::take(io::repeat(0), length), file);
            written.and_then(|_| file.flush())
        }
        allocated => Ok(allocated?),
    }
}

#[cfg(test)]
mod tests {
    use stockade_core::{OwnerId, Problem};

    use super::*;

    fn length(place: &Path) -> u64 {
        std::fs::metadata(place.join(NAME)).unwrap().len()
    }

    #[tokio::test]
    async fn its_space_is_free_while_an_operation_needs_it() {
        let place = tempfile::tempdir().unwrap();
        let reserve = Reserve::of(place.path());
        assert_eq!(length(place.path()), BYTES);
        let owner = Caller::new(OwnerId::new("u1").unwrap());
        let caller = Caller { idempotency_key: Some("key".to_owned()), ..owner };
        let full = || Problem::new(Code::StorageFull, "full");
        let operation = async |caller: Caller| match caller.idempotency_key {
            None if length(place.path()) == 0 => Ok("done"),
            _ => Err(full()),
        };
        assert_eq!(with_reserve(Some(&reserve), &caller, operation).await, Ok("done"));
        assert_eq!(length(place.path()), BYTES);
        let without = with_reserve(None, &caller, async |_| Err::<(), _>(full())).await;
        assert_eq!(without.unwrap_err().code, Code::StorageFull);
    }

    #[test]
    fn a_part_is_filled_where_the_whole_does_not_fit() {
        let place = tempfile::tempdir().unwrap();
        let mut file = open(&place.path().join(NAME)).unwrap();
        let mut allocate = |share: u64, room: u64| {
            let mut tries = Vec::new();
            let filled = fill_with(&mut file, 64, share, |_, length| {
                tries.push(length);
                if length <= room { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
            });
            (tries, filled.unwrap())
        };
        assert_eq!(allocate(0, 64), (vec![64], true));
        assert_eq!(allocate(0, 20), (vec![64, 32, 16], false));
        assert_eq!(allocate(32, 20), (vec![64], false), "half of it is there");
        assert_eq!(allocate(64, 0), (vec![], true));
        assert_eq!(allocate(0, 0), (vec![64, 32, 16, 8, 4], false));
    }

    #[test]
    fn an_empty_reserve_is_of_no_help() {
        let place = tempfile::tempdir().unwrap();
        let reserve = Reserve { path: place.path().join(NAME), users: Mutex::default() };
        assert!(reserve.release().is_none());
        reserve.fill();
        let first = reserve.release().unwrap();
        let second = reserve.release().unwrap();
        drop(first);
        assert_eq!(length(place.path()), 0);
        drop(second);
        assert_eq!(length(place.path()), BYTES);
    }
}
