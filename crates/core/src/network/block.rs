//! Blocks of addresses in rules: one address, or a prefix (RFC 4632, RFC 4291).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use super::name::{as_text, escaped};
use crate::address::{self, Class, classify};

/// All addresses with the same leading bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// The first address. An IPv4-mapped IPv6 address is stored as IPv4.
    first: IpAddr,
    /// The length of the prefix in bits.
    bits: u8,
}

/// A text that is not a block of addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{input}` is not an address block: {reason}")]
pub struct InvalidBlock {
    /// The text, shortened and without control characters.
    pub input: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl Block {
    /// The block of one address.
    pub fn from_address(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { first: address, bits: width(address) }
    }

    /// Whether the block contains an address.
    pub fn contains_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4()
            && network(address, self.bits) == network(self.first, self.bits)
    }

    /// Whether the block contains an address, or the IPv4 address that it embeds: a translator must
    /// not make a denied address reachable.
    pub fn matches(&self, address: IpAddr) -> bool {
        let carried = match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => address::embedded_ipv4(address),
        };
        self.contains_address(address)
            || carried.is_some_and(|carried| self.contains_address(carried.into()))
    }

    /// Whether the block contains one address only.
    pub fn is_single(&self) -> bool {
        self.is_exactly(self.first)
    }

    /// The address of a block of one.
    pub fn single(&self) -> Option<IpAddr> {
        self.is_single().then_some(self.first)
    }

    /// Whether this block contains all addresses of another one.
    pub fn contains(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.contains_address(other.first)
    }

    /// Whether the block is exactly this address.
    pub fn is_exactly(&self, address: IpAddr) -> bool {
        self.bits == width(self.first) && self.first == address.to_canonical()
    }

    /// Whether every address of the block is of one class, judged by its first and last address: a
    /// block for the whole internet (`0.0.0.0/0`) has no single class.
    pub fn is_in_class(&self, class: Class) -> bool {
        classify(self.first) == class && classify(self.last()) == class
    }

    /// Whether it is so small that no block of another class fits between its ends, and both ends are
    /// public: at most 256 addresses of IPv4, or a network of 48 bits of IPv6.
    pub fn is_public(&self) -> bool {
        let finest = if self.first.is_ipv4() { 24 } else { 48 };
        self.bits >= finest && self.is_in_class(Class::Public)
    }

    fn last(&self) -> IpAddr {
        match self.first {
            IpAddr::V4(first) => {
                let rest = u32::MAX.checked_shr(self.bits.into()).unwrap_or(0);
                IpAddr::V4((first.to_bits() | rest).into())
            }
            IpAddr::V6(first) => {
                let rest = u128::MAX.checked_shr(self.bits.into()).unwrap_or(0);
                IpAddr::V6((first.to_bits() | rest).into())
            }
        }
    }
}

const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// An address with all bits after the prefix cleared.
fn network(address: IpAddr, bits: u8) -> u128 {
    let shift = u32::from(width(address).saturating_sub(bits));
    let number = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    number.checked_shr(shift).unwrap_or(0)
}

impl FromStr for Block {
    type Err = InvalidBlock;

    fn from_str(text: &str) -> Result<Self, InvalidBlock> {
        let invalid = |reason| InvalidBlock { input: escaped(text), reason };
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) => (address, Some(bits)),
        };
        let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let address: IpAddr = match bare {
            Some(bare) => bare.parse::<Ipv6Addr>().map(IpAddr::V6),
            None => address.parse(),
        }
        .map_err(|_| invalid("it does not start with an address"))?;
        let Some(bits) = bits else { return Ok(Self::from_address(address)) };
        let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
        let has = |bits: &u8| is_number && *bits <= width(address);
        let Some(bits) = bits.parse().ok().filter(has) else {
            return Err(invalid("the prefix length after the slash is invalid"));
        };
        // Mapped addresses are treated as IPv4; a larger IPv6 block contains none of them.
        let (first, bits) = match address.to_canonical() {
            IpAddr::V4(v4) if address.is_ipv6() && bits >= 96 => (IpAddr::V4(v4), bits - 96),
            _ => (address, bits),
        };
        let block = Self { first, bits };
        let shift = u32::from(width(first) - bits);
        let cleared = network(first, bits).checked_shl(shift).unwrap_or(0);
        if cleared != network(first, width(first)) {
            return Err(invalid("the address has bits set beyond its prefix"));
        }
        Ok(block)
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        if self.bits == width(self.first) { Ok(()) } else { write!(f, "/{}", self.bits) }
    }
}

as_text!(Block);
