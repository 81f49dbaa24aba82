//! DNS messages (RFC 1035), as far as a resolver needs them: parsing and building queries and
//! responses. Both come from untrusted peers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use stockade_core::network::{InvalidName, Name};

use crate::resolve::{NotFound, Resolution};

const HEADER_BYTES: usize = 12;
const NAME_BYTES: usize = 255;
const IS_RESPONSE: u16 = 1 << 15;
const OPERATION: u16 = 0b1111 << 11;
const IS_TRUNCATED: u16 = 1 << 9;
const RECURSION_DESIRED: u16 = 1 << 8;
const RECURSION_AVAILABLE: u16 = 1 << 7;
const INTERNET: u16 = 1;
const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_AAAA: u16 = 28;
const TYPE_OPT: u16 = 41;
/// `Extended DNS Error` (RFC 8914), and its codes.
const EXTENDED_ERROR: u16 = 15;
const BLOCKED: u16 = 15;
const NETWORK_ERROR: u16 = 23;
const EXTRA_TEXT_BYTES: usize = 200;
/// How long programs inside may cache an answer. The address is reserved for the name; the policy
/// may change.
const VALID_SECONDS: u32 = 60;
/// The size of a datagram that every client supports (DNS flag day 2020).
const DATAGRAM_BYTES: u16 = 1232;
/// The most records of a response that are examined, and the longest chain of aliases.
const MAX_RECORDS: usize = 256;
const MAX_ALIASES: usize = 16;

/// The type of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// IPv4 address.
    A,
    /// IPv6 address.
    Aaaa,
    /// Any other type.
    Other,
}

/// A query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query<'a> {
    id: u16,
    flags: u16,
    /// The name, its labels separated by dots.
    text: String,
    kind: u16,
    class: u16,
    /// The bytes of the question section: the response repeats them unchanged.
    question: &'a [u8],
    is_extended: bool,
}

/// A message that is not a valid query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// It is too short to be a query, and is not answered.
    NotAQuestion,
    /// It is incomplete or contains other data.
    Format {
        /// Its id.
        id: u16,
    },
    /// It has another operation code.
    Operation {
        /// Its id.
        id: u16,
    },
}

/// The answer to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// An address.
    Address(IpAddr),
    /// The name exists, but has no record of that type.
    Nothing,
    /// The name does not exist.
    NoSuchName,
    /// The policy denies the name; the reason.
    Denied(String),
    /// The lookup failed; the reason.
    Failed(String),
    /// The class is not supported.
    NotImplemented,
}

impl Malformed {
    /// The response, if one is to be sent.
    pub fn answer(self) -> Option<Vec<u8>> {
        let (id, code) = match self {
            Self::NotAQuestion => return None,
            Self::Format { id } => (id, 1),
            Self::Operation { id } => (id, 4),
        };
        Some(header(id, IS_RESPONSE | code, [0; 4]))
    }
}

