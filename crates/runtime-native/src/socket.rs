//! The transport of the messages of `wire` between a client and the keeper: atomic messages on a
//! SEQPACKET socket in the data directory, some with descriptors.
//!
//! A message that is longer than [`MESSAGE_BYTES`] is sent in a sealed file in memory. This framing
//! never changes: [`PROTOCOL`](super::wire::PROTOCOL) requires that of the messages that make a
//! keeper of another version drain. No function here waits: a socket that is not ready returns
//! `WouldBlock`.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{AtFlags, FileType, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::wire::{self, MESSAGE_BYTES};
use stockade_plan::wipe::{wipe, wipe_all};

/// The maximal length of any message, in bytes.
pub(crate) const LONGEST_BYTES: usize = 64 * 1024 * 1024;
/// How many descriptors one message carries at most, including the file of a long message.
const DESCRIPTORS: usize = 16;
/// How many connections may wait to be accepted; the kernel's own bound may be lower.
const BACKLOG: i32 = 4096;

/// The first byte of a packet that contains the message.
const INLINE: u8 = 0;
/// The only byte of a packet whose message is in the file of the last descriptor.
const IN_FILE: u8 = 1;

const SEALS: SealFlags =
    SealFlags::GROW.union(SealFlags::SHRINK).union(SealFlags::WRITE).union(SealFlags::SEAL);

thread_local! {
    /// The buffer for received messages until they are decoded: clearing room for the longest
    /// message takes longer than receiving most messages.
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

/// A socket that accepts connections.
#[derive(Debug)]
pub(crate) struct Listener(OwnedFd);

/// An encoded message; may be sent more than once.
#[derive(Debug)]
pub(crate) struct Packet {
    bytes: Vec<u8>,
    file: Option<OwnedFd>,
}

/// A received message.
#[derive(Debug)]
pub(crate) struct Message<T> {
    /// The decoded head.
    pub(crate) head: T,
    /// The body.
    pub(crate) body: Vec<u8>,
    /// The descriptors of the message; all are close-on-exec.
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Packet {
    /// Encodes a packet with `head` and `body`.
    ///
    /// # Errors
    /// `InvalidInput` when the two together are longer than [`LONGEST_BYTES`] or `head` has no JSON
    /// form; else the error of creating the file in memory.
    pub(crate) fn new(head: &impl Serialize, body: &[u8]) -> io::Result<Self> {
        let message = wire::encode(head, body)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        if message.len() > LONGEST_BYTES {
            let what = format!("a message of {} bytes is too long", message.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        if message.len() < MESSAGE_BYTES {
            let bytes = [&[INLINE], &message[..]].concat();
            wipe_all([message]);
            return Ok(Self { bytes, file: None });
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(rustix::fs::memfd_create("message", flags)?);
        file.write_all(&message)?;
        wipe_all([message]);
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Ok(Self { bytes: vec![IN_FILE], file: Some(file.into()) })
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        wipe(&mut self.bytes);
    }
}

impl Socket {
    /// Connects to a listener that is bound to `name` in a directory.
    ///
    /// # Errors
    /// `ConnectionRefused` or `NotFound` when no process listens there, `WouldBlock` when too many
    /// connections wait to be accepted.
    pub(crate) fn connect(directory: BorrowedFd<'_>, name: &str) -> io::Result<Self> {
        // The kernel would follow a link to another socket.
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let socket = new_socket()?;
        rustix::net::connect(&socket, &address(directory, name)?)?;
        Ok(Self(socket))
    }

    /// Two ends of a connection that waits: neither end returns `WouldBlock`.
    pub(crate) fn waiting_pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let kind = SocketType::SEQPACKET;
        let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((Self(one), other))
    }

    /// An end of a connection that this process has got.
    pub(crate) const fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Another descriptor of the same connection.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Sends a packet with descriptors.
    ///
    /// # Errors
    /// `WouldBlock` while the peer does not read; `BrokenPipe` when it has closed the connection.
    pub(crate) fn send(&self, packet: &Packet, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut descriptors = descriptors.to_vec();
        descriptors.extend(packet.file.as_ref().map(AsFd::as_fd));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors))
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let bytes = [io::IoSlice::new(&packet.bytes)];
        rustix::io::retry_on_intr(|| {
            sendmsg(&self.0, &bytes, &mut ancillary, SendFlags::NOSIGNAL)
        })?;
        Ok(())
    }

    /// The next message; `None` once the peer has closed the connection.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; `InvalidData` for an invalid message; `EMFILE` when this
    /// process has no room for its descriptors, which are lost.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<Message<T>>> {
        RECEIVED.with_borrow_mut(|bytes| {
            bytes.resize(MESSAGE_BYTES, 0);
            self.receive_in(bytes)
        })
    }

    fn receive_in<T: DeserializeOwned>(&self, bytes: &mut [u8]) -> io::Result<Option<Message<T>>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut is_reset = false;
        let received = loop {
            let buffers = &mut [io::IoSliceMut::new(bytes)];
            match recvmsg(&self.0, buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                // The peer closed the connection with unread data. The kernel reports that before
                // the peer's last messages.
                Err(Errno::CONNRESET) if !is_reset => is_reset = true,
                Err(Errno::CONNRESET | Errno::AGAIN) if is_reset => return Ok(None),
                other => break other?,
            }
        };
        let mut descriptors: Vec<OwnedFd> = ancillary
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten()
            .collect();
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Errno::MFILE.into());
        }
        // A truncated message could be taken for another one.
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let message = match bytes.get(..received.bytes).and_then(<[u8]>::split_first) {
            None => return Ok(None),
            Some((&INLINE, message)) => decode(message),
            Some((&IN_FILE, [])) => match descriptors.pop() {
                Some(file) => {
                    let mut bytes = unsealed(&file.into())?;
                    let decoded = decode(&bytes);
                    wipe(&mut bytes);
                    decoded
                }
                None => None,
            },
            Some(_) => None,
        };
        wipe(&mut bytes[..received.bytes]);
        let (head, body) = message.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(Message { head, body, descriptors }))
    }
}

