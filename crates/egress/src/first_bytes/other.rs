//! Bytes of a protocol that is not HTTP. They pass, but until the host has answered in that
//! protocol, nothing passes in which a lenient server could read a request for another host: such
//! servers accept any first word as a method, and need no version.

use stockade_core::network::Refusal;

use super::grammar::is_token;

/// Why such bytes are refused.
const WHAT: &str = "it can be read as a request, and is not one of HTTP/1.0 or HTTP/1.1";
/// How many bytes of each line are stored.
const START_BYTES: usize = 32;

/// Whether some server splits words there: the blanks of ASCII and of Latin-1.
pub(super) const fn is_blank(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | 0x1c..=0x20 | 0x85 | 0xa0)
}

/// The position in such bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Other {
    /// Whether the first line that is not empty has begun, and whether it has ended.
    has_begun: bool,
    is_first_line_over: bool,
    /// Whether that line contains a blank, so that it has several words to some server.
    has_blank: bool,
    /// Whether anything before its end is not visible ASCII.
    is_odd: bool,
    /// The start of the current word, in lower case; afterwards of the current line.
    start: Vec<u8>,
    previous: u8,
}

impl Other {
    /// Checks the next bytes.
    ///
    /// # Errors
    /// [`Refusal::InvalidRequest`] if they could complete a request.
    pub fn check(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        for byte in bytes {
            let is_request = match self.is_first_line_over {
                false => self.first_line(byte.to_ascii_lowercase()),
                true => self.later_line(byte.to_ascii_lowercase()),
            };
            if is_request {
                return Err(Refusal::InvalidRequest { what: WHAT });
            }
            self.previous = *byte;
        }
        Ok(())
    }

    fn first_line(&mut self, byte: u8) -> bool {
        if matches!(byte, b'\r' | b'\n') {
            self.start.clear();
            self.is_first_line_over = self.has_begun;
            self.is_odd |= !self.has_begun;
            return false;
        }
        self.has_begun = true;
        self.is_odd |= !byte.is_ascii_graphic();
        if is_blank(byte) {
            self.has_blank = true;
            self.start.clear();
            return false;
        }
        if self.start.len() >= START_BYTES {
            // Only the last bytes and the first ones are compared.
            self.start.remove(START_BYTES / 2);
        }
        self.start.push(byte);
        self.start.ends_with(b"http/") || (self.has_blank && is_version(&self.start))
    }

    /// A request consists of a first line with several words, and of headers up to an empty line.
    fn later_line(&mut self, byte: u8) -> bool {
        // No server takes a single word for the first line of a request.
        if !self.is_odd {
            return false;
        }
        match byte {
            b'\n' if self.previous == b'\r' => false,
            b'\r' | b'\n' => {
                let is_empty = self.start.is_empty();
                self.start.clear();
                is_empty && self.has_blank
            }
            b':' => {
                let is_host = self.start.trim_ascii() == b"host";
                self.push(byte);
                is_host
            }
            byte => {
                self.push(byte);
                false
            }
        }
    }

    fn push(&mut self, byte: u8) {
        if self.start.len() < START_BYTES {
            self.start.push(byte);
        }
    }
}

/// Whether a word, in lower case, is the version of a protocol that servers of HTTP accept, too.
fn is_version(word: &[u8]) -> bool {
    [&b"http/"[..], b"rtsp/", b"ice/"].iter().any(|name| word.starts_with(name))
}

/// Methods that servers know (IANA's registry, and those of Node).
const METHODS: &str = " ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK \
     LOCK M-SEARCH MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF MKWORKSPACE MOVE NOTIFY OPTIONS \
     ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH PURGE PUT QUERY REBIND REPORT SEARCH SOURCE SUBSCRIBE \
     TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UNSUBSCRIBE UPDATE UPDATEREDIRECTREF VERSION-CONTROL ";

