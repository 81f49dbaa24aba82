//! The events of code that runs, between the driver and a client. Each run has a queue of its own, so that
//! a client that reads slowly stops the code of its own context and no other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use stockade_api::SessionInput;
use tokio::sync::mpsc;

use super::event::Event;

/// How many bytes of events may wait for a client; then its code waits.
const HIGH_BYTES: usize = 1 << 20;
/// When so few wait, the code continues.
const LOW_BYTES: usize = 256 << 10;
/// How many may wait at most. Only a driver that does not wait reaches this; its run is ended.
const MOST_BYTES: usize = 128 << 20;
/// What an event counts for besides its own length.
const OVERHEAD_BYTES: usize = 256;

/// A request as a line.
pub(super) fn input_of(request: &Value) -> SessionInput {
    let mut line = request.to_string().into_bytes();
    line.push(b'\n');
    SessionInput::Stdin { data: line.into() }
}

/// Sends requests to the driver, in order, without waiting.
#[derive(Debug, Clone)]
pub(super) struct Control(mpsc::UnboundedSender<Value>);

impl Control {
    /// Starts the task that sends.
    pub(super) fn start(input: mpsc::Sender<SessionInput>) -> Self {
        let (sender, mut requests) = mpsc::unbounded_channel::<Value>();
        tokio::spawn(async move {
            while let Some(request) = requests.recv().await {
                if input.send(input_of(&request)).await.is_err() {
                    return;
                }
            }
        });
        Self(sender)
    }

    fn send(&self, operation: &str, context: &str) {
        // A driver that has ended has no contexts.
        let _ = self.0.send(json!({ "op": operation, "id": context }));
    }
}

#[derive(Debug, Default)]
struct Level {
    bytes: usize,
    is_paused: bool,
}

/// What both ends of a queue know. A request to the driver is sent while the level is locked, so that they
/// are in the order of the changes.
#[derive(Debug)]
struct Shared {
    level: Mutex<Level>,
    context: String,
    control: Control,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Level> {
        self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resume(&self, level: &mut Level) {
        if std::mem::take(&mut level.is_paused) {
            self.control.send("continue", &self.context);
        }
    }
}

/// The end of a queue that the driver's events are put into.
#[derive(Debug)]
pub(super) struct Queue {
    events: mpsc::UnboundedSender<(Event, usize)>,
    shared: Arc<Shared>,
}

impl Queue {
    /// The queue of a run in a context.
    pub(super) fn new(context: &str, control: Control) -> (Self, Events) {
        let (events, receiver) = mpsc::unbounded_channel();
        let level = Mutex::default();
        let shared = Arc::new(Shared { level, context: context.to_owned(), control });
        (Self { events, shared: Arc::clone(&shared) }, Events { events: receiver, shared })
    }

    /// Whether the run is one of this context.
    pub(super) fn is_of(&self, context: &str) -> bool {
        self.shared.context == context
    }

    /// Adds an event, and stops the code if too much waits. False if the run must be ended, which is the
    /// last event for the client.
    pub(super) fn push(&mut self, event: Event, length: usize) -> bool {
        let size = length.saturating_add(OVERHEAD_BYTES);
        let mut level = self.shared.lock();
        if level.bytes.saturating_add(size) > MOST_BYTES {
            let text = "the output was not read in time, and the rest of it is lost";
            let error = Event::Error {
                name: "OutputLost".to_owned(),
                value: text.to_owned(),
                traceback: text.to_owned(),
            };
            let _ = self.events.send((error, 0));
            self.shared.control.send("interrupt", &self.shared.context);
            return false;
        }
        // A client that has left receives nothing.
        if self.events.send((event, size)).is_err() {
            return true;
        }
        level.bytes += size;
        if level.bytes > HIGH_BYTES && !std::mem::replace(&mut level.is_paused, true) {
            self.shared.control.send("pause", &self.shared.context);
        }
        true
    }
}

/// The end of a queue that a client reads.
#[derive(Debug)]
pub(crate) struct Events {
    events: mpsc::UnboundedReceiver<(Event, usize)>,
    shared: Arc<Shared>,
}

impl Events {
    /// The next event; `None` if the code has ended.
    pub(crate) async fn recv(&mut self) -> Option<Event> {
        let (event, size) = self.events.recv().await?;
        let mut level = self.shared.lock();
        level.bytes = level.bytes.saturating_sub(size);
        if level.bytes <= LOW_BYTES {
            self.shared.resume(&mut level);
        }
        Some(event)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // What still comes is dropped, so the code need not wait.
        self.events.close();
        let mut level = self.shared.lock();
        self.shared.resume(&mut level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(length: usize) -> Event {
        Event::Stdout { text: "x".repeat(length) }
    }

    async fn operation(requests: &mut mpsc::Receiver<SessionInput>) -> String {
        let SessionInput::Stdin { data } = requests.recv().await.unwrap() else { panic!() };
        let request: Value = serde_json::from_slice(&data.0).unwrap();
        assert_eq!(request["id"], "c");
        request["op"].as_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn a_slow_client_stops_its_own_code_until_it_has_read() {
        let (input, mut requests) = mpsc::channel(4);
        let (mut queue, mut events) = Queue::new("c", Control::start(input));
        for _ in 0..3 {
            assert!(queue.push(output(0), HIGH_BYTES / 2));
        }
        assert_eq!(operation(&mut requests).await, "pause");
        events.recv().await.unwrap();
        events.recv().await.unwrap();
        assert!(requests.try_recv().is_err());
        events.recv().await.unwrap();
        assert_eq!(operation(&mut requests).await, "continue");
        // A client that leaves does not keep the context stopped.
        queue.push(output(0), 2 * HIGH_BYTES);
        assert_eq!(operation(&mut requests).await, "pause");
        drop(events);
        assert_eq!(operation(&mut requests).await, "continue");
        assert!(queue.push(output(0), 2 * HIGH_BYTES));
    }

    #[tokio::test]
    async fn a_driver_that_does_not_wait_loses_the_run() {
        let (input, mut requests) = mpsc::channel(4);
        let (mut queue, mut events) = Queue::new("c", Control::start(input));
        assert!(queue.push(output(1), MOST_BYTES / 2));
        assert!(!queue.push(output(1), MOST_BYTES / 2));
        drop(queue);
        assert_eq!(events.recv().await, Some(output(1)));
        assert!(matches!(events.recv().await, Some(Event::Error { .. })));
        assert_eq!(events.recv().await, None);
        assert_eq!(operation(&mut requests).await, "pause");
        assert_eq!(operation(&mut requests).await, "interrupt");
    }
}
