//! The sockets in a sandbox's network that receive all traffic from inside. The sandbox's side
//! creates them, so their types are checked with the kernel.

use std::io;
use std::net;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, sockopt};
use stockade_egress_control::LISTENERS;
use tokio::net::{TcpListener, UdpSocket};

/// The sockets of one sandbox.
#[derive(Debug)]
pub struct Listeners {
    /// Accepts connections to any destination outside the sandbox; the local address of a
    /// connection is its original destination.
    pub everything: TcpListener,
    /// Accepts connections to the proxy.
    pub proxy: TcpListener,
    /// Receives DNS queries over UDP.
    pub datagrams: UdpSocket,
    /// Accepts connections with DNS queries.
    pub streams: TcpListener,
}

/// File descriptors that are not these sockets.
#[derive(Debug, thiserror::Error)]
pub enum InvalidListeners {
    /// The number is wrong.
    #[error("received {0} file descriptors instead of {LISTENERS}")]
    Count(usize),
    /// One is not such a socket.
    #[error("file descriptor {0} is not a socket of the expected kind")]
    Kind(usize),
    /// One cannot be used.
    #[error("using file descriptor {index} failed")]
    Use {
        /// Its index, from 0.
        index: usize,
        /// The error of the kernel.
        source: io::Error,
    },
}

impl Listeners {
    /// Converts file descriptors to sockets, in the order of the fields. Must be called within a
    /// runtime.
    ///
    /// # Errors
    /// Which descriptor is invalid, and why.
    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> Result<Self, InvalidListeners> {
        let count = descriptors.len();
        let descriptors: [OwnedFd; LISTENERS] =
            descriptors.try_into().map_err(|_| InvalidListeners::Count(count))?;
        for (index, descriptor) in descriptors.iter().enumerate() {
            let is_right =
                if index == 2 { is_datagrams(descriptor) } else { is_listener(descriptor) };
            if !is_right.map_err(|errno| failed(index)(errno.into()))? {
                return Err(InvalidListeners::Kind(index));
            }
        }
        let [everything, proxy, datagrams, streams] = descriptors;
        Ok(Self {
            everything: listener(everything).map_err(failed(0))?,
            proxy: listener(proxy).map_err(failed(1))?,
            datagrams: datagram_socket(datagrams).map_err(failed(2))?,
            streams: listener(streams).map_err(failed(3))?,
        })
    }
}

const fn failed(index: usize) -> impl FnOnce(io::Error) -> InvalidListeners {
    move |source| InvalidListeners::Use { index, source }
}

fn is_inet(descriptor: &OwnedFd) -> rustix::io::Result<bool> {
    let domain = sockopt::socket_domain(descriptor)?;
    Ok(matches!(domain, AddressFamily::INET | AddressFamily::INET6))
}

fn is_listener(descriptor: &OwnedFd) -> rustix::io::Result<bool> {
    Ok(is_inet(descriptor)?
        && sockopt::socket_type(descriptor)? == SocketType::STREAM
        && sockopt::socket_acceptconn(descriptor)?)
}

fn is_datagrams(descriptor: &OwnedFd) -> rustix::io::Result<bool> {
    Ok(is_inet(descriptor)? && sockopt::socket_type(descriptor)? == SocketType::DGRAM)
}

fn listener(descriptor: OwnedFd) -> io::Result<TcpListener> {
    let listener = net::TcpListener::from(descriptor);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn datagram_socket(descriptor: OwnedFd) -> io::Result<UdpSocket> {
    let socket = net::UdpSocket::from(descriptor);
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp() -> OwnedFd {
        net::TcpListener::bind("127.0.0.1:0").unwrap().into()
    }

    fn udp() -> OwnedFd {
        net::UdpSocket::bind("127.0.0.1:0").unwrap().into()
    }

    #[tokio::test]
    async fn only_the_four_sockets_are_taken() {
        assert!(Listeners::from_descriptors(vec![tcp(), tcp(), udp(), tcp()]).is_ok());
        let connected = || -> OwnedFd {
            let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
            net::TcpStream::connect(listener.local_addr().unwrap()).unwrap().into()
        };
        let file = || -> OwnedFd { std::fs::File::open("/dev/null").unwrap().into() };
        for (descriptors, expected) in [
            (vec![], "received 0 file descriptors instead of 4"),
            (vec![tcp(), tcp(), udp(), tcp(), tcp()], "received 5 file descriptors instead of 4"),
            (
                vec![udp(), tcp(), udp(), tcp()],
                "file descriptor 0 is not a socket of the expected kind",
            ),
            (
                vec![tcp(), connected(), udp(), tcp()],
                "file descriptor 1 is not a socket of the expected kind",
            ),
            (
                vec![tcp(), tcp(), tcp(), tcp()],
                "file descriptor 2 is not a socket of the expected kind",
            ),
            (vec![tcp(), tcp(), udp(), file()], "using file descriptor 3 failed"),
        ] {
            let error = Listeners::from_descriptors(descriptors).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
