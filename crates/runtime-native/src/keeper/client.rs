//! One client's connection: what it is waiting for, and what waits to be sent to it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use super::Key;
use super::reactor::{Interest, Watched};
use crate::socket::{Message, Packet, Socket};
use crate::wire::{Answer, Request};

/// How many messages may wait for a client that does not read: the answer to its request, and what
/// ends what it hears.
const WAITING: usize = 16;

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    socket: Watched<Socket>,
    /// It said who it is, and speaks this version.
    pub(super) greeted: bool,
    pub(super) phase: Phase,
    /// It asked for something too early, which is left where it is.
    looked_away: bool,
    waiting: VecDeque<(Packet, Vec<OwnedFd>)>,
}

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It may ask for something.
    Idle,
    /// It waits for its answer; it is to hold this sandbox still then.
    Waiting(Option<Key>),
    /// It holds a sandbox still, until it asks for something else.
    Holding(Key),
    /// It hears of a command.
    Hearing(Subscription),
}

/// What a client hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) sandbox: Key,
    /// The command.
    pub(super) number: u64,
}

impl Client {
    pub(super) const fn new(socket: Watched<Socket>) -> Self {
        let waiting = VecDeque::new();
        Self { socket, greeted: false, phase: Phase::Idle, looked_away: false, waiting }
    }

    /// The next request; `None` once the client is gone.
    pub(super) fn receive(&self) -> io::Result<Option<Message<Request>>> {
        self.socket.receive()
    }

    /// Whether it reads as fast as it is sent to.
    pub(super) fn keeps_up(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends a message, now or when the client reads.
    ///
    /// # Errors
    /// When the client is gone or lets too much wait.
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
        self.send_what_waits()
    }

    /// Sends as much of what waits as the client takes.
    pub(super) fn send_what_waits(&mut self) -> io::Result<()> {
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
        self.look_out()
    }

    /// Changes what it does.
    pub(super) fn become_phase(&mut self, phase: Phase) -> io::Result<()> {
        self.phase = phase;
        self.look_out()
    }

    /// Whether it may ask for something now.
    pub(super) const fn may_ask(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Holding(_))
    }

    /// Looks away from what it asks for until it may: few ask that early, so that is not done before
    /// one has.
    pub(super) fn look_away(&mut self) -> io::Result<()> {
        self.looked_away = true;
        self.look_out()
    }

    /// Waits for what matters now: requests, unless one came too early, and room when something
    /// waits.
    fn look_out(&mut self) -> io::Result<()> {
        let mut interest = Interest::RDHUP;
        self.looked_away &= !self.may_ask();
        if !self.looked_away {
            interest |= Interest::IN;
        }
        if !self.waiting.is_empty() {
            interest |= Interest::OUT;
        }
        self.socket.want(interest)
    }
}
