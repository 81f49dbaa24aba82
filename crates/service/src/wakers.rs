//! Wakes the watcher of a sandbox before its next interval.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stockade_core::SandboxId;
use tokio::sync::Notify;

/// The wakers of all watchers.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Mutex<HashMap<SandboxId, Arc<Waker>>>);

/// Wakes one watcher.
#[derive(Debug, Default)]
pub(crate) struct Waker {
    notify: Notify,
    /// Whether the runtime may have lost the sandbox.
    suspected: AtomicBool,
}

impl Wakers {
    pub(crate) fn get(&self, id: &SandboxId) -> Arc<Waker> {
        let mut wakers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.entry(id.clone()).or_default().clone()
    }

    /// Removes the waker of a watcher that has ended, unless a new sandbox has the same id by now.
    pub(crate) fn forget(&self, id: &SandboxId, own: &Arc<Waker>) {
        let mut wakers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One for the map, and one for the caller: another holder is another watcher.
        if wakers.get(id).is_some_and(|waker| Arc::ptr_eq(waker, own))
            && Arc::strong_count(own) <= 2
        {
            wakers.remove(id);
        }
    }
}

impl Waker {
    /// Makes the watcher read the sandbox's record now.
    pub(crate) fn wake(&self) {
        self.notify.notify_one();
    }

    /// Makes the watcher also query the runtime about the sandbox now.
    pub(crate) fn suspect(&self) {
        self.suspected.store(true, Ordering::Relaxed);
        self.notify.notify_one();
    }

    /// Whether [`Self::suspect`] was called since the last call of this function.
    pub(crate) fn take_suspicion(&self) -> bool {
        self.suspected.swap(false, Ordering::Relaxed)
    }

    /// Waits until the watcher is woken.
    pub(crate) async fn wait(&self) {
        self.notify.notified().await;
    }
}
