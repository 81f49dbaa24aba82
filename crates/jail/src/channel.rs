//! The socket between the supervisor and a jail's init: small messages, each transferred completely
//! or not at all, some with file descriptors.
//!
//! Messages from init are parsed defensively: an invalid message is an error, never a guess.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    recvmsg, sendmsg, socketpair,
};

use crate::spec::ContainerSettings;
use crate::walls::Wall;

/// The maximal size of a message, in bytes.
pub(crate) const MESSAGE_BYTES: usize = 8 * 1024;
/// The maximal length of a step that init reports, in bytes.
const STEP_BYTES: usize = 1024;
const DESCRIPTORS: usize = 160;
/// How many connections may wait for init.
const BACKLOG: i32 = 16;

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

/// A message of the supervisor to init.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ToInit {
    /// Ids are mapped and control groups joined: enable the walls. Carries the mapped trees.
    Proceed,
    /// Send this signal to the command's process group.
    Signal(i32),
    /// Serve with these settings on the socket that this carries: for an init in a container that
    /// another engine has made.
    Serve(ContainerSettings),
}

/// A message of init to the supervisor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FromInit {
    /// A step failed; nothing of the command has run.
    Failed {
        /// The wall that could not be enabled.
        wall: Wall,
        /// The kernel's error number.
        errno: i32,
        /// The step, as text.
        step: String,
    },
    /// All walls that init itself enables are enabled. Carries the terminal, the upper layer where
    /// that is in memory, the root, the mount namespace, the listener for refused calls, and the
    /// listeners of the network, in this order.
    Ready {
        /// Whether a terminal is carried.
        terminal: bool,
        /// Whether an upper layer is carried.
        upper: bool,
        /// Whether the root is carried.
        root: bool,
        /// Whether the mount namespace is carried.
        mounts: bool,
        /// Whether the listener for refused calls is carried.
        refused_calls: bool,
        /// Whether init keeps that listener, because it follows renames.
        follows_renames: bool,
        /// Whether the listeners of the network are carried.
        listeners: bool,
        /// Whether `/proc` had to be omitted.
        proc_missing: bool,
        /// Landlock's version; 0 where the kernel has none.
        landlock: i32,
    },
    /// The command's directory could not be entered.
    EnterFailed {
        /// The kernel's error number.
        errno: i32,
    },
    /// The program could not be run.
    ExecFailed {
        /// The kernel's error number.
        errno: i32,
    },
    /// The filter has refused a system call, in a jail whose init hears of that.
    RefusedCall {
        /// The number of the call.
        number: u32,
    },
    /// The command ended and nothing else is alive.
    Ended {
        /// The status as `wait(2)` gives it.
        status: i32,
    },
}

