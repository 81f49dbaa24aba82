//! The response to an intercepted request: its heads, and how much belongs to its body. Only a
//! response that can be redacted is accepted: one whose end is certain, and whose body is the text
//! that the host means, not an encoding or a part of it.

use crate::first_bytes::http::{FRAMING, HEAD_BYTES, Head, MAX_HEADERS};
use crate::redaction::Redaction;

/// The head of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    minor: u8,
    reason: String,
    headers: Vec<(String, Vec<u8>)>,
}

/// Where the body of a response ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// It has so many bytes.
    Length(u64),
    /// After its last chunk.
    Chunked,
    /// When the host closes the connection.
    Close,
    /// There is no body, but another protocol: messages of WebSocket.
    Messages,
    /// There is no body, but another protocol.
    Stream,
}

/// The properties of a request that decide what its response may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// It was `HEAD`, whose response has no body.
    pub(crate) is_head: bool,
    /// It wants to switch to WebSocket.
    pub(crate) is_web_socket: bool,
    /// The minor version of the client.
    pub(crate) minor: u8,
    /// The host has a credential of the sandbox, which its response may repeat.
    pub(crate) is_redacted: bool,
}

impl Exchange {
    pub(crate) fn of(head: &Head, is_redacted: bool) -> Self {
        Self {
            is_head: head.method == "HEAD",
            is_web_socket: head.is_web_socket(),
            minor: head.minor,
            is_redacted,
        }
    }
}

/// Headers of a response that are only for its connection.
const OF_CONNECTION: &[&str] = &["connection", "keep-alive", "proxy-connection", "upgrade"];

/// Beginnings of the names of character encodings in which visible ASCII characters are encoded as
/// in ASCII (IANA, "Character Sets").
const LIKE_ASCII: &[&str] = &[
    "ansi",
    "ascii",
    "big5",
    "binary",
    "cp125",
    "cp87",
    "cp932",
    "cp936",
    "cp949",
    "cp950",
    "euc",
    "gb",
    "ibm866",
    "iso-8859",
    "iso8859",
    "iso_8859",
    "koi8",
    "ks_c",
    "latin",
    "mac",
    "ms_kanji",
    "none",
    "shift_jis",
    "shift-jis",
    "sjis",
    "tis-620",
    "us-ascii",
    "utf-8",
    "utf8",
    "windows-",
    "x-mac",
    "x-sjis",
];

