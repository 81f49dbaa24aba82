//! One writer, any number of readers. Each item has a number; the last ones are kept, up to a bound
//! in bytes, and a reader starts at any position among them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Error;

/// How much of the bound an item takes.
pub trait Size {
    /// How many bytes the item holds.
    fn size_bytes(&self) -> u64;
}

impl Size for Vec<u8> {
    fn size_bytes(&self) -> u64 {
        self.len() as u64
    }
}

/// A position in a channel: before an item, or after the last one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Cursor {
    /// The number of the next item; the first one has 0.
    pub sequence: u64,
    /// How many bytes all items before it hold.
    pub bytes: u64,
}

/// What a reader gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<T> {
    /// The next item.
    Value {
        /// Its number; they have no gaps.
        sequence: u64,
        /// The item.
        value: T,
    },
    /// Items that are no longer stored, because the reader was too slow.
    Truncated {
        /// How many bytes they held.
        bytes: u64,
    },
}

/// A channel that keeps at least the last item, and as many earlier ones as fit into a bound.
pub fn channel<T>(kept_bytes: u64) -> (Writer<T>, Channel<T>) {
    let state = State {
        items: VecDeque::new(),
        first: Cursor::default(),
        next: Cursor::default(),
        end: None,
        readers: 0,
    };
    let shared = Arc::new(Shared { kept_bytes, state: Mutex::new(state), changed: Notify::new() });
    (Writer(Arc::clone(&shared)), Channel(shared))
}

#[derive(Debug)]
struct Shared<T> {
    kept_bytes: u64,
    state: Mutex<State<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    /// The position of the oldest item that is kept.
    first: Cursor,
    /// The position after the newest item.
    next: Cursor,
    end: Option<Result<(), Error>>,
    readers: usize,
}

impl<T> Shared<T> {
    /// No code panics while it holds the lock, so the data of a poisoned lock is consistent.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, outcome: Result<(), Error>) {
        self.state().end.get_or_insert(outcome);
        self.changed.notify_waiters();
    }
}

/// The source of items. If it is dropped without closing the stream, readers get
/// [`Error::Abandoned`].
#[derive(Debug)]
pub struct Writer<T>(Arc<Shared<T>>);

impl<T: Size> Writer<T> {
    /// Adds an item, and returns its number. Never waits.
    pub fn send(&self, value: T) -> u64 {
        let mut state = self.0.state();
        let sequence = state.next.sequence;
        state.next =
            Cursor { sequence: sequence + 1, bytes: state.next.bytes + value.size_bytes() };
        state.items.push_back(value);
        while state.items.len() > 1 && state.next.bytes - state.first.bytes > self.0.kept_bytes {
            let dropped_bytes = state.items.pop_front().map_or(0, |item| item.size_bytes());
            state.first = Cursor {
                sequence: state.first.sequence + 1,
                bytes: state.first.bytes + dropped_bytes,
            };
        }
        drop(state);
        self.0.changed.notify_waiters();
        sequence
    }
}

impl<T> Writer<T> {
    /// Ends the stream: readers reach its end after the remaining items.
    pub fn close(self) {
        self.0.end(Ok(()));
    }

    /// Ends the stream with an error: readers get it after the remaining items.
    pub fn fail(self, error: Error) {
        self.0.end(Err(error));
    }
}

impl<T> Drop for Writer<T> {
    fn drop(&mut self) {
        self.0.end(Err(Error::Abandoned));
    }
}

/// The handle from which readers are created.
#[derive(Debug)]
pub struct Channel<T>(Arc<Shared<T>>);

impl<T> Clone for Channel<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Channel<T> {
    /// A reader from a position on; `Cursor::default()` is the start.
    pub fn subscribe(&self, from: Cursor) -> Reader<T> {
        self.0.state().readers += 1;
        Reader { shared: Arc::clone(&self.0), next: from, error_reported: false }
    }

    /// How many readers there are.
    pub fn readers(&self) -> usize {
        self.0.state().readers
    }
}

/// One reader. It counts as one until it is dropped.
#[derive(Debug)]
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    next: Cursor,
    error_reported: bool,
}

impl<T: Size + Clone> Reader<T> {
    /// Waits for the next item; `None` at the end. An error is returned once, and is the end.
    pub async fn next(&mut self) -> Option<Result<Item<T>, Error>> {
        // A separate handle, so that waiting does not borrow the reader.
        let shared = Arc::clone(&self.shared);
        loop {
            // Registered before the check, so that an item that is added in between wakes it.
            let mut changed = std::pin::pin!(shared.changed.notified());
            changed.as_mut().enable();
            if let Some(answer) = self.poll() {
                return answer;
            }
            changed.await;
        }
    }