impl<'a> Query<'a> {
    /// Parses a message with one question.
    ///
    /// # Errors
    /// Why it is not a valid query.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader { bytes, at: 0 };
        let id = reader.number16().ok_or(Malformed::NotAQuestion)?;
        let flags = reader.number16().ok_or(Malformed::NotAQuestion)?;
        if flags & IS_RESPONSE != 0 {
            return Err(Malformed::NotAQuestion);
        }
        if flags & OPERATION != 0 {
            return Err(Malformed::Operation { id });
        }
        let malformed = || Malformed::Format { id };
        let counts = [(); 4].map(|()| reader.number16());
        let [Some(1), Some(0), Some(0), Some(additional)] = counts else { return Err(malformed()) };
        let text = reader.name(Pointers::Refused).ok_or_else(malformed)?;
        let kind = reader.number16().ok_or_else(malformed)?;
        let class = reader.number16().ok_or_else(malformed)?;
        let question = bytes.get(HEADER_BYTES..reader.at).unwrap_or_default();
        // Of the rest, only the support of EDNS by the client matters (RFC 6891).
        let is_extended =
            additional > 0 && reader.take(1) == Some(&[0]) && reader.number16() == Some(TYPE_OPT);
        Ok(Self { id, flags, text, kind, class, question, is_extended })
    }

    /// The queried name.
    ///
    /// # Errors
    /// Why it is invalid.
    pub fn name(&self) -> Result<Name, InvalidName> {
        Name::parse(&self.text)
    }

    /// The query type.
    pub const fn kind(&self) -> Kind {
        match self.kind {
            TYPE_A => Kind::A,
            TYPE_AAAA => Kind::Aaaa,
            _ => Kind::Other,
        }
    }

    /// Whether its class is internet, as that of all usual queries.
    pub const fn is_internet(&self) -> bool {
        self.class == INTERNET
    }

    /// The response message.
    pub fn answer(&self, reply: &Reply) -> Vec<u8> {
        let (code, address, error) = match reply {
            Reply::Address(address) => (0, Some(*address), None),
            Reply::Nothing => (0, None, None),
            Reply::NoSuchName => (3, None, None),
            Reply::Denied(text) => (3, None, Some((BLOCKED, text))),
            Reply::Failed(text) => (2, None, Some((NETWORK_ERROR, text))),
            Reply::NotImplemented => (4, None, None),
        };
        let flags = IS_RESPONSE | RECURSION_AVAILABLE | self.flags & RECURSION_DESIRED | code;
        let counts = [1, u16::from(address.is_some()), 0, u16::from(self.is_extended)];
        let mut bytes = header(self.id, flags, counts);
        bytes.extend_from_slice(self.question);
        if let Some(address) = address {
            // A pointer to the name in the question, 12 bytes from the start.
            put16(&mut bytes, [0xc000 | 12, self.kind, INTERNET]);
            bytes.extend_from_slice(&VALID_SECONDS.to_be_bytes());
            match address {
                IpAddr::V4(v4) => {
                    put16(&mut bytes, [4]);
                    bytes.extend_from_slice(&v4.octets());
                }
                IpAddr::V6(v6) => {
                    put16(&mut bytes, [16]);
                    bytes.extend_from_slice(&v6.octets());
                }
            }
        }
        if self.is_extended {
            let mut option = Vec::new();
            if let Some((code, text)) = error {
                let text =
                    text.get(..text.floor_char_boundary(EXTRA_TEXT_BYTES)).unwrap_or_default();
                let length = u16::try_from(2 + text.len()).unwrap_or(2);
                put16(&mut option, [EXTENDED_ERROR, length, code]);
                option.extend_from_slice(text.as_bytes());
            }
            extension(&mut bytes, &option);
        }
        bytes
    }
}

/// Builds a query to a name server.
pub fn question(id: u16, name: &Name, kind: Kind) -> Vec<u8> {
    let mut bytes = header(id, RECURSION_DESIRED, [1, 0, 0, 1]);
    for label in name.as_str().split('.') {
        // A label has at most 63 bytes.
        bytes.push(u8::try_from(label.len()).unwrap_or_default());
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    put16(&mut bytes, [if kind == Kind::Aaaa { TYPE_AAAA } else { TYPE_A }, INTERNET]);
    extension(&mut bytes, &[]);
    bytes
}

/// The response of a name server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The addresses, or that there are none.
    Complete(Result<Resolution, NotFound>),
    /// The response is truncated: retry over TCP.
    Truncated,
}

/// Parses a response to a query of [`question`]; `None` if it is the response to another query, or
/// malformed.
pub fn read(bytes: &[u8], id: u16, name: &Name, kind: Kind) -> Option<Answer> {
    let mut reader = Reader { bytes, at: 0 };
    if reader.number16()? != id {
        return None;
    }
    let flags = reader.number16()?;
    if flags & (IS_RESPONSE | OPERATION) != IS_RESPONSE || reader.number16()? != 1 {
        return None;
    }
    let answers = reader.number16()?;
    reader.take(4)?;
    let record_type = if kind == Kind::Aaaa { TYPE_AAAA } else { TYPE_A };
    let question_name = reader.name(Pointers::Refused)?;
    if !question_name.eq_ignore_ascii_case(name.as_str())
        || reader.number16()? != record_type
        || reader.number16()? != INTERNET
    {
        return None;
    }
    if flags & IS_TRUNCATED != 0 {
        return Some(Answer::Truncated);
    }
    match flags & 0b1111 {
        0 => {}
        3 => return Some(Answer::Complete(Err(NotFound::NoSuchName))),
        code => {
            let words = format!("the name server answered with code {code}");
            return Some(Answer::Complete(Err(NotFound::Failed(words))));
        }
    }
    let mut records = Vec::new();
    for _ in 0..usize::from(answers).min(MAX_RECORDS) {
        records.push(reader.record()?);
    }
    Some(Answer::Complete(addresses(&records, name.as_str(), record_type)))
}

