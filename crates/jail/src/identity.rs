//! Which host ids the ids inside are mapped to. Never host 0.
//!
//! For root, a jail gets a range of ids that belongs to no user; for an ordinary user, the user's
//! own id and no other, or the user's subordinate ids ([`crate::subordinate`]): with the same numbers
//! in a namespace that the caller has entered, else mapped for the jail alone.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::subordinate::Subordinate;

/// The first host id that jails use: above every range that `systemd.exec`
/// and `subuid(5)` hand out (systemd's "UIDs and GIDs" page calls it unused).
const FIRST: u32 = 0x7000_0000;
/// How many ids one jail has; the usual number for a container.
const COUNT: u32 = 65_536;
/// How many jails can hold a range at the same time: up to the last range below 2^31, which systemd
/// uses for files of foreign users.
const SLOTS: u32 = 4_094;
/// The directory of the lock files. There is one for the whole host, because the ids are the
/// host's.
const LOCKS: &str = "/run/stockade/ids";

/// Which host ids the ids inside are mapped to.
#[derive(Debug)]
pub enum Identity {
    /// The caller's own ids, with the same numbers inside.
    Own {
        /// The user id.
        user: u32,
        /// The group id.
        group: u32,
    },
    /// Inside ids `0..count` are host ids `start..start + count`.
    Range(Range),
}

/// A range of host ids that is exclusive to this jail for as long as the value lives.
#[derive(Debug)]
pub struct Range {
    /// The host id of inside id 0.
    pub start: u32,
    /// How many ids there are.
    pub count: u32,
    /// The caller's subordinate ids, where the jail alone has them.
    subordinate: Option<Subordinate>,
    _lock: Option<File>,
}