    /// The result that is available now; `None` when there is none.
    fn poll(&mut self) -> Option<Option<Result<Item<T>, Error>>> {
        let state = self.shared.state();
        if self.next.sequence < state.first.sequence {
            let bytes = state.first.bytes.saturating_sub(self.next.bytes);
            self.next = state.first;
            return Some(Some(Ok(Item::Truncated { bytes })));
        }
        let index = usize::try_from(self.next.sequence - state.first.sequence).ok()?;
        if let Some(value) = state.items.get(index) {
            let sequence = self.next.sequence;
            self.next =
                Cursor { sequence: sequence + 1, bytes: self.next.bytes + value.size_bytes() };
            return Some(Some(Ok(Item::Value { sequence, value: value.clone() })));
        }
        match state.end.as_ref()? {
            Err(error) if !self.error_reported => {
                self.error_reported = true;
                Some(Some(Err(error.clone())))
            }
            _ => Some(None),
        }
    }
}

impl<T> Reader<T> {
    /// Its current position, for resuming later.
    pub const fn cursor(&self) -> Cursor {
        self.next
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        self.shared.state().readers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn rest(reader: &mut Reader<Vec<u8>>) -> Vec<Result<Item<Vec<u8>>, Error>> {
        let mut all = Vec::new();
        while let Some(item) = reader.next().await {
            all.push(item);
        }
        all
    }

    fn value(sequence: u64, text: &str) -> Result<Item<Vec<u8>>, Error> {
        Ok(Item::Value { sequence, value: text.into() })
    }

    #[tokio::test]
    async fn readers_come_late_and_go_on_later() {
        let (writer, channel) = channel(1_000);
        assert_eq!(writer.send(b"a".to_vec()), 0);
        assert_eq!(writer.send(b"bc".to_vec()), 1);
        let mut late = channel.subscribe(Cursor::default());
        assert_eq!(late.next().await, Some(value(0, "a")));
        let cursor = late.cursor();
        assert_eq!(cursor, Cursor { sequence: 1, bytes: 1 });
        drop(late);
        writer.send(b"d".to_vec());
        writer.close();
        let mut later = channel.subscribe(cursor);
        assert_eq!(rest(&mut later).await, [value(1, "bc"), value(2, "d")]);
        assert_eq!(later.next().await, None, "the end stays the end");
    }

    #[tokio::test]
    async fn a_slow_reader_is_told_what_is_gone() {
        let (writer, channel) = channel(4);
        let mut slow = channel.subscribe(Cursor::default());
        for text in ["aa", "bbb", "cc", "d"] {
            writer.send(text.into());
        }
        writer.close();
        let truncated = Ok(Item::Truncated { bytes: 5 });
        assert_eq!(rest(&mut slow).await, [truncated, value(2, "cc"), value(3, "d")]);
    }

    #[tokio::test]
    async fn an_item_over_the_bound_is_kept_until_the_next() {
        let (writer, channel) = channel(0);
        let mut reader = channel.subscribe(Cursor::default());
        writer.send(b"large".to_vec());
        assert_eq!(reader.next().await, Some(value(0, "large")));
    }

    #[tokio::test]
    async fn a_waiting_reader_is_woken_by_items_and_by_every_end() {
        for (end, last) in [
            (None, Some(Err(Error::Abandoned))),
            (Some(Ok(())), None),
            (Some(Err(Error::NoExit)), Some(Err(Error::NoExit))),
        ] {
            let (writer, channel) = channel(100);
            let mut reader = channel.subscribe(Cursor::default());
            let reading = tokio::spawn(async move {
                let first = reader.next().await;
                (first, reader.next().await, reader.next().await)
            });
            tokio::task::yield_now().await;
            writer.send(b"x".to_vec());
            tokio::task::yield_now().await;
            match end {
                None => drop(writer),
                Some(Ok(())) => writer.close(),
                Some(Err(error)) => writer.fail(error),
            }
            assert_eq!(reading.await.unwrap(), (Some(value(0, "x")), last, None));
        }
    }

    #[tokio::test]
    async fn readers_are_counted() {
        let (_writer, channel) = channel::<Vec<u8>>(1);
        let one = channel.subscribe(Cursor::default());
        let two = channel.subscribe(Cursor::default());
        assert_eq!(channel.readers(), 2);
        drop((one, two));
        assert_eq!(channel.readers(), 0);
    }
}
