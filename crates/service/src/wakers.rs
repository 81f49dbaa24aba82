//! What makes the watcher of a sandbox look before its next turn.

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
    pub(crate) fn of(&self, id: &SandboxId) -> Arc<Waker> {
        let mut wakers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.entry(id.clone()).or_default().clone()
    }

    pub(crate) fn forget(&self, id: &SandboxId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

impl Waker {
    /// The watcher looks at the sandbox's record now.
    pub(crate) fn wake(&self) {
        self.notify.notify_one();
    }

    /// The watcher asks the runtime for the sandbox now as well.
    pub(crate) fn suspect(&self) {
        self.suspected.store(true, Ordering::Relaxed);
        self.notify.notify_one();
    }

    /// Whether [`Self::suspect`] was called since the last call of this.
    pub(crate) fn take_suspicion(&self) -> bool {
        self.suspected.swap(false, Ordering::Relaxed)
    }

    /// Waits until the watcher is woken.
    pub(crate) async fn woken(&self) {
        self.notify.notified().await;
    }
}
