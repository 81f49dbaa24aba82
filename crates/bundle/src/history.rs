//! What the earlier bundles of a sandbox that lives on have offered to its project, so that what the
//! host has by applying one is not taken for somebody else's change.
//!
//! It rests on what the host has now, never on a word that something was applied: the very node that
//! was offered last, or a file that was not touched since it was last compared.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read as _, Write as _};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::beneath::{self, Dir, Rename, Timestamp};
use crate::manifest::{Entry, Node};
use crate::path::RelativePath;

/// The most paths that are remembered. What the host has at others is a conflict once it changes.
const MAX_PATHS: usize = 100_000;

/// The most nodes that are remembered as offered over the same one of the host, the latest.
const MAX_OFFERS: usize = 8;

/// Held while one is written.
static WRITING: Mutex<()> = Mutex::new(());

/// A file larger than this is not one of ours.
const MAX_BYTES: u64 = 256 << 20;

/// What was offered so far.
#[derive(Debug, Default)]
pub struct History {
    paths: BTreeMap<RelativePath, Known>,
    /// When what is being compared now was last changed on the host.
    stamps: HashMap<RelativePath, Timestamp>,
}

/// What is known of a path.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    /// What the host had that the offers were made over, and since when; nothing, where it had
    /// nothing.
    over: Option<(Timestamp, Node)>,
    /// What was offered since; `None` is a deletion.
    offers: Vec<Option<Node>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDisk {
    /// When the sandbox began with the project: another one of the same name began at another time.
    since: Timestamp,
    paths: Vec<(RelativePath, Known)>,
}

impl History {
    /// Reads the history of a name, of a view that began at `since`. What cannot be read is as if
    /// nothing had been offered.
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

    /// Writes it, in the place of what was there.
    ///
    /// # Errors
    /// When it cannot be written; what was there still is.
    pub fn write(
        self,
        dir: &Dir,
        name: &RelativePath,
        since: Timestamp,
    ) -> Result<(), beneath::Error> {
        // One after another, for those of all sandboxes are written under one name first.
        let _turn = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        let new = RelativePath::literal(".new");
        let failed =
            |source| beneath::Error::Io { operation: "write", path: name.quoted(), source };
        let on_disk = OnDisk { since, paths: self.paths.into_iter().collect() };
        let content = serde_json::to_vec(&on_disk).map_err(|error| failed(error.into()))?;
        // A killed process may have left one.
        Self::remove(dir, &new)?;
        let mut file = dir.create_file(&new, 0o600)?;
        file.write_all(&content).map_err(failed)?;
        dir.rename(&new, dir, name, Rename::Replace)
    }

    /// Takes one away, where there is one.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(dir: &Dir, name: &RelativePath) -> Result<(), beneath::Error> {
        match dir.remove_file(name) {
            Err(error) if error.errno() == Some(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    }

    /// Remembers these entries as offered. What is in conflict, or can never be applied, is not.
    pub fn offer(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| !entry.conflict && entry.refused.is_none()) {
            if self.paths.len() >= MAX_PATHS && !self.paths.contains_key(&entry.path) {
                continue;
            }
            let (old, new) = (entry.change.old(), entry.change.new_node());
            let stamp = self.stamps.get(&entry.path).copied();
            let over = stamp.zip(old.cloned());
            let known = self.paths.entry(entry.path.clone()).or_default();
            if known.over != over {
                *known = Known { over, offers: Vec::new() };
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

    /// Whether what the host has at a path is what the view knows: what was offered, or what it was
    /// compared with, untouched.
    pub(crate) fn knows(&self, path: &RelativePath, host: Option<(Timestamp, &Node)>) -> bool {
        self.paths.get(path).is_some_and(|known| {
            let over = known.over.as_ref().map(|(changed, node)| (*changed, node));
            let was_offered =
                || known.offers.iter().any(|offer| offer.as_ref() == host.map(|(_, node)| node));
            (host.is_some() && over == host) || was_offered()
        })
    }

    /// Takes down when what is compared at a path was last changed on the host.
    pub(crate) fn compared(&mut self, path: &RelativePath, changed: Timestamp) {
        self.stamps.insert(path.clone(), changed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_written_at_once() {
        let place = tempfile::tempdir().unwrap();
        let since = Timestamp { seconds: 1, nanoseconds: 2 };
        std::thread::scope(|scope| {
            for number in 0..8 {
                let place = place.path();
                scope.spawn(move || {
                    let dir = Dir::open(place).unwrap();
                    let name = RelativePath::new(format!("box-{number}")).unwrap();
                    for _ in 0..50 {
                        History::read(&dir, &name, since).write(&dir, &name, since).unwrap();
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 8);
    }
}
