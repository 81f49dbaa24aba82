//! The head of a request of HTTP/1 (RFC 9112): read, and written again without what belongs to the
//! one connection that it came over.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stockade_core::network::{Host, Refusal};
use zeroize::Zeroizing;

/// The longest head, in bytes, and the most headers in it.
pub const HEAD_BYTES: usize = 32 << 10;
const MAX_HEADERS: usize = 128;
/// The longest method that is taken for one.
const METHOD_BYTES: usize = 64;

/// Headers of one connection alone; of `Upgrade` only what leads to a WebSocket goes on.
const OF_CONNECTION: &[&str] = &[
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "upgrade",
];

/// The scheme of a user and password.
const BASIC: &[u8] = b"Basic ";

/// What frames a message, or says whose it is.
const FRAMING: &[&str] = &["content-length", "host", "transfer-encoding"];

/// What bytes look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guess {
    /// More have to arrive.
    Unknown,
    /// A request of HTTP/1.
    Version1,
    /// The preface of HTTP/2 (RFC 9113, section 3.4).
    Version2,
    /// Something else.
    No,
}

/// Whether bytes begin a request: a method, a blank, and at the end of the line the version.
pub fn guess(bytes: &[u8]) -> Guess {
    // A server may overlook empty lines before it (RFC 9112, section 2.2).
    let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let bytes = bytes.get(blank..).unwrap_or_default();
    let method = bytes.iter().take_while(|byte| is_token(**byte)).count();
    if method > METHOD_BYTES {
        return Guess::No;
    }
    match bytes.get(method) {
        None => return Guess::Unknown,
        Some(b' ') if method > 0 => {}
        Some(_) => return Guess::No,
    }
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return Guess::Unknown;
    };
    let line = bytes.get(..end).unwrap_or_default().trim_ascii_end();
    let version = line.rsplit(|byte| matches!(byte, b' ' | b'\t')).next().unwrap_or_default();
    match version {
        b"HTTP/2.0" => Guess::Version2,
        // Also what no version is: a server may be generous.
        version if version.len() >= 5 && version[..5].eq_ignore_ascii_case(b"HTTP/") => {
            Guess::Version1
        }
        _ => Guess::No,
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// How much follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// So many bytes, and nothing after them.
    Bytes(u64),
    /// Whatever comes.
    Open,
}

impl Body {
    /// What of the bytes after the head belongs to it, and what of it is still to come.
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
    /// What is to be done.
    pub method: String,
    /// With what: a path, an absolute URL, or an authority.
    pub target: String,
    /// 0 or 1, after `HTTP/1.`.
    pub minor: u8,
    headers: Vec<(String, Vec<u8>)>,
}

impl Head {
    /// Reads a head, and tells how many bytes it has; `None` while not all of it has arrived.
    ///
    /// # Errors
    /// What is wrong with it.
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

    /// The host that the headers name, where they do.
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

    /// The authority in the target, where that is more than a path.
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
        // Some take it for a slash, which ends the host, and some do not.
        if rest.contains('\\') {
            return Err(Refusal::InvalidRequest { what: "its target contains a backslash" });
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        Ok(rest.split_at(end))
    }

    /// How much follows.
    ///
    /// # Errors
    /// [`Refusal::InvalidRequest`] where two readers could think of two lengths.
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

    fn is_web_socket(&self) -> bool {
        self.values("upgrade").any(|value| value.trim_ascii().eq_ignore_ascii_case(b"websocket"))
    }

    /// Replaces each occurrence of some bytes in the headers that are the sender's to set.
    pub fn replace(&mut self, what: &[u8], with: &[u8]) {
        for (name, value) in &mut self.headers {
            if !FRAMING.iter().any(|other| name.eq_ignore_ascii_case(other)) {
                *value = replaced(value, what, with);
            }
        }
    }

    /// Replaces them also in a user and password that are encoded (`Authorization: Basic`, RFC 7617).
    /// For each that has changed, how it is encoded now and how it was.
    pub fn replace_in_basic(&mut self, what: &[u8], with: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut changed = Vec::new();
        let given =
            self.headers.iter_mut().filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        for (_, value) in given {
            let Some((scheme, encoded)) = value.split_at_checked(BASIC.len()) else { continue };
            let encoded = encoded.trim_ascii();
            let Some(text) = STANDARD.decode(encoded).ok().map(Zeroizing::new) else { continue };
            if !scheme.eq_ignore_ascii_case(BASIC) {
                continue;
            }
            let put = Zeroizing::new(replaced(&text, what, with));
            if put != text {
                let now = STANDARD.encode(&put).into_bytes();
                changed.push((now.clone(), encoded.to_vec()));
                *value = [BASIC, &now].concat();
            }
        }
        changed
    }

    /// Sets a header, in the place of all that have its name.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        self.headers.retain(|(own, _)| !own.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_vec()));
    }

    /// The head as it goes to the host itself: without what belongs to the connection that it came
    /// over, and as the last request of the one that it goes over. `target` and host are replaced
    /// where they are given.
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
            if !is_replaced && !self.is_of_connection(name) {
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

    /// Whether a header is about the connection alone, by its name or because `Connection` says so.
    /// What frames the body stays, whatever is said of it.
    fn is_of_connection(&self, name: &str) -> bool {
        let is = |other: &&str| name.eq_ignore_ascii_case(other);
        if FRAMING.iter().any(is) {
            return false;
        }
        let is_listed = |value: &[u8]| {
            let mut words = value.split(|byte| *byte == b',');
            words.any(|word| word.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
        };
        OF_CONNECTION.iter().any(is) || self.values("connection").any(is_listed)
    }
}

/// The heads of a response: those that are of a response to come go with it (RFC 9110, section 15.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// How many bytes they have.
    pub length: usize,
}

impl Response {
    /// Looks for the end of the heads; `None` while not all of them have arrived.
    ///
    /// # Errors
    /// What is wrong with one.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, &'static str> {
        let mut length = 0;
        loop {
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut response = httparse::Response::new(&mut headers);
            match response.parse(bytes.get(length..).unwrap_or_default()) {
                Ok(httparse::Status::Complete(count)) => length += count,
                Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES => return Ok(None),
                Ok(httparse::Status::Partial) => {
                    return Err("the head of the response is too long");
                }
                Err(_) => return Err("the head of the response is malformed"),
            }
            // Of these, only the change to another protocol is the last.
            if !matches!(response.code, Some(100 | 102..=199)) {
                return Ok(Some(Self { length }));
            }
        }
    }
}

/// Bytes with each occurrence of some in them replaced.
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

/// The host and the port of an authority (RFC 3986, section 3.2), which has no userinfo.
///
/// # Errors
/// Why it is none.
pub fn authority(text: &str) -> Result<(Host, Option<u16>), Refusal> {
    let what = "its host and port are invalid";
    let (host, port) = match text.rsplit_once(':') {
        // The colons of an address are within brackets.
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
