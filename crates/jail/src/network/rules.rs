//! The rules of a network in which every address is local: a connection to any of them arrives at
//! one listener. They are rules of nf_tables (linux/netfilter/nf_tables.h), in one batch that is
//! accepted completely or not at all.
//!
//! In the syntax of `nft(8)`, where 53 and 1022 are ports of `egress`:
//!
//! ```text
//! table inet stockade {
//!     chain arriving {
//!         type filter hook prerouting priority mangle
//!         ip daddr 127.0.0.0/8 accept
//!         ip6 daddr ::1 accept
//!         tcp dport 53 accept
//!         meta l4proto tcp tproxy to :1022
//!     }
//! }
//! ```
//!
//! `tproxy` is used instead of `redirect`, because the latter keeps each connection in a kernel
//! table that is shared by the whole machine, is not charged to any process, and could be filled by
//! a sandbox. The local address of an accepted connection is its intended destination.

use super::netlink::{ACK, APPEND, Bytes, CREATE, REQUEST, attribute, message, nested};

/// `NFNL_SUBSYS_NFTABLES`, and the messages around a batch (linux/netfilter/nfnetlink.h).
const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// `NFT_MSG_*`.
const NEW_TABLE: u16 = 0;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
/// `NFPROTO_*`: tables for both versions of the protocol, and each of them.
const UNSPECIFIED: u8 = 0;
const INET: u8 = 1;
const IPV4: u8 = 2;
const IPV6: u8 = 10;
/// `IPPROTO_TCP`.
const TCP: u8 = 6;
/// `NF_INET_PRE_ROUTING`: all arriving packets, before routing.
const PREROUTING: u32 = 0;
/// `NF_IP_PRI_MANGLE`.
const MANGLE: i32 = -150;
/// `NF_ACCEPT`.
const ACCEPT: u32 = 1;
/// `NFT_REG_VERDICT`, and a register for everything else.
const VERDICT: u32 = 0;
const REGISTER: u32 = 1;
/// `NFT_PAYLOAD_*`: the start of a header.
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// `NFT_META_*`: properties of a packet.
const VERSION: u32 = 15;
const TRANSPORT: u32 = 16;

/// Loads the rules; requests one answer, for the last of them. (Only since Linux 6.9 does the end
/// of a batch get an answer.)
pub(super) static ALL: Bytes = all();

const fn all() -> Bytes {
    let to_loopback = is(&meta(VERSION), &[IPV4])
        // The first byte of the destination.
        .append(&is(&header(NETWORK_HEADER, 16, 1), &[127]))
        .append(&accept());
    let to_loopback_6 = is(&meta(VERSION), &[IPV6])
        .append(&is(&header(NETWORK_HEADER, 24, 16), &std::net::Ipv6Addr::LOCALHOST.octets()))
        .append(&accept());
    let to_resolver = is(&meta(TRANSPORT), &[TCP])
        .append(&is(&header(TRANSPORT_HEADER, 2, 2), &super::RESOLVER_PORT.to_be_bytes()))
        .append(&accept());
    let to_anywhere = is(&meta(TRANSPORT), &[TCP]).append(&take());
    batch(BATCH_BEGIN)
        .append(&table())
        .append(&chain())
        .append(&rule(0, &to_loopback))
        .append(&rule(0, &to_loopback_6))
        .append(&rule(0, &to_resolver))
        .append(&rule(ACK, &to_anywhere))
        .append(&batch(BATCH_END))
}

/// The start and the end of a batch, which name the subsystem.
const fn batch(kind: u16) -> Bytes {
    let [high, low] = SUBSYSTEM.to_be_bytes();
    message(kind, REQUEST, &Bytes::from_slice(&[UNSPECIFIED, 0, high, low]))
}

/// A message to the subsystem: its header, and attributes.
const fn make(kind: u16, flags: u16, attributes: &Bytes) -> Bytes {
    let kind = SUBSYSTEM << 8 | kind;
    message(kind, REQUEST | CREATE | flags, &Bytes::from_slice(&[INET, 0, 0, 0]).append(attributes))
}

const fn table_name(kind: u16) -> Bytes {
    attribute(kind, &Bytes::from_slice(b"stockade\0"))
}

const fn chain_name(kind: u16) -> Bytes {
    attribute(kind, &Bytes::from_slice(b"arriving\0"))
}

const fn table() -> Bytes {
    make(NEW_TABLE, 0, &table_name(1))
}

const fn chain() -> Bytes {
    let hook = attribute(1, &Bytes::number(PREROUTING));
    let hook = hook.append(&attribute(2, &Bytes::number(MANGLE.cast_unsigned())));
    let attributes = table_name(1)
        .append(&chain_name(3))
        .append(&nested(4, &hook))
        .append(&attribute(7, &Bytes::from_slice(b"filter\0")));
    make(NEW_CHAIN, 0, &attributes)
}

const fn rule(flags: u16, expressions: &Bytes) -> Bytes {
    let attributes = table_name(1).append(&chain_name(2)).append(&nested(4, expressions));
    make(NEW_RULE, APPEND | flags, &attributes)
}

/// One expression of a rule: its name and its own attributes.
const fn expression(name: &[u8], attributes: &Bytes) -> Bytes {
    nested(1, &attribute(1, &Bytes::from_slice(name)).append(&nested(2, attributes)))
}

/// Loads a property of the packet into the register.
const fn meta(what: u32) -> Bytes {
    let attributes = attribute(1, &Bytes::number(REGISTER));
    expression(b"meta\0", &attributes.append(&attribute(2, &Bytes::number(what))))
}

/// Loads bytes of a header into the register.
const fn header(base: u32, offset: u32, length: u32) -> Bytes {
    let attributes = attribute(1, &Bytes::number(REGISTER))
        .append(&attribute(2, &Bytes::number(base)))
        .append(&attribute(3, &Bytes::number(offset)))
        .append(&attribute(4, &Bytes::number(length)));
    expression(b"payload\0", &attributes)
}

/// Ends the rule unless the value that `loads` puts into the register equals `value`.
const fn is(loads: &Bytes, value: &[u8]) -> Bytes {
    const EQUAL: u32 = 0;
    let attributes = attribute(1, &Bytes::number(REGISTER))
        .append(&attribute(2, &Bytes::number(EQUAL)))
        .append(&nested(3, &attribute(1, &Bytes::from_slice(value))));
    Bytes::from_slice(loads.as_slice()).append(&expression(b"cmp\0", &attributes))
}

/// Accepts the packet.
const fn accept() -> Bytes {
    let verdict = nested(2, &attribute(1, &Bytes::number(ACCEPT)));
    let attributes = attribute(1, &Bytes::number(VERDICT)).append(&nested(2, &verdict));
    expression(b"immediate\0", &attributes)
}

/// Delivers the packet to the listener, or to the connection that it belongs to.
const fn take() -> Bytes {
    let port = nested(2, &attribute(1, &Bytes::from_slice(&super::TRANSPARENT_PORT.to_be_bytes())));
    let load = attribute(1, &Bytes::number(REGISTER)).append(&port);
    let attributes = attribute(1, &Bytes::number(UNSPECIFIED as u32))
        .append(&attribute(3, &Bytes::number(REGISTER)));
    expression(b"immediate\0", &load).append(&expression(b"tproxy\0", &attributes))
}
