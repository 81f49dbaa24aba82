//! A connection to the keeper for asynchronous code. It transports messages and interprets only the
//! greeting.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::readiness::watched;
use crate::socket::{Message, Packet, Socket};
use crate::wire::{Answer, Failure, PROTOCOL, Request};

/// A connection to the keeper.
#[derive(Debug)]
pub(super) struct Channel(AsyncFd<Socket>);

impl Channel {
    /// A connection for the async runtime of the caller.
    pub(super) fn new(socket: Socket) -> io::Result<Self> {
        watched(socket, Interest::READABLE).map(Self)
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
        // Registered only now; otherwise everything that the keeper reads would wake this process.
        let socket = watched(self.0.get_ref().try_clone()?, Interest::WRITABLE)?;
        socket.async_io(Interest::WRITABLE, |socket| socket.send(packet, descriptors)).await
    }

    /// The next message; `None` once the keeper has closed the connection. Cancel-safe: no message
    /// is lost.
    pub(super) async fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<Message<T>>> {
        self.0.async_io(Interest::READABLE, Socket::receive).await
    }

    /// Whether the keeper is alive and no message waits to be received.
    pub(super) fn is_silent(&self) -> bool {
        let received = self.0.get_ref().receive::<Answer>();
        received.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sends the keeper the greeting.
    pub(super) async fn handshake(&self) -> io::Result<HandshakeResult> {
        let hello = Packet::new(&Request::Hello { protocol: PROTOCOL }, &[])?;
        match self.send(&hello, &[]).await {
            // It may have sent the reason before it closed the connection.
            Err(error) if is_loss(&error) => {}
            other => other?,
        }
        match self.receive().await? {
            None => Ok(HandshakeResult::Gone),
            Some(Message { head: Answer::Hello { protocol, .. }, .. }) => {
                Ok(HandshakeResult::Version(protocol))
            }
            Some(Message { head: Answer::Failed(failure), .. }) => {
                Ok(HandshakeResult::Refused(failure))
            }
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// The response to a greeting.
#[derive(Debug)]
pub(super) enum HandshakeResult {
    /// The keeper speaks this version of the messages.
    Version(u32),
    /// It accepts no client.
    Refused(Failure),
    /// It closed the connection meanwhile.
    Gone,
}

/// Whether an error means that the peer has closed the connection.
pub(super) fn is_loss(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Whether descriptors, processes or memory of this host have run out.
pub(super) fn is_exhausted(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::AGAIN];
    errno.is_some_and(|errno| exhausted.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_run_out_is_told_from_what_is_broken() {
        let is = |errno: Errno| is_exhausted(&errno.into());
        assert!(is(Errno::MFILE) && is(Errno::NFILE) && is(Errno::AGAIN));
        assert!(!is(Errno::CONNREFUSED) && !is_exhausted(&io::Error::other("broken")));
    }
}
