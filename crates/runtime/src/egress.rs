//! The sockets that receive the traffic of a sandbox with a network policy.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Blocking sockets in the network of a sandbox. They are its only network access: as long as no
/// egress process accepts connections from them, nothing is reachable.
#[derive(Debug)]
pub struct EgressListeners {
    /// Accepts every TCP connection except those to loopback addresses. The local address of an
    /// accepted connection is its destination; an IPv4 address appears as `::ffff:a.b.c.d`. A
    /// connection whose local address is a loopback address was made to the listener itself.
    pub everything: OwnedFd,
    /// The proxy's listener at a port of 127.0.0.1, for programs that use a proxy.
    pub proxy: OwnedFd,
    /// A datagram socket at the resolver's port of every address.
    pub resolver_datagrams: OwnedFd,
    /// A listener at the resolver's port of every address.
    pub resolver_streams: OwnedFd,
}

impl EgressListeners {
    /// Each of them, in the order of the fields.
    pub fn each(&self) -> [BorrowedFd<'_>; 4] {
        let Self { everything, proxy, resolver_datagrams, resolver_streams } = self;
        [everything, proxy, resolver_datagrams, resolver_streams].map(|listener| listener.as_fd())
    }

    /// Duplicates of the same sockets.
    ///
    /// # Errors
    /// When the limit of open file descriptors is reached.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            everything: self.everything.try_clone()?,
            proxy: self.proxy.try_clone()?,
            resolver_datagrams: self.resolver_datagrams.try_clone()?,
            resolver_streams: self.resolver_streams.try_clone()?,
        })
    }

    /// The file descriptors, in the order of the fields.
    pub fn into_descriptors(self) -> [OwnedFd; 4] {
        let Self { everything, proxy, resolver_datagrams, resolver_streams } = self;
        [everything, proxy, resolver_datagrams, resolver_streams]
    }
}
