//! The events of a command. They are read from the keeper only when the caller asks for them, so a
//! slow caller delays only itself, and continue from one keeper to the next without gaps or
//! duplicates.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stockade_core::{ExecId, SandboxId};
use tokio::time::sleep;

use super::call::{Client, Exchange};
use super::channel::Channel;
use crate::socket::Message;
use crate::wire::{Answer, Request};
use stockade_runtime::{Ending, Error, Event, EventSource, Events, Offsets, Stream};

/// How often the client tries to reach a keeper without receiving a message, and the pause between
/// two attempts.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// A command that a client is subscribed to.
#[derive(Debug)]
pub(super) struct StreamPosition {
    pub(super) id: SandboxId,
    pub(super) exec: ExecId,
    /// The offsets that the caller has received.
    pub(super) received: Offsets,
}

/// The events that arrive on a connection which is attached to a command. The connection is
/// returned to the idle ones after the last event.
pub(super) fn follow(client: Arc<Client>, followed: StreamPosition, channel: Channel) -> Events {
    Events::new(Subscription { client, position: followed, channel: Some(channel), attempts: 0 })
}

/// A subscription to a command on a connection.
#[derive(Debug)]
struct Subscription {
    client: Arc<Client>,
    position: StreamPosition,
    /// None once its keeper has closed the connection.
    channel: Option<Channel>,
    /// How often the client has tried to reach another keeper since the last message.
    attempts: u32,
}

#[async_trait]
impl EventSource for Subscription {
    async fn next(&mut self) -> Option<Event> {
        loop {
            let Some(channel) = &self.channel else {
                match self.position.attach_again(&self.client, &mut self.attempts).await {
                    Ok(channel) => self.channel = Some(channel),
                    Err(ending) => return Some(Event::Ended(ending)),
                }
                continue;
            };
            let Ok(Some(message)) = channel.receive().await else {
                self.channel = None;
                continue;
            };
            self.attempts = 0;
            let Some(event) = self.position.event(message) else { continue };
            if matches!(event, Event::Ended(_)) {
                self.channel
                    .take()
                    .into_iter()
                    .for_each(|channel| self.client.return_channel(channel));
            }
            return Some(event);
        }
    }
}

impl StreamPosition {
    /// The part of a message that the caller has not received yet.
    fn event(&mut self, message: Message<Answer>) -> Option<Event> {
        match message.head {
            Answer::Output { stream, offset } => {
                let mut bytes = message.body;
                let new = self.advance(stream, offset, bytes.len() as u64)?;
                bytes.drain(..usize::try_from(new - offset).ok()?);
                Some(Event::Output { stream, offset: new, bytes })
            }
            Answer::Lost { stream, offset, length } => {
                let new = self.advance(stream, offset, length)?;
                Some(Event::Lost { stream, offset: new, length: offset + length - new })
            }
            Answer::RefusedCalls(names) => Some(Event::RefusedCalls(names)),
            Answer::Ended(ending) => Some(Event::Ended(ending)),
            _ => None,
        }
    }

    /// The offset of the first byte in a piece of a stream that is new; `None` when no byte is.
    fn advance(&mut self, stream: Stream, offset: u64, length: u64) -> Option<u64> {
        let received = match stream {
            Stream::Output => &mut self.received.output,
            Stream::Error => &mut self.received.error,
        };
        let end = offset.checked_add(length)?;
        let new = offset.max(*received);
        *received = end.max(*received);
        (new < end).then_some(new)
    }

    /// A connection to the next keeper that continues where the last one stopped, or the ending of
    /// the command when no keeper can report more of it.
    async fn attach_again(&self, client: &Client, attempts: &mut u32) -> Result<Channel, Ending> {
        let Self { id, exec, received: told } = self;
        let request = Request::Attach { id: id.clone(), exec: exec.clone(), from: *told };
        while *attempts < ATTEMPTS {
            if *attempts > 0 {
                sleep(PAUSE).await;
            }
            *attempts += 1;
            match client.call(&request, &[], &[]).await {
                Ok(Exchange {
                    message: Message { head: Answer::Attached { .. }, .. },
                    channel,
                }) => {
                    return Ok(channel);
                }
                Err(Error::NoSandbox(_)) => return Err(Ending::SandboxEnded),
                Err(Error::NoExec { .. }) => return Err(Ending::Unknown),
                Ok(_) | Err(_) => {}
            }
        }
        Err(Ending::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(output: u64, error: u64) -> StreamPosition {
        StreamPosition {
            id: SandboxId::new("box").unwrap(),
            exec: ExecId::new("one").unwrap(),
            received: Offsets { output, error },
        }
    }

    fn message(head: Answer, body: &[u8]) -> Message<Answer> {
        Message { head, body: body.to_vec(), descriptors: Vec::new() }
    }

    #[test]
    fn what_was_told_is_not_told_again() {
        let mut followed = followed(10, 0);
        let mut output = |offset, body: &[u8]| {
            let head = Answer::Output { stream: Stream::Output, offset };
            match followed.event(message(head, body)) {
                Some(Event::Output { offset, bytes, .. }) => Some((offset, bytes)),
                _ => None,
            }
        };
        assert_eq!(output(0, b"0123456789"), None);
        assert_eq!(output(8, b"89ab"), Some((10, b"ab".to_vec())));
        assert_eq!(output(12, b"cd"), Some((12, b"cd".to_vec())));
        assert_eq!(output(12, b"cd"), None);
        assert_eq!(output(u64::MAX, b"x"), None);
        assert_eq!(followed.received, Offsets { output: 14, error: 0 });
    }

    #[test]
    fn what_is_lost_is_told_once_and_the_streams_are_apart() {
        let mut followed = followed(100, 5);
        let lost =
            |offset, length| message(Answer::Lost { stream: Stream::Error, offset, length }, b"");
        let lost_event =
            |offset, length| Some(Event::Lost { stream: Stream::Error, offset, length });
        assert_eq!(followed.event(lost(0, 20)), lost_event(5, 15));
        assert_eq!(followed.event(lost(0, 20)), None);
        assert_eq!(followed.received, Offsets { output: 100, error: 20 });
        assert_eq!(followed.event(message(Answer::Done, b"")), None);
        let names = vec!["mount".to_owned()];
        let refused = message(Answer::RefusedCalls(names.clone()), b"");
        assert_eq!(followed.event(refused), Some(Event::RefusedCalls(names)));
    }
}