/// Whether a first line, as far as it goes, looks like that of a request to some server.
pub(super) fn is_like_request(line: &[u8]) -> bool {
    let lower = line.to_ascii_lowercase();
    if lower.windows(5).any(|five| five == b"http/") {
        return true;
    }
    let mut words = lower.split(|byte| is_blank(*byte)).filter(|word| !word.is_empty());
    let _ = words.next();
    if words.any(is_version) {
        return true;
    }
    let start = line.iter().take_while(|byte| is_blank(**byte)).count();
    let line = line.get(start..).unwrap_or_default();
    let Some(end) = line.iter().position(|byte| is_blank(*byte)) else { return false };
    let (method, rest) = line.split_at(end);
    if !method.iter().copied().all(is_token) {
        return false;
    }
    let mut words = rest.split(|byte| is_blank(*byte)).filter(|word| !word.is_empty());
    let target = words.next().unwrap_or_default();
    let is_known =
        std::str::from_utf8(method).is_ok_and(|method| METHODS.contains(&format!(" {method} ")));
    let is_target = target.starts_with(b"/")
        || target == b"*"
        || target.windows(3).any(|three| three == b"://");
    is_known || is_target
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether bytes pass, in whatever parts they are sent.
    fn passes(bytes: &[u8]) -> bool {
        let whole = Other::default().check(bytes).is_ok();
        for end in 0..bytes.len() {
            let mut other = Other::default();
            let (one, two) = bytes.split_at(end);
            let passed = other.check(one).is_ok() && other.check(two).is_ok();
            assert_eq!(passed, whole, "{end} of {bytes:?}");
        }
        whole
    }

    #[test]
    fn other_protocols_pass() {
        for bytes in [
            &b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n\0\0\x05\xdc\x06\x14abcdefgh"[..],
            b"\0\0\0\x08\x04\xd2\x16\x2f",
            b"\0\0\0\x30\0\x03\0\0user\0me\0database\0host\0\0",
            b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$9\r\nHost: abc\r\n",
            b"CONNECT\naccept-version:1.2\nhost:broker.example\n\n\0",
            b"EHLO me\r\nMAIL FROM:<a@b.example>\r\n",
            b"set key 0 0 5\r\nhello\r\n",
            b"a.b.c 1 1700000000\na.b.d 2 1700000000\n",
            b"<34>1 2003-10-11T22:14:15Z host app - - - text: x\n<34>1 2003\n",
            b"NICK me\r\nUSER me 0 * :My Name\r\n",
            b"{\"id\": 1, \"method\": \"subscribe\"}\n{\"id\": 2}\n",
            b"AMQP\0\0\x09\x01",
        ] {
            assert!(passes(bytes), "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn what_a_lenient_server_takes_for_a_request_does_not() {
        for bytes in [
            &b"EHLO me\r\nHost: evil.example\r\n\r\n"[..],
            b"EHLO me\r\n\r\n",
            b"EHLO me\nx: y\n\n",
            b"EHLO me\rhost : evil.example\r",
            b"X Y\r\n hOsT\t:evil.example\r\n",
            b"\0\x01 /\r\nHost: evil.example\r\n\r\n",
            b"\0\x01 /x HTTP/1.1\r\n",
            b"GE(T / hTTp/1.1\r\n",
            b"{\"A\": 1}\r\nHost: evil.example\r\n\r\n",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0cGET / HTTP/1.1\r\nHost: evil.example\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n",
            b"GET \x1c\r\nHost: evil.example\r\n\r\n",
            b"\x1c /\r\nHost: evil.example\r\n\r\n",
            b"\x1c /\r\n\r\n",
            b"x y rTSP/1.0\r\n",
            b"x y ICE/1.0\r\n",
        ] {
            assert!(!passes(bytes), "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_first_line_looks_like_a_request_or_does_not() {
        for line in [
            "GET x",
            "GET \x1c",
            "GET\x0bx",
            "FOO /",
            "foo *",
            "a b://c",
            "x y ICE/1",
            "\u{1}HTTP/1",
        ] {
            assert!(is_like_request(line.as_bytes()), "{line}");
        }
        for line in ["EHLO me", "get key", "SSH-2.0-x Debian-2", "PING", "", "service/a b 1 ice"] {
            assert!(!is_like_request(line.as_bytes()), "{line}");
        }
    }
}
