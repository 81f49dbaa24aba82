//! A command of a case, with what was received of it so far. Every event is checked for the general
//! rules: the bytes of a stream arrive in order, none twice, and the end comes last.

use std::time::Duration;

use stockade_core::ExecId;

use super::DEADLINE;
use super::harness::{within, within_long};
use crate::exec::{Ending, Event, Events, Exec, Input, Offsets, Stream};

/// A command with a connected reader.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) exec: ExecId,
    input: Option<Input>,
    events: Events,
    received: Finished,
    keeps_bytes: bool,
}

/// What was received of a command.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) ending: Ending,
    /// The received bytes of standard output, without lost ones.
    pub(super) output: Vec<u8>,
    /// The same for standard error.
    pub(super) error: Vec<u8>,
    /// How far each stream was received.
    pub(super) offsets: Offsets,
    /// How many bytes were reported as lost.
    pub(super) lost: u64,
}

impl Finished {
    pub(super) fn output(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    pub(super) fn error(&self) -> String {
        String::from_utf8_lossy(&self.error).into_owned()
    }

    /// How many bytes the command wrote to both streams, as far as received.
    pub(super) const fn length(&self) -> u64 {
        self.offsets.output + self.offsets.error
    }

    fn advance(&mut self, stream: Stream, offset: u64, length: u64) {
        assert!(length > 0, "an event of no bytes on {stream:?}");
        let at = match stream {
            Stream::Output => &mut self.offsets.output,
            Stream::Error => &mut self.offsets.error,
        };
        assert_eq!(offset, *at, "the bytes of {stream:?} do not follow those before");
        *at += length;
    }
}

impl Running {
    pub(super) fn new(exec: ExecId, started: Exec, from: Offsets) -> Self {
        let (output, error) = (Vec::new(), Vec::new());
        let received = Finished { ending: Ending::Unknown, output, error, offsets: from, lost: 0 };
        Self { exec, input: started.input, events: started.events, received, keeps_bytes: true }
    }

    /// From now on, bytes are only counted.
    pub(super) const fn count_only(mut self) -> Self {
        self.keeps_bytes = false;
        self
    }

    /// How far each stream was received.
    pub(super) const fn offsets(&self) -> Offsets {
        self.received.offsets
    }

    /// The handle of its standard input.
    pub(super) fn input(&self) -> Input {
        self.input.clone().expect("a command that takes input")
    }

    pub(super) const fn has_input(&self) -> bool {
        self.input.is_some()
    }

    /// Writes to its standard input.
    pub(super) async fn write(&self, bytes: impl Into<Vec<u8>>) {
        within("writing input", self.input().write(bytes.into())).await.expect("writing input");
    }

    /// Ends its standard input.
    pub(super) async fn close(&self) {
        within("closing input", self.input().close()).await.expect("closing input");
    }

    /// Receives one more event; false after the end.
    pub(super) async fn step(&mut self) -> bool {
        match self.events.next().await {
            Some(Event::Output { stream, offset, bytes }) => {
                self.received.advance(stream, offset, bytes.len() as u64);
                match stream {
                    _ if !self.keeps_bytes => {}
                    Stream::Output => self.received.output.extend(bytes),
                    Stream::Error => self.received.error.extend(bytes),
                }
                true
            }
            Some(Event::Lost { stream, offset, length }) => {
                self.received.advance(stream, offset, length);
                self.received.lost += length;
                true
            }
            Some(Event::RefusedCalls(_)) => true,
            Some(Event::Ended(ending)) => {
                self.received.ending = ending;
                assert_eq!(self.events.next().await, None, "something follows the end");
                false
            }
            None => panic!("no end was told"),
        }
    }

    /// Waits until its standard output contains this text.
    pub(super) async fn wait_for_output(&mut self, text: &str) {
        within(&format!("{text:?} on standard output"), async {
            while !self.received.output().contains(text) {
                assert!(self.step().await, "ended before it wrote {text:?}: {:?}", self.received);
            }
        })
        .await;
    }

    /// Waits for its end.
    pub(super) async fn finish(self) -> Finished {
        self.finish_within(DEADLINE).await
    }

    /// Waits for its end with a longer deadline.
    pub(super) async fn finish_within(mut self, deadline: Duration) -> Finished {
        let what = format!("the end of the command {}", self.exec);
        within_long(&what, deadline, async { while self.step().await {} }).await;
        self.received
    }
}
