//! The log of all workers: a line for each thing that a worker has seen. Lines of several processes do not
//! mix, because each is one write at the end of the file.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

use crate::Failure;

/// Something that happened in a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// A step had its effect, under that idempotency key, in that run of the workflow.
    Effect(String, u64),
    /// That run of the workflow continued after that step: its record was promised.
    Recorded(String, u64),
    /// A client has requested that operation at that time.
    Requested(String, u64),
    /// The operation may begin so many milliseconds after its request.
    Delayed(String, u64),
    /// The operation has given that value by that time.
    Answered(String, u64, u64),
    /// The wall clock of a worker is ahead of the clock that nobody sets by so many milliseconds.
    Clock(u64),
}

/// The file of the log.
#[derive(Debug)]
pub(crate) struct Log(File);

impl Log {
    pub(crate) fn open(dir: &Path) -> Result<Self, Failure> {
        Ok(Self(OpenOptions::new().create(true).append(true).open(dir.join("log"))?))
    }

    /// Adds a line.
    pub(crate) fn write(&self, line: &Line) -> Result<(), Failure> {
        let text = match line {
            Line::Effect(key, run) => format!("effect {key} {run}\n"),
            Line::Recorded(key, run) => format!("recorded {key} {run}\n"),
            Line::Requested(id, at) => format!("requested {id} {at}\n"),
            Line::Delayed(id, delay) => format!("delayed {id} {delay}\n"),
            Line::Answered(id, at, value) => format!("answered {id} {at} {value}\n"),
            Line::Clock(offset) => format!("clock {offset}\n"),
        };
        Ok((&self.0).write_all(text.as_bytes())?)
    }
}

/// The time of the clock that all processes of this host have in common and nobody sets, in nanoseconds.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// All lines, in order.
pub(crate) fn read(dir: &Path) -> Result<Vec<Line>, Failure> {
    let text = std::fs::read_to_string(dir.join("log"))?;
    Ok(text.lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<Line> {
    let words: Vec<_> = line.split(' ').collect();
    Some(match words.as_slice() {
        ["effect", key, run] => Line::Effect((*key).to_owned(), run.parse().ok()?),
        ["recorded", key, run] => Line::Recorded((*key).to_owned(), run.parse().ok()?),
        ["requested", id, at] => Line::Requested((*id).to_owned(), at.parse().ok()?),
        ["delayed", id, delay] => Line::Delayed((*id).to_owned(), delay.parse().ok()?),
        ["clock", offset] => Line::Clock(offset.parse().ok()?),
        ["answered", id, at, value] => {
            Line::Answered((*id).to_owned(), at.parse().ok()?, value.parse().ok()?)
        }
        _ => return None,
    })
}
