//! Limits how many snippets run concurrently. If no permit is free, callers wait and get one in the
//! order of arrival; a caller that stops waiting uses none.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permits, and the callers that wait for them.
#[derive(Debug)]
pub(crate) struct Queue {
    permits: Arc<Semaphore>,
    count: Arc<Mutex<Count>>,
}

#[derive(Debug)]
struct Count {
    cap: usize,
    /// The number of permits to withhold when they are returned, since the limit was lowered.
    surplus: usize,
}

/// A permit, returned when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    permit: Option<OwnedSemaphorePermit>,
    count: Arc<Mutex<Count>>,
}

impl Queue {
    /// A queue with so many permits.
    pub(crate) fn new(cap: usize) -> Self {
        let cap = clamp_cap(cap);
        let permits = Arc::new(Semaphore::new(cap));
        Self { permits, count: Arc::new(Mutex::new(Count { cap, surplus: 0 })) }
    }

    /// Changes the number of permits, at least one; returns the old number. Permits in use stay
    /// valid.
    pub(crate) fn set(&self, cap: usize) -> usize {
        let cap = clamp_cap(cap);
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut count.cap, cap);
        if cap >= before {
            let reclaimed = count.surplus.min(cap - before);
            count.surplus -= reclaimed;
            self.permits.add_permits(cap - before - reclaimed);
        } else {
            let removed = before - cap;
            count.surplus += removed - self.permits.forget_permits(removed);
        }
        before
    }

    /// Waits for a permit. Dropping the future stops waiting.
    pub(crate) async fn enter(&self) -> Permit {
        // The semaphore is never closed; if it were, the snippet would run without a permit.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        Permit { permit, count: Arc::clone(&self.count) }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        if count.surplus > 0
            && let Some(permit) = self.permit.take()
        {
            count.surplus -= 1;
            permit.forget();
        }
    }
}

fn clamp_cap(cap: usize) -> usize {
    cap.clamp(1, Semaphore::MAX_PERMITS)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::time::{Duration, timeout};

    use super::*;

    /// Whether a permit is available now.
    async fn is_free(queue: &Queue) -> bool {
        timeout(Duration::ZERO, queue.enter()).await.is_ok()
    }

    #[tokio::test]
    async fn places_are_given_in_the_order_of_coming() {
        let queue = Queue::new(1);
        let first = queue.enter().await;
        let (mut second, mut third) = (pin!(queue.enter()), pin!(queue.enter()));
        {
            let given_up = pin!(queue.enter());
            assert!(timeout(Duration::ZERO, given_up).await.is_err());
        }
        assert!(timeout(Duration::ZERO, &mut second).await.is_err());
        assert!(timeout(Duration::ZERO, &mut third).await.is_err());
        drop(first);
        assert!(timeout(Duration::ZERO, &mut third).await.is_err());
        let second = second.await;
        assert!(timeout(Duration::ZERO, &mut third).await.is_err());
        drop(second);
        drop(third.await);
        assert!(is_free(&queue).await);
    }

    #[tokio::test]
    async fn the_cap_changes_under_those_who_have_places() {
        let queue = Queue::new(3);
        assert_eq!(queue.set(2), 3);
        let (a, b) = (queue.enter().await, queue.enter().await);
        assert!(!is_free(&queue).await);
        assert_eq!(queue.set(0), 2);
        drop(a);
        assert!(!is_free(&queue).await);
        assert_eq!(queue.set(usize::MAX), 1);
        assert!(is_free(&queue).await);
        queue.set(1);
        assert!(!is_free(&queue).await);
        drop(b);
        assert!(is_free(&queue).await);
        let only = queue.enter().await;
        assert!(!is_free(&queue).await);
        drop(only);
    }
}
