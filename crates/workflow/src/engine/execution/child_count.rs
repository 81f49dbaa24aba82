//! The number of waiting child runs.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts the children of a run that wait for answers from outside.
#[derive(Debug, Default)]
pub(super) struct WaitingChildren {
    waiting: AtomicUsize,
    /// Is notified when the number changes.
    pub(super) changed: Notify,
}

impl WaitingChildren {
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Records that a child starts to wait, or continues.
    pub(super) fn count(&self, waits: bool) {
        if waits {
            self.waiting.fetch_add(1, Ordering::Relaxed);
        } else {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        self.changed.notify_one();
    }
}