/// Finds the addresses of a name in records, following its aliases.
fn addresses(records: &[Record], name: &str, record_type: u16) -> Result<Resolution, NotFound> {
    let (mut owner, mut valid) = (name.to_owned(), u32::MAX);
    for _ in 0..MAX_ALIASES {
        let own = |record: &&Record| record.owner.eq_ignore_ascii_case(&owner);
        let found: Vec<IpAddr> = records
            .iter()
            .filter(own)
            .filter(|record| record.kind == record_type)
            .filter_map(|record| record.address.inspect(|_| valid = valid.min(record.seconds)))
            .collect();
        if !found.is_empty() {
            let valid = Duration::from_secs(valid.into());
            return Ok(Resolution { addresses: found, valid });
        }
        let alias = records
            .iter()
            .filter(own)
            .find_map(|record| record.alias.as_ref().map(|alias| (alias.clone(), record.seconds)));
        let Some((alias, seconds)) = alias else { break };
        valid = valid.min(seconds);
        owner = alias;
    }
    Err(NotFound::NoAddress)
}

struct Record {
    owner: String,
    kind: u16,
    seconds: u32,
    address: Option<IpAddr>,
    alias: Option<String>,
}

fn header(id: u16, flags: u16, counts: [u16; 4]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    put16(&mut bytes, [id, flags]);
    put16(&mut bytes, counts);
    bytes
}

/// Writes an OPT record, which indicates EDNS support, with options.
fn extension(bytes: &mut Vec<u8>, options: &[u8]) {
    bytes.push(0);
    put16(bytes, [TYPE_OPT, DATAGRAM_BYTES, 0, 0, u16::try_from(options.len()).unwrap_or(0)]);
    bytes.extend_from_slice(options);
}

fn put16<const COUNT: usize>(bytes: &mut Vec<u8>, numbers: [u16; COUNT]) {
    bytes.extend(numbers.into_iter().flat_map(u16::to_be_bytes));
}

/// Whether a name may contain compression pointers (RFC 1035, section 4.1.4).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pointers {
    Followed,
    Refused,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn number16(&mut self) -> Option<u16> {
        let [a, b] = self.take(2)? else { return None };
        Some(u16::from_be_bytes([*a, *b]))
    }

    /// A name, its labels separated by dots. A label with a dot or a non-ASCII byte cannot belong
    /// to a host name: it is replaced by text that no host name contains.
    fn name(&mut self, pointers: Pointers) -> Option<String> {
        let mut text = String::new();
        let mut end = None;
        loop {
            let before = self.at;
            let [length] = self.take(1)? else { return None };
            match length {
                0 => break,
                1..=63 => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    let label = self.take(usize::from(*length))?;
                    let is_plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'.';
                    for byte in label {
                        text.push(if is_plain(byte) { char::from(*byte) } else { '%' });
                    }
                    if text.len() > NAME_BYTES {
                        return None;
                    }
                }
                192.. if pointers == Pointers::Followed => {
                    let [low] = self.take(1)? else { return None };
                    end.get_or_insert(self.at);
                    self.at = usize::from(*length & 0b11_1111) << 8 | usize::from(*low);
                    // Only backwards, so that parsing terminates.
                    if self.at >= before {
                        return None;
                    }
                }
                _ => return None,
            }
        }
        if let Some(end) = end {
            self.at = end;
        }
        Some(text)
    }

    fn record(&mut self) -> Option<Record> {
        let owner = self.name(Pointers::Followed)?;
        let kind = self.number16()?;
        let class = self.number16()?;
        let [a, b, c, d] = self.take(4)? else { return None };
        let seconds = u32::from_be_bytes([*a, *b, *c, *d]);
        let length = usize::from(self.number16()?);
        let start = self.at;
        let data = self.take(length)?;
        let mut record = Record { owner, kind, seconds, address: None, alias: None };
        match (class, kind, data) {
            (INTERNET, TYPE_A, [a, b, c, d]) => {
                record.address = Some(Ipv4Addr::new(*a, *b, *c, *d).into());
            }
            (INTERNET, TYPE_AAAA, data) => {
                let octets: [u8; 16] = data.try_into().ok()?;
                record.address = Some(Ipv6Addr::from(octets).into());
            }
            (INTERNET, TYPE_CNAME, _) => {
                let mut alias = Reader { bytes: self.bytes, at: start };
                record.alias = Some(alias.name(Pointers::Followed)?);
            }
            _ => {}
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests;
