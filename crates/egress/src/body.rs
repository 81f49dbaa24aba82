//! The body of a response on its way to the client: its framing is removed, the content redacted,
//! and framed anew. The end of what has arrived is held back (`redaction`) until the body has ended,
//! or a byte comes that no value contains. Where the framing does not show how much follows, it is
//! also forwarded after a time without new bytes, which is the same for all bodies.

mod chunks;
mod messages;

use std::time::Duration;

use crate::redaction::{BodyRedaction, Redaction};
use crate::response::Framing;

use chunks::Chunks;
use messages::Messages;

/// How long nothing may arrive before the end of an unfinished body is forwarded. A host that
/// repeats a value can be interrupted in it by the network; this is longer than the network takes
/// to continue in almost all cases.
const QUIET: Duration = Duration::from_millis(500);
/// The same after a switch to another protocol, in which both sides wait for each other.
const QUIET_AFTER_SWITCH: Duration = Duration::from_millis(200);

/// A body of which a part has arrived.
pub(crate) struct ResponseBody {
    redaction: BodyRedaction,
    decoder: Decoder,
    /// Whether the client receives chunks.
    is_chunked: bool,
}

enum Decoder {
    /// So many bytes are missing.
    Length(u64),
    Close,
    Stream,
    Chunks(Chunks),
    Messages(Messages),
}

impl ResponseBody {
    /// A body of which nothing has arrived, for a client of HTTP/1.`minor`.
    pub(crate) fn new(framing: Framing, redaction: Redaction, minor: u8) -> Self {
        let decoder = match framing {
            Framing::Length(length) => Decoder::Length(length),
            Framing::Chunked => Decoder::Chunks(Chunks::default()),
            Framing::Close => Decoder::Close,
            Framing::Messages => Decoder::Messages(Messages::default()),
            Framing::Stream => Decoder::Stream,
        };
        let is_chunked = framing == Framing::Chunked && minor > 0;
        Self { redaction: BodyRedaction::new(redaction), decoder, is_chunked }
    }

    /// Adds bytes from the host. Returns whether the body is complete.
    ///
    /// # Errors
    /// Why its framing is invalid. Everything before that was forwarded.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<bool, &'static str> {
        let redaction = &mut self.redaction;
        let mut content = Vec::new();
        match &mut self.decoder {
            Decoder::Length(missing) => {
                let count = usize::try_from(*missing).unwrap_or(usize::MAX).min(bytes.len());
                redaction.push(bytes.get(..count).unwrap_or_default(), output);
                *missing -= count as u64;
                if *missing == 0 {
                    redaction.release(output);
                }
                Ok(*missing == 0)
            }
            Decoder::Close | Decoder::Stream => {
                redaction.push(bytes, output);
                Ok(false)
            }
            Decoder::Messages(messages) => {
                messages.push(bytes, redaction, output);
                Ok(false)
            }
            Decoder::Chunks(chunks) => {
                let decoded =
                    chunks.push(bytes, |content_bytes| redaction.push(content_bytes, &mut content));
                let trailers = match decoded {
                    Ok(None) => {
                        put_chunk(&content, self.is_chunked, output);
                        return Ok(false);
                    }
                    other => other,
                };
                redaction.release(&mut content);
                put_chunk(&content, self.is_chunked, output);
                let trailers = trailers?.unwrap_or_default();
                if self.is_chunked {
                    output.extend_from_slice(b"0\r\n");
                    for line in trailers {
                        output.extend(redaction.values().head(&line));
                    }
                    output.extend_from_slice(b"\r\n");
                }
                Ok(true)
            }
        }
    }

    /// After how long without new bytes [`Self::release`] is due; `None` if only new bytes count.
    pub(crate) fn quiet(&self) -> Option<Duration> {
        let (is_due, quiet) = match &self.decoder {
            Decoder::Length(_) => (false, QUIET),
            Decoder::Close => (true, QUIET),
            Decoder::Chunks(chunks) => (chunks.is_between(), QUIET),
            Decoder::Messages(messages) => (messages.is_between(), QUIET_AFTER_SWITCH),
            Decoder::Stream => (true, QUIET_AFTER_SWITCH),
        };
        (is_due && self.redaction.holds()).then_some(quiet)
    }

    /// Forwards the content that is held back.
    pub(crate) fn release(&mut self, output: &mut Vec<u8>) {
        let mut content = Vec::new();
        self.redaction.release(&mut content);
        match &mut self.decoder {
            Decoder::Messages(messages) => messages.forward(&content, output),
            _ => put_chunk(&content, self.is_chunked, output),
        }
    }

    /// Forwards everything that has arrived before the host ended the connection.
    pub(crate) fn finish(&mut self, output: &mut Vec<u8>) {
        self.release(output);
        if let Decoder::Messages(messages) = &mut self.decoder {
            messages.finish(&self.redaction, output);
        }
    }

    /// Whether the end of the connection is its end.
    pub(crate) const fn ends_with_connection(&self) -> bool {
        matches!(self.decoder, Decoder::Close | Decoder::Stream | Decoder::Messages(_))
    }
}

/// Adds content, as a chunk if the client receives chunks. An empty chunk would be the last one.
fn put_chunk(content: &[u8], is_chunked: bool, output: &mut Vec<u8>) {
    if !is_chunked {
        output.extend_from_slice(content);
    } else if !content.is_empty() {
        output.extend_from_slice(format!("{:x}\r\n", content.len()).as_bytes());
        output.extend_from_slice(content);
        output.extend_from_slice(b"\r\n");
    }
}
