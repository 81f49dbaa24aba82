//! The protocol of ssh agents (draft-ietf-sshm-ssh-agent), as far as it is spoken here: lengths, texts
//! and the numbers of messages. A message is never larger than OpenSSH's own limit.

/// The largest message, as in OpenSSH.
pub(crate) const MAX_BYTES: usize = 256 << 10;

pub(crate) const FAILURE: u8 = 5;
pub(crate) const SUCCESS: u8 = 6;
pub(crate) const REQUEST_IDENTITIES: u8 = 11;
pub(crate) const IDENTITIES_ANSWER: u8 = 12;
pub(crate) const SIGN_REQUEST: u8 = 13;
pub(crate) const SIGN_RESPONSE: u8 = 14;
pub(crate) const EXTENSION: u8 = 27;
pub(crate) const EXTENSION_FAILURE: u8 = 28;

/// The flag of a signature with RSA and SHA-256.
pub(crate) const RSA_SHA2_256: u32 = 2;
/// The flag of a signature with RSA and SHA-512.
pub(crate) const RSA_SHA2_512: u32 = 4;
/// The flags of a signature with RSA that are accepted.
pub(crate) const RSA_FLAGS: [u32; 2] = [RSA_SHA2_256, RSA_SHA2_512];

/// What a message asks for, for a record.
pub(crate) const fn name(number: u8) -> &'static str {
    match number {
        REQUEST_IDENTITIES => "list keys",
        SIGN_REQUEST => "sign",
        17 | 25 => "add a key",
        18 => "remove a key",
        19 => "remove all keys",
        20 | 21 | 26 => "use a smart card",
        22 => "lock",
        23 => "unlock",
        EXTENSION => "use an extension",
        _ => "send an unknown message",
    }
}

/// What is left of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn number(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*first))
    }

    /// Bytes with their length before them.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.string()?).ok()
    }

    /// A boolean; only 0 and 1 are accepted, so that a message has one spelling.
    pub(crate) fn boolean(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Nothing, if nothing is left.
    pub(crate) const fn end(self) -> Option<()> {
        if self.0.is_empty() { Some(()) } else { None }
    }
}

/// Adds bytes with their length before them.
pub(crate) fn put(message: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    message.extend_from_slice(&length.to_be_bytes());
    message.extend_from_slice(bytes);
}

/// A message with its length before it.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(message.len() + 4);
    put(&mut frame, message);
    frame
}

/// The keys and comments of an answer to [`REQUEST_IDENTITIES`].
pub(crate) fn identities(answer: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut reader = Reader(answer);
    if reader.byte()? != IDENTITIES_ANSWER {
        return None;
    }
    let count = reader.number()?;
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(reader.string()?.to_vec());
        reader.string()?;
    }
    reader.end().map(|()| keys)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn strings_have_their_length() {
        let mut message = Vec::new();
        put(&mut message, b"abc");
        put(&mut message, b"");
        let mut reader = Reader(&message);
        assert_eq!((reader.string(), reader.string()), (Some(&b"abc"[..]), Some(&b""[..])));
        assert!(reader.end().is_some());
        assert_eq!(Reader(&[0, 0, 0, 9, 1]).string(), None);
        assert_eq!(Reader(&[0xff; 4]).string(), None);
        assert_eq!(Reader(&[2]).boolean(), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = identities(&bytes);
            let mut reader = Reader(&bytes);
            while reader.string().is_some() {}
        }
    }
}
