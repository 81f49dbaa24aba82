//! Extracting a TAR of a root file system, entry by entry, into a directory.
//!
//! The archive is treated as hostile: nothing is written outside the directory or through a
//! link in it, no device is created, no set-id bit is kept, and extraction stops at the limits.
//! Link targets are resolved only in the sandbox whose root the image becomes: extraction
//! follows no link.

use std::io::{BufReader, Read};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use tar::{Archive, Entry, EntryType};

use crate::beneath::{self, Dir, FileKind};
use crate::path::{self, RelativePath};

/// Limits on the size of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The total size of all files, in bytes.
    pub total_bytes: u64,
    /// The number of entries.
    pub entries: u64,
}

/// Statistics about an extraction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtractSummary {
    /// The number of entries.
    pub entries: u64,
    /// The total size of the contents, in bytes.
    pub bytes: u64,
    /// The number of skipped entries: devices, pipes and unknown types.
    pub skipped: u64,
    /// Descriptions of the first skipped entries.
    pub notes: Vec<String>,
}

/// Why an image was not extracted. The caller must remove what was extracted before the error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The archive cannot be read.
    #[error("cannot read the image")]
    Read(#[source] std::io::Error),
    /// The archive is compressed.
    #[error("the image is compressed ({0}); only plain TAR files can be read")]
    Compressed(&'static str),
    /// An entry's path is invalid, such as absolute or with a `..`.
    #[error("the image's entry {path} is invalid: {source}")]
    Path {
        /// The path, printable.
        path: String,
        /// What is wrong with it.
        source: path::Error,
    },
    /// A link's target lies outside the image.
    #[error("the image's link {path} leaves it")]
    Link {
        /// The link, printable.
        path: String,
    },
    /// The image is larger than allowed.
    #[error("the image exceeds the limit `{limit}`: {value}")]
    Limit {
        /// The limit's name: `total_bytes` or `entries`.
        limit: &'static str,
        /// Its value.
        value: u64,
    },
    /// An entry could not be written; one cause is a path that goes through a link.
    #[error(transparent)]
    Write(#[from] beneath::Error),
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Compressed(tool) => Some(format!("{tool} -d < IMAGE > image.tar")),
            _ => None,
        }
    }
}

/// The most notes that are recorded.
const MAX_NOTES: usize = 20;

/// The most bytes per entry that an archive may hold besides contents: headers and padding.
const ENTRY_OVERHEAD_BYTES: u64 = 16 << 10;

/// Extracts a plain TAR archive into `to`. With `keep_owners` (only root can do this) files get
/// the owners that the archive names; otherwise they belong to the user of this process.
pub fn extract(
    archive: impl Read,
    to: &Dir,
    limits: &Limits,
    keep_owners: bool,
) -> Result<ExtractSummary, Error> {
    let overhead = limits.entries.saturating_mul(ENTRY_OVERHEAD_BYTES);
    let most = limits.total_bytes.saturating_add(overhead);
    let mut archive = BufReader::new(archive.take(most));
    refuse_compressed(&mut archive)?;
    let mut extraction = Extraction {
        to,
        limits,
        keep_owners,
        extracted: ExtractSummary::default(),
        directories: Vec::new(),
    };
    for entry in Archive::new(archive).entries().map_err(Error::Read)? {
        extraction.entry(entry.map_err(Error::Read)?)?;
    }
    // Modes are set last, children before parents: a mode may forbid writing into the directory.
    for (path, mode) in extraction.directories.iter().rev() {
        to.chmod(path, *mode)?;
    }
    Ok(extraction.extracted)
}

struct Extraction<'a> {
    to: &'a Dir,
    limits: &'a Limits,
    keep_owners: bool,
    extracted: ExtractSummary,
    directories: Vec<(RelativePath, u32)>,
}

