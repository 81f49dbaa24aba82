//! The calls of a confined command that are decided by an argument.
//!
//! A filter sees the numbers in the registers, and neither what a pointer leads to nor what a file
//! descriptor is. So a rule about sockets applies to every socket, whatever its family is.

use libc::{
    AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, EAFNOSUPPORT, ENOPROTOOPT, ENOSYS, EPERM,
    EPROTONOSUPPORT, c_long,
};

use super::SetIdBits;
use super::tree::{
    Block, Comparison, allow, allow_only, load, low_half_of_argument, mask, refuse, refuse_only,
    when,
};

/// Calls that are decided by an argument.
pub(super) const FILTERED: &[(c_long, Block)] = &[
    (libc::SYS_clone, clone()),
    (libc::SYS_ioctl, ioctl()),
    (libc::SYS_socket, socket()),
    (libc::SYS_socketpair, socketpair()),
    (libc::SYS_setsockopt, setsockopt()),
    (libc::SYS_sendto, message_flags(3)),
    (libc::SYS_recvfrom, message_flags(3)),
    (libc::SYS_sendmsg, message_flags(2)),
    (libc::SYS_recvmsg, message_flags(2)),
    (libc::SYS_sendmmsg, message_flags(3)),
    (libc::SYS_recvmmsg, message_flags(3)),
    (libc::SYS_personality, personality()),
    (libc::SYS_mknod, make_node(1, SetIdBits::Allowed)),
    (libc::SYS_mknodat, make_node(2, SetIdBits::Allowed)),
];

/// Calls that are decided by an argument where set-id bits are refused; they replace those of
/// [`FILTERED`]. openat2's mode is in memory, which a filter cannot read; its users fall back.
pub(super) const FILTERED_SET_ID: &[(c_long, Block)] = &[
    (libc::SYS_chmod, plain_mode(1)),
    (libc::SYS_fchmod, plain_mode(1)),
    (libc::SYS_fchmodat, plain_mode(2)),
    (libc::SYS_fchmodat2, plain_mode(2)),
    (libc::SYS_creat, plain_mode(1)),
    (libc::SYS_open, open(1)),
    (libc::SYS_openat, open(2)),
    (libc::SYS_openat2, refuse(ENOSYS)),
    (libc::SYS_mknod, make_node(1, SetIdBits::Refused)),
    (libc::SYS_mknodat, make_node(2, SetIdBits::Refused)),
];

/// Every flag that creates a namespace. `CLONE_NEWTIME` is one of the bits that clone uses for the
/// exit signal, which no valid signal sets.
const NAMESPACE_FLAGS: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWTIME)
    .cast_unsigned();

const fn clone() -> Block {
    load(low_half_of_argument(0)).append(&when(
        Comparison::AnyBitOf,
        NAMESPACE_FLAGS,
        &refuse(EPERM),
        &allow(),
    ))
}

/// Requests that put input into a terminal, where the user's shell would read it later
/// (CVE-2017-5226; TIOCLINUX pastes on consoles: CVE-2023-28100), or change its line discipline,
/// which loads kernel modules with a poor security record.
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
const TIOCSETD: u32 = 0x5423;

const fn ioctl() -> Block {
    load(low_half_of_argument(1)).append(&refuse_only(&[TIOCSTI, TIOCLINUX, TIOCSETD], EPERM))
}

const PROTOCOL_TCP: u32 = 6;
const PROTOCOL_UDP: u32 = 17;
const PROTOCOL_ROUTE_NETLINK: u32 = 0;
/// The bits of a socket's type other than SOCK_CLOEXEC and SOCK_NONBLOCK.
const SOCKET_TYPE_MASK: u32 = 0xf;

/// Only families that network namespaces isolate and that programs need: AF_VSOCK reaches the
/// hypervisor from any namespace, the others are rarely reviewed kernel code that is loaded on
/// demand. For the internet families only TCP and UDP (Go falls back from MPTCP); for netlink only
/// routes, which getifaddrs reads.
const fn socket() -> Block {
    let known = when(Comparison::Equal, PROTOCOL_UDP, &socket_type(), &refuse(EPROTONOSUPPORT));
    let known = when(Comparison::Equal, PROTOCOL_TCP, &socket_type(), &known);
    let internet =
        load(low_half_of_argument(2)).append(&when(Comparison::Equal, 0, &socket_type(), &known));
    let netlink = load(low_half_of_argument(2))
        .append(&allow_only(&[PROTOCOL_ROUTE_NETLINK], EPROTONOSUPPORT));
    let judge = when(Comparison::Equal, AF_NETLINK.unsigned_abs(), &netlink, &refuse(EAFNOSUPPORT));
    let judge = when(Comparison::Equal, AF_INET6.unsigned_abs(), &internet, &judge);
    let judge = when(Comparison::Equal, AF_INET.unsigned_abs(), &internet, &judge);
    let judge = when(Comparison::Equal, AF_UNIX.unsigned_abs(), &allow(), &judge);
    load(low_half_of_argument(0)).append(&judge)
}

pub(super) const fn socket_type() -> Block {
    load(low_half_of_argument(1)).append(&mask(SOCKET_TYPE_MASK)).append(&allow_only(
        &[libc::SOCK_STREAM.unsigned_abs(), libc::SOCK_DGRAM.unsigned_abs()],
        EPERM,
    ))
}

