//! Descriptors that the kernel closes by itself, in a thread of its own: for what takes long to
//! close and nobody has to wait for.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};

/// A descriptor that is closed soon after this value is dropped. The end of this process closes it too.
///
/// When this is dropped it goes into a message that nobody will ever receive, for the message also
/// holds the only socket that it could be received from. That is what the kernel's collector of such
/// messages is for (`net/unix/garbage.c`), which works in a thread of its own since Linux 6.9. In an
/// older kernel the closing takes place where this is dropped, as if the descriptor were closed there.
#[derive(Debug)]
pub(crate) struct Deferred {
    descriptor: OwnedFd,
    /// Where the message waits. Closed first, so that the message alone holds it.
    holder: OwnedFd,
    /// The other end, whose closing calls the collector.
    caller: OwnedFd,
}

impl Deferred {
    /// Takes a descriptor that nobody else here has.
    ///
    /// # Errors
    /// What making the sockets said; the descriptor is closed then.
    pub(crate) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let (holder, caller) =
            socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { descriptor, holder, caller })
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let held = [self.holder.as_fd(), self.descriptor.as_fd()];
        if ancillary.push(SendAncillaryMessage::ScmRights(&held)) {
            // Not sent before: while such a message waits, whoever closes a socket, here or elsewhere,
            // calls the collector. Where it cannot be sent, the closing takes place here.
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let _ = sendmsg(&self.caller, &[io::IoSlice::new(&[0])], &mut ancillary, flags);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_was_taken_stays_open_until_the_value_is_dropped_and_is_closed_then() {
        let (mut from, to) = std::io::pipe().unwrap();
        let deferred = Deferred::new(to.into()).unwrap();
        rustix::io::ioctl_fionbio(&from, true).unwrap();
        let open = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        assert!(from.read(&mut [0]).is_err_and(open));
        drop(deferred);
        let give_up = Instant::now() + Duration::from_secs(60);
        while from.read(&mut [0]).is_err() {
            assert!(Instant::now() < give_up, "it is never closed");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
