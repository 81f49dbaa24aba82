//! Envelopes of a stream: a byte of flags, the length, and a message.

use axum::body::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::e2b::failure::{RpcCode, RpcError};

/// The flags of an envelope.
const PLAIN: u8 = 0;
const END: u8 = 2;
/// The bytes before the message.
const HEAD: usize = 5;
/// The largest message of a client, in bytes.
const MESSAGE_BYTES: usize = 16 << 20;

fn envelope(flags: u8, message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut envelope = Vec::with_capacity(HEAD + message.len());
    envelope.push(flags);
    envelope.extend(length.to_be_bytes());
    envelope.extend(message);
    Bytes::from(envelope)
}

/// A message of the server.
pub(in crate::e2b) fn data(message: &impl Serialize) -> Bytes {
    envelope(PLAIN, &serde_json::to_vec(message).unwrap_or_default())
}

/// The last envelope of a stream.
pub(in crate::e2b) fn end(error: Option<&RpcError>) -> Bytes {
    let message = match error {
        None => serde_json::json!({}),
        Some(error) => serde_json::json!({ "error": error.json() }),
    };
    envelope(END, message.to_string().as_bytes())
}

/// An envelope of a client.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::e2b) enum Envelope {
    Message(Value),
    End,
}

/// Takes envelopes from the bytes of a body, however these are split.
#[derive(Debug, Default)]
pub(in crate::e2b) struct Envelopes {
    rest: Vec<u8>,
}

impl Envelopes {
    pub(in crate::e2b) fn push(&mut self, bytes: &[u8]) {
        self.rest.extend(bytes);
    }

    /// The next envelope; `None` until all of its bytes are there.
    pub(in crate::e2b) fn next(&mut self) -> Result<Option<Envelope>, RpcError> {
        let invalid = |message: &str| RpcError::new(RpcCode::InvalidArgument, message);
        let Some((head, body)) = self.rest.split_first_chunk::<HEAD>() else { return Ok(None) };
        let [flags, length @ ..] = *head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > MESSAGE_BYTES {
            return Err(invalid("a message of the stream is too large"));
        }
        let Some(message) = body.get(..length) else { return Ok(None) };
        let parsed = match flags {
            PLAIN if message.is_empty() => Envelope::Message(serde_json::json!({})),
            PLAIN => Envelope::Message(
                serde_json::from_slice(message)
                    .map_err(|error| invalid(&format!("a message is not JSON: {error}")))?,
            ),
            END => Envelope::End,
            1 | 3 => {
                let message = "compressed messages are not supported";
                return Err(RpcError::new(RpcCode::Unimplemented, message));
            }
            _ => return Err(invalid("a message of the stream has unknown flags")),
        };
        self.rest.drain(..HEAD + length);
        Ok(Some(parsed))
    }

    /// Whether a part of an envelope is left.
    pub(in crate::e2b) fn is_incomplete(&self) -> bool {
        !self.rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn envelopes_may_be_split_anywhere() {
        let mut bytes = data(&json!({ "a": 1 })).to_vec();
        bytes.extend(data(&json!({ "b": 2 })));
        bytes.extend(end(None));
        let mut envelopes = Envelopes::default();
        let mut found = Vec::new();
        for byte in bytes {
            envelopes.push(&[byte]);
            found.extend(envelopes.next().unwrap());
        }
        let messages = [json!({ "a": 1 }), json!({ "b": 2 })].map(Envelope::Message);
        assert_eq!(found[..2], messages);
        assert_eq!(found[2..], [Envelope::End]);
        assert!(!envelopes.is_incomplete());
    }

    #[test]
    fn what_is_no_envelope_is_refused() {
        for wrong in
            [&[1, 0, 0, 0, 0][..], &[9, 0, 0, 0, 0], &[0, 0, 0, 0, 1, b'{'], &[0, 255, 0, 0, 0]]
        {
            let mut envelopes = Envelopes::default();
            envelopes.push(wrong);
            assert!(envelopes.next().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_error_is_in_the_last_envelope() {
        let error = RpcError::new(RpcCode::NotFound, "there is no process");
        let bytes = end(Some(&error));
        assert_eq!(bytes[0], END);
        let message: Value = serde_json::from_slice(&bytes[HEAD..]).unwrap();
        assert_eq!(message["error"]["code"], "not_found");
    }
}
