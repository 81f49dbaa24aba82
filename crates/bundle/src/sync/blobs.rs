//! Contents, each in a file that is named by its hash, in one directory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek as _, Write};
use std::time::SystemTime;

use rustix::io::Errno;

use crate::beneath::{Dir, Rename};
use crate::manifest::ContentHash;
use crate::path::RelativePath;

/// How much of a content is kept in memory until it is clear that it must be stored.
const MEMORY_BYTES: usize = 1 << 20;

/// A directory of contents.
#[derive(Debug)]
pub struct Blobs(Dir);

/// A content that is being written. Dropping it removes what was written.
#[derive(Debug)]
pub struct BlobWriter<'a> {
    /// Where it is stored; nowhere if only its hash is wanted.
    blobs: Option<&'a Blobs>,
    hasher: blake3::Hasher,
    size: u64,
    start: Vec<u8>,
    file: Option<(File, RelativePath)>,
}

impl Blobs {
    /// Contents in this directory.
    pub const fn new(directory: Dir) -> Self {
        Self(directory)
    }

    /// A writer of a content.
    pub fn writer(&self) -> BlobWriter<'_> {
        let mut writer = BlobWriter::hashing();
        writer.blobs = Some(self);
        writer
    }

    /// Stores a content. Returns the hash and the length.
    ///
    /// # Errors
    /// Those of the reader and of the file system.
    pub fn put(&self, from: &mut impl Read) -> io::Result<(ContentHash, u64)> {
        let mut writer = self.writer();
        io::copy(from, &mut writer)?;
        writer.finish(|_, _| Ok(true))
    }

    /// Whether a content is there.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn has(&self, hash: ContentHash) -> io::Result<bool> {
        Ok(self.0.exists(&path(hash))?)
    }

    /// Opens a content.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(&self, hash: ContentHash) -> io::Result<File> {
        Ok(self.0.open_file(&path(hash))?)
    }

    /// Removes all contents but these, and what was not written completely, if they are older than
    /// `before`. Returns how many were removed, and their bytes.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn retain(
        &self,
        kept: &BTreeSet<ContentHash>,
        before: SystemTime,
    ) -> io::Result<(u64, u64)> {
        let (mut count, mut bytes) = (0, 0);
        for (name, _) in self.0.entries()? {
            let Ok(text) = String::from_utf8(name) else { continue };
            if ContentHash::from_hex(&text).is_some_and(|hash| kept.contains(&hash)) {
                continue;
            }
            let path = RelativePath::new(text).map_err(io::Error::other)?;
            let file = match self.0.open_file(&path) {
                Err(error) if error.errno() == Some(Errno::NOENT) => continue,
                file => file?,
            };
            let metadata = file.metadata()?;
            if metadata.modified()? < before {
                self.0.remove_file(&path)?;
                (count, bytes) = (count + 1, bytes + metadata.len());
            }
        }
        Ok((count, bytes))
    }

    /// Waits until everything is on disk.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn sync(&self) -> io::Result<()> {
        Ok(self.0.sync_file_system()?)
    }

    fn temporary(&self) -> io::Result<(File, RelativePath)> {
        for number in 0..u64::MAX {
            let name = RelativePath::new(format!("new-{}-{number}", std::process::id()))
                .map_err(io::Error::other)?;
            match self.0.create_file(&name, 0o600) {
                Err(error) if error.errno() == Some(Errno::EXIST) => {}
                created => return Ok((created?, name)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl BlobWriter<'_> {
    /// A writer that stores nothing.
    pub fn hashing() -> Self {
        Self { blobs: None, hasher: blake3::Hasher::new(), size: 0, start: Vec::new(), file: None }
    }

    /// Stores the content under its hash, unless `is_needed` denies it for that hash and length.
    ///
    /// # Errors
    /// Those of the file system and of `is_needed`.
    pub fn finish(
        mut self,
        is_needed: impl FnOnce(ContentHash, u64) -> io::Result<bool>,
    ) -> io::Result<(ContentHash, u64)> {
        let (hash, size) = (ContentHash::from(self.hasher.finalize()), self.size);
        let Some(blobs) = self.blobs else { return Ok((hash, size)) };
        if !is_needed(hash, size)? || blobs.has(hash)? {
            return Ok((hash, size));
        }
        self.spill()?;
        if let Some((_, name)) = self.file.take() {
            blobs.0.rename(&name, &blobs.0, &path(hash), Rename::Replace)?;
        }
        Ok((hash, size))
    }

    /// Moves what is in memory to a file.
    fn spill(&mut self) -> io::Result<()> {
        if let (Some(blobs), None) = (self.blobs, &self.file) {
            let (mut file, name) = blobs.temporary()?;
            let written = file.write_all(&self.start);
            self.start = Vec::new();
            self.file = Some((file, name));
            written?;
        }
        Ok(())
    }
}

impl Write for BlobWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        if self.blobs.is_some() {
            match &mut self.file {
                Some((file, _)) => file.write_all(bytes)?,
                None => {
                    self.start.extend_from_slice(bytes);
                    if self.start.len() > MEMORY_BYTES {
                        self.spill()?;
                    }
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for BlobWriter<'_> {
    fn drop(&mut self) {
        if let (Some(blobs), Some((_, name))) = (self.blobs, self.file.take()) {
            // What remains is removed with the directory.
            let _ = blobs.0.remove_file(&name);
        }
    }
}

fn path(hash: ContentHash) -> RelativePath {
    RelativePath::new(hash.to_hex()).unwrap_or_else(|_| RelativePath::literal("none"))
}

/// The hash and length of an open file.
pub(super) fn hash_file(file: &mut File) -> io::Result<(ContentHash, u64)> {
    let mut hasher = blake3::Hasher::new();
    file.rewind()?;
    let size = io::copy(file, &mut hasher)?;
    Ok((ContentHash::from(hasher.finalize()), size))
}
