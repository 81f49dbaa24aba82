//! One client's connection: what it is waiting for, and the messages that wait to be sent to it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use super::Key;
use super::reactor::{Interest, Watched};
use crate::socket::{Message, Packet, Socket};
use crate::wire::{Answer, Request};

/// How many messages may wait for a client that does not read: the response to its request, and the
/// last messages of its subscription.
const WAITING: usize = 16;

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    socket: Watched<Socket>,
    /// It has sent the greeting, and speaks this version.
    pub(super) greeted: bool,
    pub(super) phase: Phase,
    /// It sent a request too early, which stays in the socket.
    ignores_requests: bool,
    waiting: VecDeque<(Packet, Vec<OwnedFd>)>,
}

/// The state of a client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It may send a request.
    Idle,
    /// It waits for its response; `Some` if it will then hold this sandbox.
    Waiting(Option<Key>),
    /// It holds a sandbox until it sends another request.
    Holding(Key),
    /// It receives the events of a command.
    Subscribed(Subscription),
}

/// A client's subscription to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) sandbox: Key,
    /// The command.
    pub(super) number: u64,
}

impl Client {
    pub(super) const fn new(socket: Watched<Socket>) -> Self {
        let waiting = VecDeque::new();
        Self { socket, greeted: false, phase: Phase::Idle, ignores_requests: false, waiting }
    }

    /// The next request; `None` once the client has disconnected.
    pub(super) fn receive(&self) -> io::Result<Option<Message<Request>>> {
        self.socket.receive()
    }

    /// Whether it reads as fast as messages are sent to it.
    pub(super) fn is_drained(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends a message, now or when the client reads.
    ///
    /// # Errors
    /// When the client has disconnected or too many messages wait.
    pub(super) fn send(
        &mut self,
        answer: &Answer,
        body: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<()> {
        if self.waiting.len() >= WAITING {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.waiting.push_back((Packet::new(answer, body)?, descriptors));
        self.flush()
    }

    /// Sends as many waiting messages as the client accepts.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while let Some((packet, descriptors)) = self.waiting.front() {
            let borrowed: Vec<_> = descriptors.iter().map(|open| open.as_fd()).collect();
            match self.socket.send(packet, &borrowed) {
                Ok(()) => {
                    self.waiting.pop_front();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.update_interest()
    }

    /// Changes its state.
    pub(super) fn become_phase(&mut self, phase: Phase) -> io::Result<()> {
        self.phase = phase;
        self.update_interest()
    }

    /// Whether it may send a request now.
    pub(super) const fn may_request(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Holding(_))
    }

    /// Stops watching for requests until one is allowed. Few clients send a request too early, so
    /// this happens only after one has.
    pub(super) fn ignore_requests(&mut self) -> io::Result<()> {
        self.ignores_requests = true;
        self.update_interest()
    }

    /// Registers the socket for the current interests: requests, unless one came too early, and
    /// room when messages wait.
    fn update_interest(&mut self) -> io::Result<()> {
        let mut interest = Interest::RDHUP;
        self.ignores_requests &= !self.may_request();
        if !self.ignores_requests {
            interest |= Interest::IN;
        }
        if !self.waiting.is_empty() {
            interest |= Interest::OUT;
        }
        self.socket.set_interest(interest)
    }
}
