//! What is recorded of a sandbox's traffic: who was asked for, by which way, and what came of it.
//! Never what was sent.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
pub use stockade_core::network::Way;
use stockade_core::network::{Host, Reason, Refusal, Refused};
use stockade_core::{Code, SandboxId};
use tokio::sync::mpsc;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Outcome {
    /// A connection was made.
    Opened {
        /// To which address.
        address: IpAddr,
    },
    /// A connection that was made ended.
    Closed {
        /// To which address it was.
        address: IpAddr,
        /// How many bytes were sent outside.
        sent_bytes: u64,
        /// How many bytes came from outside.
        received_bytes: u64,
    },
    /// It was refused.
    Refused {
        /// The name of the reason.
        reason: Reason,
        /// The code of the problem.
        code: Code,
        /// The refusal in words.
        message: String,
    },
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// Whose sandbox's traffic it is.
    pub sandbox_id: SandboxId,
    /// By which way was asked.
    pub way: Way,
    /// Who was asked for, where that could be understood.
    pub host: Option<Host>,
    /// At which port, where one was named.
    pub port: Option<u16>,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// How many events before this one were lost, because nobody took them.
    #[serde(default)]
    pub lost: u64,
}

impl Event {
    /// What was refused, where something was.
    pub fn refused(&self) -> Option<Refused> {
        let Outcome::Refused { reason, code, message } = &self.outcome else { return None };
        let why = (*reason, *code, message.clone());
        Some(Refused::new((self.host.clone(), self.port), self.way, why))
    }
}

impl From<&Refusal> for Outcome {
    fn from(refusal: &Refusal) -> Self {
        Self::Refused {
            reason: refusal.reason(),
            code: refusal.code(),
            message: refusal.to_string(),
        }
    }
}

/// Takes events. Never waits: traffic does not stand still for its records.
pub trait Record: std::fmt::Debug + Send + Sync {
    /// Takes one event.
    fn record(&self, event: Event);
}

/// A queue of so many events. What does not fit is counted, and the next event that fits says how
/// many are missing.
#[derive(Debug)]
pub struct Queue {
    events: mpsc::Sender<Event>,
    lost: AtomicU64,
}

impl Queue {
    /// The queue, and where its events come out.
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
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let event = |port| Event {
            at: Timestamp::UNIX_EPOCH,
            sandbox_id: SandboxId::new("sb1").unwrap(),
            way: Way::Proxy,
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
