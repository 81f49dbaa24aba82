//! Questions for names from inside, and answers of name servers from outside.

use stockade_core::network::Name;
use stockade_egress::dns::message::{Answer, Kind, Query, Reply, read};

/// Words of the format.
pub(super) const WORDS: &[&str] = &[
    "\0\u{1}", "\0\u{5}", "\0\u{1c}", "\0\u{29}", "\0\0", "\u{c}", "\u{3}", "\u{7}", "example",
    "api", "%", ".", "\u{1}", "\u{2}",
];

/// Reads a message as both. What is answered to a question has its number and is bounded.
pub(super) fn run(bytes: &[u8]) -> bool {
    if let Ok(name) = Name::parse("api.example") {
        let number = bytes.first_chunk().map_or(0, |number| u16::from_be_bytes(*number));
        for kind in [Kind::A, Kind::Aaaa] {
            if let Some(Answer::Complete(Ok(found))) = read(bytes, number, &name, kind) {
                assert!(!found.addresses.is_empty() && found.addresses.len() <= bytes.len());
            }
        }
    }
    let Ok(query) = Query::parse(bytes) else { return false };
    for reply in [Reply::Nothing, Reply::Denied("x".repeat(1000)), Reply::NotImplemented] {
        let answer = query.answer(&reply);
        assert_eq!(answer.get(..2), bytes.get(..2));
        assert!(answer.len() <= 1232, "{}", answer.len());
    }
    query.name().is_ok()
}