/// Why no identity is available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller's own id map could not be read.
    #[error("read the caller's id map {0}")]
    ReadMap(&'static str, #[source] io::Error),
    /// The lock files of the ranges could not be accessed.
    #[error("lock a range of ids under {LOCKS}")]
    Lock(#[source] io::Error),
    /// The caller's own id may be root of the host, and no other id is available.
    #[error("your id {0} here is that of the host's root, and no other id is available")]
    HostRoot(u32),
    /// All ranges are in use.
    #[error("all {SLOTS} ranges of ids are in use")]
    Exhausted,
}

impl Identity {
    /// The identity for the calling process: a range as root of the host or of a container with
    /// enough ids, else the caller's own ids.
    pub fn for_caller() -> Result<Self, Error> {
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        let map = std::fs::read_to_string("/proc/self/uid_map")
            .map_err(|e| Error::ReadMap("/proc/self/uid_map", e))?;
        if crate::subordinate::is_inside() {
            return Ok(Self::Range(Range::of_own_namespace()));
        }
        if user != 0 {
            return own_identity(&map, user, group, host_root);
        }
        match visible_ids(&map) {
            u32::MAX => Ok(Self::Range(Range::acquire()?)),
            visible if visible >= COUNT => Ok(Self::Range(Range::for_container())),
            _ => own_identity(&map, user, group, host_root),
        }
    }

    /// The caller's subordinate ids, for a jail whose caller stays outside of their namespace.
    pub const fn subordinate(ids: Subordinate) -> Self {
        Self::Range(Range { start: 0, count: COUNT, subordinate: Some(ids), _lock: None })
    }

    /// The range, where there is one.
    pub fn range(&self) -> Option<&Range> {
        match self {
            Self::Own { .. } => None,
            Self::Range(range) => Some(range),
        }
    }

    /// The lines of `uid_map` and `gid_map` (`user_namespaces(7)`).
    pub(crate) fn maps(&self) -> (String, String) {
        match self {
            Self::Own { user, group } => {
                (format!("{user} {user} 1\n"), format!("{group} {group} 1\n"))
            }
            // A line is about ids that one line of the outer namespace maps.
            Self::Range(range) if range.is_unshifted() => {
                let lines = format!("0 0 1\n1 1 {}\n", range.count - 1);
                (lines.clone(), lines)
            }
            Self::Range(Range { start, count, .. }) => {
                let line = format!("0 {start} {count}\n");
                (line.clone(), line)
            }
        }
    }
}

impl Range {
    /// The inside id of an init that serves several users: the last one, with which no command
    /// runs.
    pub(crate) const fn init(&self) -> u32 {
        self.count - 1
    }

    /// All ids of the namespace of subordinate ids that this process has entered.
    const fn of_own_namespace() -> Self {
        Self { start: 0, count: COUNT, subordinate: None, _lock: None }
    }

    /// The caller's subordinate ids, if the caller is outside of their namespace. It can then give no file
    /// to one of them, and owns what it makes: inside, that belongs to 0.
    pub const fn subordinate(&self) -> Option<&Subordinate> {
        self.subordinate.as_ref()
    }

    /// Whether ids inside are those of the user's namespace, so that no owner of a file has to be mapped.
    pub const fn is_unshifted(&self) -> bool {
        self.start == 0
    }

    /// A second file descriptor of the lock that makes the range exclusive to this jail; `None`
    /// where the range is locked in another way.
    ///
    /// # Errors
    /// The error of dup(2).
    pub fn lock(&self) -> io::Result<Option<OwnedFd>> {
        self._lock.as_ref().map(|lock| lock.try_clone().map(Into::into)).transpose()
    }

    /// A range that another process holds and hands over: `lock` is the value that [`Range::lock`]
    /// returned there.
    ///
    /// # Errors
    /// `InvalidInput` unless the lock belongs to the range and is still held, or the range is one
    /// that is not locked.
    pub fn adopt(start: u32, lock: Option<OwnedFd>) -> io::Result<Self> {
        let Some(lock) = lock else {
            let range = Self::for_container();
            return if range.start == start { Ok(range) } else { Err(no_range()) };
        };
        let slot = start.checked_sub(FIRST).ok_or_else(no_range)? / COUNT;
        if start != FIRST + slot * COUNT || slot >= SLOTS {
            return Err(no_range());
        }
        let named = rustix::fs::stat(Path::new(LOCKS).join(slot.to_string()))?;
        let given = rustix::fs::fstat(&lock)?;
        if (named.st_dev, named.st_ino) != (given.st_dev, given.st_ino) {
            return Err(no_range());
        }
        // Succeeds if the lock is held through this very file description.
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| no_range())?;
        Ok(Self { start, count: COUNT, subordinate: None, _lock: Some(lock.into()) })
    }

    /// Whether a range that starts here is one of many, each exclusive to one jail.
    pub const fn is_exclusive(start: u32) -> bool {
        start >= FIRST
    }

    /// In a container, the upper half of its ids except its own `nobody` is used instead of the
    /// host's spare ranges.
    const fn for_container() -> Self {
        Self { start: COUNT / 2, count: COUNT / 2 - 2, subordinate: None, _lock: None }
    }

    /// Locks the first free range of the host.
    pub(crate) fn acquire() -> Result<Self, Error> {
        let directory = Path::new(LOCKS);
        if !directory.is_dir() {
            std::fs::create_dir_all(directory).map_err(Error::Lock)?;
        }
        static ACQUIRED: AtomicU32 = AtomicU32::new(0);
        let process = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        for slot in slots(process, ACQUIRED.fetch_add(1, Ordering::Relaxed)) {
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(directory.join(slot.to_string()))
                .map_err(Error::Lock)?;
            match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    return Ok(Self {
                        start: FIRST + slot * COUNT,
                        count: COUNT,
                        subordinate: None,
                        _lock: Some(file),
                    });
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(e) => return Err(Error::Lock(e.into())),
            }
        }
        Err(Error::Exhausted)
    }
}

