//! The write-ahead log: when it is checkpointed, and how the pages that are written next are read
//! ahead into the page cache. The written data is not handled here.
//!
//! The log is overwritten from its start again and again, in frames that end within a page of the
//! file. To write part of such a page, the kernel needs the rest of it. If the page was evicted
//! from the page cache, as happens when memory is low, or early on a host that reclaims unused
//! memory, the write waits for a read from disk. A commit of a few rows can wait for a dozen such
//! reads.

use std::fs::{File, OpenOptions};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;
use rustix::fs::Advice;

use super::regular_file::open_regular;
use super::rows::storage_error;
use crate::Result;

/// The length at which the log is checkpointed, in pages: the default of SQLite.
const LONG_PAGES: u32 = 1000;

/// The size of the header before the frames, and of the header before the page of each frame (the
/// WAL file format).
const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: u64 = 24;

/// How much is read ahead, the size of several commits.
const AHEAD_BYTES: u64 = 256 << 10;

/// The log of the writing connection.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// Opened once the file exists; it then exists as long as the connection.
    file: Option<File>,
    frame_bytes: u64,
    /// The length of the log at the last commit.
    pages: Arc<AtomicU32>,
    /// The offset up to which the log was read ahead.
    prefetched_to: u64,
}

impl Log {
    /// Takes over the checkpointing of a database from its writing connection.
    pub(super) fn open(connection: &mut Connection, path: &Path) -> Result<Self> {
        let page_bytes: u32 = connection
            .pragma_query_value(None, "page_size", |row| row.get(0))
            .map_err(storage_error)?;
        let pages = Arc::new(AtomicU32::new(0));
        let last_pages = Arc::clone(&pages);
        // Replaces SQLite's own hook, which checkpoints before a commit returns.
        let hook = connection.wal_hook(Some(move |_: &mut _, pages| {
            last_pages.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }));
        hook.map_err(storage_error)?;
        let frame_bytes = FRAME_HEADER_BYTES + u64::from(page_bytes);
        Ok(Self {
            path: with_suffix(path, "-wal"),
            file: None,
            frame_bytes,
            pages,
            prefetched_to: 0,
        })
    }

    /// Whether there is maintenance work after the last commit.
    pub(super) fn is_due(&self) -> bool {
        let pages = self.pages.load(Ordering::Relaxed);
        pages >= LONG_PAGES || self.needs_prefetch(pages)
    }

    /// Does the maintenance work, after the caller has the result of the commit.
    pub(super) fn maintain(&mut self, connection: &Connection) {
        let mut pages = self.pages.load(Ordering::Relaxed);
        if pages >= LONG_PAGES && checkpoint(connection) {
            self.pages.store(0, Ordering::Relaxed);
            self.prefetched_to = 0;
            pages = 0;
        }
        if self.needs_prefetch(pages) {
            self.prefetch(self.end(pages));
        }
    }

    /// The file offset at which a log of so many pages ends.
    fn end(&self, pages: u32) -> u64 {
        HEADER_BYTES + u64::from(pages) * self.frame_bytes
    }

    fn needs_prefetch(&self, pages: u32) -> bool {
        self.end(pages) + AHEAD_BYTES / 2 > self.prefetched_to
    }

    /// Requests read-ahead of the following bytes, without waiting for it. Only an optimization.
    fn prefetch(&mut self, end: u64) {
        if self.file.is_none() {
            self.file = open_regular(OpenOptions::new().read(true), &self.path).ok();
        }
        if let Some(file) = &self.file {
            let _ = rustix::fs::fadvise(file, end, NonZeroU64::new(AHEAD_BYTES), Advice::WillNeed);
        }
        self.prefetched_to = end + AHEAD_BYTES;
    }
}

/// Checkpoints. Whether all of the log is in the database now, so that the next commit begins at
/// its start. Frames that a reader still needs stay in the log, and on a full disk all do, until
/// after another commit.
fn checkpoint(connection: &Connection) -> bool {
    let moved = connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE);
    moved.is_ok_and(|(pages, moved)| pages == moved)
}

/// The path of a file beside the database: its name with a suffix.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
