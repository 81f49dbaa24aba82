//! The write-ahead log: when it is brought over into the database, and that what is written to it
//! next meets no cold memory. What is written is not here.
//!
//! The log is written over from its start again and again, in frames that end within a page of the
//! file. The kernel must know what else is in such a page: where it gave the page's memory away since,
//! as it does when little is left, or soon where a host reclaims what nobody uses, a write waits for the
//! disk to read it. A commit of a few rows can wait for a dozen.

use std::fs::File;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;
use rustix::fs::Advice;

use super::rows::storage;
use crate::Result;

/// The length from which on it is brought over, in pages: SQLite's own.
const LONG_PAGES: u32 = 1000;

/// What is before the frames, and before the page of each (the WAL file format).
const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: u64 = 24;

/// How much is asked for before it is written, several commits' worth.
const AHEAD_BYTES: u64 = 256 << 10;

/// The log of the connection that writes.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// Opened once it is there, which it then is for as long as the connection.
    file: Option<File>,
    frame_bytes: u64,
    /// How long it was at the last commit.
    pages: Arc<AtomicU32>,
    /// Up to where it was asked for.
    asked: u64,
}

impl Log {
    /// Takes over the log of a database from the connection that writes to it.
    pub(super) fn of(connection: &mut Connection, path: &Path) -> Result<Self> {
        let page_bytes: u32 =
            connection.pragma_query_value(None, "page_size", |row| row.get(0)).map_err(storage)?;
        let pages = Arc::new(AtomicU32::new(0));
        let told = Arc::clone(&pages);
        // In place of SQLite's own, which brings it over before a commit has answered.
        let hook = connection.wal_hook(Some(move |_: &mut _, pages| {
            told.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }));
        hook.map_err(storage)?;
        let frame_bytes = FRAME_HEADER_BYTES + u64::from(page_bytes);
        Ok(Self { path: beside(path, "-wal"), file: None, frame_bytes, pages, asked: 0 })
    }

    /// Whether something is due after the last commit.
    pub(super) fn is_due(&self) -> bool {
        let pages = self.pages.load(Ordering::Relaxed);
        pages >= LONG_PAGES || self.is_unasked(pages)
    }

    /// Does what is due, when nobody waits for the commit any more.
    pub(super) fn tend(&mut self, connection: &Connection) {
        let mut pages = self.pages.load(Ordering::Relaxed);
        if pages >= LONG_PAGES && bring_over(connection) {
            self.pages.store(0, Ordering::Relaxed);
            self.asked = 0;
            pages = 0;
        }
        if self.is_unasked(pages) {
            self.ask(self.end(pages));
        }
    }

    /// Where a log of so many pages ends.
    fn end(&self, pages: u32) -> u64 {
        HEADER_BYTES + u64::from(pages) * self.frame_bytes
    }

    fn is_unasked(&self, pages: u32) -> bool {
        self.end(pages) + AHEAD_BYTES / 2 > self.asked
    }

    /// Has what follows read, without waiting for it. That is help, no more.
    fn ask(&mut self, end: u64) {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        if let Some(file) = &self.file {
            let _ = rustix::fs::fadvise(file, end, NonZeroU64::new(AHEAD_BYTES), Advice::WillNeed);
        }
        self.asked = end + AHEAD_BYTES;
    }
}

/// Whether all of the log is in the database now, so that the next commit begins at its start. What a
/// reader still needs stays, and so does all of it on a full disk, until after another commit.
fn bring_over(connection: &Connection) -> bool {
    let moved = connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE);
    moved.is_ok_and(|(pages, moved)| pages == moved)
}

/// A file beside the database, which has its name and a suffix.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