impl ResponseHead {
    /// Parses one head, and returns its length in bytes; `None` while it is incomplete.
    ///
    /// # Errors
    /// Why it is invalid.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, &'static str> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(bytes.get(..HEAD_BYTES).unwrap_or(bytes)) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES => return Ok(None),
            Ok(httparse::Status::Partial) => return Err("its head is too long"),
            Err(httparse::Error::TooManyHeaders) => return Err("it has too many headers"),
            Err(_) => return Err("its head is malformed"),
        };
        let (Some(status), Some(minor)) = (response.code, response.version) else {
            return Err("its head is malformed");
        };
        let header =
            |header: &httparse::Header<'_>| (header.name.to_owned(), header.value.to_vec());
        let headers = response.headers.iter().map(header).collect();
        let reason = response.reason.unwrap_or_default().to_owned();
        Ok(Some((Self { status, minor, reason, headers }, length)))
    }

    /// The head of a response that came over a stream of HTTP/2.
    pub(crate) const fn of_stream(status: u16, headers: Vec<(String, Vec<u8>)>) -> Self {
        Self { status, minor: 1, reason: String::new(), headers }
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let is_it = move |header: &&(String, Vec<u8>)| header.0.eq_ignore_ascii_case(name);
        self.headers.iter().filter(is_it).map(|(_, value)| value.trim_ascii())
    }

    /// The elements of the lists in the headers of one name.
    fn elements<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let elements = self.values(name).flat_map(|value| value.split(|byte| *byte == b','));
        elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
    }

    /// Whether another head follows (RFC 9110, section 15.2).
    pub(crate) const fn is_informational(&self) -> bool {
        matches!(self.status, 100..=199) && self.status != 101
    }

    /// Where the body ends (RFC 9112, section 6.3); `None` if there is none.
    ///
    /// # Errors
    /// Why the response is not accepted.
    pub(crate) fn body(&self, exchange: Exchange) -> Result<Option<Framing>, &'static str> {
        if self.status == 101 {
            return self.switched(exchange).map(Some);
        }
        if exchange.is_head || matches!(self.status, 204 | 304) {
            return Ok(None);
        }
        let is_coded = self.values("transfer-encoding").next().is_some();
        let framing = match (is_coded, self.length()?) {
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::Close,
            (true, _) if self.minor == 0 => return Err("HTTP/1.0 has no transfer encodings"),
            (true, Some(_)) => return Err("it has both Content-Length and Transfer-Encoding"),
            (true, None) => {
                let mut codings = self.elements("transfer-encoding");
                let is_chunked =
                    codings.next().is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"));
                if !is_chunked || codings.next().is_some() {
                    return Err("it has a transfer encoding other than `chunked`");
                }
                Framing::Chunked
            }
        };
        if framing == Framing::Length(0) {
            return Ok(None);
        }
        if exchange.is_redacted {
            self.check_readable()?;
        }
        Ok(Some(framing))
    }

    /// The protocol after the head.
    fn switched(&self, exchange: Exchange) -> Result<Framing, &'static str> {
        if !exchange.is_web_socket {
            return Err("it switches to a protocol that was not requested");
        }
        if self.elements("sec-websocket-extensions").next().is_some() {
            return Err("it uses an extension of WebSocket that was not requested");
        }
        let is_complete = self.values("sec-websocket-accept").next().is_some();
        Ok(if is_complete { Framing::Messages } else { Framing::Stream })
    }

    fn length(&self) -> Result<Option<u64>, &'static str> {
        let mut length = None;
        // Equal lengths in a list are one length (RFC 9110, section 8.6).
        for text in
            self.values("content-length").flat_map(|value| value.split(|byte| *byte == b','))
        {
            let text = std::str::from_utf8(text.trim_ascii()).unwrap_or_default();
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            match text.parse::<u64>() {
                Ok(number) if is_number && length.is_none_or(|length| length == number) => {
                    length = Some(number);
                }
                _ => return Err("its Content-Length is invalid"),
            }
        }
        Ok(length)
    }

    /// Whether a value in the body would be found.
    fn check_readable(&self) -> Result<(), &'static str> {
        let is_coded = |coding: &[u8]| !coding.eq_ignore_ascii_case(b"identity");
        if self.elements("content-encoding").any(is_coded) {
            return Err("its body is compressed although it was requested uncompressed");
        }
        let mut of_messages = ["grpc-encoding", "connect-content-encoding"].into_iter();
        if of_messages.any(|name| self.elements(name).any(is_coded)) {
            return Err("its messages are compressed although none was to be");
        }
        if self.status == 226 || self.elements("im").next().is_some() {
            return Err("its body is a difference although the whole was requested");
        }
        if self.status == 206
            || (self.status != 416 && self.values("content-range").next().is_some())
        {
            return Err(PARTIAL);
        }
        // A client may take the first or the last one.
        self.values("content-type").try_for_each(check_kind)
    }

    /// The redacted head for the client.
    pub(crate) fn bytes(
        &self,
        framing: Option<Framing>,
        exchange: Exchange,
        redaction: &Redaction,
    ) -> Vec<u8> {
        let first = format!("HTTP/1.{} {} {}\r\n", self.minor, self.status, self.reason);
        let mut bytes = redaction.head(first.as_bytes());
        for (name, value) in &self.headers {
            let is = |other: &&str| name.eq_ignore_ascii_case(other);
            // Without a body these only describe one, and are left as they are.
            if OF_CONNECTION.iter().any(is) || (framing.is_some() && FRAMING.iter().any(is)) {
                continue;
            }
            bytes.extend(redaction.head(&line(name, value)));
        }
        match framing {
            Some(Framing::Length(length)) => {
                bytes.extend(line("Content-Length", length.to_string().as_bytes()));
            }
            Some(Framing::Chunked) if exchange.minor > 0 => {
                bytes.extend(line("Transfer-Encoding", b"chunked"));
            }
            _ => {}
        }
        if self.status == 101 {
            bytes.extend(line("Upgrade", b"websocket"));
            bytes.extend(line("Connection", b"Upgrade"));
        } else if !self.is_informational() {
            bytes.extend(line("Connection", b"close"));
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }
}

const PARTIAL: &str = "its body is a part although the whole was requested";

/// Whether a value in a body of this type would be found.
fn check_kind(kind: &[u8]) -> Result<(), &'static str> {
    let kind = String::from_utf8_lossy(kind).to_ascii_lowercase();
    if kind.starts_with("multipart/byteranges") {
        return Err(PARTIAL);
    }
    let mut parameters = kind.split(';').skip(1).filter_map(|text| text.trim().split_once('='));
    let unlike = parameters.any(|(name, value)| {
        let value = value.trim().trim_matches(['"', '\'']);
        name.trim() == "charset"
            && !value.is_empty()
            && !LIKE_ASCII.iter().any(|known| value.starts_with(known))
    });
    if unlike {
        return Err("its character encoding is not compatible with ASCII");
    }
    Ok(())
}

