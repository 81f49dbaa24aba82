//! The network listeners of a fake sandbox: sockets on the loopback of this machine, at separate
//! ports. Nothing inside sends anything to them; a test does.

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use crate::egress::EgressListeners;

use crate::error::{Error, Result};

/// The address of each: a free port.
const ADDRESS: &str = "127.0.0.1:0";

/// The listeners of one sandbox.
pub(super) fn open() -> Result<EgressListeners> {
    let listener = || TcpListener::bind(ADDRESS).map(OwnedFd::from);
    let open = || -> io::Result<_> {
        Ok(EgressListeners {
            everything: listener()?,
            proxy: listener()?,
            resolver_datagrams: UdpSocket::bind(ADDRESS)?.into(),
            resolver_streams: listener()?,
        })
    };
    open().map_err(exhausted)
}

pub(super) fn exhausted(error: io::Error) -> Error {
    Error::Exhausted(format!("cannot obtain the egress listeners: {error}"))
}
