//! One driver for each sandbox: whoever changes its state holds its lock meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use stockade_core::SandboxId;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// A lock for each sandbox that somebody is changing.
#[derive(Debug, Default)]
pub(crate) struct Locks(Mutex<HashMap<SandboxId, Weak<AsyncMutex<()>>>>);

impl Locks {
    /// Waits until nobody else changes a sandbox's state.
    pub(crate) async fn lock(&self, id: &SandboxId) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match locks.get(id).and_then(Weak::upgrade) {
                Some(lock) => lock,
                None => {
                    locks.retain(|_, lock| lock.strong_count() > 0);
                    let lock = Arc::new(AsyncMutex::new(()));
                    locks.insert(id.clone(), Arc::downgrade(&lock));
                    lock
                }
            }
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_sandbox_has_one_driver_and_another_is_not_kept_waiting() {
        let locks = Arc::new(Locks::default());
        let (a, b) = (SandboxId::new("a").unwrap(), SandboxId::new("b").unwrap());
        let held = locks.lock(&a).await;
        drop(locks.lock(&b).await);
        let second = tokio::spawn({
            let (locks, a) = (locks.clone(), a.clone());
            async move { drop(locks.lock(&a).await) }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(held);
        second.await.unwrap();
    }
}
