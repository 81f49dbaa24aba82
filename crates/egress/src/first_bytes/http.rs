//! The head of an HTTP/1 request (RFC 9112): parsed, and written again without the hop-by-hop
//! headers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stockade_core::network::{Host, Refusal};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use zeroize::Zeroizing;

use super::body::{Body, Chunks};
use super::grammar::{self, is_token};
use super::names::{hyphenated, overrides};
use super::other::{is_blank, is_like_request};

/// The longest head, in bytes, and the most headers of a response.
pub const HEAD_BYTES: usize = 32 << 10;
pub(crate) const MAX_HEADERS: usize = 128;

/// Hop-by-hop headers; `Upgrade` is forwarded only for WebSockets.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "upgrade",
];

/// The scheme of basic authentication.
pub(crate) const BASIC: &[u8] = b"Basic ";

/// Headers that define the framing or the host of a message.
pub(crate) const FRAMING: &[&str] = &["content-length", "host", "transfer-encoding"];

/// The parameter of a query that replaces the method (Rails, Laravel, Express).
const METHOD_PARAMETER: &[u8] = b"_method";

/// The protocol that bytes look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guess {
    /// More bytes are needed.
    Unknown,
    /// A request of HTTP/1, as far as its first line says.
    Version1,
    /// The preface of HTTP/2 (RFC 9113, section 3.4).
    Version2,
    /// A request to some server, but not exactly one of HTTP/1.
    Invalid,
    /// Another protocol.
    NotHttp,
}