impl Listener {
    /// A listener at `name` in a directory, which atomically replaces an existing socket. A client
    /// connects to the old one or to this one; there is no gap.
    pub(crate) fn bind(directory: BorrowedFd<'_>, name: &str) -> io::Result<Self> {
        let new = format!("{name}.new");
        match rustix::fs::unlinkat(directory, &new, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let socket = new_socket()?;
        rustix::net::bind(&socket, &address(directory, &new)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        rustix::fs::renameat(directory, &new, directory, name)?;
        Ok(Self(socket))
    }

    /// The next connection.
    ///
    /// # Errors
    /// `WouldBlock` when there is none.
    pub(crate) fn accept(&self) -> io::Result<Socket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Socket(rustix::net::accept_with(&self.0, flags)?))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::os::fd::AsRawFd for Socket {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn decode<T: DeserializeOwned>(message: &[u8]) -> Option<(T, Vec<u8>)> {
    wire::decode(message).map(|(head, body)| (head, body.to_vec()))
}

/// The content of a file, if its sender cannot change it any more.
fn unsealed(file: &File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST_BYTES);
    let sealed = rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS));
    let (Some(length), true) = (length, sealed) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// The address of a socket in a directory, for a directory path of any length (`unix(7)` allows 108
/// bytes).
fn address(directory: BorrowedFd<'_>, name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::path::Path;

    use super::*;
    use crate::wire::{Answer, Request};

    fn directory(path: &Path) -> File {
        let flags = OFLAGS_PATH;
        std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).unwrap()
    }

    const OFLAGS_PATH: i32 = rustix::fs::OFlags::PATH.bits().cast_signed();

    fn pair() -> (Socket, Socket) {
        let scratch = tempfile::tempdir().unwrap();
        let directory = directory(scratch.path());
        let listener = Listener::bind(directory.as_fd(), "socket").unwrap();
        let client = Socket::connect(directory.as_fd(), "socket").unwrap();
        (client, listener.accept().unwrap())
    }

    fn hello() -> Packet {
        Packet::new(&Request::Hello { protocol: 7 }, b"").unwrap()
    }

