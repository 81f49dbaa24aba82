//! One connection to a listener: one message is read and answered; then its sender gets a moment to
//! read the answer. All of it is non-blocking.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use stockade_core::network::WantedHost;

use crate::{dns, http};

/// How long a message may take to arrive, and an answer to be read.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest head of a request, in bytes.
const HEAD_BYTES: usize = http::LINE_BYTES + (8 << 10);
/// How many bytes are read and discarded after the answer.
const DRAIN_BYTES: usize = 1 << 20;

/// The protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Requests to a proxy.
    Http,
    /// DNS over TCP.
    Dns,
}

/// What remains to be done.
#[derive(Debug)]
enum State {
    Reading(Vec<u8>),
    Writing(Vec<u8>),
    Draining(usize),
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    protocol: Protocol,
    state: State,
    pub(crate) deadline: Instant,
}

/// Whether a connection is still used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Waits,
    Ended,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, protocol: Protocol, now: Instant) -> Self {
        Self { socket, protocol, state: State::Reading(Vec::new()), deadline: now + PATIENCE }
    }

    /// What to wait for.
    pub(crate) fn interest(&self) -> (BorrowedFd<'_>, PollFlags) {
        let flags = match self.state {
            State::Writing(_) => PollFlags::OUT,
            State::Reading(_) | State::Draining(_) => PollFlags::IN,
        };
        (self.socket.as_fd(), flags)
    }

    /// Does what is possible without waiting.
    pub(crate) fn advance(&mut self, record: &mut dyn FnMut(WantedHost)) -> Step {
        loop {
            match &mut self.state {
                State::Reading(bytes) => {
                    let mut piece = [0; 4096];
                    let (length, is_end) = match recv(&self.socket, &mut piece, RecvFlags::empty())
                    {
                        Ok((length, _)) => (length, length == 0),
                        Err(error) => return waits_or_ended(error),
                    };
                    bytes.extend_from_slice(piece.get(..length).unwrap_or_default());
                    let Some(message) = complete(self.protocol, bytes, is_end) else {
                        if is_end {
                            return Step::Ended;
                        }
                        continue;
                    };
                    let Some((answer, wanted)) = answer(self.protocol, message) else {
                        return Step::Ended;
                    };
                    // Before the answer, so that it is recorded when the client ends.
                    if let Some(wanted) = wanted {
                        record(wanted);
                    }
                    self.state = State::Writing(answer);
                }
                State::Writing(bytes) => {
                    match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                        Ok(length) => drop(bytes.drain(..length.min(bytes.len()))),
                        Err(error) => return waits_or_ended(error),
                    }
                    if bytes.is_empty() {
                        // Closing while bytes arrive would reset the connection, and the client
                        // would lose the answer.
                        if shutdown(&self.socket, Shutdown::Write).is_err() {
                            return Step::Ended;
                        }
                        self.state = State::Draining(0);
                    }
                }
                State::Draining(count) => {
                    let mut piece = [0; 4096];
                    match recv(&self.socket, &mut piece, RecvFlags::empty()) {
                        Ok((0, _)) => return Step::Ended,
                        Ok((length, _)) => *count += length,
                        Err(error) => return waits_or_ended(error),
                    }
                    if *count > DRAIN_BYTES {
                        return Step::Ended;
                    }
                }
            }
        }
    }
}

const fn waits_or_ended(error: rustix::io::Errno) -> Step {
    match error {
        rustix::io::Errno::AGAIN | rustix::io::Errno::INTR => Step::Waits,
        _ => Step::Ended,
    }
}

/// The first message in the bytes, once it is complete.
fn complete(protocol: Protocol, bytes: &[u8], is_end: bool) -> Option<&[u8]> {
    match protocol {
        Protocol::Http => {
            let has_end = |end: &[u8]| bytes.windows(end.len()).any(|part| part == end);
            // A first byte that no method begins with: TLS or SOCKS, whose clients wait.
            let is_other = bytes.first().is_some_and(|byte| !byte.is_ascii_alphabetic());
            let is_complete = has_end(b"\r\n\r\n")
                || has_end(b"\n\n")
                || bytes.len() >= HEAD_BYTES
                || is_other
                || (is_end && !bytes.is_empty());
            is_complete.then_some(bytes)
        }
        Protocol::Dns => {
            let (length, rest) = bytes.split_first_chunk()?;
            rest.get(..usize::from(u16::from_be_bytes(*length)))
        }
    }
}

fn answer(protocol: Protocol, message: &[u8]) -> Option<(Vec<u8>, Option<WantedHost>)> {
    match protocol {
        Protocol::Http => Some(http::answer(message)),
        Protocol::Dns => {
            let (answer, wanted) = dns::answer(message)?;
            let length = u16::try_from(answer.len()).ok()?;
            Some(([&length.to_be_bytes(), answer.as_slice()].concat(), wanted))
        }
    }
}
