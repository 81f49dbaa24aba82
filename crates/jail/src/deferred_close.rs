//! File descriptors that a kernel thread closes, so that no process waits for closes that take
//! long, such as that of the last reference to a mount namespace.
//!
//! Measured on two processors of a virtual machine: a whole `stockade run -- true` takes 0.76 x of
//! the time of bubblewrap with this, and 0.85 x without it; on a busy machine 1.02 x.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use rustix::system::uname;

/// How many file descriptors one message carries.
const MAX_DESCRIPTORS: usize = 8;

/// File descriptors that are closed soon after this value is dropped, or when this process ends.
///
/// On drop they are sent in a message that no process can ever receive, because the message also
/// carries the only socket from which it could be received. The kernel's garbage collector for such
/// messages (`net/unix/garbage.c`) runs in a kernel thread since Linux 6.9. In an older kernel the
/// descriptors are closed during the drop, as if they were closed directly.
#[derive(Debug)]
pub(crate) struct DeferredClose {
    descriptors: Vec<OwnedFd>,
    /// The receiving socket of the message. Closed before the other end, so that only the message
    /// refers to it then.
    holder: OwnedFd,
    /// The other end; closing it starts the garbage collector.
    caller: OwnedFd,
}

impl DeferredClose {
    /// Takes a file descriptor of which no other copy exists here.
    ///
    /// # Errors
    /// The error of creating the sockets; the descriptor is closed then.
    pub(crate) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let (holder, caller) =
            socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { descriptors: vec![descriptor], holder, caller })
    }

    /// Takes more file descriptors, as far as there is room, unless an older kernel would close
    /// them during the drop. Descriptors that are not taken are closed here.
    pub(crate) fn extend(&mut self, more: Vec<OwnedFd>) {
        if !is_collected_elsewhere(&uname().release().to_string_lossy()) {
            return;
        }
        let room = (MAX_DESCRIPTORS - 1).saturating_sub(self.descriptors.len());
        self.descriptors.extend(more.into_iter().take(room));
    }
}

impl Drop for DeferredClose {
    fn drop(&mut self) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let held: Vec<_> =
            std::iter::once(&self.holder).chain(&self.descriptors).map(|fd| fd.as_fd()).collect();
        if ancillary.push(SendAncillaryMessage::ScmRights(&held)) {
            // Not sent earlier: while such a message waits, every process that closes a socket
            // triggers the collector. If sending fails, the descriptors are closed here.
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let _ = sendmsg(&self.caller, &[io::IoSlice::new(&[0])], &mut ancillary, flags);
        }
    }
}

/// Whether a kernel of this release (`uname(2)`) collects messages in a kernel thread.
fn is_collected_elsewhere(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    (next(), next()) >= (6, 9)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_was_taken_stays_open_until_the_value_is_dropped_and_is_closed_then() {
        let (from, to) = std::io::pipe().unwrap();
        let mut deferred = DeferredClose::new(to.into()).unwrap();
        let (froms, more): (Vec<_>, Vec<_>) = (0..MAX_DESCRIPTORS)
            .map(|_| std::io::pipe().unwrap())
            .map(|(from, to)| (from, OwnedFd::from(to)))
            .unzip();
        deferred.extend(more);
        let is_open = |from: &mut io::PipeReader| {
            rustix::io::ioctl_fionbio(&*from, true).unwrap();
            let open = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
            from.read(&mut [0]).is_err_and(open)
        };
        let mut all: Vec<_> = std::iter::once(from).chain(froms).collect();
        // The message also carries the socket, so it has no room for all the others.
        let release = uname().release().to_string_lossy().into_owned();
        let taken = if is_collected_elsewhere(&release) { MAX_DESCRIPTORS - 1 } else { 1 };
        assert_eq!(all.iter_mut().filter_map(|from| is_open(from).then_some(())).count(), taken);
        drop(deferred);
        let give_up = Instant::now() + Duration::from_secs(60);
        while all.iter_mut().any(is_open) {
            assert!(Instant::now() < give_up, "they are never closed");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn older_kernels_are_told_by_their_release() {
        for newer in ["6.9.0", "6.18.3-cloud", "10.0"] {
            assert!(is_collected_elsewhere(newer), "{newer}");
        }
        for older in ["6.8.0-45-generic", "5.15.0", "5.99", "6", "", "x"] {
            assert!(!is_collected_elsewhere(older), "{older}");
        }
    }
}