impl Extraction<'_> {
    fn entry<R: Read>(&mut self, mut entry: Entry<'_, R>) -> Result<(), Error> {
        self.extracted.entries += 1;
        if self.extracted.entries > self.limits.entries {
            return Err(Error::Limit { limit: "entries", value: self.limits.entries });
        }
        let Some(path) = entry_path(&entry.path_bytes())? else { return Ok(()) };
        let header = entry.header();
        // Set-id bits have no effect where `no_new_privs` is set, and are a danger on the host.
        let mode = header.mode().map_err(Error::Read)? & 0o1777;
        let kind = header.entry_type();
        let owner = (number(header.uid())?, number(header.gid())?);
        let link = |entry: &Entry<'_, R>| entry.link_name_bytes().map(|name| name.into_owned());
        match kind {
            EntryType::Directory => self.directory(&path, mode)?,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.file(&path, mode, &mut entry)?;
            }
            EntryType::Symlink => self.symlink(&path, &link(&entry).unwrap_or_default())?,
            EntryType::Link => return self.hard_link(&path, &link(&entry).unwrap_or_default()),
            EntryType::XGlobalHeader => return Ok(()),
            other => {
                self.skip(&path, other);
                return Ok(());
            }
        }
        if self.keep_owners {
            self.to.chown(&path, owner.0, owner.1)?;
        }
        if kind != EntryType::Directory && kind != EntryType::Symlink {
            self.to.chmod(&path, mode)?;
        }
        Ok(())
    }

    fn directory(&mut self, path: &RelativePath, mode: u32) -> Result<(), Error> {
        self.make_parents(path)?;
        let is_there = self.to.stat(path)?.is_some_and(|stat| stat.kind == FileKind::Directory);
        if !is_there {
            self.clear(path)?;
            self.to.mkdir(path, 0o700)?;
        }
        self.directories.push((path.clone(), mode));
        Ok(())
    }

    fn file(
        &mut self,
        path: &RelativePath,
        mode: u32,
        content: &mut impl Read,
    ) -> Result<(), Error> {
        self.make_parents(path)?;
        self.clear(path)?;
        let mut file = self.to.create_file(path, mode & 0o700 | 0o600)?;
        let left = self.limits.total_bytes - self.extracted.bytes;
        let copied = std::io::copy(&mut content.take(left.saturating_add(1)), &mut file);
        let copied = copied.map_err(Error::Read)?;
        if copied > left {
            return Err(Error::Limit { limit: "total_bytes", value: self.limits.total_bytes });
        }
        self.extracted.bytes += copied;
        Ok(())
    }

    /// An absolute target refers to the image's root, as in all root file systems. A relative
    /// target that climbs above the image's root has no legitimate use.
    fn symlink(&mut self, path: &RelativePath, target: &[u8]) -> Result<(), Error> {
        let refused = || Error::Link { path: path.quoted() };
        let mut depth =
            if target.first() == Some(&b'/') { 0 } else { path.components().count() - 1 };
        for part in target.split(|b| *b == b'/') {
            match part {
                b"" | b"." => {}
                b".." => depth = depth.checked_sub(1).ok_or_else(refused)?,
                _ => depth += 1,
            }
        }
        if target.is_empty() {
            return Err(refused());
        }
        self.make_parents(path)?;
        self.clear(path)?;
        Ok(self.to.symlink(target, path)?)
    }

    fn hard_link(&mut self, path: &RelativePath, target: &[u8]) -> Result<(), Error> {
        let refused = || Error::Link { path: path.quoted() };
        let target = entry_path(target).ok().flatten().ok_or_else(refused)?;
        let found = self.to.stat(&target)?;
        if found.is_none_or(|stat| stat.kind != FileKind::File) || target == *path {
            return Err(refused());
        }
        self.make_parents(path)?;
        self.clear(path)?;
        let parent = |of: &RelativePath| match of.parent() {
            None => self.to.reopen(),
            Some(parent) => self.to.locate_dir(&parent),
        };
        let (from_dir, to_dir) = (parent(&target)?, parent(path)?);
        let name = |path: &RelativePath| std::ffi::OsStr::from_bytes(path.file_name()).to_owned();
        rustix::fs::linkat(
            from_dir.as_fd(),
            name(&target),
            to_dir.as_fd(),
            name(path),
            AtFlags::empty(),
        )
        .map_err(|errno| beneath::Error::Io {
            operation: "link",
            path: path.quoted(),
            source: errno.into(),
        })?;
        Ok(())
    }

    /// Creates parent directories that the archive does not list before their content.
    fn make_parents(&self, path: &RelativePath) -> Result<(), Error> {
        let mut missing = Vec::new();
        let mut parent = path.parent();
        while let Some(above) = parent {
            if self.to.stat(&above)?.is_some() {
                break;
            }
            parent = above.parent();
            missing.push(above);
        }
        for above in missing.iter().rev() {
            self.to.mkdir(above, 0o755)?;
        }
        Ok(())
    }

    /// Removes what an earlier entry of the same path created, unless that is a directory.
    fn clear(&self, path: &RelativePath) -> Result<(), Error> {
        match self.to.remove_file(path) {
            Err(error) if error.errno() == Some(Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }

    fn skip(&mut self, path: &RelativePath, kind: EntryType) {
        self.extracted.skipped += 1;
        if self.extracted.notes.len() < MAX_NOTES {
            let what = match kind {
                EntryType::Char | EntryType::Block => "a device",
                EntryType::Fifo => "a pipe",
                _ => "an entry of an unknown type",
            };
            self.extracted.notes.push(format!("{path} was skipped: it is {what}"));
        }
    }
}

/// The path of an entry below the image's root; `None` for the root itself.
fn entry_path(bytes: &[u8]) -> Result<Option<RelativePath>, Error> {
    let failed = |source| Error::Path { path: bytes.escape_ascii().to_string(), source };
    if bytes.first() == Some(&b'/') {
        return Err(failed(path::Error::Absolute));
    }
    let parts: Vec<&[u8]> =
        bytes.split(|b| *b == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    if parts.is_empty() {
        return Ok(None);
    }
    RelativePath::new(parts.join(&b'/')).map(Some).map_err(failed)
}

fn number(id: std::io::Result<u64>) -> Result<u32, Error> {
    let id = id.map_err(Error::Read)?;
    // 2^32 - 1 means "leave unchanged" to the kernel.
    match u32::try_from(id) {
        Ok(id) if id != u32::MAX => Ok(id),
        _ => Err(Error::Read(std::io::Error::other("an owner is out of range"))),
    }
}

fn refuse_compressed(archive: &mut BufReader<impl Read>) -> Result<(), Error> {
    let start = std::io::BufRead::fill_buf(archive).map_err(Error::Read)?;
    for (magic, tool) in [
        (&b"\x1f\x8b"[..], "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\xfd7zXZ", "xz"),
        (b"BZh", "bzip2"),
    ] {
        if start.starts_with(magic) {
            return Err(Error::Compressed(tool));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
