//! Unused views, stored for the next run: views of earlier runs that wrote nothing to them.
//!
//! Creating and removing directories is the slowest part of a short run: file systems avoid
//! inodes that were freed recently. An unused view has no description, so `sweep` removes it,
//! and has one of a few fixed names.

use std::time::Duration;

use rustix::fs::{IFlags, ioctl_getflags};
use rustix::io::Errno;

use super::{Error, Layers, View, lock, open_or_create, record::Record, with_operation};
use crate::beneath::{Dir, Rename, Timestamp};
use crate::layer::MARKS_OF_ROOT;
use crate::path::RelativePath;

/// The most views that are stored: as many as runs are likely to be concurrent, or to follow
/// each other within the rest time.
pub(super) const CAPACITY: usize = 16;

/// How long a stored view rests before it is used again. The kernel tears down the overlay of the
/// last use only after the run is over, and logs a warning if another overlay uses the same layers
/// before that.
pub(super) const REUSE_DELAY: Duration = Duration::from_millis(50);

/// The attributes that an overlay sets on its upper layer's root, and only there, and the one that says
/// which of them it sets.
const OWN_ATTRIBUTES: [&[u8]; 3] =
    [b"user.overlay.uuid", b"trusted.overlay.uuid", MARKS_OF_ROOT.as_bytes()];

fn names() -> impl Iterator<Item = RelativePath> {
    (0..CAPACITY).filter_map(|number| RelativePath::new(format!("spare-{number}")).ok())
}

/// Takes a stored view and renames it; `None` if there is none. Also returns its former name.
pub(super) fn take(views: &Dir, to: &RelativePath) -> Result<Option<(Dir, RelativePath)>, Error> {
    let now = super::coarse_now();
    for from in names() {
        let Some(stat) = with_operation("inspect", views.stat(&from))? else { continue };
        if is_too_recent(stat.changed, now) {
            continue;
        }
        let dir = match views.open_dir(&from) {
            Err(error) if error.errno() == Some(Errno::NOENT) => continue,
            other => with_operation("open", other)?,
        };
        if !lock(&dir)? || !is_same_dir(views, &from, &dir)? {
            continue;
        }
        with_operation("take", views.rename(&from, views, to, Rename::NoReplace))?;
        return Ok(Some((dir, from)));
    }
    Ok(None)
}

/// Whether a view that was stored at the time `named` was in use until a moment ago.
fn is_too_recent(named: Timestamp, now: Timestamp) -> bool {
    let since_epoch = |time: Timestamp| {
        let seconds = u64::try_from(time.seconds).unwrap_or(0);
        Duration::new(seconds, time.nanoseconds)
    };
    // If the clock was set back, the age is unknown.
    since_epoch(now).checked_sub(since_epoch(named)).is_some_and(|since| since < REUSE_DELAY)
}

/// Whether the name still refers to the directory: it may have been taken before it was locked.
fn is_same_dir(views: &Dir, name: &RelativePath, dir: &Dir) -> Result<bool, Error> {
    let own_stat = with_operation("inspect", dir.stat_self())?;
    let named = with_operation("inspect", views.stat(name))?;
    Ok(named.is_some_and(|named| (named.device, named.inode) == (own_stat.device, own_stat.inode)))
}

/// The working directory for the next overlay, and that of the last one.
const WORK: &str = "work";
const OLD_WORK: &str = "worn";

/// A working directory for an overlay. What the last overlay left in its own directory would
/// make the kernel refuse or clean up, so two directories alternate, and [`tidy`] cleans the
/// other one.
pub(super) fn create_work(dir: &Dir) -> Result<Dir, Error> {
    let [work, worn] = [WORK, OLD_WORK].map(RelativePath::literal);
    let is_used = with_operation("inspect", dir.stat(&work))?.is_some();
    if is_used {
        tidy(dir)?;
        match dir.rename(&work, dir, &worn, Rename::Exchange) {
            // On the first reuse there is no other directory.
            Err(error) if error.errno() == Some(Errno::NOENT) => {
                with_operation("put aside", dir.rename(&work, dir, &worn, Rename::NoReplace))?;
            }
            other => with_operation("put aside", other)?,
        }
    }
    open_or_create(dir, &work)
}

/// What a `volatile` overlay (one that syncs nothing) leaves in its working directory, children before
/// parents.
const VOLATILE_LEFTOVERS: [&str; 4] = [
    "worn/work/incompat/volatile/dirty",
    "worn/work/incompat/volatile",
    "worn/work/incompat",
    "worn/work",
];

/// Empties the working directory of the last overlay. Returns the open directories that were in it:
/// the file system frees their space when they are closed, and may then also discard the blocks on the
/// disk (`discard`, `ext4(5)`), which takes as long as writing them.
pub(super) fn tidy(dir: &Dir) -> Result<Vec<Dir>, Error> {
    let [file, directories @ ..] = VOLATILE_LEFTOVERS.map(RelativePath::literal);
    // The fast path removes the expected paths without listing anything.
    let removed = dir.remove_file(&file).and_then(|()| {
        let remove = |directory| {
            let held = dir.locate_dir(directory)?;
            dir.remove_dir(directory).map(|()| held)
        };
        directories.iter().map(remove).collect()
    });
    if let Ok(held) = removed {
        return Ok(held);
    }
    with_operation("tidy", dir.remove_tree(&RelativePath::literal("worn/work")))?;
    Ok(Vec::new())
}

/// Stores a view that nothing was written to. Removes it instead if its use left anything in
/// it, or if enough views are stored.
pub(super) fn put(view: View) -> Result<(), Error> {
    if !is_untouched(&view) {
        return view.remove();
    }
    Record::clear(&view.dir)?;
    // Its former name is most likely free.
    for name in view.pool_name.clone().into_iter().chain(names()) {
        match view.views.rename(&view.name, &view.views, &name, Rename::NoReplace) {
            Err(error) if error.errno() == Some(Errno::EXIST) => {}
            other => return with_operation("keep", other),
        }
    }
    view.remove()
}

/// Whether the layers contain nothing of this sandbox that the next one could see.
fn is_untouched(view: &View) -> bool {
    let Layers::Overlay { upper, .. } = &view.layers else { return false };
    let is_empty = upper.entries_up_to(1).is_ok_and(|found| found.is_some_and(|e| e.is_empty()));
    // The command may set both attributes and flags on the root of its view.
    let mut names = [0_u8; 256];
    let attributes = rustix::fs::flistxattr(upper, &mut names[..]);
    let is_plain = attributes.is_ok_and(|length| {
        names[..length]
            .split(|b| *b == 0)
            .all(|name| name.is_empty() || OWN_ATTRIBUTES.contains(&name))
    });
    let flags = ioctl_getflags(upper);
    is_empty && is_plain && flags.map_or(true, |flags| flags.difference(DEFAULT_FLAGS).is_empty())
}

/// The flags that ext4 sets on a directory; other file systems have no flags or none of these.
const DEFAULT_FLAGS: IFlags = IFlags::from_bits_retain(EXTENTS | HASHED);
const EXTENTS: u32 = 0x0008_0000;
const HASHED: u32 = 0x0000_1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spare_rests_for_a_moment() {
        let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        assert!(is_too_recent(at(5, 0), at(5, 0)));
        assert!(is_too_recent(at(5, 990_000_000), at(6, 0)));
        assert!(!is_too_recent(at(5, 0), at(5, 60_000_000)));
        assert!(!is_too_recent(at(6, 0), at(5, 0)), "the clock was set back");
    }
}
