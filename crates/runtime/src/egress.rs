//! The sockets at which the traffic of a sandbox with a network policy arrives.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Sockets in the network of a sandbox, which block. They are the only ways out of it: as long as no
/// egress process accepts what arrives, nothing is reached.
#[derive(Debug)]
pub struct EgressListeners {
    /// Where every TCP connection arrives that is not to a loopback address. The local address of an
    /// accepted one is its destination; an IPv4 address comes as `::ffff:a.b.c.d`. One whose local
    /// address is a loopback address was made to the listener itself.
    pub everything: OwnedFd,
    /// At a port of 127.0.0.1, for programs that use a proxy.
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

    /// The same sockets once more.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            everything: self.everything.try_clone()?,
            proxy: self.proxy.try_clone()?,
            resolver_datagrams: self.resolver_datagrams.try_clone()?,
            resolver_streams: self.resolver_streams.try_clone()?,
        })
    }

    /// The descriptors, in the order of the fields.
    pub fn into_descriptors(self) -> [OwnedFd; 4] {
        let Self { everything, proxy, resolver_datagrams, resolver_streams } = self;
        [everything, proxy, resolver_datagrams, resolver_streams]
    }
}
