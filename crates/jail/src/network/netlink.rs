//! Messages of `netlink(7)`: written by the compiler, so that whoever sends them allocates nothing,
//! and sent.

use rustix::io::Errno;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// How much there can be in [`Bytes`]. What is more does not compile.
const ROOM: usize = 1536;
/// How much of an answer is read: its header, the error, and the header that is answered to.
const ANSWER_BYTES: usize = 64;
/// `NLA_F_NESTED` of linux/netlink.h: the value is made of attributes.
const NESTED: u16 = 0x8000;

/// Flags of a message (linux/netlink.h): that it is a request, which is to be answered, and which is
/// to make what is not there yet, and at the end of what is there.
pub(super) const REQUEST: u16 = 0x1;
pub(super) const ANSWER: u16 = 0x4;
pub(super) const CREATE: u16 = 0x400;
pub(super) const APPEND: u16 = 0x800;
/// `NLMSG_ERROR`: the kind of every answer; that nothing is wrong is the error 0.
const ERROR: u16 = 2;

/// A part of a message, or several of them.
#[derive(Debug)]
pub(super) struct Bytes {
    all: [u8; ROOM],
    length: usize,
}

impl Bytes {
    pub(super) const fn of(content: &[u8]) -> Self {
        Self { all: [0; ROOM], length: 0 }.and(content)
    }

    /// A number as the protocols of the net have it.
    pub(super) const fn number(value: u32) -> Self {
        Self::of(&value.to_be_bytes())
    }

    /// This, and after it another one.
    pub(super) const fn then(self, next: &Self) -> Self {
        self.and(next.as_slice())
    }

    pub(super) const fn as_slice(&self) -> &[u8] {
        self.all.split_at(self.length).0
    }

    const fn and(mut self, content: &[u8]) -> Self {
        let mut at = 0;
        while at < content.len() {
            self.all[self.length] = content[at];
            self.length += 1;
            at += 1;
        }
        self
    }

    /// Zeros up to a multiple of four bytes, where the next part may begin.
    const fn aligned(mut self) -> Self {
        self.length = self.length.next_multiple_of(4);
        assert!(self.length <= ROOM, "the buffer is too small for it");
        self
    }
}

/// An attribute: its length, its kind and its value.
pub(super) const fn attribute(kind: u16, value: &Bytes) -> Bytes {
    #[expect(clippy::cast_possible_truncation, reason = "at most the room and four more")]
    let length = (4 + value.length) as u16;
    Bytes::of(&length.to_ne_bytes()).and(&kind.to_ne_bytes()).then(value).aligned()
}

/// An attribute that is made of attributes.
pub(super) const fn nested(kind: u16, attributes: &Bytes) -> Bytes {
    attribute(kind | NESTED, attributes)
}

/// A whole message. The answer to it has its number.
pub(super) const fn message(kind: u16, flags: u16, content: &Bytes) -> Bytes {
    #[expect(clippy::cast_possible_truncation, reason = "at most the room and sixteen more")]
    let length = (16 + content.length) as u32;
    Bytes::of(&length.to_ne_bytes())
        .and(&kind.to_ne_bytes())
        .and(&flags.to_ne_bytes())
        // A number of the message and one of the sender, for those who ask much at once.
        .and(&[0; 8])
        .then(content)
}

/// Sends messages of which one asks for an answer, and gives what the kernel says: the first thing
/// that is wrong with any of them, or that nothing is.
///
/// # Errors
/// What the kernel refused, or `EPROTO` where it says nothing.
pub(super) fn ask(protocol: Option<Protocol>, messages: &[u8]) -> rustix::io::Result<()> {
    let kind = SocketType::RAW;
    let socket = socket_with(AddressFamily::NETLINK, kind, SocketFlags::CLOEXEC, protocol)?;
    send(&socket, messages, SendFlags::empty())?;
    let mut answer = [0; ANSWER_BYTES];
    // The kernel has answered before it let go of the sender.
    let (length, _) = match recv(&socket, &mut answer, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
        Err(Errno::AGAIN) => return Err(Errno::PROTO),
        received => received?,
    };
    verdict(&answer, length)
}

/// What an answer says.
fn verdict(answer: &[u8; ANSWER_BYTES], length: usize) -> rustix::io::Result<()> {
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
        let name = attribute(1, &Bytes::of(b"lo\0"));
        let both = nested(4, &name.then(&attribute(2, &Bytes::number(7))));
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
            let mut bytes = [0; ANSWER_BYTES];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes[16..20].copy_from_slice(&error.to_ne_bytes());
            bytes
        };
        assert_eq!(verdict(&answer(ERROR, 0), 36), Ok(()));
        assert_eq!(verdict(&answer(ERROR, -2), 36), Err(Errno::NOENT));
        assert_eq!(verdict(&answer(ERROR, 0), 19), Err(Errno::PROTO));
        assert_eq!(verdict(&answer(3, 0), 36), Err(Errno::PROTO));
    }
}
