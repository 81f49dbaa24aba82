//! Messages of the domain name system (RFC 1035), as far as a resolver needs them: questions that are
//! read and asked, answers that are written and read. Both kinds come from strangers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use stockade_core::network::{InvalidName, Name};

use crate::resolve::{Found, NotFound};

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
/// How long an answer may be kept inside. The address stays a name's own; the policy may change.
const VALID_SECONDS: u32 = 60;
/// The datagram that everybody can take (DNS flag day 2020).
const DATAGRAM_BYTES: u16 = 1232;
/// The most records of an answer that are looked at, and the longest chain of aliases.
const MAX_RECORDS: usize = 256;
const MAX_ALIASES: usize = 16;

/// What is asked of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Its address of IPv4.
    A,
    /// Its address of IPv6.
    Aaaa,
    /// Something else.
    Other,
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query<'a> {
    id: u16,
    flags: u16,
    /// The name, its labels with dots between.
    text: String,
    kind: u16,
    class: u16,
    /// The question as it was asked: it is repeated to the letter.
    question: &'a [u8],
    is_extended: bool,
}

/// What cannot be read as a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// It is not even the beginning of one, and is not answered.
    NotAQuestion,
    /// It is one that breaks off or holds something else.
    Format {
        /// Its number.
        id: u16,
    },
    /// It is another operation than a question.
    Operation {
        /// Its number.
        id: u16,
    },
}

/// What a question is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// An address.
    Address(IpAddr),
    /// There is such a name, and nothing of that kind.
    Nothing,
    /// There is no such name.
    NoSuchName,
    /// There is none, as far as the policy goes; why.
    Denied(String),
    /// It could not be found out; why.
    Failed(String),
    /// Not a class of this world.
    NotImplemented,
}

impl Malformed {
    /// The answer, where one is due.
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
    /// Reads a message with one question.
    ///
    /// # Errors
    /// What it is if it is none.
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
        // Of the rest only whether the asker knows extensions matters (RFC 6891).
        let is_extended =
            additional > 0 && reader.take(1) == Some(&[0]) && reader.number16() == Some(TYPE_OPT);
        Ok(Self { id, flags, text, kind, class, question, is_extended })
    }

    /// The name that is asked for.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn name(&self) -> Result<Name, InvalidName> {
        Name::parse(&self.text)
    }

    /// What is asked of it.
    pub const fn kind(&self) -> Kind {
        match self.kind {
            TYPE_A => Kind::A,
            TYPE_AAAA => Kind::Aaaa,
            _ => Kind::Other,
        }
    }

    /// Whether it is about the internet, as all questions are.
    pub const fn is_internet(&self) -> bool {
        self.class == INTERNET
    }

    /// The message that answers it.
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
            // The name is the one in the question, 12 bytes from the start.
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

/// A question to a name server.
pub fn question(id: u16, name: &Name, kind: Kind) -> Vec<u8> {
    let mut bytes = header(id, RECURSION_DESIRED, [1, 0, 0, 1]);
    for label in name.as_str().split('.') {
        // A name's labels have at most 63 bytes.
        bytes.push(u8::try_from(label.len()).unwrap_or_default());
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    put16(&mut bytes, [if kind == Kind::Aaaa { TYPE_AAAA } else { TYPE_A }, INTERNET]);
    extension(&mut bytes, &[]);
    bytes
}

/// What a name server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The answer, or that there is none.
    Answer(Result<Found, NotFound>),
    /// There is more than fits: ask over a connection.
    Truncated,
}

/// Reads an answer to a question of [`question`]; `None` for what answers another one, or cannot be
/// read.
pub fn read(bytes: &[u8], id: u16, name: &Name, kind: Kind) -> Option<Said> {
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
    let wanted = if kind == Kind::Aaaa { TYPE_AAAA } else { TYPE_A };
    let asked = reader.name(Pointers::Refused)?;
    if !asked.eq_ignore_ascii_case(name.as_str())
        || reader.number16()? != wanted
        || reader.number16()? != INTERNET
    {
        return None;
    }
    if flags & IS_TRUNCATED != 0 {
        return Some(Said::Truncated);
    }
    match flags & 0b1111 {
        0 => {}
        3 => return Some(Said::Answer(Err(NotFound::NoSuchName))),
        code => {
            let words = format!("the name server answered with code {code}");
            return Some(Said::Answer(Err(NotFound::Failed(words))));
        }
    }
    let mut records = Vec::new();
    for _ in 0..usize::from(answers).min(MAX_RECORDS) {
        records.push(reader.record()?);
    }
    Some(Said::Answer(addresses(&records, name.as_str(), wanted)))
}

/// The addresses of a name among records, through its aliases.
fn addresses(records: &[Record], name: &str, wanted: u16) -> Result<Found, NotFound> {
    let (mut owner, mut valid) = (name.to_owned(), u32::MAX);
    for _ in 0..MAX_ALIASES {
        let own = |record: &&Record| record.owner.eq_ignore_ascii_case(&owner);
        let found: Vec<IpAddr> = records
            .iter()
            .filter(own)
            .filter(|record| record.kind == wanted)
            .filter_map(|record| record.address.inspect(|_| valid = valid.min(record.seconds)))
            .collect();
        if !found.is_empty() {
            let valid = Duration::from_secs(valid.into());
            return Ok(Found { addresses: found, valid });
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

/// The record that says that extensions are known, with options in it.
fn extension(bytes: &mut Vec<u8>, options: &[u8]) {
    bytes.push(0);
    put16(bytes, [TYPE_OPT, DATAGRAM_BYTES, 0, 0, u16::try_from(options.len()).unwrap_or(0)]);
    bytes.extend_from_slice(options);
}

fn put16<const COUNT: usize>(bytes: &mut Vec<u8>, numbers: [u16; COUNT]) {
    bytes.extend(numbers.into_iter().flat_map(u16::to_be_bytes));
}

/// Whether a name may go on at an earlier place (RFC 1035, section 4.1.4).
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

    /// A name, its labels with dots between. A label with a dot or a byte beyond ASCII in it is none
    /// of a host: its place is taken by something that no host has.
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
                    // Only ever backwards, so that it comes to an end.
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
