//! Reads which paths git tracks, from its index file (gitformat-index(5), versions 2 to 4).
//!
//! Only names are read, and nothing is written. An index in an unsupported format is an error,
//! which the caller reports and treats as "no path is known to be tracked".

use std::collections::BTreeSet;

use crate::path::RelativePath;

/// An index larger than this is not read.
pub const MAX_FILE_BYTES: u64 = 512 << 20;

/// The paths that git tracks.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Index {
    paths: BTreeSet<Vec<u8>>,
    shared: Option<String>,
    content: Option<blake3::Hash>,
}

/// What an index records of one file, when it had the content of its object.
#[derive(Debug, Clone)]
pub(crate) struct IndexedFile {
    pub(crate) path: Vec<u8>,
    /// The name of the object, in binary.
    pub(crate) object: Vec<u8>,
    /// Seconds and nanoseconds.
    pub(crate) changed: (u32, u32),
    pub(crate) modified: (u32, u32),
    pub(crate) inode: u32,
    pub(crate) size: u32,
    pub(crate) is_regular: bool,
}

impl IndexedFile {
    /// The file of an entry; `None` for one that names no file of the work tree.
    fn of(stat: &[u8], object: &[u8], flags: u16, path: &[u8]) -> Option<Self> {
        let (words, _) = stat.as_chunks::<4>();
        let word = |at: usize| words.get(at).map(|word| u32::from_be_bytes(*word));
        // In a merge there are several entries of a path. Those that git assumes to be unchanged may
        // not be.
        if flags & (STAGE | ASSUMED_VALID) != 0 || path.is_empty() || path.ends_with(b"/") {
            return None;
        }
        Some(Self {
            path: path.to_vec(),
            object: object.to_vec(),
            changed: (word(0)?, word(1)?),
            modified: (word(2)?, word(3)?),
            inode: word(5)?,
            is_regular: word(6)? >> 12 == 0o10,
            size: word(9)?,
        })
    }
}

/// The flags of an entry.
const STAGE: u16 = 0x3000;
const ASSUMED_VALID: u16 = 0x8000;

/// Why an index could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It does not start with the signature of an index.
    #[error("the file is not a git index")]
    Signature,
    /// Its version is not supported.
    #[error("the git index has version {0}; versions 2, 3 and 4 are supported")]
    Version(u32),
    /// It is truncated or damaged.
    #[error("the git index is damaged")]
    Damaged,
}

/// The length of the object names: SHA-1, then SHA-256. The index does not record which one it
/// uses, but parsing with the wrong one fails.
const HASH_BYTES: [usize; 2] = [20, 32];

/// The bytes of an entry before its object name: times, device, inode, mode, owner and size.
const STAT_BYTES: usize = 40;

/// The mode in those bytes.
const MODE: std::ops::Range<usize> = 24..28;

impl Index {
    /// Reads the content of an index file.
    pub fn parse(content: &[u8]) -> Result<Self, Error> {
        Self::read(content, None)
    }

    /// The files of an index, without those of the shared part of a split one.
    ///
    /// # Errors
    /// As [`Index::parse`].
    pub(crate) fn files(content: &[u8]) -> Result<Vec<IndexedFile>, Error> {
        let mut files = Vec::new();
        Self::read(content, Some(&mut files))?;
        Ok(files)
    }

    fn read(content: &[u8], mut files: Option<&mut Vec<IndexedFile>>) -> Result<Self, Error> {
        let mut fields = content;
        if take(&mut fields, 4)? != b"DIRC" {
            return Err(Error::Signature);
        }
        let version = number(&mut fields)?;
        if !(2..=4).contains(&version) {
            return Err(Error::Version(version));
        }
        let count = number(&mut fields)?;
        for hash_bytes in HASH_BYTES {
            if let Some(files) = files.as_deref_mut() {
                files.clear();
            }
            let files = files.as_deref_mut();
            if let Ok(index) = Self::parse_entries(fields, (version, count), hash_bytes, files) {
                return Ok(index);
            }
        }
        Err(Error::Damaged)
    }

    /// The name of the file, next to the index, with the shared part of a split index. Its paths
    /// must be added to this index with [`Index::join`].
    pub fn shared(&self) -> Option<&str> {
        self.shared.as_deref()
    }

    /// Adds the paths of the shared part of a split index. Paths that the other part has deleted
    /// since are kept: an extra tracked path only means that an extra change is shown.
    pub fn join(&mut self, shared: Self) {
        self.paths.extend(shared.paths);
    }

    /// Identifies what the index says about files: names, modes, object names, stages and flags, but
    /// neither times nor caches.
    pub fn content_hash(&self) -> Option<blake3::Hash> {
        self.content
    }

    /// Whether git tracks `path`, or anything below it.
    pub fn tracks(&self, path: &RelativePath) -> bool {
        if self.paths.contains(path.as_bytes()) {
            return true;
        }
        let below = [path.as_bytes(), b"/"].concat();
        let first = self.paths.range(below.clone()..).next();
        first.is_some_and(|first| first.starts_with(&below))
    }

