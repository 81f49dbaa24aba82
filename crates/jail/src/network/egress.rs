//! A network of which every address is the loopback's, and the listeners that all of it arrives at.
//! They are given to whoever decides what is let through; nobody inside can take their places, for
//! their ports are privileged, and no command has that privilege.

use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, SocketFlags, SocketType, bind,
    listen, netlink, socket_with, sockopt,
};

use super::netlink::{ANSWER, Bytes, CREATE, REQUEST, ask, attribute, message};
use super::{EVERYTHING_PORT, PROXY_PORT, RESOLVER_PORT, rules};
use crate::fixtures::Step;
use crate::raw;

/// How many connections may wait to be accepted, at each listener.
const BACKLOG: i32 = 1024;

/// `RTM_NEWROUTE` and what a route is made of (linux/rtnetlink.h).
const NEW_ROUTE: u16 = 24;
const LOCAL_TABLE: u8 = 255;
const STATIC: u8 = 4;
const HOST: u8 = 254;
const LOCAL: u8 = 2;
const OUTPUT_INTERFACE: u16 = 4;
/// The loopback's number in each namespace (`LOOPBACK_IFINDEX` of the kernel).
const LOOPBACK: i32 = 1;

/// What [`open`] gives: the listener of everything, that of the proxy, the resolver's socket and its
/// listener.
pub(crate) const LISTENERS: usize = 4;

/// Makes every address of version 4 local.
pub(super) static ROUTE_4: Bytes = route(libc::AF_INET);
/// The same of version 6.
static ROUTE_6: Bytes = route(libc::AF_INET6);

/// `ip route add local default dev lo`, for one version of the protocol.
const fn route(family: i32) -> Bytes {
    #[expect(clippy::cast_possible_truncation, reason = "both families are small numbers")]
    #[expect(clippy::cast_sign_loss, reason = "both families are small numbers")]
    let family = family as u8;
    // The flags are the last four.
    let header = [family, 0, 0, 0, LOCAL_TABLE, STATIC, HOST, LOCAL, 0, 0, 0, 0];
    let interface = attribute(OUTPUT_INTERFACE, &Bytes::of(&LOOPBACK.to_ne_bytes()));
    message(NEW_ROUTE, REQUEST | CREATE | ANSWER, &Bytes::of(&header).then(&interface))
}

/// Makes such a network of the calling process's own, in which nothing else was made but the
/// loopback's being up, and opens the listeners. Allocates nothing.
///
/// # Errors
/// The step that failed, and why.
pub(crate) fn open() -> Result<[OwnedFd; LISTENERS], (Step, Errno)> {
    let route = |route: &Bytes| ask(None, route.as_slice()).map_err(|errno| (Step::Route, errno));
    route(&ROUTE_4)?;
    let version = match socket(AddressFamily::INET6, SocketType::STREAM) {
        // A kernel without it: there is nobody to reach by it either.
        Err(Errno::AFNOSUPPORT) => Version::Four,
        socket => {
            drop(socket.map_err(|errno| (Step::Listen, errno))?);
            match route(&ROUTE_6) {
                // Switched off in this namespace (`disable_ipv6`): the same.
                Err((_, Errno::ACCESS)) => {}
                other => other?,
            }
            Version::Both
        }
    };
    let listeners = listeners(version).map_err(|errno| (Step::Listen, errno))?;
    ask(Some(netlink::NETFILTER), rules::ALL.as_slice()).map_err(|errno| (Step::Rules, errno))?;
    Ok(listeners)
}

/// Which versions of the protocol there are.
#[derive(Debug, Clone, Copy)]
enum Version {
    Four,
    Both,
}

fn listeners(version: Version) -> rustix::io::Result<[OwnedFd; LISTENERS]> {
    let everything = anywhere(version, SocketType::STREAM, EVERYTHING_PORT)?;
    be_transparent(version, &everything)?;
    listen(&everything, BACKLOG)?;
    let proxy = socket(AddressFamily::INET, SocketType::STREAM)?;
    bind(&proxy, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, PROXY_PORT))?;
    listen(&proxy, BACKLOG)?;
    let datagrams = anywhere(version, SocketType::DGRAM, RESOLVER_PORT)?;
    let streams = anywhere(version, SocketType::STREAM, RESOLVER_PORT)?;
    listen(&streams, BACKLOG)?;
    Ok([everything, proxy, datagrams, streams])
}

fn socket(family: AddressFamily, kind: SocketType) -> rustix::io::Result<OwnedFd> {
    socket_with(family, kind, SocketFlags::CLOEXEC, None)
}

/// A socket at a port of every address. For both versions it is one, which knows addresses of the
/// older one as `::ffff:a.b.c.d`.
fn anywhere(version: Version, kind: SocketType, port: u16) -> rustix::io::Result<OwnedFd> {
    match version {
        Version::Four => {
            let socket = socket(AddressFamily::INET, kind)?;
            bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
            Ok(socket)
        }
        Version::Both => {
            let socket = socket(AddressFamily::INET6, kind)?;
            sockopt::set_ipv6_v6only(&socket, false)?;
            bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
            Ok(socket)
        }
    }
}

/// Lets the rules give a socket what was sent to somebody else (`IP_TRANSPARENT` of `ip(7)`).
fn be_transparent(version: Version, socket: &OwnedFd) -> rustix::io::Result<()> {
    let (level, option) = match version {
        Version::Four => (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
        Version::Both => (libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT),
    };
    let on = 1_i32;
    let [socket, level, option] = [socket.as_raw_fd(), level, option].map(raw::signed);
    let arguments = [socket, level, option, (&raw const on) as usize, size_of::<i32>(), 0];
    // SAFETY: the value is valid for the call, which reads it.
    let result = raw::check(unsafe { raw::syscall(libc::SYS_setsockopt, arguments) });
    result.map(drop).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
