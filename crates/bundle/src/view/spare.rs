//! Views that were used and not written to, kept for the next run.
//!
//! Making and removing directories is the slowest part of a short run: file
//! systems avoid the inodes that were given up last. A spare is a view without
//! a description, as `sweep` takes it away, under one of a few fixed names.

use std::time::Duration;

use rustix::fs::{IFlags, ioctl_getflags};
use rustix::io::Errno;

use super::{Error, Layers, View, lock, open_or_make, own, record::Record};
use crate::beneath::{Dir, Rename, Timestamp};
use crate::path::RelativePath;

/// How many spares are kept: as many as runs are likely to be at once, or to follow each other
/// while spares rest.
pub(super) const KEPT: usize = 16;

/// How long a spare rests. The kernel takes down the overlay of its last use after the run is over,
/// and complains in its log when there is another one over the same layers meanwhile.
pub(super) const REST: Duration = Duration::from_millis(50);

/// What an overlay itself leaves on its upper layer's root, and only there.
const OWN_ATTRIBUTE: &[u8] = b"user.overlay.uuid";

fn names() -> impl Iterator<Item = RelativePath> {
    (0..KEPT).filter_map(|number| RelativePath::new(format!("spare-{number}")).ok())
}

/// Takes a spare and gives it a new name; `None` where there is none. Gives its former name too.
pub(super) fn take(views: &Dir, to: &RelativePath) -> Result<Option<(Dir, RelativePath)>, Error> {
    let now = super::coarse_now();
    for from in names() {
        let Some(stat) = own("inspect", views.stat(&from))? else { continue };
        if rests(stat.changed, now) {
            continue;
        }
        let dir = match views.open_dir(&from) {
            Err(error) if error.errno() == Some(Errno::NOENT) => continue,
            other => own("open", other)?,
        };
        if !lock(&dir)? || !is_still(views, &from, &dir)? {
            continue;
        }
        own("take", views.rename(&from, views, to, Rename::NoReplace))?;
        return Ok(Some((dir, from)));
    }
    Ok(None)
}

/// Whether a spare that has got its name then was in use a moment ago.
fn rests(named: Timestamp, now: Timestamp) -> bool {
    let since_epoch = |time: Timestamp| {
        let seconds = u64::try_from(time.seconds).unwrap_or(0);
        Duration::new(seconds, time.nanoseconds)
    };
    // A clock that was set back tells nothing.
    since_epoch(now).checked_sub(since_epoch(named)).is_some_and(|since| since < REST)
}

/// Whether the name still leads to the directory: it may have been taken before it was locked.
fn is_still(views: &Dir, name: &RelativePath, dir: &Dir) -> Result<bool, Error> {
    let own_stat = own("inspect", dir.stat_self())?;
    let named = own("inspect", views.stat(name))?;
    Ok(named.is_some_and(|named| (named.device, named.inode) == (own_stat.device, own_stat.inode)))
}

/// The working directory for the next overlay, and that of the last one.
const WORK: &str = "work";
const WORN: &str = "worn";

/// A working directory for an overlay. What the last one has left in its own would make the
/// kernel refuse or clean up, so two take turns, and the other is left for [`tidy`].
pub(super) fn fresh_work(dir: &Dir) -> Result<Dir, Error> {
    let [work, worn] = [WORK, WORN].map(RelativePath::literal);
    let is_used = own("inspect", dir.stat(&work))?.is_some();
    if is_used {
        tidy(dir)?;
        match dir.rename(&work, dir, &worn, Rename::Exchange) {
            // The first time.
            Err(error) if error.errno() == Some(Errno::NOENT) => {
                own("put aside", dir.rename(&work, dir, &worn, Rename::NoReplace))?;
            }
            other => own("put aside", other)?,
        }
    }
    open_or_make(dir, &work)
}

/// What an overlay leaves in its working directory that syncs nothing (`volatile`), each after what is
/// in it.
const LEFT: [&str; 4] = [
    "worn/work/incompat/volatile/dirty",
    "worn/work/incompat/volatile",
    "worn/work/incompat",
    "worn/work",
];

/// Empties the working directory of the last overlay. Gives the directories that were in it: what they
/// took up is given back when they are closed, and a disk may be asked to forget it then
/// (`discard`, `ext4(5)`), which takes as long as writing to it.
pub(super) fn tidy(dir: &Dir) -> Result<Vec<Dir>, Error> {
    let [file, directories @ ..] = LEFT.map(RelativePath::literal);
    // Without looking what is there, which is right where the caller may look into all of it.
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
    own("tidy", dir.remove_tree(&RelativePath::literal("worn/work")))?;
    Ok(Vec::new())
}

/// Keeps a view that nothing was written to, or removes it: where anything is left of its use,
/// and where there are enough.
pub(super) fn keep(view: View) -> Result<(), Error> {
    if !is_untouched(&view) {
        return view.remove();
    }
    Record::blank(&view.dir)?;
    // The name that it had is free most likely.
    for name in view.spare.clone().into_iter().chain(names()) {
        match view.views.rename(&view.name, &view.views, &name, Rename::NoReplace) {
            Err(error) if error.errno() == Some(Errno::EXIST) => {}
            other => return own("keep", other),
        }
    }
    view.remove()
}

/// Whether the next sandbox could see nothing of this one in the layers.
fn is_untouched(view: &View) -> bool {
    let Layers::Overlay { upper, .. } = &view.layers else { return false };
    let is_empty = upper.entries_up_to(1).is_ok_and(|found| found.is_some_and(|e| e.is_empty()));
    // The command may set both on the root of its view.
    let mut names = [0_u8; 256];
    let attributes = rustix::fs::flistxattr(upper, &mut names[..]);
    let is_plain = attributes.is_ok_and(|length| {
        names[..length].split(|b| *b == 0).all(|name| name.is_empty() || name == OWN_ATTRIBUTE)
    });
    let flags = ioctl_getflags(upper);
    is_empty && is_plain && flags.map_or(true, |flags| flags.difference(USUAL).is_empty())
}

/// How ext4 keeps a directory; others have no flag or none of these.
const USUAL: IFlags = IFlags::from_bits_retain(EXTENTS | HASHED);
const EXTENTS: u32 = 0x0008_0000;
const HASHED: u32 = 0x0000_1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spare_rests_for_a_moment() {
        let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        assert!(rests(at(5, 0), at(5, 0)));
        assert!(rests(at(5, 990_000_000), at(6, 0)));
        assert!(!rests(at(5, 0), at(5, 60_000_000)));
        assert!(!rests(at(6, 0), at(5, 0)), "the clock was set back");
    }
}
