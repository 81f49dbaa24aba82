//! The snapshots from which isolated sessions are being created. One of that kind which is not among them
//! was left by a server that was killed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use stockade_core::SnapshotId;

/// The snapshots in use.
#[derive(Debug, Clone, Default)]
pub(super) struct SnapshotsInUse(Arc<Mutex<BTreeSet<SnapshotId>>>);

/// A snapshot is in use until this is dropped.
#[derive(Debug)]
pub(super) struct SnapshotInUse(SnapshotsInUse, SnapshotId);

impl SnapshotsInUse {
    /// Marks a snapshot that will be taken.
    pub(super) fn enter(&self, id: &SnapshotId) -> SnapshotInUse {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        SnapshotInUse(self.clone(), id.clone())
    }

    /// Whether a snapshot is in use.
    pub(super) fn contains(&self, id: &SnapshotId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }
}

impl Drop for SnapshotInUse {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_in_use_until_its_mark_is_dropped() {
        let all = SnapshotsInUse::default();
        let id = SnapshotId::new("isolated-1").unwrap();
        let mark = all.enter(&id);
        assert!(all.contains(&id));
        drop(mark);
        assert!(!all.contains(&id));
    }
}