impl Channel {
    /// A connected pair.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (a, b) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(a), Self(b)))
    }

    /// The end of a socket that [`Channel::pair`] made, received from another process.
    pub(crate) const fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// The file descriptor of this end, to be given to another process.
    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    /// Connects to a listener that is bound to `name` in a directory. Never blocks; fails with
    /// `WouldBlock` when the backlog of the listener is full.
    pub(crate) fn connect(directory: BorrowedFd<'_>, name: &str) -> io::Result<Self> {
        let socket = new_socket()?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        rustix::net::connect(&socket, &address(directory, name)?)?;
        Ok(Self(socket))
    }

    /// A listener that is bound to `name` in a directory; does not block.
    pub(crate) fn listen(directory: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
        let socket = new_socket()?;
        rustix::net::bind(&socket, &address(directory, name)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(socket)
    }

    /// The next connection to a listener; does not block.
    pub(crate) fn accept(listener: impl AsFd) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Self(rustix::net::accept_with(listener, flags)?))
    }

    pub(crate) fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors))
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        sendmsg(&self.0, &[io::IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Ends the connection, even if other processes hold this end of it too.
    pub(crate) fn shut_down(&self) {
        // The other end may be closed already.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }

    /// The next message and its file descriptors; `None` once the other end is closed.
    pub(crate) fn receive(&self) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            match recvmsg(
                &self.0,
                &mut [io::IoSliceMut::new(&mut bytes)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            ) {
                // The peer closed its end before it had read everything. The kernel reports that
                // once, before the data that the peer had sent.
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
                other => break other?,
            }
        };
        // A truncated message could be taken for another one.
        let cut = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        let descriptors = ancillary
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten()
            .collect();
        if cut {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        bytes.truncate(received.bytes);
        Ok(Some((bytes, descriptors)))
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// The address of a socket in a directory, however long the directory's path is (`unix(7)` allows
/// 108 bytes).
fn address(directory: BorrowedFd<'_>, name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))?)
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl ToInit {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Proceed => vec![b'G'],
            Self::Signal(signal) => [&b"S"[..], &signal.to_le_bytes()].concat(),
            Self::Serve(settings) => {
                let ContainerSettings {
                    user,
                    group,
                    lease,
                    open_files,
                    has_network,
                    writes_to_host,
                } = settings;
                let lease = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
                [
                    &b"V"[..],
                    &user.to_le_bytes(),
                    &group.to_le_bytes(),
                    &lease.to_le_bytes(),
                    &open_files.to_le_bytes(),
                    &[u8::from(*has_network), u8::from(*writes_to_host)],
                ]
                .concat()
            }
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (b'G', []) => Some(Self::Proceed),
            (b'S', rest) => Some(Self::Signal(i32::from_le_bytes(rest.try_into().ok()?))),
            (b'V', rest) => {
                let (user, rest) = rest.split_first_chunk()?;
                let (group, rest) = rest.split_first_chunk()?;
                let (lease, rest) = rest.split_first_chunk()?;
                let (open_files, rest) = rest.split_first_chunk()?;
                let [has_network @ 0..=1, writes_to_host @ 0..=1] = rest else { return None };
                Some(Self::Serve(ContainerSettings {
                    user: u32::from_le_bytes(*user),
                    group: u32::from_le_bytes(*group),
                    lease: Duration::from_millis(u64::from_le_bytes(*lease)),
                    open_files: u64::from_le_bytes(*open_files),
                    has_network: *has_network == 1,
                    writes_to_host: *writes_to_host == 1,
                }))
            }
            _ => None,
        }
    }
}

impl FromInit {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Failed { wall, errno, step } => {
                let mut bytes = vec![b'F', *wall as u8];
                bytes.extend(errno.to_le_bytes());
                bytes.extend(step.bytes().take(STEP_BYTES));
                bytes
            }
            Self::Ready {
                terminal,
                upper,
                root,
                mounts,
                refused_calls,
                follows_renames,
                listeners,
                proc_missing,
                landlock,
            } => {
                let carried = [terminal, upper, root, mounts, refused_calls];
                let flags = [&carried[..], &[follows_renames, listeners, proc_missing]].concat();
                let flags: Vec<_> = flags.into_iter().map(|flag| u8::from(*flag)).collect();
                let mut bytes = [&b"R"[..], &flags].concat();
                bytes.extend(landlock.to_le_bytes());
                bytes
            }
            Self::EnterFailed { errno } => [&b"D"[..], &errno.to_le_bytes()].concat(),
            Self::ExecFailed { errno } => [&b"X"[..], &errno.to_le_bytes()].concat(),
            Self::RefusedCall { number } => [&b"C"[..], &number.to_le_bytes()].concat(),
            Self::Ended { status } => [&b"E"[..], &status.to_le_bytes()].concat(),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |rest: &[u8]| Some(i32::from_le_bytes(rest.try_into().ok()?));
        match bytes.split_first()? {
            (b'F', rest) => {
                let (wall, rest) = rest.split_first()?;
                let (errno, step) = rest.split_at_checked(4)?;
                Some(Self::Failed {
                    wall: Wall::from_index(*wall)?,
                    errno: number(errno)?,
                    step: String::from_utf8_lossy(step).into_owned(),
                })
            }
            (
                b'R',
                [
                    terminal @ 0..=1,
                    upper @ 0..=1,
                    root @ 0..=1,
                    mounts @ 0..=1,
                    refused_calls @ 0..=1,
                    follows_renames @ 0..=1,
                    listeners @ 0..=1,
                    proc_missing @ 0..=1,
                    rest @ ..,
                ],
            ) => Some(Self::Ready {
                terminal: *terminal == 1,
                upper: *upper == 1,
                root: *root == 1,
                mounts: *mounts == 1,
                refused_calls: *refused_calls == 1,
                follows_renames: *follows_renames == 1,
                listeners: *listeners == 1,
                proc_missing: *proc_missing == 1,
                landlock: number(rest)?,
            }),
            (b'D', rest) => Some(Self::EnterFailed { errno: number(rest)? }),
            (b'X', rest) => Some(Self::ExecFailed { errno: number(rest)? }),
            (b'C', rest) => Some(Self::RefusedCall { number: number(rest)?.cast_unsigned() }),
            (b'E', rest) => Some(Self::Ended { status: number(rest)? }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_survives_the_way() {
        for message in [
            FromInit::Failed { wall: Wall::View, errno: 22, step: "mount the overlay".into() },
            FromInit::Ready {
                terminal: true,
                upper: false,
                root: true,
                mounts: false,
                refused_calls: true,
                follows_renames: false,
                listeners: true,
                proc_missing: true,
                landlock: 7,
            },
            FromInit::EnterFailed { errno: 13 },
            FromInit::ExecFailed { errno: 2 },
            FromInit::RefusedCall { number: 250 },
            FromInit::Ended { status: 256 },
        ] {
            assert_eq!(FromInit::decode(&message.encode()), Some(message));
        }
        let settings = ContainerSettings {
            user: 1000,
            group: 7,
            lease: Duration::from_secs(60),
            open_files: 1024,
            has_network: true,
            writes_to_host: false,
        };
        for message in [ToInit::Proceed, ToInit::Signal(15), ToInit::Serve(settings)] {
            assert!(message.encode().len() <= MESSAGE_BYTES);
            assert_eq!(ToInit::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn the_last_words_of_who_did_not_listen_are_heard() {
        let (ours, theirs) = Channel::pair().unwrap();
        ours.send(b"unread", &[]).unwrap();
        theirs.send(b"last words", &[]).unwrap();
        drop(theirs);
        assert_eq!(ours.receive().unwrap().unwrap().0, b"last words");
        assert!(ours.receive().unwrap().is_none());
    }

    #[test]
    fn nobody_waits_for_a_listener_that_takes_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let directory = std::fs::File::open(dir.path()).unwrap();
        let _listener = Channel::listen(directory.as_fd(), "init").unwrap();
        let connect = || Channel::connect(directory.as_fd(), "init");
        let mut waiting = Vec::new();
        let refused = loop {
            assert!(waiting.len() < 1000, "there is always room");
            match connect() {
                Ok(channel) => waiting.push(channel),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn anything_else_is_refused() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        for length in 0..40 {
            for _ in 0..200 {
                let bytes: Vec<u8> = (0..length)
                    .map(|_| {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        state.to_le_bytes()[3]
                    })
                    .collect();
                if let Some(message) = FromInit::decode(&bytes)
                    && !matches!(message, FromInit::Failed { .. })
                {
                    assert_eq!(message.encode(), bytes);
                }
            }
        }
    }

    #[test]
    fn descriptors_travel_and_a_closed_end_is_told() {
        let (a, b) = Channel::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        a.send(&ToInit::Proceed.encode(), &[file.as_fd()]).unwrap();
        let (bytes, descriptors) = b.receive().unwrap().unwrap();
        assert_eq!(ToInit::decode(&bytes), Some(ToInit::Proceed));
        assert_eq!(descriptors.len(), 1);
        drop(a);
        assert!(b.receive().unwrap().is_none());
    }
}