/// All slots, in the order in which a process tries them for its `nth` jail. The first one is
/// hashed, so that neither processes with consecutive ids nor the jails of one process compete for
/// the same slots.
fn slots(process: u32, nth: u32) -> impl Iterator<Item = u32> {
    // The finalizer of SplitMix64: each bit of the input changes half of the output.
    let mut hash = (u64::from(process) << 32 | u64::from(nth)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    (0..u64::from(SLOTS)).filter_map(move |offset| {
        u32::try_from((hash % u64::from(SLOTS) + offset) % u64::from(SLOTS)).ok()
    })
}

fn no_range() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the id range is not locked")
}

/// The caller's own ids, unless the user is the host's root. A map says only what an id is one namespace
/// further out, where 0 may be an ordinary user of the host; `host_root` is then the id here of the host's root.
fn own_identity(
    map: &str,
    user: u32,
    group: u32,
    host_root: impl FnOnce() -> Option<u32>,
) -> Result<Identity, Error> {
    if host_id(map, user) == Some(0) && host_root().is_none_or(|root| root == user) {
        return Err(Error::HostRoot(user));
    }
    Ok(Identity::Own { user, group })
}

/// The id here of the host's root, which owns the kernel's own settings in every namespace; that of nobody if
/// the root has no id here. `None` if it cannot be found out.
fn host_root() -> Option<u32> {
    let setting = File::open("/proc/sys/kernel/ostype").ok()?;
    let is_of_kernel = rustix::fs::fstatfs(&setting).ok()?.f_type == rustix::fs::PROC_SUPER_MAGIC;
    let owner = rustix::fs::fstat(&setting).ok()?.st_uid;
    is_of_kernel.then_some(owner)
}

/// The outside id of an id of the caller's namespace.
fn host_id(map: &str, id: u32) -> Option<u32> {
    ranges(map).find_map(|(inside, outside, count)| {
        let offset = id.checked_sub(inside)?;
        (offset < count).then(|| outside.checked_add(offset)).flatten()
    })
}

/// The lines of an id map: the first id inside, the first outside, and how many (`user_namespaces(7)`).
fn ranges(map: &str) -> impl Iterator<Item = (u32, u32, u32)> {
    map.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().map(str::parse);
        match (words.next(), words.next(), words.next()) {
            (Some(Ok(inside)), Some(Ok(outside)), Some(Ok(count))) => {
                Some((inside, outside, count))
            }
            _ => None,
        }
    })
}

