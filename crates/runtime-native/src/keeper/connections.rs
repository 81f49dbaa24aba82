//! The keeper's side of its client connections: accepting them, sending responses, and sending the
//! events of commands.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use super::client::{Client, Phase, Subscription};
use super::command::Stage;
use super::context::Reply;
use super::reactor::{Interest, Source};
use super::spool::Read;
use super::timers::Timer;
use super::{ClientId, Keeper};
use crate::socket::Packet;
use crate::wire::{Answer, Failure};
use stockade_runtime::{Ending, Offsets, Stream};

/// How many connections are accepted in one turn.
const ACCEPTED: usize = 32;
/// How many messages of a command one client is sent in one turn.
const MESSAGES: usize = 8;
/// How much output one message carries.
pub(super) const OUTPUT_BYTES: usize = 32 << 10;
/// How long the keeper waits after a failed accept before it accepts connections again.
const ACCEPT_AGAIN: std::time::Duration = std::time::Duration::from_millis(100);

/// The result of sending a client its events.
enum SendOutcome {
    /// There are more events to send.
    More,
    /// All current events were sent.
    All,
    /// The ending was sent.
    End,
}

impl Keeper {
    /// Accepts waiting connections.
    pub(super) fn accept(&mut self) {
        for _ in 0..ACCEPTED {
            let Some(listener) = &mut self.listener else { return };
            let socket = match listener.accept() {
                Ok(socket) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // An immediate retry would not succeed either.
                    self.context.log(&format!("cannot accept a client: {error}"));
                    let _ = listener.set_interest(Interest::empty());
                    self.context.timers.after(ACCEPT_AGAIN, Timer::Accept);
                    return;
                }
            };
            if let Err(failure) = self.context.afford_client(&socket) {
                if let Ok(packet) = Packet::new(&Answer::Failed(failure), &[]) {
                    // A client that does not receive this sees the connection close.
                    let _ = socket.send(&packet, &[]);
                }
                continue;
            }
            let id = ClientId(self.next_client);
            self.next_client += 1;
            let interest = Interest::IN | Interest::RDHUP;
            match self.context.reactor.watch(socket, Source::Client(id), interest) {
                Ok(socket) => drop(self.clients.insert(id, Client::new(socket))),
                Err(error) => self.context.log(&format!("a client cannot be served: {error}")),
            }
        }
    }

    /// Handles an event on a client's connection.
    pub(super) fn client_event(&mut self, id: ClientId, happened: Interest) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if happened.contains(Interest::OUT) {
            if client.flush().is_err() {
                self.disconnect(id);
                return;
            }
            self.context.dirty_clients.insert(id);
        }
        if happened.contains(Interest::IN) && client.may_request() {
            self.receive(id);
        } else if happened.intersects(Interest::RDHUP | Interest::HUP | Interest::ERR)
            || happened.contains(Interest::IN) && client.ignore_requests().is_err()
        {
            self.disconnect(id);
        }
    }

    fn receive(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        match client.receive() {
            Ok(Some(message)) => {
                if let Phase::Holding(key) = client.phase {
                    client.phase = Phase::Idle;
                    self.with(key, |sandbox, context| sandbox.release(context, id));
                }
                self.request(id, message);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
                let text = "the keeper is out of file descriptors for the request".to_owned();
                self.answer(id, &Answer::Failed(Failure::Exhausted(text)), Vec::new());
            }
            Ok(None) | Err(_) => self.disconnect(id),
        }
    }

    /// Removes a client.
    pub(super) fn disconnect(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else { return };
        match client.phase {
            Phase::Holding(key) | Phase::Waiting(Some(key)) => {
                self.with(key, |sandbox, context| sandbox.release(context, id));
            }
            Phase::Subscribed(Subscription { sandbox, number, .. }) => {
                self.with(sandbox, |sandbox, _| {
                    if let Some(command) = sandbox.commands.get_mut(&number) {
                        command.unsubscribe(id);
                    }
                });
            }
            Phase::Idle | Phase::Waiting(None) => {}
        }
    }

    /// Sends a response; after it the client may send the next request.
    pub(super) fn answer(&mut self, id: ClientId, answer: &Answer, descriptors: Vec<OwnedFd>) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.phase = Phase::Idle;
        if client.send(answer, &[], descriptors).is_err() {
            self.disconnect(id);
        }
    }

    /// Sends the queued replies and the new events of commands.
    pub(super) fn deliver(&mut self) {
        while let Some((id, reply)) = self.context.replies.pop_front() {
            self.reply(id, reply);
        }
        for id in std::mem::take(&mut self.context.dirty_clients) {
            self.send_events(id);
        }
    }

    fn reply(&mut self, id: ClientId, reply: Reply) {
        // A client that has disconnected receives nothing.
        let Some(client) = self.clients.get_mut(&id) else {
            if let Reply::Paused { sandbox, .. } = reply {
                self.with(sandbox, |sandbox, context| sandbox.release(context, id));
            }
            return;
        };
        let waits = matches!(client.phase, Phase::Waiting(_));
        match reply {
            Reply::Answer(answer, descriptors) if waits => self.answer(id, &answer, descriptors),
            Reply::Attached { sandbox, number, from, input } if waits => {
                let answer = Answer::Attached { input: input.is_some() };
                self.answer(id, &answer, input.into_iter().collect());
                self.subscribe(id, Subscription { sandbox, number }, from);
            }
            Reply::Paused { sandbox, answer } if waits => {
                self.answer(id, &answer, Vec::new());
                self.become_phase(id, Phase::Holding(sandbox));
            }
            Reply::Gone(unheard, ending) => {
                if matches!(client.phase, Phase::Subscribed(_)) {
                    if unheard.iter().any(|lost| client.send(lost, &[], Vec::new()).is_err()) {
                        self.disconnect(id);
                        return;
                    }
                    self.answer(id, &Answer::Ended(ending), Vec::new());
                }
            }
            // The client was not waiting for that.
            Reply::Answer(..) | Reply::Attached { .. } | Reply::Paused { .. } => {}
        }
    }

    fn become_phase(&mut self, id: ClientId, phase: Phase) {
        if let Some(client) = self.clients.get_mut(&id)
            && client.become_phase(phase).is_err()
        {
            self.disconnect(id);
        }
    }

    fn subscribe(&mut self, id: ClientId, subscription: Subscription, from: Offsets) {
        let Subscription { sandbox: key, number } = subscription;
        self.become_phase(id, Phase::Subscribed(subscription));
        let known = self.sandboxes.get_mut(&key).and_then(|box_| box_.commands.get_mut(&number));
        match known {
            Some(command) => {
                command.subscribe(id, from);
                self.context.dirty_clients.insert(id);
            }
            None => self.reply(id, Reply::Gone(Vec::new(), Ending::SandboxEnded)),
        }
    }

    /// Sends a client the new events of the command that it is subscribed to.
    fn send_events(&mut self, id: ClientId) {
        for _ in 0..MESSAGES {
            match self.send_event(id) {
                Ok(SendOutcome::More) => {}
                Ok(SendOutcome::All) => return,
                Ok(SendOutcome::End) => {
                    self.become_phase(id, Phase::Idle);
                    return;
                }
                Err(_) => {
                    self.disconnect(id);
                    return;
                }
            }
        }
        // Other clients have their turn first.
        self.context.dirty_clients.insert(id);
    }

    fn send_event(&mut self, id: ClientId) -> io::Result<SendOutcome> {
        let Some(client) = self.clients.get_mut(&id) else { return Ok(SendOutcome::All) };
        let Phase::Subscribed(Subscription { sandbox: key, number }) = client.phase else {
            return Ok(SendOutcome::All);
        };
        if !client.is_drained() {
            return Ok(SendOutcome::All);
        }
        let Some(sandbox) = self.sandboxes.get_mut(&key) else { return Ok(SendOutcome::All) };
        let Some(command) = sandbox.commands.get_mut(&number) else { return Ok(SendOutcome::All) };
        let Some(mut at) = command.position(id) else { return Ok(SendOutcome::All) };
        for stream in [Stream::Output, Stream::Error] {
            let offset_in = match stream {
                Stream::Output => &mut at.output,
                Stream::Error => &mut at.error,
            };
            let offset = *offset_in;
            let read = command.read(sandbox.dir.as_fd(), stream, offset, &mut self.buffer);
            let (answer, length) = match read {
                Read::Nothing => continue,
                Read::Bytes(length) => (Answer::Output { stream, offset }, length),
                Read::Lost(length) => {
                    *offset_in += length;
                    (Answer::Lost { stream, offset, length }, 0)
                }
            };
            *offset_in += length as u64;
            command.set_position(id, at);
            client.send(&answer, &self.buffer[..length], Vec::new())?;
            return Ok(SendOutcome::More);
        }
        let Stage::Ended(ending) = &command.stage else { return Ok(SendOutcome::All) };
        let refused = command.refused_calls();
        if !refused.is_empty() {
            client.send(&Answer::RefusedCalls(refused), &[], Vec::new())?;
        }
        client.send(&Answer::Ended(ending.clone()), &[], Vec::new())?;
        command.unsubscribe(id);
        if command.subscribers().next().is_none() && command.gone {
            command.close_files();
        }
        Ok(SendOutcome::End)
    }
}
