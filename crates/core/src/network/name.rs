//! Host names in the one form in which they are compared: ASCII, lower case, no trailing dot.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::printable::is_hidden;

/// The longest name, in bytes, and the longest label (RFC 1035, section 2.3.4).
const NAME_BYTES: usize = 253;
const LABEL_BYTES: usize = 63;

/// How much of an invalid text is repeated in a message, in characters.
const ESCAPED_CHARACTERS: usize = 80;

/// The name of a host, such as `api.example.com`. A text that looks like an address is never a
/// name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// A text that is not a host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{input}` is not a valid host name: {reason}")]
pub struct InvalidName {
    /// The text, shortened and without control characters.
    pub input: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl Name {
    /// Parses a name as people and programs write it: in any case, in any script (IDNA, UTS 46),
    /// with or without a trailing dot.
    ///
    /// # Errors
    /// [`InvalidName`] for a text that two programs could read as different hosts: percent signs,
    /// userinfo, control characters, empty labels, and numbers, which some programs parse as
    /// addresses (`0x7f.1`).
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        canonical(text).map(Self).map_err(|reason| InvalidName { input: escaped(text), reason })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this name is below another one by one label or more; no name is below itself.
    pub fn is_below(&self, parent: &Self) -> bool {
        self.0.strip_suffix(&parent.0).is_some_and(|rest| rest.ends_with('.'))
    }
}

fn canonical(text: &str) -> Result<String, &'static str> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.is_empty() {
        return Err("it is empty");
    }
    // Before anything is decoded: decoded text is never decoded again.
    if text.len() > 4 * NAME_BYTES {
        return Err("it is too long");
    }
    if text.contains(['%', '@']) {
        return Err("it contains `%` or `@`");
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("it contains a control character or a space");
    }
    let name = match url::Host::parse(text) {
        Ok(url::Host::Domain(name)) => name,
        Ok(url::Host::Ipv4(_) | url::Host::Ipv6(_)) => return Err("it is a number"),
        Err(_) => return Err("it contains characters that are not valid in a name"),
    };
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !name.bytes().all(is_of_names) {
        return Err("it contains characters that are not valid in a name");
    }
    if name.len() > NAME_BYTES {
        return Err("it is too long");
    }
    for label in name.split('.') {
        match label.len() {
            0 => return Err("a label is empty"),
            1..=LABEL_BYTES => {}
            _ => return Err("a label is too long"),
        }
    }
    // Some parsers read any text that ends like a number as an address (URL Standard, "ends in a
    // number").
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_hexadecimal =
        last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    if is_hexadecimal || last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("it is a number");
    }
    Ok(name)
}

/// An untrusted text in a printable form: short, and without terminal control characters.
pub(crate) fn escaped(text: &str) -> String {
    let shown = |c: char| if is_hidden(c) { char::REPLACEMENT_CHARACTER } else { c };
    let mut short: String = text.chars().take(ESCAPED_CHARACTERS).map(shown).collect();
    if short.len() < text.len() && text.chars().nth(ESCAPED_CHARACTERS).is_some() {
        short.push('…');
    }
    short
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::parse(text)
    }
}

/// The other end of a connection: a name, or an address literal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name.
    Name(Name),
    /// An address. An IPv4-mapped IPv6 address is stored as IPv4.
    Address(IpAddr),
}

impl Host {
    /// Parses a name, an IPv4 address in dotted decimal, or an IPv6 address with or without
    /// brackets.
    ///
    /// # Errors
    /// As [`Name::parse`].
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let address = match bare {
            Some(bare) => bare.parse::<Ipv6Addr>().map(IpAddr::V6),
            None => text.parse::<IpAddr>(),
        };
        match address {
            Ok(address) => Ok(Self::Address(address.to_canonical())),
            Err(_) => Name::parse(text).map(Self::Name),
        }
    }
}

impl From<Ipv4Addr> for Host {
    fn from(address: Ipv4Addr) -> Self {
        Self::Address(address.into())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Serialized as the text that [`FromStr`] parses.
macro_rules! as_text {
    ($($type:ty),+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

pub(super) use as_text;

impl FromStr for Host {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::parse(text)
    }
}

as_text!(Name, Host);
