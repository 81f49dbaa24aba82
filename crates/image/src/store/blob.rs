//! Blobs are written under a temporary name, and checked while they are written.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, Rename};

use super::{Error, UNFINISHED, io_error, relative};
use crate::digest::{Digest, Sha256Stream};

/// The most names that are tried for a new file.
const ATTEMPTS: u32 = 1000;

/// A blob that is being written. Unless [`BlobWriter::finish`] succeeds, nothing of it remains.
#[derive(Debug)]
pub struct BlobWriter<'a> {
    blobs: &'a Dir,
    temporary: RelativePath,
    /// Its lock shows to those who clean up that somebody writes to it.
    content: Option<Sha256Stream<File>>,
    expected: Option<Digest>,
    /// The size that it will have, or may have where its digest is unknown.
    size: u64,
    finished: bool,
}

impl<'a> BlobWriter<'a> {
    pub(super) fn create(
        blobs: &'a Dir,
        expected: Option<Digest>,
        size: u64,
    ) -> Result<Self, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let process = std::process::id();
        for _ in 0..ATTEMPTS {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let temporary = relative(&format!("{UNFINISHED}{process}-{number}"))?;
            let file = match blobs.create_file(&temporary, 0o600) {
                // A process of the same number left it.
                Err(error) if error.errno() == Some(Errno::EXIST) => continue,
                created => created?,
            };
            rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive)
                .map_err(|errno| io_error("lock")(errno.into()))?;
            let content = Some(Sha256Stream::new(file));
            return Ok(Self { blobs, temporary, content, expected, size, finished: false });
        }
        Err(io_error("create a file")(Errno::EXIST.into()))
    }

    /// How many bytes were written.
    pub fn written(&self) -> u64 {
        self.content.as_ref().map_or(0, Sha256Stream::length)
    }

    /// Checks the size and the digest, waits until the content is on disk, and gives it its name.
    ///
    /// # Errors
    /// It is not what it should be, or cannot be written.
    pub fn finish(mut self) -> Result<(Digest, u64), Error> {
        let Some(content) = self.content.take() else {
            return Err(io_error("write")(Errno::BADF.into()));
        };
        let (file, found, length) = content.into_parts();
        if let Some(expected) = &self.expected {
            if length != self.size {
                let (digest, expected) = (expected.clone(), self.size);
                return Err(Error::Size { digest, expected, found: length });
            }
            if found != *expected {
                return Err(Error::Digest { expected: expected.clone(), found });
            }
        }
        file.sync_all().map_err(io_error("write"))?;
        let to = relative(found.hex())?;
        self.blobs.rename(&self.temporary, self.blobs, &to, Rename::Replace)?;
        self.finished = true;
        self.blobs.sync()?;
        Ok((found, length))
    }
}

impl Write for BlobWriter<'_> {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        let size = self.size;
        let stream = self.content.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        if content.len() as u64 > size.saturating_sub(stream.length()) {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("the content is larger than {size} bytes"),
            ));
        }
        stream.write(content)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.content.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for BlobWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // What remains is removed by the next clean-up.
            let _ = self.blobs.remove_file(&self.temporary);
        }
    }
}
