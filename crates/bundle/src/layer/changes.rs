//! Copies of copies: timestamps in the second copy must also tell what was changed in the first.

use std::io::{self, BufRead, BufReader};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::{Entry, Error, invalid_input};
use crate::beneath::{self, Dir, FileKind, Stat, Timestamp};
use crate::path::RelativePath;

/// Gives everything in `to` that was changed in `from` since `copied` a new timestamp. `to` is an
/// exact copy of `from` ([`super::copy`]), and no process writes to either.
///
/// A timestamp that is taken between the copy and this call therefore means for `to` what `copied`
/// means for `from`: anything with an earlier timestamp is unchanged since the very first copy
/// ([`Original::copied`](super::Original::copied)). Nothing else in `to` changes, and the memory used
/// does not depend on its content.
///
/// # Errors
/// [`Error::Entry`].
pub fn mark_changed(from: &Dir, to: &Dir, copied: Timestamp) -> Result<(), Error> {
    let privileged = rustix::process::geteuid().is_root();
    Marker { copied, path: Vec::new(), privileged }.children(from, to)
}

struct Marker {
    copied: Timestamp,
    /// The current path.
    path: Vec<u8>,
    privileged: bool,
}

impl Marker {
    /// Handles the content of a directory. It is no deeper than a layer may be, because it was
    /// copied.
    fn children(&mut self, from: &Dir, to: &Dir) -> Result<(), Error> {
        for entry in from.list().map_err(|error| self.entry_error(error))? {
            let (name, _) = entry.map_err(|error| self.entry_error(error))?;
            let parent = self.path.len();
            self.path.push(b'/');
            self.path.extend_from_slice(&name);
            let name =
                RelativePath::new(name).map_err(|error| self.entry_error(invalid_input(error)))?;
            self.entry(from, to, &name)?;
            self.path.truncate(parent);
        }
        Ok(())
    }

    fn entry(&mut self, from: &Dir, to: &Dir, name: &RelativePath) -> Result<(), Error> {
        let found = Entry::of(from, name.as_os_str()).map_err(|errno| self.entry_error(errno))?;
        if found.kind == FileType::Directory {
            self.directory(from, to, name, &found)?;
        }
        if found.stat.changed < self.copied {
            return Ok(());
        }
        // Any change of metadata sets the timestamp, even one to the same value.
        match to.set_times(name, None, found.stat.modified) {
            // A socket, which was not copied.
            Err(error) if error.errno() == Some(Errno::NOENT) => Ok(()),
            other => other.map_err(|error| self.entry_error(error)),
        }
    }

    /// Handles the content of a directory; if its mode denies access to its owner, it is changed
    /// temporarily.
    fn directory(
        &mut self,
        from: &Dir,
        to: &Dir,
        name: &RelativePath,
        found: &Entry,
    ) -> Result<(), Error> {
        let mode = found.stat.mode;
        let is_open = self.privileged || mode & 0o500 == 0o500;
        if !is_open {
            for dir in [from, to] {
                dir.chmod(name, mode | 0o500).map_err(|error| self.entry_error(error))?;
            }
        }
        let result = match (from.open_dir(name), to.open_dir(name)) {
            (Ok(from), Ok(to)) => self.children(&from, &to),
            (Err(error), _) | (_, Err(error)) => Err(self.entry_error(error)),
        };
        if !is_open {
            for dir in [from, to] {
                dir.chmod(name, mode).map_err(|error| self.entry_error(error))?;
            }
        }
        result
    }

    fn entry_error(&self, error: impl Into<io::Error>) -> Error {
        Error::Entry { path: self.path.escape_ascii().to_string(), source: error.into() }
    }
}

/// Whether a directory of a copy is still where it was copied to, if its own timestamp or that of a
/// parent does not prove it. When a directory moves, its content keeps its timestamps: so the
/// content is compared with what the original has under the same names, unless the host has changed
/// that.
pub(crate) fn is_in_place(
    directory: &Dir,
    original: Option<&Dir>,
    since: Timestamp,
    copied: Timestamp,
) -> Result<bool, io::Error> {
    // A directory that the original does not have was created inside, or was moved here.
    let Some(original) = original else { return Ok(false) };
    let is_of_host = original.stat_self()?.changed > since;
    let (mut is_known, mut is_doubtful) = (false, false);
    for entry in directory.list()? {
        let (name, _) = entry?;
        let name = RelativePath::new(name).map_err(invalid_input)?;
        let found = Entry::of(directory, name.as_os_str())?;
        if found.stat.changed >= copied {
            continue;
        }
        match original.stat(&name)? {
            // The host may have removed it.
            None if is_of_host => is_doubtful = true,
            None => return Ok(false),
            Some(stat) if stat.changed > since => {}
            Some(stat) if is_same((original, &stat), (directory, &found.stat), &name)? => {
                is_known = true;
            }
            Some(_) => return Ok(false),
        }
    }
    Ok(is_known || !is_doubtful)
}

/// Whether the nodes of one name in two directories are equal.
fn is_same(
    (original, one): (&Dir, &Stat),
    (copy, other): (&Dir, &Stat),
    name: &RelativePath,
) -> Result<bool, io::Error> {
    if one.kind != other.kind || one.mode != other.mode {
        return Ok(false);
    }
    match one.kind {
        FileKind::File if one.size == other.size => {
            // A file that was removed meanwhile or cannot be read counts as different.
            let (Ok(one), Ok(other)) = (original.open_file(name), copy.open_file(name)) else {
                return Ok(false);
            };
            has_same_content(BufReader::new(one), BufReader::new(other))
        }
        FileKind::Symlink => Ok(original.read_link(name)? == copy.read_link(name)?),
        kind => Ok(kind == FileKind::Directory),
    }
}

fn has_same_content(mut one: impl BufRead, mut other: impl BufRead) -> Result<bool, io::Error> {
    loop {
        let (some, more) = (one.fill_buf()?, other.fill_buf()?);
        let length = some.len().min(more.len());
        if length == 0 {
            return Ok(some.len() == more.len());
        }
        if some[..length] != more[..length] {
            return Ok(false);
        }
        one.consume(length);
        other.consume(length);
    }
}

/// The directory of the original at a path; `None` if there is none that was copied.
pub(super) fn original_at(
    top: &Dir,
    path: Option<&RelativePath>,
) -> Result<Option<Dir>, io::Error> {
    let Some(path) = path else { return Ok(Some(top.reopen()?)) };
    match top.open_dir(path) {
        Err(beneath::Error::ThroughLink { .. }) => Ok(None),
        Err(error)
            if matches!(error.errno(), Some(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS)) =>
        {
            Ok(None)
        }
        other => Ok(Some(other?)),
    }
}
