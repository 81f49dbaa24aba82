//! How much follows the head of a request (RFC 9112, sections 6 and 7). The chunked coding is
//! checked byte by byte: no byte after an error, and no byte after the end of a body, is sent
//! outside.

use stockade_core::network::Refusal;

use super::grammar;
use super::names::check_trailer;
use super::other::Other;

/// The most bytes of all trailers.
const TRAILER_BYTES: usize = 8 << 10;
/// The most digits of the size of a chunk, so that it fits into a signed number of 64 bits.
const SIZE_DIGITS: u8 = 15;
/// How much follows a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Exactly so many bytes.
    Bytes(u64),
    /// Chunks, up to the last one.
    Chunked(Chunks),
    /// Any number of bytes, but only once the host has switched to another protocol.
    Switched {
        /// The bytes that have arrived already.
        held: Vec<u8>,
        /// Whether the request is CONNECT.
        is_tunnel: bool,
    },
    /// Any number of bytes of a protocol that is not HTTP, as long as a server cannot read a
    /// request in them.
    Other(Other),
    /// Any number of bytes.
    Open,
}

impl Body {
    /// Splits off the bytes after the head that belong to the body, and returns how much is still
    /// to come.
    ///
    /// # Errors
    /// [`Refusal::InvalidRequest`] for chunks that are invalid.
    pub fn split(mut self, bytes: &[u8]) -> Result<(&[u8], Self), Refusal> {
        let count = self.take(bytes)?;
        if let Self::Switched { held, .. } = &mut self {
            held.extend_from_slice(bytes);
        }
        Ok((bytes.get(..count).unwrap_or_default(), self))
    }

    /// How many of the next bytes may be sent.
    ///
    /// # Errors
    /// [`Refusal::InvalidRequest`] for bytes that must not be sent.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, Refusal> {
        match self {
            Self::Bytes(length) => {
                let count = usize::try_from(*length).unwrap_or(usize::MAX).min(bytes.len());
                *length -= count as u64;
                Ok(count)
            }
            Self::Chunked(chunks) => chunks.take(bytes),
            Self::Switched { .. } => Ok(0),
            Self::Other(other) => other.check(bytes).map(|()| bytes.len()),
            Self::Open => Ok(bytes.len()),
        }
    }

    /// Whether it follows a request, of which there is only one.
    pub const fn is_request(&self) -> bool {
        !matches!(self, Self::Other(_) | Self::Open)
    }

    /// Whether nothing more may follow.
    pub fn is_complete(&self) -> bool {
        match self {
            Self::Bytes(length) => *length == 0,
            Self::Chunked(chunks) => chunks.state == State::Done,
            Self::Switched { .. } | Self::Other(_) | Self::Open => false,
        }
    }
}

/// The position in a chunked body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks {
    state: State,
    /// The current line of the trailers.
    line: Vec<u8>,
    trailer_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the size of a chunk, with the digits so far.
    Size {
        digits: u8,
        size: u64,
    },
    /// After the CR of the size.
    SizeEnd(u64),
    /// In the data, of which so many bytes are still to come.
    Data(u64),
    /// Before the CR and before the LF after the data.
    DataEnd {
        has_cr: bool,
    },
    /// In a line of the trailers.
    Trailer,
    Done,
}

impl Default for Chunks {
    fn default() -> Self {
        let state = State::Size { digits: 0, size: 0 };
        Self { state, line: Vec::new(), trailer_bytes: 0 }
    }
}

