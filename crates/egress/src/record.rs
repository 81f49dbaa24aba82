//! The queue of traffic events for the owner.

use std::sync::atomic::{AtomicU64, Ordering};

use stockade_egress_control::Event;
use tokio::sync::mpsc;

/// Receives events. Must not block: traffic does not wait for its records.
pub trait Record: std::fmt::Debug + Send + Sync {
    /// Receives one event.
    fn record(&self, event: Event);
}

/// A queue with a limited capacity. Events that do not fit are counted, and the next event that
/// fits contains their number.
#[derive(Debug)]
pub struct Queue {
    events: mpsc::Sender<Event>,
    lost: AtomicU64,
}

impl Queue {
    /// The queue, and its receiver.
    pub fn new(capacity: usize) -> (Self, mpsc::Receiver<Event>) {
        let (events, receiver) = mpsc::channel(capacity);
        (Self { events, lost: AtomicU64::new(0) }, receiver)
    }
}

impl Record for Queue {
    fn record(&self, mut event: Event) {
        match self.events.try_reserve() {
            Ok(place) => {
                event.lost = self.lost.swap(0, Ordering::Relaxed);
                place.send(event);
            }
            Err(_) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use stockade_core::SandboxId;
    use stockade_core::network::{Host, Refusal, Transport};
    use stockade_egress_control::Outcome;

    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let event = |port| Event {
            at: Timestamp::UNIX_EPOCH,
            sandbox_id: SandboxId::new("sb1").unwrap(),
            way: Transport::Proxy,
            host: Some(Host::parse("a.example").unwrap()),
            port: Some(port),
            outcome: Outcome::from(&Refusal::InvalidRequest { what: "x" }),
            lost: 0,
        };
        let (queue, mut events) = Queue::new(2);
        (1..=5).for_each(|port| queue.record(event(port)));
        let taken: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
        assert_eq!(taken, [event(1), event(2)]);
        queue.record(event(6));
        assert_eq!(events.try_recv().unwrap(), Event { lost: 3, ..event(6) });
        let json = serde_json::to_value(event(7)).unwrap();
        assert_eq!(json["outcome"], "refused");
        assert_eq!(json["reason"], "invalid-request");
        assert_eq!(json["sandboxId"], "sb1");
        assert_eq!(serde_json::from_value::<Event>(json).unwrap(), event(7));
    }
}
