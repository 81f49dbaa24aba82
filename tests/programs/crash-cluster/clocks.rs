//! The wall clocks of the workers: each can be set by hours, while that of the machine and the clock that nobody
//! sets stay as they are. The library libfaketime gives a process the offset that it reads from a file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Failure;
use crate::log::{Line, now};
use crate::random::Random;

/// The farthest that a clock is set forward and back, in minutes.
const FORWARD_MINUTES: u64 = 8 * 60;
const BACK_MINUTES: u64 = 4 * 60;
/// By how much a wall clock differs that was set.
const SET_MS: u64 = 60_000;

/// The clocks, each with a file of its own.
pub(crate) struct Clocks {
    library: PathBuf,
    dir: PathBuf,
}

impl Clocks {
    /// Clocks that show the true time; `None` if the library is not installed.
    pub(crate) fn create(dir: &Path, count: usize) -> Result<Option<Self>, Failure> {
        let Some(library) = library() else { return Ok(None) };
        let clocks = Self { library, dir: dir.to_owned() };
        for place in 0..count {
            std::fs::write(clocks.file(place), "+0s\n")?;
        }
        Ok(Some(clocks))
    }

    fn file(&self, place: usize) -> PathBuf {
        self.dir.join(format!("clock-{place}"))
    }

    /// Gives a process the clock of a place.
    pub(crate) fn give(&self, command: &mut Command, place: usize) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", self.file(place))
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }

    /// Sets a clock forward or back, or to the true time again.
    pub(crate) fn set(&self, place: usize, random: &mut Random) -> Result<(), Failure> {
        let offset = match random.below(5) {
            0 | 1 => format!("+{}m\n", 60 + random.below(FORWARD_MINUTES - 60)),
            2 | 3 => format!("-{}m\n", 60 + random.below(BACK_MINUTES - 60)),
            _ => "+0s\n".to_owned(),
        };
        // Whole at every moment, since it is read at any.
        let new = self.dir.join("clock-new");
        std::fs::write(&new, offset)?;
        Ok(std::fs::rename(new, self.file(place))?)
    }
}

fn library() -> Option<PathBuf> {
    let directories = std::fs::read_dir("/usr/lib").ok()?;
    let found = directories.filter_map(|found| Some(found.ok()?.path()));
    let mut found = found.map(|directory| directory.join("faketime/libfaketimeMT.so.1"));
    found.find(|library| library.exists())
}

/// How far the wall clock is ahead of the clock that nobody sets, in milliseconds.
pub(crate) fn offset_ms() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
    wall.saturating_sub(now() / 1_000_000)
}

/// Whether a clock with this offset was set, where another one has the true time.
pub(crate) fn was_set(offset: u64, truth: u64) -> bool {
    offset.abs_diff(truth) > SET_MS
}

/// Sees whether the wall clock of this process is set.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    last: Option<u64>,
}

impl Watch {
    /// The line for the log, if the clock was set since the last look.
    pub(crate) fn look(&mut self) -> Option<Line> {
        let offset = offset_ms();
        if self.last.is_some_and(|last| !was_set(offset, last)) {
            return None;
        }
        self.last = Some(offset);
        Some(Line::Clock(offset))
    }
}
