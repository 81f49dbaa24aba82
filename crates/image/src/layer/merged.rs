//! What an image contains at a path while one of its layers is unpacked: the layer itself over
//! those below it, as an overlay would show them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind, Stat};

use super::Error;

/// The most directories above a file.
const MAX_DEPTH: usize = 128;
/// The most links on the way to a file, as in the kernel.
const MAX_LINKS: u32 = 40;
/// After how many steps the clock is read.
const STEPS_PER_CLOCK: u64 = 256;
/// The attribute of a directory that hides those of the layers below.
pub(super) const OPAQUE: &str = "user.overlay.opaque";

/// The parts of a path.
pub(crate) type Parts = Vec<Vec<u8>>;

/// The layers, the topmost first.
#[derive(Debug)]
pub(crate) struct Merged<'a> {
    pub(crate) layers: Vec<&'a Dir>,
    budget: Budget,
}

/// How long looking up may take: names, links and deletions decide how much there is to look up.
#[derive(Debug)]
pub(crate) struct Budget {
    steps: Cell<u64>,
    end: Instant,
    seconds: u64,
}

impl Budget {
    /// This many seconds from now.
    pub(crate) fn new(seconds: u64) -> Self {
        let now = Instant::now();
        let end = now.checked_add(Duration::from_secs(seconds)).unwrap_or(now);
        Self { steps: Cell::new(0), end, seconds }
    }

    /// Counts something that takes a system call.
    ///
    /// # Errors
    /// [`Error::Limit`] when the time is used up.
    pub(crate) fn step(&self) -> Result<(), Error> {
        let steps = self.steps.get().wrapping_add(1);
        self.steps.set(steps);
        // The clock is read seldom: most layers have a few thousand steps.
        if steps.is_multiple_of(STEPS_PER_CLOCK) && Instant::now() >= self.end {
            return Err(Error::Limit { limit: "seconds", value: self.seconds });
        }
        Ok(())
    }
}

/// The layers that have a directory at a path, and what is there.
type Level<'a> = (Option<Found<'a>>, Vec<&'a Dir>);

/// What is at a path, and in which layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'a> {
    pub(crate) layer: &'a Dir,
    pub(crate) stat: Stat,
}

/// A name of an entry as a path below the image's root; empty for the root itself.
///
/// As Docker does: an absolute name is one below the root, `.` and empty parts mean nothing, and
/// `..` leads to the part before it. A name that leads above the root is refused.
pub(crate) fn clean(name: &[u8]) -> Result<Parts, Error> {
    let refused = |reason| Error::Entry { path: printable(name), reason };
    let is_absolute = name.first() == Some(&b'/');
    let mut parts: Parts = Vec::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                if parts.pop().is_none() && !is_absolute {
                    return Err(refused("leads out of the image"));
                }
            }
            part if part.contains(&0) => return Err(refused("has a zero byte")),
            part if part.len() > 255 => return Err(refused("has a part of over 255 bytes")),
            part => parts.push(part.to_vec()),
        }
    }
    if parts.len() > MAX_DEPTH {
        return Err(Error::Limit { limit: "depth", value: MAX_DEPTH as u64 });
    }
    Ok(parts)
}

/// Parts as a path; `None` for the root.
pub(crate) fn path(parts: &[Vec<u8>]) -> Result<Option<RelativePath>, Error> {
    if parts.is_empty() {
        return Ok(None);
    }
    let bytes = parts.join(&b'/');
    let reason = "is a path that no file can have";
    RelativePath::new(bytes.clone())
        .map(Some)
        .map_err(|_| Error::Entry { path: printable(&bytes), reason })
}

pub(super) fn printable(name: &[u8]) -> String {
    const MOST: usize = 200;
    name[..name.len().min(MOST)].escape_ascii().to_string()
}

impl<'a> Merged<'a> {
    pub(crate) const fn new(layers: Vec<&'a Dir>, budget: Budget) -> Self {
        Self { layers, budget }
    }