/// The kernel creates both sockets before it checks whether their family supports pairs.
const fn socketpair() -> Block {
    load(low_half_of_argument(0)).append(&allow_only(&[AF_UNIX.unsigned_abs()], EAFNOSUPPORT))
}

/// The levels of socket options (`setsockopt(2)`).
const LEVEL_IP: u32 = 0;
const LEVEL_TCP: u32 = 6;
const LEVEL_UDP: u32 = 17;
const LEVEL_IPV6: u32 = 41;

/// `TCP_ULP` of linux/tcp.h: it puts another protocol on a connection (TLS, ESP, SMC) and loads the
/// module for it. Exploits of the kernel begin with it more often than with any other option.
const TCP_ULP: u32 = 31;
/// `UDP_ENCAP` of linux/udp.h: it turns a socket into one of IPsec, L2TP or GTP.
const UDP_ENCAP: u32 = 100;
/// `IPV6_ADDRFORM` of linux/in6.h: it exchanges the operations of a socket that is in use.
const IPV6_ADDRFORM: u32 = 1;
/// Of linux/in.h, from `IP_ADD_MEMBERSHIP` to `MCAST_MSFILTER`: every option that joins, leaves or
/// filters a multicast group, and no other.
const IP_MEMBERSHIP: [u32; 2] = [35, 48];
/// Of linux/in6.h, from `MCAST_JOIN_GROUP` to `MCAST_MSFILTER`.
const IPV6_MEMBERSHIP: [u32; 2] = [42, 48];
/// Of linux/in6.h: `IPV6_JOIN_GROUP` and `IPV6_LEAVE_GROUP`, which are also named
/// `IPV6_ADD_MEMBERSHIP` and `IPV6_DROP_MEMBERSHIP`, and the same for anycast.
const IPV6_GROUPS: [u32; 4] = [20, 21, 27, 28];

/// No other protocol on a socket, and no membership of multicast groups, which nothing inside can
/// receive. The error is that of a kernel without the option.
const fn setsockopt() -> Block {
    let refused = refuse(ENOPROTOOPT);
    let tcp = option(&refuse_only(&[TCP_ULP], ENOPROTOOPT));
    let udp = option(&refuse_only(&[UDP_ENCAP], ENOPROTOOPT));
    let ip = option(&between(IP_MEMBERSHIP, &refused, &allow()));
    let groups = refuse_only(&IPV6_GROUPS, ENOPROTOOPT);
    let groups = when(Comparison::Equal, IPV6_ADDRFORM, &refused, &groups);
    let ipv6 = option(&between(IPV6_MEMBERSHIP, &refused, &groups));
    let level = when(Comparison::Equal, LEVEL_IPV6, &ipv6, &allow());
    let level = when(Comparison::Equal, LEVEL_IP, &ip, &level);
    let level = when(Comparison::Equal, LEVEL_UDP, &udp, &level);
    let level = when(Comparison::Equal, LEVEL_TCP, &tcp, &level);
    load(low_half_of_argument(1)).append(&level)
}

/// Applies a rule to the name of a socket option.
const fn option(rule: &Block) -> Block {
    load(low_half_of_argument(2)).append(rule)
}

/// Runs `then` when the loaded value is in a range, which includes both ends, else `otherwise`.
const fn between([first, last]: [u32; 2], then: &Block, otherwise: &Block) -> Block {
    let inside = when(Comparison::AtLeast, last + 1, otherwise, then);
    when(Comparison::AtLeast, first, &inside, otherwise)
}

/// Without out-of-band data: for unix sockets it is rarely used kernel code with a poor security
/// record. The family of the socket is not visible here, so TCP's urgent data is refused as well.
const fn message_flags(flags_argument: u32) -> Block {
    load(low_half_of_argument(flags_argument)).append(&when(
        Comparison::AnyBitOf,
        libc::MSG_OOB.cast_unsigned(),
        &refuse(EPERM),
        &allow(),
    ))
}

/// The native personality, and querying it. The others disable address randomisation or make memory
/// executable without the program's knowledge.
const fn personality() -> Block {
    load(low_half_of_argument(0)).append(&allow_only(&[0, 0xffff_ffff], EPERM))
}

/// No device files, not even the 0:0 one that anybody may create: overlays interpret it as a
/// deletion.
const fn make_node(mode_argument: u32, set_id_bits: SetIdBits) -> Block {
    let judge = mask(libc::S_IFMT).append(&refuse_only(&[libc::S_IFCHR, libc::S_IFBLK], EPERM));
    let judge = match set_id_bits {
        SetIdBits::Allowed => judge,
        SetIdBits::Refused => when(Comparison::AnyBitOf, SET_ID, &refuse(EPERM), &judge),
    };
    load(low_half_of_argument(mode_argument)).append(&judge)
}

const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

/// A mode without set-id bits.
const fn plain_mode(mode_argument: u32) -> Block {
    load(low_half_of_argument(mode_argument)).append(&when(
        Comparison::AnyBitOf,
        SET_ID,
        &refuse(EPERM),
        &allow(),
    ))
}

/// Opening; the mode, which follows the flags, has a meaning only where a file may be created.
const fn open(flags_argument: u32) -> Block {
    // O_TMPFILE is two bits, of which O_DIRECTORY is one.
    let makes = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)).cast_unsigned();
    load(low_half_of_argument(flags_argument)).append(&when(
        Comparison::AnyBitOf,
        makes,
        &plain_mode(flags_argument + 1),
        &allow(),
    ))
}