    #[test]
    fn messages_and_descriptors_arrive_as_they_were_sent() {
        let (client, keeper) = pair();
        let would_block = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        assert!(keeper.receive::<Request>().is_err_and(would_block));
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"content").unwrap();
        client.send(&hello(), &[file.as_fd()]).unwrap();
        let message = keeper.receive::<Request>().unwrap().unwrap();
        assert_eq!((message.head, message.body.len()), (Request::Hello { protocol: 7 }, 0));
        let [received] = <[OwnedFd; 1]>::try_from(message.descriptors).unwrap();
        assert!(rustix::io::fcntl_getfd(&received).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        let mut bytes = [0; 7];
        File::from(received).read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"content");
    }

    #[test]
    fn a_message_of_any_length_arrives() {
        let (client, keeper) = pair();
        let file = tempfile::tempfile().unwrap();
        let empty = Packet::new(&Request::Metrics, b"").unwrap().bytes.len();
        let just = MESSAGE_BYTES - empty;
        for (length, inline) in [(0, true), (just, true), (just + 1, false), (1_000_000, false)] {
            let body = vec![7; length];
            let packet = Packet::new(&Request::Metrics, &body).unwrap();
            assert_eq!(packet.file.is_none(), inline, "{length}");
            client.send(&packet, &[file.as_fd()]).unwrap();
            let message = keeper.receive::<Request>().unwrap().unwrap();
            assert!(message.head == Request::Metrics && message.body == body, "{length}");
            assert_eq!(message.descriptors.len(), 1, "{length}");
        }
        assert!(Packet::new(&Request::Metrics, &vec![0; LONGEST_BYTES]).is_err());
    }

    #[test]
    fn a_closed_end_is_told_with_and_without_unread_messages() {
        let (client, keeper) = pair();
        client.send(&hello(), &[]).unwrap();
        drop(keeper);
        assert!(client.receive::<Answer>().unwrap().is_none());
        let broken = |error: io::Error| error.kind() == io::ErrorKind::BrokenPipe;
        assert!(client.send(&hello(), &[]).is_err_and(broken));
        let (client, keeper) = pair();
        drop(client);
        assert!(keeper.receive::<Request>().unwrap().is_none());
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let (client, keeper) = pair();
        let raw = |bytes: Vec<u8>| {
            client.send(&Packet { bytes, file: None }, &[]).unwrap();
            keeper.receive::<Request>().unwrap_err().kind()
        };
        for bytes in [
            vec![2],
            vec![INLINE],
            vec![IN_FILE],
            vec![INLINE, 200, 0, 0, 0, b'{'],
            [&[INLINE, 2, 0, 0, 0][..], b"{}"].concat(),
            vec![INLINE; MESSAGE_BYTES + 1],
        ] {
            assert_eq!(raw(bytes), io::ErrorKind::InvalidData);
        }
        // A file that its sender could still change.
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&wire::encode(&Request::Metrics, b"").unwrap()).unwrap();
        client.send(&Packet { bytes: vec![IN_FILE], file: Some(file.into()) }, &[]).unwrap();
        let refused = keeper.receive::<Request>().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_directory_may_have_a_long_path_and_a_listener_a_predecessor() {
        let scratch = tempfile::tempdir().unwrap();
        let long = scratch.path().join("d".repeat(200));
        std::fs::create_dir(&long).unwrap();
        let directory = directory(&long);
        let kind = |result: io::Result<Socket>| result.unwrap_err().kind();
        assert_eq!(kind(Socket::connect(directory.as_fd(), "s")), io::ErrorKind::NotFound);
        drop(Listener::bind(directory.as_fd(), "s").unwrap());
        assert_eq!(kind(Socket::connect(directory.as_fd(), "s")), io::ErrorKind::ConnectionRefused);
        let listener = Listener::bind(directory.as_fd(), "s").unwrap();
        let _client = Socket::connect(directory.as_fd(), "s").unwrap();
        listener.accept().unwrap();
        assert_eq!(std::fs::read_dir(&long).unwrap().count(), 1);
    }
}
