//! Messages of `netlink(7)`: built at compile time, so that sending them allocates nothing.

use rustix::io::Errno;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// The capacity of [`Bytes`]. Larger content does not compile.
const ROOM: usize = 1536;
/// How much of an answer is read: its header, the error, and the header of the request.
const ACK_BYTES: usize = 64;
/// `NLA_F_NESTED` of linux/netlink.h: the value consists of attributes.
const NESTED: u16 = 0x8000;

/// Flags of a message (linux/netlink.h): a request, which must be answered, and which must create
/// what does not exist yet, at the end of the existing list.
pub(super) const REQUEST: u16 = 0x1;
pub(super) const ACK: u16 = 0x4;
pub(super) const CREATE: u16 = 0x400;
pub(super) const APPEND: u16 = 0x800;
/// `NLMSG_ERROR`: the type of every answer; success is the error 0.
const ERROR: u16 = 2;

/// One or several parts of a message.
#[derive(Debug)]
pub(super) struct Bytes {
    all: [u8; ROOM],
    length: usize,
}

impl Bytes {
    pub(super) const fn from_slice(content: &[u8]) -> Self {
        Self { all: [0; ROOM], length: 0 }.push(content)
    }

    /// A number in network byte order.
    pub(super) const fn number(value: u32) -> Self {
        Self::from_slice(&value.to_be_bytes())
    }

    /// This followed by another one.
    pub(super) const fn append(self, next: &Self) -> Self {
        self.push(next.as_slice())
    }

    pub(super) const fn as_slice(&self) -> &[u8] {
        self.all.split_at(self.length).0
    }

    const fn push(mut self, content: &[u8]) -> Self {
        let mut at = 0;
        while at < content.len() {
            self.all[self.length] = content[at];
            self.length += 1;
            at += 1;
        }
        self
    }

    /// Pads with zeros to a multiple of four bytes, where the next part may start.
    const fn aligned(mut self) -> Self {
        self.length = self.length.next_multiple_of(4);
        assert!(self.length <= ROOM, "the buffer is too small for it");
        self
    }
}

/// An attribute: its length, its type and its value.
pub(super) const fn attribute(kind: u16, value: &Bytes) -> Bytes {
    #[expect(clippy::cast_possible_truncation, reason = "at most the room and four more")]
    let length = (4 + value.length) as u16;
    Bytes::from_slice(&length.to_ne_bytes()).push(&kind.to_ne_bytes()).append(value).aligned()
}

/// An attribute that consists of attributes.
pub(super) const fn nested(kind: u16, attributes: &Bytes) -> Bytes {
    attribute(kind | NESTED, attributes)
}

/// A whole message. The answer to it has its sequence number.
pub(super) const fn message(kind: u16, flags: u16, content: &Bytes) -> Bytes {
    #[expect(clippy::cast_possible_truncation, reason = "at most the room and sixteen more")]
    let length = (16 + content.length) as u32;
    Bytes::from_slice(&length.to_ne_bytes())
        .push(&kind.to_ne_bytes())
        .push(&flags.to_ne_bytes())
        // The sequence number and the port number, which only senders of several requests need.
        .push(&[0; 8])
        .append(content)
}

/// Sends messages of which one requests an answer, and returns the kernel's answer: the first error
/// of any of them, or success.
///
/// # Errors
/// The kernel's error, or `EPROTO` where it sends no valid answer.
pub(super) fn request(protocol: Option<Protocol>, messages: &[u8]) -> rustix::io::Result<()> {
    let kind = SocketType::RAW;
    let socket = socket_with(AddressFamily::NETLINK, kind, SocketFlags::CLOEXEC, protocol)?;
    send(&socket, messages, SendFlags::empty())?;
    let mut answer = [0; ACK_BYTES];
    // The kernel has answered before the send call returned.
    let (length, _) = match recv(&socket, &mut answer, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
        Err(Errno::AGAIN) => return Err(Errno::PROTO),
        received => received?,
    };
    parse_ack(&answer, length)
}

/// Interprets an answer.
fn parse_ack(answer: &[u8; ACK_BYTES], length: usize) -> rustix::io::Result<()> {
    let [_, _, _, _, kind_low, kind_high, _, _, _, _, _, _, _, _, _, _, a, b, c, d, ..] = *answer;
    if length < 20 || u16::from_ne_bytes([kind_low, kind_high]) != ERROR {
        return Err(Errno::PROTO);
    }
    match i32::from_ne_bytes([a, b, c, d]) {
        0 => Ok(()),
        error => Err(Errno::from_raw_os_error(error.wrapping_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_end_where_the_next_may_begin() {
        let name = attribute(1, &Bytes::from_slice(b"lo\0"));
        let both = nested(4, &name.append(&attribute(2, &Bytes::number(7))));
        let expected =
            [20, 0, 4, 0x80, 7, 0, 1, 0, b'l', b'o', 0, 0, 8, 0, 2, 0, 0, 0, 0, 7].map(u8::from);
        if cfg!(target_endian = "little") {
            assert_eq!(both.as_slice(), expected);
        }
        assert_eq!(message(24, REQUEST, &both).as_slice().len(), 36);
    }

    #[test]
    fn an_answer_that_is_none_is_an_error() {
        let answer = |kind: u16, error: i32| {
            let mut bytes = [0; ACK_BYTES];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes[16..20].copy_from_slice(&error.to_ne_bytes());
            bytes
        };
        assert_eq!(parse_ack(&answer(ERROR, 0), 36), Ok(()));
        assert_eq!(parse_ack(&answer(ERROR, -2), 36), Err(Errno::NOENT));
        assert_eq!(parse_ack(&answer(ERROR, 0), 19), Err(Errno::PROTO));
        assert_eq!(parse_ack(&answer(3, 0), 36), Err(Errno::PROTO));
    }
}
