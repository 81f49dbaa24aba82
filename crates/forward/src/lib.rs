//! Ports of the host that lead into a sandbox: listening, the check of who connects, and the relay.
//!
//! It knows no sandbox: the caller makes the connections inside. A process of another user is
//! refused on the loopback, where the kernel says whose socket the other end is. Reading order:
//! this file, `peer`, `holder`, `relay`.

mod holder;
mod peer;
mod relay;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

pub use holder::find_user_of_program;
pub use peer::find_uid;
pub use relay::{Report, Stream, serve};

/// Why a port cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process listens there.
    #[error("the port {} of {} is in use", .0.port(), .0.ip())]
    InUse(SocketAddr),
    /// The address or port cannot be used.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address and port.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// The result of listening.
pub type Result<T> = std::result::Result<T, Error>;

/// The sockets of one port of the host.
#[derive(Debug)]
pub struct Listener {
    sockets: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
}

impl Listener {
    /// Listens on a port of an address; on both addresses of the loopback for `127.0.0.1`, because
    /// the name `localhost` may be either. Port 0 is any free port.
    ///
    /// # Errors
    /// Why it cannot listen. Nothing is listened on then.
    pub async fn bind(address: IpAddr, port: u16) -> Result<Self> {
        let mut this = Self { sockets: Vec::new(), addresses: Vec::new() };
        this.add(SocketAddr::new(address, port)).await?;
        if address == IpAddr::V4(Ipv4Addr::LOCALHOST) {
            let port = this.addresses.first().map_or(port, SocketAddr::port);
            match this.add(SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port)).await {
                // This host has no IPv6.
                Err(Error::Listen { .. }) => {}
                added => added?,
            }
        }
        Ok(this)
    }

    async fn add(&mut self, address: SocketAddr) -> Result<()> {
        let socket = TcpListener::bind(address).await.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => Error::InUse(address),
            _ => Error::Listen { address, source },
        })?;
        let address = socket.local_addr().map_err(|source| Error::Listen { address, source })?;
        self.addresses.push(address);
        self.sockets.push(socket);
        Ok(())
    }

    /// Where it listens; the requested address first.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_named_and_both_addresses_of_the_loopback_are_taken() {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let first = Listener::bind(loopback, 0).await.unwrap();
        let port = first.addresses()[0].port();
        assert_ne!(port, 0);
        let again = Listener::bind(loopback, port).await;
        assert!(matches!(again, Err(Error::InUse(address)) if address.port() == port), "{again:?}");
        let everywhere = Listener::bind(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port).await;
        assert!(matches!(everywhere, Err(Error::InUse(_))), "{everywhere:?}");
        if first.addresses().len() == 2 {
            assert_eq!(first.addresses()[1], SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port));
            let six = Listener::bind(Ipv6Addr::LOCALHOST.into(), port).await;
            assert!(matches!(six, Err(Error::InUse(_))), "{six:?}");
        }
        drop(first);
        Listener::bind(loopback, port).await.unwrap();
    }

    #[tokio::test]
    async fn an_address_of_another_host_is_refused() {
        let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        assert!(matches!(Listener::bind(elsewhere, 0).await, Err(Error::Listen { .. })));
    }
}
