//! Small helpers for concurrent code: locks that ignore poisoning, futures whose panics are caught,
//! and the clock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Failure;

/// Locks, and ignores poisoning: every critical section of this crate leaves its value consistent
/// at each line.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Milliseconds since 1970, the form of all recorded times.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    millis(since)
}

/// A duration in milliseconds, capped at the largest recordable value.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The time from now until a recorded time; zero when it has passed.
pub(crate) fn until_ms(time: i64) -> Duration {
    Duration::from_millis(u64::try_from(time.saturating_sub(now_ms())).unwrap_or(0))
}

/// Sleeps until a recorded time. Checks the clock from time to time: it may be set, and timers do
/// not advance while the machine is suspended.
pub(crate) async fn sleep_until_ms(time: i64) {
    const LONGEST: Duration = Duration::from_secs(30);
    loop {
        let left = until_ms(time);
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LONGEST)).await;
    }
}

/// Creates a future and polls it to its end; a panic in either becomes a failure.
pub(crate) async fn catch_panic<T, F>(make: impl FnOnce() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let future = catch_unwind(AssertUnwindSafe(make)).map_err(panic_failure)?;
    let mut future = Box::pin(future);
    std::future::poll_fn(move |cx| {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll,
            Err(payload) => Poll::Ready(Err(panic_failure(payload))),
        }
    })
    .await
}

#[expect(clippy::needless_pass_by_value, reason = "the payload is dropped here")]
fn panic_failure(payload: Box<dyn std::any::Any + Send>) -> Failure {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    Failure::new("panic", text.unwrap_or_else(|| "panicked".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_failure() {
        async fn panics(wait: bool) -> Result<(), Failure> {
            if wait {
                tokio::task::yield_now().await;
            }
            panic!("in {}", "vain")
        }
        for wait in [false, true] {
            let failure = catch_panic(|| panics(wait)).await.unwrap_err();
            assert_eq!((failure.code.as_str(), failure.message.as_str()), ("panic", "in vain"));
        }
        async fn fine() -> Result<u8, Failure> {
            Ok(1)
        }
        assert_eq!(catch_panic(fine).await.unwrap(), 1);
    }
}