/// A header with the end of its line.
pub(crate) fn line(name: &str, value: &[u8]) -> Vec<u8> {
    [name.as_bytes(), b": ", value, b"\r\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCHANGE: Exchange =
        Exchange { is_head: false, is_web_socket: false, minor: 1, is_redacted: true };

    fn parsed(text: &str) -> ResponseHead {
        let text = format!("HTTP/1.1 {}\r\n\r\n", text.replace('|', "\r\n"));
        let (head, length) = ResponseHead::parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(length, text.len());
        head
    }

    fn body(text: &str, exchange: Exchange) -> Result<Option<Framing>, &'static str> {
        parsed(text).body(exchange)
    }

    #[test]
    fn the_end_of_a_body_is_certain() {
        for (text, expected) in [
            ("200 OK|Content-Length: 12", Ok(Some(Framing::Length(12)))),
            ("200 OK|Content-Length: 12, 12", Ok(Some(Framing::Length(12)))),
            ("200 OK|Content-Length: 0", Ok(None)),
            ("200 OK|Transfer-Encoding: Chunked", Ok(Some(Framing::Chunked))),
            ("200 OK", Ok(Some(Framing::Close))),
            ("204 None", Ok(None)),
            ("304 Same|Content-Length: 12|Content-Encoding: gzip", Ok(None)),
            ("416 Range|Content-Range: bytes */5|Content-Length: 1", Ok(Some(Framing::Length(1)))),
            ("200 OK|Content-Encoding: identity", Ok(Some(Framing::Close))),
            ("200 OK|Content-Type: text/html; charset=\"UTF-8\"", Ok(Some(Framing::Close))),
            ("200 OK|Content-Type: a/b; charset=windows-1252", Ok(Some(Framing::Close))),
        ] {
            assert_eq!(body(text, EXCHANGE), expected, "{text}");
        }
        let head = Exchange { is_head: true, ..EXCHANGE };
        assert_eq!(body("200 OK|Content-Length: 5|Content-Encoding: br", head), Ok(None));
    }

    #[test]
    fn what_cannot_be_redacted_is_refused() {
        for text in [
            "200 OK|Content-Encoding: gzip",
            "200 OK|Content-Encoding: identity, br",
            "200 OK|content-encoding: identity|CONTENT-ENCODING: zstd",
            "206 Partial|Content-Range: bytes 1-2/3|Content-Length: 2",
            "200 OK|Content-Range: bytes 1-2/3",
            "200 OK|Content-Type: Multipart/ByteRanges; boundary=x",
            "226 IM Used|IM: vcdiff",
            "200 OK|Content-Type: text/plain; charset=utf-16le",
            "200 OK|Content-Type: text/plain;Charset=\"UTF-7\"",
            "200 OK|Content-Type: text/plain; charset=ibm037",
            "200 OK|Content-Type: text/plain|Content-Type: text/plain; charset=utf-16",
            "200 OK|Content-Type: application/grpc-web+proto|Grpc-Encoding: gzip",
            "200 OK|Content-Type: application/connect+json|Connect-Content-Encoding: gzip",
        ] {
            assert!(body(text, EXCHANGE).is_err(), "{text}");
            // Nothing of a credential is in a response of a host that has none.
            let without = Exchange { is_redacted: false, ..EXCHANGE };
            assert!(body(text, without).is_ok(), "{text}");
        }
        for text in [
            "200 OK|Transfer-Encoding: gzip, chunked",
            "200 OK|Transfer-Encoding: chunked, chunked",
            "200 OK|Transfer-Encoding: identity",
            "200 OK|Transfer-Encoding:",
            "200 OK|Transfer-Encoding: chunked|Content-Length: 3",
            "200 OK|Content-Length: 3|Content-Length: 4",
            "200 OK|Content-Length: 3x",
            "200 OK|Content-Length: +3",
            "101 Switching|Upgrade: websocket",
        ] {
            let without = Exchange { is_redacted: false, ..EXCHANGE };
            assert!(body(text, without).is_err(), "{text}");
        }
        let web_socket = Exchange { is_web_socket: true, ..EXCHANGE };
        assert_eq!(body("101 S|Sec-WebSocket-Accept: x", web_socket), Ok(Some(Framing::Messages)));
        assert_eq!(body("101 S", web_socket), Ok(Some(Framing::Stream)));
        let coded = "101 S|Sec-WebSocket-Accept: x|Sec-WebSocket-Extensions: permessage-deflate";
        assert!(body(coded, web_socket).is_err());
    }

    #[test]
    fn a_head_is_redacted_and_has_one_framing() {
        let mut redaction = Redaction::default();
        redaction.add(b"the-value", b"[placeholder]");
        let head = parsed(
            "200 the-value|A: x the-value|Content-Length: 3, 3|Connection: keep-alive|Keep-Alive: 5",
        );
        let bytes = head.bytes(Some(Framing::Length(3)), EXCHANGE, &redaction);
        let expected = "HTTP/1.1 200 [placeholder]\r\nA: x [placeholder]\r\nContent-Length: 3\r\n\
                        Connection: close\r\n\r\n";
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        // A client of HTTP/1.0 knows no chunks.
        let head = parsed("200 OK|Transfer-Encoding: chunked");
        let old = Exchange { minor: 0, ..EXCHANGE };
        let bytes = head.bytes(Some(Framing::Chunked), old, &redaction);
        assert_eq!(bytes, b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    }
}
