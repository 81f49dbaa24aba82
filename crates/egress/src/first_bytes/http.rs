//! The head of an HTTP/1 request (RFC 9112): parsed, and written again without the hop-by-hop
//! headers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stockade_core::network::{Host, Refusal};
use zeroize::Zeroizing;

/// The longest head, in bytes, and the most headers in it.
pub const HEAD_BYTES: usize = 32 << 10;
pub(crate) const MAX_HEADERS: usize = 128;
/// The longest method that is accepted.
const METHOD_BYTES: usize = 64;

/// Hop-by-hop headers; `Upgrade` is forwarded only for WebSockets.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "upgrade",
];

/// The scheme of basic authentication.
const BASIC: &[u8] = b"Basic ";

/// Headers that define the framing or the host of a message.
pub(crate) const FRAMING: &[&str] = &["content-length", "host", "transfer-encoding"];

/// The protocol that bytes look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guess {
    /// More bytes are needed.
    Unknown,
    /// A request of HTTP/1.
    Version1,
    /// The preface of HTTP/2 (RFC 9113, section 3.4).
    Version2,
    /// Another protocol.
    NotHttp,
}

/// Whether bytes are the start of a request: a method, a space, and the version at the end of the
/// line.
pub fn guess(bytes: &[u8]) -> Guess {
    // A server may ignore empty lines before it (RFC 9112, section 2.2).
    let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let bytes = bytes.get(blank..).unwrap_or_default();
    let method = bytes.iter().take_while(|byte| is_token(**byte)).count();
    if method > METHOD_BYTES {
        return Guess::NotHttp;
    }
    match bytes.get(method) {
        None => return Guess::Unknown,
        Some(b' ') if method > 0 => {}
        Some(_) => return Guess::NotHttp,
    }
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return Guess::Unknown;
    };
    let line = bytes.get(..end).unwrap_or_default().trim_ascii_end();
    let version = line.rsplit(|byte| matches!(byte, b' ' | b'\t')).next().unwrap_or_default();
    match version {
        b"HTTP/2.0" => Guess::Version2,
        // Also an invalid version: a server may be lenient.
        version if version.len() >= 5 && version[..5].eq_ignore_ascii_case(b"HTTP/") => {
            Guess::Version1
        }
        _ => Guess::NotHttp,
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// How much follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// Exactly so many bytes.
    Bytes(u64),
    /// Any number of bytes.
    Open,
}

impl Body {
    /// Splits off the bytes after the head that belong to the body, and returns how much is still
    /// to come.
    pub fn split(self, bytes: &[u8]) -> (&[u8], Self) {
        match self {
            Self::Bytes(length) => {
                let count = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
                (bytes.get(..count).unwrap_or_default(), Self::Bytes(length - count as u64))
            }
            Self::Open => (bytes, Self::Open),
        }
    }
}

/// The head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The method.
    pub method: String,
    /// The target: a path, an absolute URL, or an authority.
    pub target: String,
    /// 0 or 1, after `HTTP/1.`.
    pub minor: u8,
    headers: Vec<(String, Vec<u8>)>,
}

