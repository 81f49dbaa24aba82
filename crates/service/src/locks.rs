//! Locks by name: for each sandbox, owner and idempotency key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// A lock for each name that a task holds or waits for.
#[derive(Debug)]
pub(crate) struct Locks<K>(Mutex<HashMap<K, Weak<AsyncMutex<()>>>>);

impl<K> Default for Locks<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Locks<K> {
    /// Takes the lock of that name, if it is free.
    pub(crate) fn try_lock(&self, name: &K) -> Option<OwnedMutexGuard<()>> {
        self.entry(name).try_lock_owned().ok()
    }

    /// Waits for the lock of that name.
    pub(crate) async fn lock(&self, name: &K) -> OwnedMutexGuard<()> {
        self.entry(name).lock_owned().await
    }

    fn entry(&self, name: &K) -> Arc<AsyncMutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(name).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::new(AsyncMutex::new(()));
        locks.insert(name.clone(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_sandbox_has_one_driver_and_another_is_not_kept_waiting() {
        let locks = Arc::new(Locks::default());
        let guard = locks.lock(&"a").await;
        drop(locks.lock(&"b").await);
        let second = tokio::spawn({
            let locks = locks.clone();
            async move { drop(locks.lock(&"a").await) }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(guard);
        second.await.unwrap();
    }
}
