//! The sandboxes of a run: the channel from their attempts, their slots, and the sandboxes that are
//! retained for children that wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc};

use crate::engine::sandbox::{EnclosingSandbox, Record};
use crate::schedule::Key;
use crate::store::sandboxes::Pause;

/// The interval at which the lease of a retained sandbox is renewed while the run is executed.
const RENEWAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The sandboxes of a run.
pub(super) struct RunSandboxes {
    /// Attempts use the sender to record changes that the run commits.
    pub(super) sender: mpsc::Sender<Record>,
    pub(super) records: mpsc::Receiver<Record>,
    pub(super) slots: Arc<Semaphore>,
    /// The sandbox that encloses the run, if a provider executes it.
    pub(super) enclosing: Option<EnclosingSandbox>,
    /// The waits of the children in sandboxes, by their tasks.
    pauses: HashMap<Key, Pause>,
    /// When the leases of their sandboxes were renewed.
    last_renewal: Option<Instant>,
}

impl RunSandboxes {
    pub(super) fn new(slots: usize) -> Self {
        let (sender, records) = Record::channel();
        Self {
            sender,
            records,
            slots: Arc::new(Semaphore::new(slots)),
            enclosing: None,
            pauses: HashMap::new(),
            last_renewal: None,
        }
    }

    /// Restores the waits that an earlier process left.
    pub(super) fn restore(&mut self, pauses: impl Iterator<Item = (Key, Pause)>) {
        self.pauses = pauses.collect();
    }

    pub(super) fn has_pause(&self, key: &Key) -> bool {
        self.pauses.contains_key(key)
    }

    pub(super) fn pause(&self, key: &Key) -> Option<&Pause> {
        self.pauses.get(key)
    }

    pub(super) fn insert_pause(&mut self, key: &Key, pause: Pause) {
        self.pauses.insert(key.clone(), pause);
    }

    pub(super) fn remove_pause(&mut self, key: &Key) -> Option<Pause> {
        self.pauses.remove(key)
    }

    /// The tasks whose sandboxes have to be renewed now. Marks them as renewed.
    pub(super) fn take_renewals(&mut self) -> Vec<Key> {
        let is_due = self.last_renewal.is_none_or(|at| at.elapsed() >= RENEWAL);
        if self.pauses.is_empty() || !is_due {
            return Vec::new();
        }
        self.last_renewal = Some(Instant::now());
        self.pauses.keys().cloned().collect()
    }

    /// Takes the tasks whose sandboxes are retained. None is retained afterwards.
    pub(super) fn take_pauses(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.pauses).into_keys().collect()
    }
}
