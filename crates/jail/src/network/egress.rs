//! A network in which every address is local to the loopback, and the listeners that receive all
//! its traffic. The egress process gets the listeners; no process inside can bind their ports,
//! because they are privileged, and no command has that privilege.

use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, SocketFlags, SocketType, bind,
    listen, netlink, socket_with, sockopt,
};

use super::netlink::{ACK, Bytes, CREATE, REQUEST, attribute, message, request};
use super::{PROXY_PORT, RESOLVER_PORT, TRANSPARENT_PORT, rules};
use crate::helper_step::Step;
use crate::raw;

/// The backlog of each listener.
const BACKLOG: i32 = 1024;

/// `RTM_NEWROUTE` and the fields of a route (linux/rtnetlink.h).
const NEW_ROUTE: u16 = 24;
const LOCAL_TABLE: u8 = 255;
const STATIC: u8 = 4;
const HOST: u8 = 254;
const LOCAL: u8 = 2;
const OUTPUT_INTERFACE: u16 = 4;
/// The loopback's interface index in each namespace (`LOOPBACK_IFINDEX` of the kernel).
const LOOPBACK: i32 = 1;

/// The number of sockets of [`open`]: the listener for all connections, that of the proxy, the
/// resolver's datagram socket and its listener.
pub(crate) const LISTENERS: usize = 4;

/// Makes every IPv4 address local.
pub(super) static ROUTE_4: Bytes = route(libc::AF_INET);
/// The same for IPv6.
static ROUTE_6: Bytes = route(libc::AF_INET6);

/// `ip route add local default dev lo`, for one version of the protocol.
const fn route(family: i32) -> Bytes {
    #[expect(clippy::cast_possible_truncation, reason = "both families are small numbers")]
    #[expect(clippy::cast_sign_loss, reason = "both families are small numbers")]
    let family = family as u8;
    // The flags are the last four.
    let header = [family, 0, 0, 0, LOCAL_TABLE, STATIC, HOST, LOCAL, 0, 0, 0, 0];
    let interface = attribute(OUTPUT_INTERFACE, &Bytes::from_slice(&LOOPBACK.to_ne_bytes()));
    message(NEW_ROUTE, REQUEST | CREATE | ACK, &Bytes::from_slice(&header).append(&interface))
}

/// Turns the network of the calling process, in which only the loopback was brought up, into such a
/// network, and opens the listeners. Allocates nothing.
///
/// # Errors
/// The step that failed, and why.
pub(crate) fn open() -> Result<[OwnedFd; LISTENERS], (Step, Errno)> {
    let route =
        |route: &Bytes| request(None, route.as_slice()).map_err(|errno| (Step::Route, errno));
    route(&ROUTE_4)?;
    let version = match socket(AddressFamily::INET6, SocketType::STREAM) {
        // The kernel has no IPv6: then no address is reachable by it either.
        Err(Errno::AFNOSUPPORT) => Version::Four,
        socket => {
            drop(socket.map_err(|errno| (Step::Listen, errno))?);
            match route(&ROUTE_6) {
                // IPv6 is disabled in this namespace (`disable_ipv6`): the same.
                Err((_, Errno::ACCESS)) => {}
                other => other?,
            }
            Version::Both
        }
    };
    let listeners = listeners(version).map_err(|errno| (Step::Listen, errno))?;
    request(Some(netlink::NETFILTER), rules::ALL.as_slice())
        .map_err(|errno| (Step::Rules, errno))?;
    Ok(listeners)
}

/// The available versions of the protocol.
#[derive(Debug, Clone, Copy)]
enum Version {
    Four,
    Both,
}

fn listeners(version: Version) -> rustix::io::Result<[OwnedFd; LISTENERS]> {
    let everything = bind_any(version, SocketType::STREAM, TRANSPARENT_PORT)?;
    be_transparent(version, &everything)?;
    listen(&everything, BACKLOG)?;
    let proxy = socket(AddressFamily::INET, SocketType::STREAM)?;
    bind(&proxy, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, PROXY_PORT))?;
    listen(&proxy, BACKLOG)?;
    let datagrams = bind_any(version, SocketType::DGRAM, RESOLVER_PORT)?;
    let streams = bind_any(version, SocketType::STREAM, RESOLVER_PORT)?;
    listen(&streams, BACKLOG)?;
    Ok([everything, proxy, datagrams, streams])
}

fn socket(family: AddressFamily, kind: SocketType) -> rustix::io::Result<OwnedFd> {
    socket_with(family, kind, SocketFlags::CLOEXEC, None)
}

/// A socket that is bound to a port on every address. With both versions it is a single socket, to
/// which IPv4 addresses appear as `::ffff:a.b.c.d`.
fn bind_any(version: Version, kind: SocketType, port: u16) -> rustix::io::Result<OwnedFd> {
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

/// Permits the rules to deliver packets for other addresses to the socket (`IP_TRANSPARENT` of
/// `ip(7)`).
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
