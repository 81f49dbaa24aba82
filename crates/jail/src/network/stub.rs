//! The loopback of a network without routes, with listeners for a process outside that refuses what
//! programs ask for: a resolver and an HTTP proxy. Nothing else is reachable, also while they are
//! served.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, Ipv4Addr, SocketAddrV4, SocketFlags, SocketType, bind, listen, socket_with,
};

use super::{RESOLVER_PORT, STUB_PROXY_PORT};

/// The backlog of each listener.
const BACKLOG: i32 = 128;

/// The number of sockets.
pub(crate) const STUB_LISTENERS: usize = 3;

/// The listeners of a jail without network access ([`crate::Network::Stub`]): blocking sockets on
/// its own loopback. While no process serves them, lookups and requests wait.
#[derive(Debug)]
pub struct StubListeners {
    /// A datagram socket at [`RESOLVER_PORT`] of 127.0.0.1.
    pub resolver_datagrams: OwnedFd,
    /// A listener at [`RESOLVER_PORT`] of 127.0.0.1.
    pub resolver_streams: OwnedFd,
    /// The listener of the HTTP proxy, at 127.0.0.1 and [`STUB_PROXY_PORT`].
    pub proxy: OwnedFd,
}

impl StubListeners {
    /// Each of them, in the order of the fields.
    pub fn each(&self) -> [BorrowedFd<'_>; STUB_LISTENERS] {
        let Self { resolver_datagrams, resolver_streams, proxy } = self;
        [resolver_datagrams, resolver_streams, proxy].map(|listener| listener.as_fd())
    }

    /// The next descriptors, in the order of the fields.
    pub(crate) fn take_from(descriptors: impl IntoIterator<Item = OwnedFd>) -> Option<Self> {
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next();
        Some(Self { resolver_datagrams: next()?, resolver_streams: next()?, proxy: next()? })
    }
}

/// Opens the listeners in the network of the calling process. Allocates nothing.
pub(crate) fn open() -> rustix::io::Result<[OwnedFd; STUB_LISTENERS]> {
    let bound = |kind, port| {
        let socket = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
        Ok(socket)
    };
    let listener = |port| {
        let socket: OwnedFd = bound(SocketType::STREAM, port)?;
        listen(&socket, BACKLOG)?;
        rustix::io::Result::Ok(socket)
    };
    Ok([
        bound(SocketType::DGRAM, RESOLVER_PORT)?,
        listener(RESOLVER_PORT)?,
        listener(STUB_PROXY_PORT)?,
    ])
}
