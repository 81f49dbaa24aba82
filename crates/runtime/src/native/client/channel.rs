//! A connection to the keeper for asynchronous code. It carries messages and knows none of them
//! but the greeting.

use std::io;
use std::os::fd::BorrowedFd;

use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::readiness::watched;
use crate::native::socket::{Message, Packet, Socket};
use crate::native::wire::{Answer, PROTOCOL, Request};

/// A connection to the keeper.
#[derive(Debug)]
pub(super) struct Channel(AsyncFd<Socket>);

impl Channel {
    /// A connection for the runtime that this is called in.
    pub(super) fn new(socket: Socket) -> io::Result<Self> {
        watched(socket, Interest::READABLE | Interest::WRITABLE).map(Self)
    }

    /// Sends a packet with descriptors, and waits while the keeper does not read.
    pub(super) async fn send(
        &self,
        packet: &Packet,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        match self.0.get_ref().send(packet, descriptors) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
        self.0.async_io(Interest::WRITABLE, |socket| socket.send(packet, descriptors)).await
    }

    /// The next message; `None` once the keeper is gone. May be cancelled without losing one.
    pub(super) async fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<Message<T>>> {
        self.0.async_io(Interest::READABLE, Socket::receive).await
    }

    /// Whether the keeper lives and has said nothing that was not received.
    pub(super) fn is_silent(&self) -> bool {
        let received = self.0.get_ref().receive::<Answer>();
        received.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Greets the keeper. Gives its version of the messages, or `None` when it went meanwhile.
    pub(super) async fn greet(&self) -> io::Result<Option<u32>> {
        let hello = Packet::new(&Request::Hello { protocol: PROTOCOL }, &[])?;
        match self.send(&hello, &[]).await {
            Err(error) if is_loss(&error) => return Ok(None),
            other => other?,
        }
        match self.receive().await? {
            None => Ok(None),
            Some(Message { head: Answer::Hello { protocol, .. }, .. }) => Ok(Some(protocol)),
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Whether an error says that the other end is gone.
pub(super) fn is_loss(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
