//! The clients that have joined terminals: one at a time for each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use stockade_core::SandboxId;
use tokio::sync::{Notify, OwnedMutexGuard};

/// The clients that have joined a shell.
#[derive(Debug, Clone, Default)]
pub(super) struct Clients(Arc<Mutex<Places>>);

/// The places by their sandboxes and ids.
type Places = HashMap<(SandboxId, String), Arc<Place>>;

/// The place of the one client of a shell.
#[derive(Debug, Default)]
pub(super) struct Place {
    taken: Arc<tokio::sync::Mutex<()>>,
    /// Tells the client that another one takes its place.
    pub(super) taken_over: Notify,
}

impl Place {
    /// Takes the place, if it is free.
    pub(super) fn try_take(&self) -> Option<OwnedMutexGuard<()>> {
        Arc::clone(&self.taken).try_lock_owned().ok()
    }

    /// Takes the place of the client that has it.
    pub(super) async fn take_over(&self) -> OwnedMutexGuard<()> {
        self.taken_over.notify_waiters();
        Arc::clone(&self.taken).lock_owned().await
    }
}

impl Clients {
    pub(super) fn place(&self, sandbox: &SandboxId, id: &str) -> Arc<Place> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody has or waits for the others.
        places.retain(|_, place| Arc::strong_count(place) > 1);
        Arc::clone(places.entry((sandbox.clone(), id.to_owned())).or_default())
    }
}
