//! What the earlier bundles of a persistent sandbox have offered to its project. A change that the
//! host has because it applied one of these bundles is not reported as a conflict.
//!
//! The decision depends only on what the host has now, never on a record that something was applied:
//! the host has exactly the node that was offered last, or a file that was not touched since the
//! last comparison.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read as _, Write as _};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::beneath::{self, Dir, Rename, Timestamp};
use crate::manifest::{Entry, Node};
use crate::path::RelativePath;

/// The most paths that are recorded. At any other path, a later change on the host is a conflict.
const MAX_PATHS: usize = 100_000;

/// The most nodes that are recorded as offers over the same host node; the latest are kept.
const MAX_OFFERS: usize = 8;

/// Locked while a history is written.
static WRITE_LOCK: Mutex<()> = Mutex::new(());

/// A larger file was not written by this module.
const MAX_BYTES: u64 = 256 << 20;

/// What was offered so far.
#[derive(Debug, Default)]
pub struct History {
    paths: BTreeMap<RelativePath, Baseline>,
    /// When the host last changed each path of the current comparison.
    stamps: HashMap<RelativePath, Timestamp>,
}

/// What is recorded about a path.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Baseline {
    /// The host's node that the offers were made over, and when it was last changed; `None` if
    /// the host had nothing there.
    over: Option<(Timestamp, Node)>,
    /// The offers made since; `None` is a deletion.
    offers: Vec<Option<Node>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDisk {
    /// When the sandbox first used the project: another sandbox of the same name has another time.
    since: Timestamp,
    paths: Vec<(RelativePath, Baseline)>,
}

impl History {
    /// Reads the history `name` of a view that was created at `since`. An unreadable history
    /// counts as empty.
    pub fn read(dir: &Dir, name: &RelativePath, since: Timestamp) -> Self {
        let read = || {
            let file = dir.open_file(name).ok()?;
            let mut content = Vec::new();
            file.take(MAX_BYTES).read_to_end(&mut content).ok()?;
            let on_disk: OnDisk = serde_json::from_slice(&content).ok()?;
            (on_disk.since == since).then_some(on_disk.paths)
        };
        let paths = read().unwrap_or_default().into_iter().collect();
        Self { paths, stamps: HashMap::new() }
    }

    /// Writes the history atomically and replaces the old one.
    ///
    /// # Errors
    /// When it cannot be written; the old history is kept.
    pub fn write(
        self,
        dir: &Dir,
        name: &RelativePath,
        since: Timestamp,
    ) -> Result<(), beneath::Error> {
        // Writes are serialised, because the histories of all sandboxes use the same temporary
        // name.
        let _turn = WRITE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let new = RelativePath::literal(".new");
        let failed =
            |source| beneath::Error::Io { operation: "write", path: name.quoted(), source };
        let on_disk = OnDisk { since, paths: self.paths.into_iter().collect() };
        let content = serde_json::to_vec(&on_disk).map_err(|error| failed(error.into()))?;
        // A killed process may have left this file.
        Self::remove(dir, &new)?;
        let mut file = dir.create_file(&new, 0o600)?;
        file.write_all(&content).map_err(failed)?;
        dir.rename(&new, dir, name, Rename::Replace)
    }

    /// Removes a history, if it exists.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(dir: &Dir, name: &RelativePath) -> Result<(), beneath::Error> {
        match dir.remove_file(name) {
            Err(error) if error.errno() == Some(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    }

    /// Records these entries as offered, except conflicts and entries that can never be applied.
    pub fn record_offered(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| !entry.conflict && entry.refused.is_none()) {
            if self.paths.len() >= MAX_PATHS && !self.paths.contains_key(&entry.path) {
                continue;
            }
            let (old, new) = (entry.change.old(), entry.change.new_node());
            let stamp = self.stamps.get(&entry.path).copied();
            let over = stamp.zip(old.cloned());
            let known = self.paths.entry(entry.path.clone()).or_default();
            if known.over != over {
                *known = Baseline { over, offers: Vec::new() };
            }
            let new = new.cloned();
            known.offers.retain(|offer| *offer != new);
            if known.offers.len() == MAX_OFFERS {
                known.offers.remove(0);
            }
            known.offers.push(new);
        }
        self.stamps.clear();
    }

    /// Whether the host's node at a path is known to the view: it was offered, or it is unchanged
    /// since the last comparison.
    pub(crate) fn is_known(&self, path: &RelativePath, host: Option<(Timestamp, &Node)>) -> bool {
        self.paths.get(path).is_some_and(|known| {
            let over = known.over.as_ref().map(|(changed, node)| (*changed, node));
            let was_offered =
                || known.offers.iter().any(|offer| offer.as_ref() == host.map(|(_, node)| node));
            (host.is_some() && over == host) || was_offered()
        })
    }

    /// Records when the host last changed a path that is being compared.
    pub(crate) fn record_compared(&mut self, path: &RelativePath, changed: Timestamp) {
        self.stamps.insert(path.clone(), changed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_written_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let since = Timestamp { seconds: 1, nanoseconds: 2 };
        std::thread::scope(|scope| {
            for number in 0..8 {
                let directory = directory.path();
                scope.spawn(move || {
                    let dir = Dir::open(directory).unwrap();
                    let name = RelativePath::new(format!("box-{number}")).unwrap();
                    for _ in 0..50 {
                        History::read(&dir, &name, since).write(&dir, &name, since).unwrap();
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 8);
    }
}