impl Chunks {
    /// How many of these bytes belong to the body.
    ///
    /// # Errors
    /// [`Refusal::InvalidRequest`] if they are not chunks.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, Refusal> {
        let mut at = 0;
        while self.state != State::Done
            && let Some(byte) = bytes.get(at)
        {
            if let State::Data(left) = self.state {
                let here = (bytes.len() - at) as u64;
                let count = left.min(here);
                at += usize::try_from(count).unwrap_or(usize::MAX);
                self.state = match left - count {
                    0 => State::DataEnd { has_cr: false },
                    left => State::Data(left),
                };
            } else {
                self.next(*byte).map_err(|what| Refusal::InvalidRequest { what })?;
                at += 1;
            }
        }
        Ok(at.min(bytes.len()))
    }

    fn next(&mut self, byte: u8) -> Result<(), &'static str> {
        self.state = match (self.state, byte) {
            (State::Size { digits: 1.., size }, b'\r') => State::SizeEnd(size),
            (State::Size { digits, size }, byte) => {
                let digit = char::from(byte).to_digit(16);
                let digit = digit.ok_or("the size of a chunk is not a plain hexadecimal number")?;
                if digits >= SIZE_DIGITS || (digits > 0 && size == 0) {
                    return Err("the size of a chunk is too long or begins with a zero");
                }
                State::Size { digits: digits + 1, size: size * 16 + u64::from(digit) }
            }
            (State::SizeEnd(0), b'\n') => State::Trailer,
            (State::SizeEnd(size), b'\n') => State::Data(size),
            (State::DataEnd { has_cr: false }, b'\r') => State::DataEnd { has_cr: true },
            (State::DataEnd { has_cr: true }, b'\n') => State::Size { digits: 0, size: 0 },
            (State::Trailer, byte) => return self.trailer(byte),
            _ => return Err("a chunk does not end with CR LF"),
        };
        Ok(())
    }

    fn trailer(&mut self, byte: u8) -> Result<(), &'static str> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES {
            return Err("the trailers of the request are too long");
        }
        self.line.push(byte);
        let Some((line, _)) = grammar::line(&self.line)? else { return Ok(()) };
        if line.is_empty() {
            self.state = State::Done;
            return Ok(());
        }
        let (name, _) = grammar::field(line)?;
        check_trailer(&name)?;
        self.line.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many bytes are the body, if they are not refused, and whether it has ended.
    fn take(text: &str) -> Option<(usize, bool)> {
        let mut chunks = Chunks::default();
        let count = chunks.take(text.as_bytes()).ok()?;
        Some((count, Body::Chunked(chunks).is_complete()))
    }

    #[test]
    fn chunks_end_where_every_server_ends_them() {
        for text in [
            "0\r\n\r\n",
            "3\r\nabc\r\n0\r\n\r\n",
            "A\r\n0123456789\r\n1\r\n\n\r\n0\r\n\r\n",
            "3\r\nabc\r\n0\r\nX-Sum: 1\r\nX-Other:\r\n\r\n",
        ] {
            assert_eq!(take(text), Some((text.len(), true)), "{text:?}");
            let more = format!("{text}GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
            assert_eq!(take(&more), Some((text.len(), true)), "{text:?}");
            for end in 0..text.len() {
                assert_eq!(take(&text[..end]), Some((end, false)), "{end} of {text:?}");
                let mut chunks = Chunks::default();
                let (one, other) = text.split_at(end);
                assert_eq!(chunks.take(one.as_bytes()), Ok(end));
                assert_eq!(chunks.take(other.as_bytes()), Ok(other.len()), "{end} of {text:?}");
            }
        }
    }

    #[test]
    fn chunks_that_two_servers_read_differently_are_refused() {
        for text in [
            "3;x=y\r\nabc\r\n",
            "3 \r\nabc\r\n",
            " 3\r\nabc\r\n",
            "\r\n3\r\nabc\r\n",
            "+3\r\nabc\r\n",
            "-1\r\n",
            "0x3\r\nabc\r\n",
            "3h\r\nabc\r\n",
            "03\r\nabc\r\n",
            "00\r\n\r\n",
            "3\nabc\r\n",
            "3\r\rabc\r\n",
            "3\r\nabc\n0\r\n\r\n",
            "3\r\nabcd\r\n",
            "3\r\nabc\r\r",
            "3_0\r\nabc",
            "fffffffffffffffff\r\n",
            "8000000000000000\r\n",
            "10000000000000003\r\nabc\r\n",
            "\u{663}\r\nabc\r\n",
            "0\r\nHost: evil.example\r\n\r\n",
            "0\r\nContent-Length: 5\r\n\r\n",
            "0\r\ncontent_length: 5\r\n\r\n",
            "0\r\nX-HTTP-Method-Override: DELETE\r\n\r\n",
            "0\r\nX_Original_URL: /other\r\n\r\n",
            "0\r\nno colon\r\n\r\n",
            "0\r\n X: folded\r\n\r\n",
            "0\r\nX: y\n\r\n",
            "0\r\nX : y\r\n\r\n",
            "0\n\n",
        ] {
            assert_eq!(take(text), None, "{text:?}");
        }
        assert_eq!(take(&format!("0\r\nX: {}", "y".repeat(9000))), None);
    }
}
