//! Address classes: the kind of an IP address or host name, so that code that connects on behalf of
//! a sandbox reaches public hosts only. Only the classes are here; nothing is resolved and no
//! connection is made.
//!
//! An IPv6 address that contains an IPv4 address has the class of the latter. An address that no
//! list names as public is not public: an unknown range is [`Class::Reserved`].

pub mod hosts;
#[cfg(test)]
mod tests;
pub mod url;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::names::names;

names! {
    /// The class of an address, by the special-purpose registries of IANA (RFC 6890).
    pub enum Class: "class of addresses" {
        /// A host of the public internet, the one class that may be connected to.
        Public = "public",
        /// Not an address of a host, or "this network": 0.0.0.0/8, `::`.
        Unspecified = "unspecified",
        /// The local machine: 127.0.0.0/8, `::1`.
        Loopback = "loopback",
        /// A private network: RFC 1918, unique local and site-local IPv6.
        Private = "private",
        /// Addresses of a carrier's customers: 100.64.0.0/10 (RFC 6598).
        Carrier = "carrier",
        /// One link: 169.254.0.0/16, fe80::/10.
        LinkLocal = "link-local",
        /// The service that gives credentials to machines of a cloud, in any range.
        Metadata = "metadata",
        /// For examples in documents: RFC 5737, RFC 3849, RFC 9637.
        Documentation = "documentation",
        /// For network benchmarks: 198.18.0.0/15, 2001:2::/48.
        Benchmark = "benchmark",
        /// Multicast: 224.0.0.0/4, ff00::/8.
        Multicast = "multicast",
        /// 6to4 and Teredo, which tunnel to any chosen IPv4 address (RFC 7526).
        Tunnel = "tunnel",
        /// Every other address that is not assigned to hosts.
        Reserved = "reserved",
    }
}

impl Class {
    /// Whether a host of the public internet can have such an address.
    pub const fn is_public(self) -> bool {
        matches!(self, Self::Public)
    }
}

/// The class of an address.
pub const fn classify(address: IpAddr) -> Class {
    match address {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

const fn classify_v4(address: Ipv4Addr) -> Class {
    match address.octets() {
        // Amazon and most others; Amazon's containers; Alibaba; Oracle; Azure's wire server.
        [169, 254, 169, 254]
        | [169, 254, 170, 2 | 23]
        | [100, 100, 100, 200]
        | [192, 0, 0, 192]
        | [168, 63, 129, 16] => Class::Metadata,
        [0, ..] => Class::Unspecified,
        [127, ..] => Class::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Class::Private,
        [100, 64..=127, ..] => Class::Carrier,
        [169, 254, ..] => Class::LinkLocal,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Class::Documentation,
        [198, 18 | 19, ..] => Class::Benchmark,
        [192, 88, 99, _] => Class::Tunnel,
        [224..=239, ..] => Class::Multicast,
        [192, 0, 0, _] | [240..=255, ..] => Class::Reserved,
        _ => Class::Public,
    }
}

const fn classify_v6(address: Ipv6Addr) -> Class {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let carried = classify_v4(join_halves(g, h));
    match [a, b, c, d, e, f, g, h] {
        [0, 0, 0, 0, 0, 0, 0, 0] => Class::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => Class::Loopback,
        // Mapped (RFC 4291) and the well-known prefix of NAT64 (RFC 6052): a host is behind it.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => carried,
        // Compatible (RFC 4291), translated (RFC 2765) and ISATAP (RFC 5214): obsolete.
        [0, 0, 0, 0, 0, 0, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [_, _, _, _, 0 | 0x200, 0x5efe, ..] => reserved_if_public(carried),
        [0x64, 0xff9b, 1, ..] => Class::Private,
        // Amazon, Google.
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => {
            Class::Metadata
        }
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Class::Private,
        [0xfe80..=0xfebf, ..] => Class::LinkLocal,
        [0xff00..=0xffff, ..] => Class::Multicast,
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Class::Documentation,
        [0x2001, 2, 0, ..] => Class::Benchmark,
        [0x2001, 0, ..] | [0x2002, ..] => Class::Tunnel,
        [0x2001, 0..=0x1ff, ..] => Class::Reserved,
        [0x2000..=0x3fff, ..] => Class::Public,
        _ => Class::Reserved,
    }
}

/// The IPv4 address that an IPv6 address contains in any of the known forms: mapped, compatible
/// (RFC 4291), translated (RFC 2765), NAT64 (RFC 6052), ISATAP (RFC 5214), 6to4 (RFC 3056) or
/// Teredo (RFC 4380).
pub const fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [_, _, _, _, 0 | 0x200, 0x5efe, high, low]
        | [0x2002, high, low, ..] => Some(join_halves(high, low)),
        [0x2001, 0, _, _, _, _, high, low] => Some(join_halves(!high, !low)),
        _ => None,
    }
}

const fn join_halves(high: u16, low: u16) -> Ipv4Addr {
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Ipv4Addr::new(a, b, c, d)
}

const fn reserved_if_public(class: Class) -> Class {
    if class.is_public() { Class::Reserved } else { class }
}

/// The top-level names that never lead to the public internet: RFC 6761, RFC 6762 with its
/// appendix G, ICANN's `internal`.
const INTERNAL_SUFFIXES: &[&str] = &[
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
];

/// Whether a host name belongs to the local machine or a private network, whatever it resolves to.
/// Case and a trailing dot are ignored; a name without a dot is always internal.
pub fn is_internal_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let below = |suffix: &&str| {
        name.strip_suffix(*suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    !name.contains('.') || name == "metadata.goog" || INTERNAL_SUFFIXES.iter().any(below)
}