    /// How many paths are tracked.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether nothing is tracked.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    fn parse_entries(
        mut rest: &[u8],
        (version, count): (u32, u32),
        hash_bytes: usize,
        mut files: Option<&mut Vec<IndexedFile>>,
    ) -> Result<Self, Error> {
        let mut index = Self::default();
        let mut nameless = false;
        let mut hasher = blake3::Hasher::new();
        let mut previous = Vec::new();
        for _ in 0..count {
            let entry = rest;
            let stat = take(&mut rest, STAT_BYTES)?;
            let object = take(&mut rest, hash_bytes)?;
            let flags = short(&mut rest)?;
            let extended = flags & 0x4000 != 0;
            if extended && version < 3 {
                return Err(Error::Damaged);
            }
            let more = take(&mut rest, if extended { 2 } else { 0 })?;
            // Without the length of the name and the mark of further flags.
            let more = if extended { more } else { &[0, 0] };
            hasher.update(stat.get(MODE).ok_or(Error::Damaged)?).update(object);
            hasher.update(&(flags & 0xB000).to_be_bytes()).update(more);
            let name = if version == 4 {
                let removed = offset(&mut rest)?;
                let kept = previous.len().checked_sub(removed).ok_or(Error::Damaged)?;
                [&previous[..kept], until_nul(&mut rest)?].concat()
            } else {
                let name = until_nul(&mut rest)?.to_vec();
                // Entries are padded with NUL bytes to a multiple of eight; the first one has been
                // consumed.
                let length = entry.len() - rest.len();
                if take(&mut rest, length.next_multiple_of(8) - length)?.iter().any(|b| *b != 0) {
                    return Err(Error::Damaged);
                }
                name
            };
            let name_length = usize::from(flags & 0xFFF);
            if (name_length != 0xFFF && name_length != name.len())
                || (name_length == 0xFFF && name.len() < 0xFFF)
            {
                return Err(Error::Damaged);
            }
            hasher.update(&name).update(b"\0");
            if let Some(files) = &mut files {
                files.extend(IndexedFile::of(stat, object, flags, &name));
            }
            // A split index refers to the entries that it replaces by number only.
            nameless |= name.is_empty();
            if !name.is_empty() {
                // A sparse index contains whole directories, written with a trailing slash.
                let path = name.strip_suffix(b"/").unwrap_or(&name);
                RelativePath::new(path).map_err(|_| Error::Damaged)?;
                index.paths.insert(path.to_vec());
            }
            previous = name;
        }
        index.shared = extensions(rest, hash_bytes)?;
        hasher.update(index.shared.as_deref().unwrap_or_default().as_bytes());
        index.content = Some(hasher.finalize());
        if nameless && index.shared.is_none() { Err(Error::Damaged) } else { Ok(index) }
    }
}

/// Walks the extensions up to the checksum. Returns the name of the shared index, if there is
/// one.
fn extensions(mut rest: &[u8], hash_bytes: usize) -> Result<Option<String>, Error> {
    let mut shared = None;
    while rest.len() > hash_bytes {
        let signature = take(&mut rest, 4)?;
        let length = usize::try_from(number(&mut rest)?).map_err(|_| Error::Damaged)?;
        let mut content = take(&mut rest, length)?;
        if signature == b"link" {
            let name = take(&mut content, hash_bytes)?;
            // All zeros: there is no shared part.
            if name.iter().any(|b| *b != 0) {
                let hex: String = name.iter().map(|b| format!("{b:02x}")).collect();
                shared = Some(format!("sharedindex.{hex}"));
            }
        }
    }
    if rest.len() == hash_bytes { Ok(shared) } else { Err(Error::Damaged) }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], Error> {
    let (taken, left) = rest.split_at_checked(count).ok_or(Error::Damaged)?;
    *rest = left;
    Ok(taken)
}

fn number(rest: &mut &[u8]) -> Result<u32, Error> {
    let bytes = take(rest, 4)?.try_into().map_err(|_| Error::Damaged)?;
    Ok(u32::from_be_bytes(bytes))
}

fn short(rest: &mut &[u8]) -> Result<u16, Error> {
    let bytes = take(rest, 2)?.try_into().map_err(|_| Error::Damaged)?;
    Ok(u16::from_be_bytes(bytes))
}

fn until_nul<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Error> {
    let length = rest.iter().position(|b| *b == 0).ok_or(Error::Damaged)?;
    let text = take(rest, length)?;
    take(rest, 1)?;
    Ok(text)
}

/// The variable-width number that packs and index version 4 use (`OFS_DELTA` in gitformat-pack(5)).
fn offset(rest: &mut &[u8]) -> Result<usize, Error> {
    let mut value = 0_usize;
    loop {
        let byte = take(rest, 1)?[0];
        value = value.checked_mul(128).ok_or(Error::Damaged)? + usize::from(byte & 0x7F);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
        value = value.checked_add(1).ok_or(Error::Damaged)?;
    }
}

#[cfg(test)]
mod tests;
