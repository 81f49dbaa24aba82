//! The key of a WebSocket's opening handshake and the response to it (RFC 6455, section 4).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The constant that a server appends to the key.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A random key.
pub(crate) fn key() -> String {
    STANDARD.encode(uuid::Uuid::now_v7().as_bytes())
}

/// A server's response to a key.
pub(crate) fn accept(key: &str) -> String {
    STANDARD.encode(sha1(format!("{key}{GUID}").as_bytes()))
}

/// SHA-1 (FIPS 180-4, section 6.1), which the handshake requires. It is insecure for every other
/// use.
fn sha1(message: &[u8]) -> [u8; 20] {
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    if padded.len() - message.len() < 9 {
        padded.resize(padded.len() + 64, 0);
    }
    let at = padded.len() - 8;
    padded[at..].copy_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    let mut hash: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded.chunks_exact(64) {
        let mut words = [0_u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
        for at in 16..80 {
            words[at] =
                (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = hash;
        for (round, word) in words.iter().enumerate() {
            let (mixed, constant) = match round {
                0..20 => (b & c | !b & d, 0x5a82_7999),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => (b & c | b & d | c & d, 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6_u32),
            };
            let next = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e);
            let next = next.wrapping_add(constant).wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (sum, part) in hash.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(part);
        }
    }
    let mut bytes = [0; 20];
    for (place, word) in bytes.chunks_exact_mut(4).zip(hash) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standards() {
        let hex = |bytes: [u8; 20]| bytes.map(|byte| format!("{byte:02x}")).concat();
        assert_eq!(hex(sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let two = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(sha1(two)), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(hex(sha1(b"")), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        // RFC 6455, section 1.3.
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