/// What the first line shows, as far as it goes.
pub fn guess(bytes: &[u8]) -> Guess {
    let blank = bytes.iter().take_while(|byte| is_blank(**byte)).count();
    let bytes = bytes.get(blank..).unwrap_or_default();
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let line = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
    let (line, has_return) = line.strip_suffix(b"\r").map_or((line, false), |line| (line, true));
    if end.is_none() {
        let method = line.iter().take_while(|byte| is_token(**byte)).count();
        let is_method = line.get(method).is_none_or(|byte| method > 0 && *byte == b' ');
        if is_method && line.iter().all(|byte| *byte == b' ' || byte.is_ascii_graphic()) {
            return Guess::Unknown;
        }
    } else if blank == 0 && has_return {
        if line == b"PRI * HTTP/2.0" {
            return Guess::Version2;
        }
        if grammar::request_line(line).is_some() {
            return Guess::Version1;
        }
    }
    if is_like_request(line) { Guess::Invalid } else { Guess::NotHttp }
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
        let bounded = bytes.get(..HEAD_BYTES).unwrap_or(bytes);
        let Some((line, headers, length)) = grammar::head(bounded)? else {
            if bytes.len() < HEAD_BYTES {
                return Ok(None);
            }
            return Err("the head of the request is too long");
        };
        let grammar::RequestLine { method, target, minor } = line;
        let head = Self { method, target, minor, headers };
        head.check_names()?;
        Ok(Some((head, length)))
    }

    /// The head of a request that came over a stream of HTTP/2, with its authority in the header
    /// `Host`.
    ///
    /// # Errors
    /// Why it is invalid.
    pub(crate) fn of_stream(
        method: &str,
        target: &str,
        headers: Vec<(String, Vec<u8>)>,
    ) -> Result<Self, &'static str> {
        let head = Self { method: method.to_owned(), target: target.to_owned(), minor: 1, headers };
        head.check_names()?;
        if head.values("content-length").count() > 1 {
            return Err("it has more than one Content-Length");
        }
        Ok(head)
    }

    /// The headers that are forwarded over a stream of HTTP/2.
    pub(crate) fn stream_headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let is_forwarded = |header: &&(String, Vec<u8>)| {
            let is = |other: &&str| header.0.eq_ignore_ascii_case(other);
            is(&"te") || !(is(&"host") || is(&"transfer-encoding") || HOP_BY_HOP.iter().any(is))
        };
        let headers = self.headers.iter().filter(is_forwarded);
        headers.map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// The first value of a header.
    pub(crate) fn value(&self, name: &str) -> Option<&[u8]> {
        let is_it = |header: &&(String, Vec<u8>)| header.0.eq_ignore_ascii_case(name);
        self.headers.iter().find(is_it).map(|(_, value)| value.as_slice())
    }

    fn check_names(&self) -> Result<(), &'static str> {
        let is_disguised = |name: &str| {
            let plain = hyphenated(name);
            plain != name && FRAMING.iter().any(|other| plain.eq_ignore_ascii_case(other))
        };
        if self.headers.iter().any(|(name, _)| is_disguised(name)) {
            return Err("the name of a header resembles one that frames the message");
        }
        Ok(())
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
        let Some(first) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Refusal::InvalidRequest { what: "it has more than one Host header" });
        }
        if first.is_empty() {
            return Err(Refusal::InvalidRequest { what: "its Host header is empty" });
        }
        Ok(Some(String::from_utf8_lossy(first).into_owned()))
    }

    /// Sets the host, in its place among the headers.
    pub fn set_host(&mut self, host: &str) {
        let value = host.as_bytes().to_vec();
        let own = self.headers.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        match own {
            Some((_, own)) => *own = value,
            None => self.headers.insert(0, ("Host".to_owned(), value)),
        }
    }

    /// The authority in the target, if that is not only a path.
    ///
    /// # Errors
    /// [`Refusal::InvalidRequest`] for a target of another scheme.
    pub fn target_authority(&self) -> Result<Option<&str>, Refusal> {
        match self.target.as_str() {
            target if self.method == "CONNECT" => Ok(Some(target)),
            "*" if self.method == "OPTIONS" => Ok(None),
            target if target.starts_with('/') => Ok(None),
            _ => Ok(Some(self.absolute()?.0)),
        }
    }

    /// The target without the authority of an absolute one: a path, `*`, or the target of CONNECT.
    ///
    /// # Errors
    /// [`Refusal::InvalidRequest`] for a target of another scheme.
    pub fn origin_target(&self) -> Result<String, Refusal> {
        if self.method == "CONNECT" || self.target_authority()?.is_none() {
            return Ok(self.target.clone());
        }
        let (_, path) = self.absolute()?;
        Ok(match (path, self.method.as_str()) {
            ("", "OPTIONS") => "*".to_owned(),
            (path, _) if path.starts_with('/') => path.to_owned(),
            (path, _) => format!("/{path}"),
        })
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
        if self.values("expect").any(|value| !value.eq_ignore_ascii_case(b"100-continue")) {
            return invalid("its Expect is not exactly `100-continue`");
        }
        let codings: Vec<_> = self.values("transfer-encoding").collect();
        let lengths: Vec<_> = self.values("content-length").collect();
        match (codings.as_slice(), lengths.as_slice()) {
            ([], []) if self.method == "CONNECT" => {
                Ok(Body::Switched { held: Vec::new(), is_tunnel: true })
            }
            ([], []) if self.is_web_socket() => {
                Ok(Body::Switched { held: Vec::new(), is_tunnel: false })
            }
            ([], []) => Ok(Body::Bytes(0)),
            _ if self.method == "CONNECT" => invalid("CONNECT has no body"),
            ([], [length]) => match plain_number(length) {
                Some(length) => Ok(Body::Bytes(length)),
                None => invalid("its Content-Length is invalid"),
            },
            ([], _) => invalid("it has more than one Content-Length"),
            (_, [_, ..]) => invalid("it has both Content-Length and Transfer-Encoding"),
            _ if self.minor == 0 => invalid("HTTP/1.0 has no transfer encodings"),
            ([coding], []) if coding.eq_ignore_ascii_case(b"chunked") => {
                Ok(Body::Chunked(Chunks::default()))
            }
            _ => invalid("its Transfer-Encoding is not exactly `chunked`"),
        }
    }

    /// Whether it asks to switch to the protocol of WebSockets (RFC 6455, section 4.1), and to no
    /// other one.
    pub(crate) fn is_web_socket(&self) -> bool {
        let mut protocols = self.values("upgrade");
        self.method == "GET"
            && self.minor == 1
            && protocols.next().is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"))
            && protocols.next().is_none()
            && self.is_listed("upgrade")
            && self.values("transfer-encoding").chain(self.values("content-length")).count() == 0
    }

    /// Whether `Connection` lists a header.
    fn is_listed(&self, name: &str) -> bool {
        let is_listed = |value: &[u8]| {
            let mut words = value.split(|byte| *byte == b',');
            words.any(|word| word.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
        };
        self.values("connection").any(is_listed)
    }

    /// Whether some server takes it for a request with another method or path than its first line
    /// has.
    pub(crate) fn overrides_itself(&self) -> bool {
        let query = self.target.split_once('?').map_or("", |(_, query)| query);
        let has_parameter = query.split(['&', ';']).any(|pair| {
            let name = pair.split_once('=').map_or(pair, |(name, _)| name);
            decoded_parameter(name).eq_ignore_ascii_case(METHOD_PARAMETER)
        });
        has_parameter || self.headers.iter().any(|(name, _)| overrides(name))
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

    /// Whether [`Self::replace`] or [`Self::replace_in_basic`] would replace a text.
    pub(crate) fn contains(&self, what: &[u8]) -> bool {
        let mut changed = self.clone();
        changed.replace(what, b"") || !changed.replace_in_basic(what, b"").is_empty()
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

    /// Removes all headers with a name, and those that gateways and frameworks take for one with it.
    pub(crate) fn remove(&mut self, name: &str) {
        let name = hyphenated(name);
        self.headers.retain(|(own, _)| !hyphenated(own).eq_ignore_ascii_case(&name));
    }

    /// Sets a header, and removes all others with its name.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        self.remove(name);
        self.headers.push((name.to_owned(), value.to_vec()));
    }

    /// Sets a parameter of the query, and removes all others with its name, also encoded.
    pub(crate) fn set_parameter(&mut self, name: &str, encoded: &str) {
        let (path, query) = match self.target.split_once('?') {
            Some((path, query)) => (path, query),
            None => (self.target.as_str(), ""),
        };
        let is_other = |pair: &&str| {
            let own = pair.split_once('=').map_or(*pair, |(own, _)| own);
            !pair.is_empty() && decoded_parameter(own) != name.as_bytes()
        };
        let mut pairs: Vec<_> =
            query.split(['&', ';']).filter(is_other).map(str::to_owned).collect();
        pairs.push(format!("{name}={encoded}"));
        self.target = format!("{path}?{}", pairs.join("&"));
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
        HOP_BY_HOP.iter().any(is) || self.is_listed(name)
    }
}

/// A number of digits alone.
fn plain_number(text: &[u8]) -> Option<u64> {
    let is_plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}

/// Whether bytes contain some other bytes.
pub(crate) fn contains(bytes: &[u8], what: &[u8]) -> bool {
    let Some(first) = what.first() else { return true };
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        rest = rest.get(at..).unwrap_or_default();
        if rest.starts_with(what) {
            return true;
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    false
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

/// The head of a request, and the bytes after it; `None` if nothing arrives.
pub(crate) async fn head(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Option<(Head, Vec<u8>)>, Refusal> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        match stream.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) => {}
        }
        match Head::parse(&bytes) {
            Ok(None) => {}
            Ok(Some((head, length))) => {
                return Ok(Some((head, bytes.split_off(length))));
            }
            Err(what) => {
                let is_2 = guess(&bytes) == Guess::Version2;
                let what =
                    if is_2 { "it is HTTP/2, and only HTTP/1.1 is possible here" } else { what };
                return Err(Refusal::InvalidRequest { what });
            }
        }
    }
}

/// The name of a parameter as a server decodes it.
fn decoded_parameter(name: &str) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut bytes = name.bytes();
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let digit = |byte: Option<u8>| char::from(byte.unwrap_or_default()).to_digit(16);
        match (byte, digit(ahead.next()), digit(ahead.next())) {
            (b'%', Some(high), Some(low)) => {
                plain.push(u8::try_from(high * 16 + low).unwrap_or_default());
                bytes = ahead;
            }
            (b'+', ..) => plain.push(b' '),
            _ => plain.push(byte),
        }
    }
    plain
}
