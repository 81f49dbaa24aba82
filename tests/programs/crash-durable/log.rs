//! The log of a worker: a line for each effect, before its step is recorded, and for each response
//! that promises a record. Each line is on disk before anything else happens.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use crate::Failure;

/// Something that happened in a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// A step had its effect, under that idempotency key.
    Effect(String),
    /// The workflow continued after that step: its record was promised.
    Recorded(String),
    /// The start of that workflow was promised.
    Started(String),
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
            Line::Effect(key) => format!("effect {key}\n"),
            Line::Recorded(key) => format!("recorded {key}\n"),
            Line::Started(id) => format!("started {id}\n"),
        };
        (&self.0).write_all(text.as_bytes())?;
        Ok(self.0.sync_data()?)
    }
}

/// The lines from a byte offset, and the offset after them. An incomplete line does not count.
pub(crate) fn read(dir: &Path, from: usize) -> Result<(Vec<Line>, usize), Failure> {
    let bytes = match std::fs::read(dir.join("log")) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let text = std::str::from_utf8(bytes.get(from..end).unwrap_or_default())?;
    let lines = text.lines().filter_map(|line| {
        let (kind, rest) = line.split_once(' ')?;
        let rest = rest.to_owned();
        match kind {
            "effect" => Some(Line::Effect(rest)),
            "recorded" => Some(Line::Recorded(rest)),
            "started" => Some(Line::Started(rest)),
            _ => None,
        }
    });
    Ok((lines.collect(), end.max(from)))
}