/// How many ids, counted from 0 without a gap, the caller's namespace has.
fn visible_ids(map: &str) -> u32 {
    let mut lines: Vec<(u32, u32)> =
        ranges(map).map(|(inside, _, count)| (inside, count)).collect();
    lines.sort_unstable();
    lines.iter().fold(
        0,
        |end, (inside, count)| {
            if *inside <= end { end.max(inside.saturating_add(*count)) } else { end }
        },
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_kernel_text_tells_how_many_ids_there_are() {
        assert_eq!(visible_ids("         0          0 4294967295\n"), u32::MAX);
        assert_eq!(visible_ids("0 100000 65536\n"), 65_536);
        assert_eq!(visible_ids("0 1000 1\n1 100000 65535\n"), 65_536);
        assert_eq!(visible_ids("0 1000 1\n"), 1);
        assert_eq!(visible_ids("1000 1000 1\n"), 0);
        assert_eq!(visible_ids("nonsense"), 0);
    }

    #[test]
    fn an_own_id_that_is_root_outside_is_refused() {
        let own = |map, user, root| own_identity(map, user, user, || root);
        for root in [None, Some(0)] {
            assert!(matches!(own("0 0 1\n", 0, root), Err(Error::HostRoot(0))));
        }
        for root in [None, Some(5)] {
            assert!(matches!(own("5 0 1\n", 5, root), Err(Error::HostRoot(5))));
        }
        assert!(matches!(own("0 1000 1\n", 0, None), Ok(Identity::Own { user: 0, .. })));
        assert!(matches!(own("0 0 4294967295\n", 1000, None), Ok(Identity::Own { .. })));
        // 0 further out is an ordinary user of the host, as in a container in another one.
        assert!(matches!(own("1000 0 1\n", 1000, Some(65_534)), Ok(Identity::Own { .. })));
    }

    #[test]
    fn the_kernel_tells_which_id_the_root_of_the_host_has() {
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap();
        if visible_ids(&map) != u32::MAX {
            crate::testing::skipped("the ids of the host are visible in no container");
            return;
        }
        assert_eq!(host_root(), Some(0));
    }

    #[test]
    fn maps_never_name_host_zero() {
        let own = Identity::Own { user: 1000, group: 1001 };
        assert_eq!(own.maps(), ("1000 1000 1\n".to_owned(), "1001 1001 1\n".to_owned()));
        let range =
            Identity::Range(Range { start: FIRST, count: COUNT, subordinate: None, _lock: None });
        assert_eq!(range.maps().0, "0 1879048192 65536\n");
        // These are ids of a namespace in which 0 is an ordinary user.
        let own = Identity::Range(Range::of_own_namespace());
        assert_eq!(own.maps().0, "0 0 1\n1 1 65535\n");
        assert!(u64::from(FIRST) + u64::from(SLOTS) * u64::from(COUNT) <= 1 << 31);
    }

    #[test]
    fn processes_that_follow_one_with_many_jails_find_a_free_slot_at_once() {
        const KEEPER: u32 = 1000;
        let mut locked = BTreeSet::new();
        let mut tries = |process: u32, nth: u32| {
            1 + slots(process, nth).take_while(|slot| !locked.insert(*slot)).count()
        };
        let keeper: usize = (0..64).map(|nth| tries(KEEPER, nth)).sum();
        assert!(keeper <= 70, "{keeper} tries for 64 jails");
        // Three hundred runs at the same time.
        let runs: Vec<_> = (KEEPER + 1..=KEEPER + 300).map(|process| tries(process, 0)).collect();
        assert!(runs.iter().all(|tries| *tries <= 8), "{runs:?}");
        assert!(runs.iter().sum::<usize>() <= 330, "{runs:?}");
    }

    #[test]
    fn every_slot_is_tried_once() {
        for process in [1, 4_194_303, u32::MAX] {
            let all: BTreeSet<_> = slots(process, 7).collect();
            assert_eq!(all, (0..SLOTS).collect());
            assert_eq!(slots(process, 7).count(), all.len());
        }
    }

    #[test]
    fn a_range_is_handed_over_with_its_lock() {
        let Ok(range) = Range::acquire() else {
            crate::testing::skipped("ranges of ids can be locked by root only");
            return;
        };
        let lock = || range.lock().unwrap();
        let taken = Range::adopt(range.start, lock()).unwrap();
        assert_eq!((taken.start, taken.count), (range.start, COUNT));
        assert!(Range::is_exclusive(taken.start));
        for wrong in [0, FIRST - COUNT, range.start + 1, range.start + COUNT, u32::MAX] {
            assert!(Range::adopt(wrong, lock()).is_err(), "{wrong}");
        }
        let file = tempfile::tempfile().unwrap();
        assert!(Range::adopt(range.start, Some(file.into())).is_err());
        assert!(Range::adopt(range.start, None).is_err());

        let path = Path::new(LOCKS).join(((range.start - FIRST) / COUNT).to_string());
        let start = range.start;
        drop(range);
        // The receiver of the lock still holds it.
        let other = || File::open(&path).unwrap().into();
        assert!(Range::adopt(start, Some(other())).is_err());
        drop(taken);
        Range::adopt(start, Some(other())).unwrap();
    }

    #[test]
    fn the_range_of_a_container_is_always_the_same() {
        let range = Range::adopt(COUNT / 2, None).unwrap();
        assert_eq!((range.start, range.count), (32_768, 32_766));
        assert!(!Range::is_exclusive(range.start));
    }
}
