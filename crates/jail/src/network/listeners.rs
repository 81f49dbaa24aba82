//! The sockets that receive all traffic of a jail's network, for the process outside that holds
//! them. The init of a persistent jail sends them again on request, and may have been taken over by
//! a process inside: so the kernel is queried for what they are.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::net::{AddressFamily, Protocol, SocketType, getsockname, ipproto, sockopt};

use super::egress::LISTENERS;
use super::{PROXY_PORT, RESOLVER_PORT, SIOCGSKNS, TRANSPARENT_PORT, call};
use crate::raw;

/// The only network access of a jail ([`crate::Network::Egress`]): blocking sockets in its network.
/// While no process accepts connections from them, nothing is reachable.
#[derive(Debug)]
pub struct Listeners {
    /// Accepts every TCP connection except those to loopback addresses. The local address of an
    /// accepted connection is its intended destination; an IPv4 address appears as
    /// `::ffff:a.b.c.d`. A connection whose local address is a loopback address was made to the
    /// listener itself.
    pub transparent: OwnedFd,
    /// The listener of the HTTP proxy, at 127.0.0.1 and [`PROXY_PORT`].
    pub proxy: OwnedFd,
    /// A datagram socket at [`RESOLVER_PORT`] of every address.
    pub resolver_datagrams: OwnedFd,
    /// A listener at [`RESOLVER_PORT`] of every address.
    pub resolver_streams: OwnedFd,
}

impl Listeners {
    /// Checks descriptors that a jail's init has sent, in the order of the fields: sockets of the
    /// right kinds that are bound to the right addresses. Their ports are privileged, and no
    /// process inside has that privilege. So if they are in the jail's own network
    /// ([`Listeners::network`]), they are the sockets that were opened before anything ran there.
    ///
    /// # Errors
    /// `InvalidData` for descriptors that are anything else.
    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        if descriptors.len() != LISTENERS {
            return Err(wrong());
        }
        let listeners = Self::take_from(descriptors).ok_or_else(wrong)?;
        let Self { transparent: everything, proxy, resolver_datagrams, resolver_streams } =
            &listeners;
        let are_right = is_stream(everything)?
            && is_unspecified(everything, TRANSPARENT_PORT)?
            && is_stream(proxy)?
            && is_at(proxy, (Ipv4Addr::LOCALHOST, PROXY_PORT).into())?
            && is_datagrams(resolver_datagrams)?
            && is_unspecified(resolver_datagrams, RESOLVER_PORT)?
            && is_stream(resolver_streams)?
            && is_unspecified(resolver_streams, RESOLVER_PORT)?;
        if are_right { Ok(listeners) } else { Err(wrong()) }
    }

    /// The network that all of them are in, as the inode number of its namespace (`namespaces(7)`),
    /// which is unique as long as they are open.
    ///
    /// # Errors
    /// `InvalidData` when they are in several; else the kernel's error, such as for a network of
    /// another owner.
    pub fn network(&self) -> io::Result<u64> {
        let [first, others @ ..] = self.each();
        let network = network_of(first)?;
        for other in others {
            if network_of(other)? != network {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(network)
    }

    /// Each of them, in the order of the fields.
    pub fn each(&self) -> [BorrowedFd<'_>; LISTENERS] {
        let Self { transparent: everything, proxy, resolver_datagrams, resolver_streams } = self;
        [everything, proxy, resolver_datagrams, resolver_streams].map(|listener| listener.as_fd())
    }

    /// Duplicates of the same sockets.
    ///
    /// # Errors
    /// There are too many open file descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        let Self { transparent: everything, proxy, resolver_datagrams, resolver_streams } = self;
        Ok(Self {
            transparent: everything.try_clone()?,
            proxy: proxy.try_clone()?,
            resolver_datagrams: resolver_datagrams.try_clone()?,
            resolver_streams: resolver_streams.try_clone()?,
        })
    }

    /// The file descriptors, in the order of the fields.
    pub fn into_descriptors(self) -> [OwnedFd; LISTENERS] {
        let Self { transparent: everything, proxy, resolver_datagrams, resolver_streams } = self;
        [everything, proxy, resolver_datagrams, resolver_streams]
    }

    /// From descriptors that a jail sends before anything runs in it.
    pub(crate) fn take_from(descriptors: impl IntoIterator<Item = OwnedFd>) -> Option<Self> {
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next();
        Some(Self {
            transparent: next()?,
            proxy: next()?,
            resolver_datagrams: next()?,
            resolver_streams: next()?,
        })
    }
}

/// Whether a file descriptor is a socket of this kind; false if it is no socket.
fn is(descriptor: &OwnedFd, kind: SocketType, protocol: Protocol) -> io::Result<bool> {
    let family = match sockopt::socket_domain(descriptor) {
        Err(rustix::io::Errno::NOTSOCK | rustix::io::Errno::BADF) => return Ok(false),
        family => family?,
    };
    Ok(matches!(family, AddressFamily::INET | AddressFamily::INET6)
        && sockopt::socket_type(descriptor)? == kind
        && sockopt::socket_protocol(descriptor)? == Some(protocol))
}

fn is_stream(descriptor: &OwnedFd) -> io::Result<bool> {
    Ok(is(descriptor, SocketType::STREAM, ipproto::TCP)? && sockopt::socket_acceptconn(descriptor)?)
}

fn is_datagrams(descriptor: &OwnedFd) -> io::Result<bool> {
    is(descriptor, SocketType::DGRAM, ipproto::UDP)
}

fn is_unspecified(socket: &OwnedFd, port: u16) -> io::Result<bool> {
    let address = SocketAddr::try_from(getsockname(socket)?)?;
    Ok(address.ip().is_unspecified() && address.port() == port)
}

fn is_at(socket: &OwnedFd, address: SocketAddr) -> io::Result<bool> {
    Ok(SocketAddr::try_from(getsockname(socket)?)? == address)
}

/// The network that a socket is in. The creator of the user namespace that owns the network may
/// query it.
fn network_of(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let namespace = call(libc::SYS_ioctl, [raw::signed(socket.as_raw_fd()), SIOCGSKNS, 0])?;
    let namespace = RawFd::try_from(namespace).map_err(io::Error::other)?;
    // SAFETY: the kernel has opened this descriptor for this process, and nothing else owns it.
    let namespace = unsafe { OwnedFd::from_raw_fd(namespace) };
    Ok(rustix::fs::fstat(&namespace)?.st_ino)
}
