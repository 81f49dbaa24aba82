//! What a worker says over its wire: it may have been taken over by what runs in it.

use stockade_script::worker::wire::{FRAME_BYTES, FromWorker, Incoming, Message as _};

/// Words of the format.
pub(super) const WORDS: &[&str] = &[
    "r",
    "R",
    "L",
    "F",
    "X",
    "A",
    "\0",
    "\u{1}",
    "\u{2}",
    "\0\0\0\0",
    "\u{1}\0\0\0",
    "\u{5}\0\0\0",
    "GET",
    "https://example.com/",
    "accept",
    "[log] x",
];

/// Reads all words. What is understood means one thing: it is written as it was read.
pub(super) fn run(bytes: &[u8]) -> bool {
    let mut whole = Incoming::default();
    whole.push(bytes);
    let mut written = Vec::new();
    let mut words = Vec::new();
    let understood = loop {
        match whole.take::<FromWorker>() {
            Ok(Some(word)) => {
                let frame = word.encode();
                assert!(frame.len() <= 4 + FRAME_BYTES);
                written.extend(frame);
                words.push(word);
            }
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    assert!(bytes.starts_with(&written));
    // The pieces in which it comes do not matter.
    let mut pieces = Incoming::default();
    let mut again = Vec::new();
    for piece in bytes.chunks(7) {
        pieces.push(piece);
        while let Ok(Some(word)) = pieces.take::<FromWorker>() {
            again.push(word);
        }
    }
    assert_eq!(again, words);
    understood && !words.is_empty()
}
