//! The modification times of applied files.
//!
//! All are the time of the apply operation, so that a build tool sees that the sources have changed,
//! whatever the host has built meanwhile. Among each other they are in the order in which the sandbox
//! modified the files, so that a product that is older than its source stays older.

use std::collections::BTreeMap;

use super::error::Error;
use crate::beneath::{Dir, Stat, Timestamp};
use crate::path::RelativePath;

const SECOND: i64 = 1_000_000_000;

/// The times of the files of one operation.
pub(super) struct ModificationTimes<'t> {
    times: &'t BTreeMap<RelativePath, Timestamp>,
    /// The slots of files with the time of the sandbox; those without one were modified last.
    slots: Vec<(Option<Timestamp>, RelativePath)>,
    /// The slots of files whose content stays, with their time.
    unchanged: Vec<(Timestamp, RelativePath)>,
}

impl<'t> ModificationTimes<'t> {
    pub(super) fn new(times: &'t BTreeMap<RelativePath, Timestamp>) -> Self {
        Self { times, slots: Vec::new(), unchanged: Vec::new() }
    }

    /// Adds a staged file. `host` is the file that it replaces, if the content stays the same.
    pub(super) fn add(&mut self, path: &RelativePath, slot: &RelativePath, host: Option<Stat>) {
        match host {
            Some(host) => self.unchanged.push((host.modified, slot.clone())),
            None => self.slots.push((self.times.get(path).copied(), slot.clone())),
        }
    }

    /// Sets the times of all files.
    pub(super) fn set(self, stage: &Dir) -> Result<(), Error> {
        for (time, slot) in &self.unchanged {
            stage.set_times(slot, None, *time)?;
        }
        let mut order: Vec<Option<Timestamp>> = self.slots.iter().map(|(time, _)| *time).collect();
        // A file without a time comes last.
        let key = |time: &Option<Timestamp>| (time.is_none(), *time);
        order.sort_by_key(key);
        order.dedup();
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        for (time, slot) in &self.slots {
            let later = order.len() - order.partition_point(|other| key(other) <= key(time));
            let before = i64::try_from(later).unwrap_or(0);
            stage.set_times(slot, None, earlier((now.tv_sec, now.tv_nsec), before))?;
        }
        Ok(())
    }
}

/// A time some nanoseconds, fewer than a second, before another.
fn earlier((seconds, nanoseconds): (i64, i64), by: i64) -> Timestamp {
    let by = by.min(SECOND - 1);
    let (seconds, nanoseconds) = match nanoseconds - by {
        left if left < 0 => (seconds - 1, left + SECOND),
        left => (seconds, left),
    };
    Timestamp { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_a_beginning() {
        assert_eq!(earlier((5, 10), 3), Timestamp { seconds: 5, nanoseconds: 7 });
        assert_eq!(earlier((5, 1), 3), Timestamp { seconds: 4, nanoseconds: 999_999_998 });
    }
}
