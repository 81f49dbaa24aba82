//! Bodies in streams: sent as fast as the other side accepts them, and redacted on their way inside.

use std::future::poll_fn;

use bytes::Bytes;
use h2::{Reason, SendStream};

use crate::redaction::{BodyRedaction, Redaction};

/// Sends bytes as the window of the other side allows.
///
/// # Errors
/// The stream has ended.
pub(super) async fn send(to: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        to.reserve_capacity(bytes.len());
        while to.capacity() == 0 {
            match poll_fn(|context| to.poll_capacity(context)).await {
                Some(capacity) => drop(capacity?),
                None => return Err(Reason::CANCEL.into()),
            }
        }
        let count = to.capacity().min(bytes.len());
        to.send_data(bytes.split_to(count), false)?;
    }
    Ok(())
}

/// The redaction of the body of one response. The messages of gRPC are each redacted as a whole: the
/// end of one is not held back for what may follow.
pub(super) struct Redacted {
    redaction: BodyRedaction,
    messages: Option<Messages>,
}

/// The position in a sequence of messages of gRPC.
#[derive(Default)]
struct Messages {
    /// The first bytes of a message: its flags, and its length.
    prefix: Vec<u8>,
    /// How much of it is missing.
    missing: usize,
}

const PREFIX: usize = 5;
/// The flag of a compressed message.
const COMPRESSED: u8 = 1;

impl Redacted {
    pub(super) fn new(redaction: Redaction, is_grpc: bool) -> Self {
        let messages = is_grpc.then(Messages::default);
        Self { redaction: BodyRedaction::new(redaction), messages }
    }

    /// Adds bytes from the host, and returns what is forwarded.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut output = Vec::with_capacity(bytes.len());
        let Some(messages) = &mut self.messages else {
            self.redaction.push(bytes, &mut output);
            return Ok(output);
        };
        while !bytes.is_empty() {
            if messages.missing == 0 {
                let wanted = PREFIX - messages.prefix.len();
                let (prefix, rest) = bytes.split_at(wanted.min(bytes.len()));
                messages.prefix.extend_from_slice(prefix);
                bytes = rest;
                let [flags, length @ ..] = messages.prefix.as_slice() else { continue };
                let Ok(length) = <[u8; 4]>::try_from(length) else { continue };
                // Trailers of gRPC-Web are a message with another flag.
                if *flags & COMPRESSED != 0 {
                    return Err("a message of it is compressed although none was to be");
                }
                messages.missing =
                    usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                output.append(&mut messages.prefix);
            }
            let (content, rest) = bytes.split_at(messages.missing.min(bytes.len()));
            self.redaction.push(content, &mut output);
            messages.missing -= content.len();
            bytes = rest;
            if messages.missing == 0 {
                self.redaction.release(&mut output);
            }
        }
        Ok(output)
    }

    /// Whether some bytes wait for others that may not come.
    pub(super) fn holds(&self) -> bool {
        self.redaction.holds() && self.messages.as_ref().is_none_or(|own| own.missing == 0)
    }

    /// Forwards what is held back.
    pub(super) fn release(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        self.redaction.release(&mut output);
        output
    }

    /// The redaction for the rest of the response.
    pub(super) const fn values(&self) -> &Redaction {
        self.redaction.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(is_grpc: bool) -> Redacted {
        let mut redaction = Redaction::default();
        redaction.add(b"the-secret-value", b"[placeholder]");
        Redacted::new(redaction, is_grpc)
    }

    fn message(text: &str) -> Vec<u8> {
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        [&[0][..], &length, text.as_bytes()].concat()
    }

    #[test]
    fn a_message_of_grpc_is_redacted_as_a_whole_wherever_it_is_cut() {
        let sent = [message("a the-secret-value"), message(""), message("the-secret-")].concat();
        let expected =
            [message("a ****************"), message(""), message("the-secret-")].concat();
        for end in 0..=sent.len() {
            let mut own = redacted(true);
            let (one, two) = sent.split_at(end);
            let forwarded = [own.push(one).unwrap(), own.push(two).unwrap()].concat();
            // Nothing is held back for a next message.
            assert_eq!(forwarded, expected, "{end}");
            assert!(!own.holds());
        }
    }

    #[test]
    fn a_compressed_message_cannot_be_read() {
        assert!(redacted(true).push(&[1, 0, 0, 0, 1, b'x']).is_err());
        assert!(redacted(true).push(&[0x81, 0, 0, 0, 1, b'x']).is_err());
        let trailers = [0x80, 0, 0, 0, 1, b'x'];
        assert_eq!(redacted(true).push(&trailers).unwrap(), trailers);
        // Other bodies have no messages.
        assert!(redacted(false).push(&[1, 0, 0, 0, 1]).is_ok());
    }
}