    /// The budget of this and of other look-ups in the layers.
    pub(crate) const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// What is at a path whose parents are no links.
    pub(crate) fn find(&self, parts: &[Vec<u8>]) -> Result<Option<Found<'a>>, Error> {
        let mut active = self.layers.clone();
        let mut found = None;
        for depth in 1..=parts.len() {
            (found, active) = self.below(&active, &parts[..depth])?;
            if found.is_none() {
                return Ok(None);
            }
        }
        Ok(found)
    }

    /// What is at a path, and the layers whose directories at the path are merged, where `active` are
    /// those of the directory above it.
    fn below(&self, active: &[&'a Dir], parts: &[Vec<u8>]) -> Result<Level<'a>, Error> {
        let mut found = None;
        let mut next = Vec::new();
        let Some(path) = path(parts)? else { return Ok((None, next)) };
        for &layer in active {
            self.budget.step()?;
            let Some(stat) = layer.stat(&path)? else { continue };
            match stat.kind {
                // A deletion.
                FileKind::CharacterDevice => break,
                FileKind::Directory => {
                    found = found.or(Some(Found { layer, stat }));
                    next.push(layer);
                    if is_opaque(layer, &path)? {
                        break;
                    }
                }
                _ => {
                    // A file below a directory is hidden by it.
                    found = found.or(Some(Found { layer, stat }));
                    break;
                }
            }
        }
        Ok((found, next))
    }

    /// The path without links that a path of directories leads to, within the image. What is
    /// missing is taken as it is named.
    pub(crate) fn resolve(&self, parts: &[Vec<u8>]) -> Result<Parts, Error> {
        let (resolved, last) = self.follow(parts)?;
        match last {
            None | Some(FileKind::Directory) => Ok(resolved),
            Some(_) => {
                let path = printable(&parts.join(&b'/'));
                Err(Error::Entry { path, reason: "lies in something that is no directory" })
            }
        }
    }

    /// The same for a path of anything, with what is there.
    pub(crate) fn follow(&self, parts: &[Vec<u8>]) -> Result<(Parts, Option<FileKind>), Error> {
        let refused = |reason| Error::Entry { path: printable(&parts.join(&b'/')), reason };
        let mut ahead: VecDeque<Vec<u8>> = parts.iter().cloned().collect();
        let mut done: Parts = Vec::new();
        // The layers of each directory on the way, so that none is looked up twice.
        let mut levels: Vec<Vec<&Dir>> = vec![self.layers.clone()];
        let mut links = 0;
        let mut last = Some(FileKind::Directory);
        while let Some(part) = ahead.pop_front() {
            if part == b".." {
                done.pop();
                levels.truncate(done.len() + 1);
                last = Some(FileKind::Directory);
                continue;
            }
            if !matches!(last, None | Some(FileKind::Directory)) {
                return Err(refused("lies in something that is no directory"));
            }
            done.push(part);
            if done.len() > MAX_DEPTH {
                return Err(Error::Limit { limit: "depth", value: MAX_DEPTH as u64 });
            }
            let above = levels.last().map(Vec::as_slice).unwrap_or_default();
            let (found, active) = self.below(above, &done)?;
            levels.push(active);
            last = found.map(|found| found.stat.kind);
            let Some(found) = found else { continue };
            if found.stat.kind == FileKind::Symlink {
                links += 1;
                if links > MAX_LINKS {
                    return Err(refused("leads through too many links"));
                }
                let Some(at) = path(&done)? else { continue };
                let target = found.layer.read_link(&at)?;
                done.pop();
                last = Some(FileKind::Directory);
                if target.first() == Some(&b'/') {
                    done.clear();
                }
                levels.truncate(done.len() + 1);
                let target = target.split(|byte| *byte == b'/');
                let target = target.filter(|part| !matches!(*part, b"" | b"."));
                for part in target.map(<[u8]>::to_vec).rev() {
                    if part.len() > 255 {
                        return Err(refused("leads through a link with too long a part"));
                    }
                    ahead.push_front(part);
                }
                if ahead.len() > 4 * MAX_DEPTH {
                    return Err(Error::Limit { limit: "depth", value: MAX_DEPTH as u64 });
                }
            }
        }
        Ok((done, last))
    }
}

/// Whether a directory hides those of the layers below.
pub(super) fn is_opaque(layer: &Dir, path: &RelativePath) -> Result<bool, Error> {
    let directory = layer.open_dir(path)?;
    let mut value = [0; 8];
    match rustix::fs::fgetxattr(&directory, OPAQUE, &mut value) {
        Ok(length) => Ok(value[..length] == *b"y"),
        Err(Errno::NODATA | Errno::NOTSUP | Errno::RANGE) => Ok(false),
        Err(errno) => Err(Error::Io {
            operation: "read an attribute of",
            path: path.quoted(),
            source: errno.into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_without_time_ends_after_a_bounded_number_of_steps() {
        let budget = Budget::new(0);
        let refused = (0..=STEPS_PER_CLOCK).find_map(|_| budget.step().err());
        assert!(matches!(refused, Some(Error::Limit { limit: "seconds", value: 0 })));
        let budget = Budget::new(3600);
        (0..10 * STEPS_PER_CLOCK).try_for_each(|_| budget.step()).unwrap();
    }

    #[test]
    fn a_path_through_many_links_looks_each_directory_up_once() {
        let place = tempfile::tempdir().unwrap();
        let deep = ["d"; 100].join("/");
        std::fs::create_dir_all(place.path().join(&deep)).unwrap();
        for number in 0..30 {
            let target = format!("/l{}/{}", number + 1, ["d"; 3].join("/"));
            std::os::unix::fs::symlink(target, place.path().join(format!("l{number}"))).unwrap();
        }
        std::os::unix::fs::symlink("d/d", place.path().join("l30")).unwrap();
        let layer = Dir::open(place.path()).unwrap();
        let merged = Merged::new(vec![&layer; 20], Budget::new(3600));
        let (done, kind) = merged.follow(&[b"l0".to_vec()]).unwrap();
        assert_eq!((done.len(), kind), (92, Some(FileKind::Directory)));
        // A step per layer for each part, and for each link: not one for each part above it again.
        assert!(merged.budget.steps.get() <= 20 * (31 + 92 + 31), "{}", merged.budget.steps.get());
    }
}
