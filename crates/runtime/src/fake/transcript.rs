//! The output of a command of a fake sandbox, and its delivery to readers.

use tokio::sync::{mpsc, watch};

use crate::exec::{Ending, Event, Events, Offsets, Stream};

/// How many events are queued for a reader.
const WAITING: usize = 16;

/// Everything that a command wrote, in order, and its ending once it has one.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    chunks: Vec<Chunk>,
    pub(super) written: Offsets,
    pub(super) ending: Option<Ending>,
}

#[derive(Debug, Clone)]
struct Chunk {
    stream: Stream,
    offset: u64,
    bytes: Vec<u8>,
}

impl Transcript {
    pub(super) fn write(&mut self, stream: Stream, bytes: &[u8]) {
        if bytes.is_empty() || self.ending.is_some() {
            return;
        }
        let written = match stream {
            Stream::Output => &mut self.written.output,
            Stream::Error => &mut self.written.error,
        };
        self.chunks.push(Chunk { stream, offset: *written, bytes: bytes.to_vec() });
        *written += bytes.len() as u64;
    }

    pub(super) const fn length(&self) -> u64 {
        self.written.output + self.written.error
    }
}

impl Chunk {
    /// The part of it that a reader has not received yet.
    fn event(mut self, seen: Offsets) -> Option<Event> {
        let seen = match self.stream {
            Stream::Output => seen.output,
            Stream::Error => seen.error,
        };
        let skipped = usize::try_from(seen.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        if skipped >= self.bytes.len() {
            return None;
        }
        let bytes = self.bytes.split_off(skipped);
        Some(Event::Output { stream: self.stream, offset: self.offset.max(seen), bytes })
    }
}

/// The events of a command from these offsets on.
pub(super) fn events(transcript: watch::Receiver<Transcript>, from: Offsets) -> Events {
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(send_events(transcript, from, sender));
    Events::new(receiver)
}

/// Stops without an ending when the transcript is lost.
async fn send_events(
    mut transcript: watch::Receiver<Transcript>,
    from: Offsets,
    sender: mpsc::Sender<Event>,
) {
    let mut sent = 0;
    loop {
        let (chunks, ending) = {
            let transcript = transcript.borrow_and_update();
            (transcript.chunks[sent..].to_vec(), transcript.ending.clone())
        };
        sent += chunks.len();
        let output = chunks.into_iter().filter_map(|chunk| chunk.event(from));
        for event in output.chain(ending.clone().map(Event::Ended)) {
            if sender.send(event).await.is_err() {
                return;
            }
        }
        let lost = async { transcript.changed().await.is_err() };
        let over = tokio::select! {
            lost = lost => lost,
            () = sender.closed() => true,
        };
        if ending.is_some() || over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(stream: Stream, offset: u64, text: &str) -> Event {
        Event::Output { stream, offset, bytes: text.into() }
    }

    #[tokio::test]
    async fn a_reader_hears_what_it_has_not_seen_and_then_the_end() {
        let (sender, receiver) = watch::channel(Transcript::default());
        sender.send_modify(|transcript| {
            transcript.write(Stream::Output, b"abc");
            transcript.write(Stream::Error, b"x");
            transcript.write(Stream::Output, b"def");
        });
        let mut events = events(receiver, Offsets { output: 2, error: 1 });
        assert_eq!(events.next().await, Some(output(Stream::Output, 2, "c")));
        assert_eq!(events.next().await, Some(output(Stream::Output, 3, "def")));
        sender.send_modify(|transcript| transcript.ending = Some(Ending::Exited(4)));
        assert_eq!(events.next().await, Some(Event::Ended(Ending::Exited(4))));
        assert_eq!(events.next().await, None);
    }

    #[tokio::test]
    async fn a_lost_transcript_ends_unknown() {
        let (sender, receiver) = watch::channel(Transcript::default());
        let mut events = events(receiver, Offsets::default());
        drop(sender);
        assert_eq!(events.next().await, Some(Event::Ended(Ending::Unknown)));
    }
}
