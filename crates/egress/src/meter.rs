//! Counts the bytes of all connections of a sandbox, and holds them back: a byte above the limit is
//! never sent, and what exceeds the bandwidth waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use stockade_core::network::{Refusal, TrafficLimits};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How much may be sent at once after a pause.
const BURST: Duration = Duration::from_millis(50);
/// What is sent at once lasts so long at most, so that connections take turns.
const PIECES_PER_SECOND: u64 = 20;
/// The smallest and the largest piece, and the largest one of limited traffic, of which a last piece that
/// is too large is not sent.
const SMALLEST: u64 = 512;
const LARGEST: u64 = 128 << 10;
const LARGEST_OF_LIMITED: u64 = 32 << 10;

/// The meter of one sandbox.
#[derive(Debug)]
pub(crate) struct Meter {
    used: AtomicU64,
    /// The limits; the largest number for none.
    bytes: AtomicU64,
    bandwidth: AtomicU64,
    /// When what was admitted so far is sent, at that bandwidth.
    free_at: Mutex<Option<Instant>>,
    is_exceeded: Notify,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            used: AtomicU64::new(0),
            bytes: AtomicU64::new(u64::MAX),
            bandwidth: AtomicU64::new(u64::MAX),
            free_at: Mutex::new(None),
            is_exceeded: Notify::new(),
        }
    }
}

impl Meter {
    /// Sets the limits. What was used before counts.
    pub(crate) fn limit(&self, limits: TrafficLimits) {
        self.bytes.store(limits.bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.bandwidth.store(limits.bandwidth.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How many bytes are admitted at a time.
    pub(crate) fn piece(&self) -> usize {
        let piece = self.bandwidth.load(Ordering::Relaxed) / PIECES_PER_SECOND;
        let is_limited = self.bytes.load(Ordering::Relaxed) != u64::MAX;
        let largest = if is_limited { LARGEST_OF_LIMITED } else { LARGEST };
        usize::try_from(piece.clamp(SMALLEST, largest)).unwrap_or(usize::MAX)
    }

    /// Waits until so many bytes may be sent. Never ends if they exceed the limit: the connection is
    /// ended by [`Meter::exceeded`].
    pub(crate) async fn admit(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let limit = self.bytes.load(Ordering::Relaxed);
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= limit);
        if self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_err() {
            // Nothing else fits either, so that the limit is one for all connections.
            self.used.store(limit, Ordering::Release);
            self.is_exceeded.notify_waiters();
            return std::future::pending().await;
        }
        let bandwidth = self.bandwidth.load(Ordering::Relaxed);
        if bandwidth == u64::MAX {
            return;
        }
        let until = {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let earliest = now.checked_sub(BURST).unwrap_or(now);
            let start = free_at.map_or(earliest, |free_at| free_at.max(earliest));
            let micros = u128::from(bytes) * 1_000_000 / u128::from(bandwidth);
            *free_at =
                Some(start + Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)));
            start
        };
        sleep_until(until).await;
    }

    /// Why no more traffic is possible, if that is so.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        let limit = self.bytes.load(Ordering::Relaxed);
        let limit_reached = self.used.load(Ordering::Acquire) >= limit;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        limit_reached.then_some(Refusal::TooMany { what: "bytes", limit })
    }

    /// Ends when bytes were not admitted.
    pub(crate) async fn exceeded(&self) -> Refusal {
        loop {
            self.is_exceeded.notified().await;
            if let Some(refusal) = self.refusal() {
                return refusal;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn meter(bytes: Option<u64>, bandwidth: Option<u64>) -> Arc<Meter> {
        let meter = Meter::default();
        meter.limit(TrafficLimits { bytes, bandwidth, connections: None });
        Arc::new(meter)
    }

    #[tokio::test(start_paused = true)]
    async fn no_byte_above_the_limit_is_admitted() {
        let meter = meter(Some(100), None);
        meter.admit(60).await;
        assert_eq!(meter.refusal(), None);
        let more = Arc::clone(&meter);
        let waiting = tokio::spawn(async move { more.admit(41).await });
        let refusal = meter.exceeded().await;
        assert_eq!(refusal, Refusal::TooMany { what: "bytes", limit: 100 });
        assert!(meter.refusal().is_some(), "also for new connections");
        assert!(!waiting.is_finished());
        waiting.abort();
        // A larger limit admits more.
        meter.limit(TrafficLimits { bytes: Some(200), ..TrafficLimits::default() });
        assert_eq!(meter.refusal(), None);
        meter.admit(100).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_bandwidth_is_kept_by_all_connections_together() {
        let meter = meter(None, Some(10_000));
        let start = Instant::now();
        let sending = (0..4).map(|_| {
            let meter = Arc::clone(&meter);
            tokio::spawn(async move {
                let mut left: usize = 10_000;
                while left > 0 {
                    let piece = meter.piece().min(left);
                    meter.admit(piece).await;
                    left -= piece;
                }
            })
        });
        for sent in sending.collect::<Vec<_>>() {
            sent.await.unwrap();
        }
        let took = start.elapsed();
        assert!((3_800..=4_100).contains(&took.as_millis()), "{took:?}");
    }
}
