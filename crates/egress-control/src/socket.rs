//! How messages travel: over a `SOCK_SEQPACKET` socket, each message whole or not at all, some with
//! file descriptors. Every buffer that may hold a credential is erased after use.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
    recvmsg, sendmsg, shutdown, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::message::{Envelope, LISTENERS, MESSAGE_BYTES, Message, Request, VERSION};

/// The owner's end of the socket. Its calls block unless the socket was made non-blocking.
#[derive(Debug)]
pub struct OwnerSocket(OwnedFd);

impl OwnerSocket {
    /// Both ends: the owner's, and the one that the process is started with.
    ///
    /// # Errors
    /// Why there are none (`socketpair(2)`).
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(own), other))
    }

    /// Sends a request, with the descriptors that belong to it.
    ///
    /// # Errors
    /// The process has ended, or the request is too long (`InvalidInput`).
    pub fn send(
        &self,
        number: u64,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        send(&self.0, &Envelope { version: VERSION, number, request }, descriptors)
    }

    /// The next message; `None` once the process has ended.
    ///
    /// # Errors
    /// The message cannot be read, or reading fails.
    pub fn receive(&self) -> io::Result<Option<Message>> {
        Ok(receive(&self.0)?.map(|(message, _)| message))
    }

    /// Sends no more requests. The process reports what is left, and ends.
    pub(crate) fn shut_down_writing(&self) {
        // The process may have ended already.
        let _ = shutdown(&self.0, Shutdown::Write);
    }
}

impl AsFd for OwnerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Writes a message as it is sent.
///
/// # Errors
/// `InvalidInput` for one that is too long.
pub(crate) fn encode(message: &impl Serialize) -> io::Result<Zeroizing<Vec<u8>>> {
    let bytes = Zeroizing::new(serde_json::to_vec(message)?);
    if bytes.len() > MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"));
    }
    Ok(bytes)
}

/// Sends a message that was encoded.
///
/// # Errors
/// `sendmsg(2)` fails, or there are too many descriptors (`InvalidInput`).
pub(crate) fn send_bytes(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "there are too many file descriptors",
        ));
    }
    sendmsg(socket, &[io::IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Sends a message with its descriptors.
///
/// # Errors
/// As [`OwnerSocket::send`].
pub fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    send_bytes(socket, &encode(message)?, descriptors)
}

/// The next message and its descriptors; `None` once the other end is closed.
///
/// # Errors
/// `InvalidData` for a message that is too long or malformed; else why reading fails.
pub fn receive<M: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut bytes = Zeroizing::new(vec![0; MESSAGE_BYTES]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(LISTENERS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [io::IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = descriptors.flatten().collect();
    if received.bytes == 0 {
        return Ok(None);
    }
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(broken("the message is too long, or has too many file descriptors"));
    }
    let message = serde_json::from_slice(bytes.get(..received.bytes).unwrap_or_default());
    Ok(Some((message.map_err(|error| broken(&error.to_string()))?, descriptors)))
}