impl Head {
    /// Parses a head, and returns its length in bytes; `None` while it is incomplete.
    ///
    /// # Errors
    /// Why it is invalid.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, &'static str> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let length = match request.parse(bytes.get(..HEAD_BYTES).unwrap_or(bytes)) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES => return Ok(None),
            Ok(httparse::Status::Partial) => return Err("the head of the request is too long"),
            Err(httparse::Error::TooManyHeaders) => {
                return Err("the request has too many headers");
            }
            Err(_) => return Err("the head of the request is malformed"),
        };
        let (Some(method), Some(target), Some(minor)) =
            (request.method, request.path, request.version)
        else {
            return Err("the head of the request is malformed");
        };
        let header =
            |header: &httparse::Header<'_>| (header.name.to_owned(), header.value.to_vec());
        let headers = request.headers.iter().map(header).collect();
        let head = Self { method: method.to_owned(), target: target.to_owned(), minor, headers };
        Ok(Some((head, length)))
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let is_it = move |header: &&(String, Vec<u8>)| header.0.eq_ignore_ascii_case(name);
        self.headers.iter().filter(is_it).map(|(_, value)| value.as_slice())
    }

    /// The host that the headers name, if they do.
    ///
    /// # Errors
    /// [`Refusal::InvalidRequest`] for more than one.
    pub fn host(&self) -> Result<Option<String>, Refusal> {
        let mut values = self.values("host");
        let first = values.next();
        if values.next().is_some() {
            return Err(Refusal::InvalidRequest { what: "it has more than one Host header" });
        }
        let text = first.map(|value| String::from_utf8_lossy(value.trim_ascii()).into_owned());
        Ok(text.filter(|text| !text.is_empty()))
    }

    /// The authority in the target, if that is not only a path.
    ///
    /// # Errors
    /// [`Refusal::InvalidRequest`] for a target of another scheme.
    pub fn target_authority(&self) -> Result<Option<&str>, Refusal> {
        if self.target.starts_with('/') || self.target == "*" {
            return Ok(None);
        }
        if self.method == "CONNECT" {
            return Ok(Some(&self.target));
        }
        Ok(Some(self.absolute()?.0))
    }

    /// The authority and the rest of an absolute `http:` target.
    ///
    /// # Errors
    /// [`Refusal::InvalidRequest`] for every other target.
    pub fn absolute(&self) -> Result<(&str, &str), Refusal> {
        let what = "its target is not an absolute URL with `http:`";
        let rest = match self.target.split_at_checked("http://".len()) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http://") => rest,
            _ => return Err(Refusal::InvalidRequest { what }),
        };
        // Some parsers take it for a slash, which ends the host, and some do not.
        if rest.contains('\\') {
            return Err(Refusal::InvalidRequest { what: "its target contains a backslash" });
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        Ok(rest.split_at(end))
    }

    /// The length of the body.
    ///
    /// # Errors
    /// [`Refusal::InvalidRequest`] if two parsers could find two lengths.
    pub fn body(&self) -> Result<Body, Refusal> {
        let invalid = |what| Err(Refusal::InvalidRequest { what });
        let is_chunked = self.values("transfer-encoding").next().is_some();
        let mut length = None;
        for value in self.values("content-length") {
            let text = std::str::from_utf8(value.trim_ascii()).unwrap_or_default();
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            match text.parse::<u64>() {
                Ok(number) if is_number && length.is_none_or(|length| length == number) => {
                    length = Some(number);
                }
                _ => return invalid("its Content-Length is invalid"),
            }
        }
        match (is_chunked, length) {
            (true, Some(_)) => invalid("it has both Content-Length and Transfer-Encoding"),
            (true, None) if self.minor == 0 => invalid("HTTP/1.0 has no transfer encodings"),
            (true, None) => Ok(Body::Open),
            _ if self.is_web_socket() => Ok(Body::Open),
            (false, length) => Ok(Body::Bytes(length.unwrap_or(0))),
        }
    }

    /// Whether the request is to switch to WebSocket.
    pub(crate) fn is_web_socket(&self) -> bool {
        self.values("upgrade").any(|value| value.trim_ascii().eq_ignore_ascii_case(b"websocket"))
    }

    /// Replaces each occurrence of some bytes in the headers that the sender may choose. Returns
    /// whether there is one.
    pub fn replace(&mut self, what: &[u8], with: &[u8]) -> bool {
        let mut has_changed = false;
        for (name, value) in &mut self.headers {
            if !FRAMING.iter().any(|other| name.eq_ignore_ascii_case(other)) {
                let new = replaced(value, what, with);
                has_changed |= new != *value;
                *value = new;
            }
        }
        has_changed
    }

    /// Also replaces them in base64-encoded user names and passwords (`Authorization: Basic`, RFC
    /// 7617). Returns, for each that has changed, its new and its old encoding.
    pub fn replace_in_basic(&mut self, what: &[u8], with: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut changed = Vec::new();
        let authorization =
            self.headers.iter_mut().filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        for (_, value) in authorization {
            let Some((scheme, encoded)) = value.split_at_checked(BASIC.len()) else { continue };
            let encoded = encoded.trim_ascii();
            let Some(text) = STANDARD.decode(encoded).ok().map(Zeroizing::new) else { continue };
            if !scheme.eq_ignore_ascii_case(BASIC) {
                continue;
            }
            let replaced_text = Zeroizing::new(replaced(&text, what, with));
            if replaced_text != text {
                let now = STANDARD.encode(&replaced_text).into_bytes();
                changed.push((now.clone(), encoded.to_vec()));
                *value = [BASIC, &now].concat();
            }
        }
        changed
    }

    /// Removes all headers with a name.
    pub(crate) fn remove(&mut self, name: &str) {
        self.headers.retain(|(own, _)| !own.eq_ignore_ascii_case(name));
    }

    /// Sets a header, and removes all others with its name.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        self.remove(name);
        self.headers.push((name.to_owned(), value.to_vec()));
    }

    /// The head for the host itself: without hop-by-hop headers, and as the last request of its
    /// connection. `target` and host are replaced if they are given.
    pub fn to_origin(&self, replaced: Option<(&str, &str)>) -> Vec<u8> {
        let target = replaced.map_or(self.target.as_str(), |(target, _)| target);
        let mut bytes = format!("{} {target} HTTP/1.{}\r\n", self.method, self.minor).into_bytes();
        let mut header = |name: &str, value: &[u8]| {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        };
        if let Some((_, host)) = replaced {
            header("Host", host.as_bytes());
        }
        for (name, value) in &self.headers {
            let is_replaced = replaced.is_some() && name.eq_ignore_ascii_case("host");
            if !is_replaced && !self.is_hop_by_hop(name) {
                header(name, value);
            }
        }
        if self.is_web_socket() {
            header("Upgrade", b"websocket");
            header("Connection", b"Upgrade, close");
        } else {
            header("Connection", b"close");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    /// Whether a header is hop-by-hop, by its name or because `Connection` lists it. Framing
    /// headers are always forwarded, even if listed.
    fn is_hop_by_hop(&self, name: &str) -> bool {
        let is = |other: &&str| name.eq_ignore_ascii_case(other);
        if FRAMING.iter().any(is) {
            return false;
        }
        let is_listed = |value: &[u8]| {
            let mut words = value.split(|byte| *byte == b',');
            words.any(|word| word.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
        };
        HOP_BY_HOP.iter().any(is) || self.values("connection").any(is_listed)
    }
}

/// Bytes with each occurrence of some bytes replaced.
pub(crate) fn replaced(bytes: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, others)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(what).filter(|_| !what.is_empty()) {
            result.extend_from_slice(with);
            rest = after;
        } else {
            result.push(*first);
            rest = others;
        }
    }
    result
}

/// Parses the host and the port of an authority (RFC 3986, section 3.2) without userinfo.
///
/// # Errors
/// Why it is invalid.
pub fn authority(text: &str) -> Result<(Host, Option<u16>), Refusal> {
    let what = "its host and port are invalid";
    let (host, port) = match text.rsplit_once(':') {
        // The colons of an IPv6 address are within brackets.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    if host.contains(':') && !host.starts_with('[') {
        return Err(Refusal::InvalidRequest { what });
    }
    let port = match port {
        None | Some("") => None,
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            let number = port.parse::<u16>().ok().filter(|port| *port != 0);
            Some(number.ok_or(Refusal::InvalidRequest { what })?)
        }
        Some(_) => return Err(Refusal::InvalidRequest { what }),
    };
    Ok((Host::parse(host)?, port))
}
