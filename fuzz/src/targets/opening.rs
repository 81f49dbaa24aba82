//! What a program in a sandbox sends first: to whom it is, and what of it goes out.

use stockade_core::network::Name;
use stockade_egress::first_bytes::{Admission, admit};

/// Words of the formats.
pub(super) const WORDS: &[&str] = &[
    "GET ",
    "CONNECT ",
    "http://",
    " HTTP/1.1\r\n",
    " HTTP/1.0\r\n",
    " HTTP/2.0\r\n",
    "Host: api.example\r\n",
    "Host: evil.example\r\n",
    "Content-Length: 3\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Connection: upgrade, host\r\n",
    "Upgrade: websocket\r\n",
    "\r\n",
    "\u{16}\u{3}\u{1}",
    "\0\0",
    "api.example",
];

/// Judges a beginning. What goes out in its place is for the host of the connection as well.
pub(super) fn run(bytes: &[u8]) -> bool {
    let Ok(name) = Name::parse("api.example") else { return false };
    let Admission::Forward { bytes: forwarded, body } = admit(&name, bytes, false) else {
        return false;
    };
    let again = admit(&name, &forwarded, false);
    let goes_on = matches!(&again, Admission::Forward { bytes, .. } if *bytes == forwarded);
    assert!(goes_on, "{forwarded:?} goes out, and is {again:?} itself ({body:?})");
    true
}
