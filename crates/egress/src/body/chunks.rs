//! Chunks of a response (RFC 9112, section 7.1). Their extensions are dropped, as every recipient
//! may do.

use crate::first_bytes::http::{FRAMING, HEAD_BYTES, MAX_HEADERS};
use crate::response::line;

/// The longest line with the size of a chunk.
const LINE_BYTES: usize = 4 << 10;

/// The state between two pieces.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    state: State,
    /// The beginning of a line or of the trailers.
    partial: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    /// So many bytes are missing.
    Content(u64),
    /// The line end after the content.
    End,
    Trailers,
    Complete,
}

const INVALID: &str = "a chunk is malformed";

impl Chunks {
    /// Whether the last chunk that has arrived is complete.
    pub(super) fn is_between(&self) -> bool {
        self.state == State::Size && self.partial.is_empty()
    }

    /// Decodes bytes. Returns the lines of the trailers once the body is complete; what follows is
    /// ignored.
    pub(super) fn push(
        &mut self,
        mut bytes: &[u8],
        mut content: impl FnMut(&[u8]),
    ) -> Result<Option<Vec<Vec<u8>>>, &'static str> {
        while let Some((first, others)) = bytes.split_first() {
            match self.state {
                State::Content(missing) => {
                    let count = usize::try_from(missing).unwrap_or(usize::MAX).min(bytes.len());
                    let (own, rest) = bytes.split_at(count);
                    content(own);
                    bytes = rest;
                    self.state = match missing - count as u64 {
                        0 => State::End,
                        missing => State::Content(missing),
                    };
                    continue;
                }
                State::Complete => return Ok(None),
                State::Size | State::End | State::Trailers => self.partial.push(*first),
            }
            bytes = others;
            match self.state {
                State::Size if *first == b'\n' => {
                    self.state = match size(&self.partial)? {
                        0 => State::Trailers,
                        size => State::Content(size),
                    };
                    self.partial.clear();
                }
                State::Size if self.partial.len() >= LINE_BYTES => return Err(INVALID),
                State::End if !b"\r\n".starts_with(&self.partial) => return Err(INVALID),
                State::End if self.partial.len() == 2 => {
                    self.state = State::Size;
                    self.partial.clear();
                }
                State::Trailers
                    if self.partial == b"\r\n" || self.partial.ends_with(b"\r\n\r\n") =>
                {
                    self.state = State::Complete;
                    return trailers(&self.partial).map(Some);
                }
                State::Trailers if self.partial.len() >= HEAD_BYTES => return Err(INVALID),
                _ => {}
            }
        }
        Ok(None)
    }
}

/// The size of a chunk, from its line.
fn size(line: &[u8]) -> Result<u64, &'static str> {
    let line = line.strip_suffix(b"\r\n").ok_or(INVALID)?;
    let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let size = match size.len() < line.len() {
        true => size.trim_ascii_end(),
        false => size,
    };
    let text = std::str::from_utf8(size).map_err(|_| INVALID)?;
    if text.is_empty() || text.len() > 15 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(INVALID);
    }
    u64::from_str_radix(text, 16).map_err(|_| INVALID)
}

/// The lines of the trailers, without those that would be a framing.
fn trailers(bytes: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let Ok(httparse::Status::Complete((_, headers))) = httparse::parse_headers(bytes, &mut headers)
    else {
        return Err("a trailer is malformed");
    };
    let is_free = |header: &&httparse::Header<'_>| {
        !FRAMING.iter().any(|other| header.name.eq_ignore_ascii_case(other))
    };
    Ok(headers.iter().filter(is_free).map(|header| line(header.name, header.value)).collect())
}
