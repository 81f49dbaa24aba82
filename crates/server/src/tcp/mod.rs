//! The listener for clients over TCP: connections with or without TLS, their limits, and the end of
//! each when the server stops. `guard` refuses requests that a web page of another site has caused; `pages` serves
//! those of sites that are allowed.

mod cut;
mod guard;
mod pages;
mod tls;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

pub use guard::AllowedHosts;
pub(crate) use guard::{Allowed, authority, framed, guard, host_name};
pub use pages::AllowedOrigins;
pub(crate) use pages::share;
pub use tls::{Acceptor, Error as TlsError};

use self::cut::Cut;
use crate::auth::TcpPeer;
use crate::local::{ConnectionGuard, Connections};

/// How many connections are served at the same time; further ones wait.
const CONNECTIONS: usize = 4096;
/// How long a client may take for the head of a request, also of the next one on a connection, and
/// for the handshake of TLS.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest head of a request, in bytes.
const HEAD_BYTES: usize = 64 << 10;
/// The most headers of a request.
const HEADERS: usize = 128;
/// How many connections one other host may have.
const CONNECTIONS_PER_ADDRESS: usize = 1024;
/// How long a peer may receive nothing of what was sent to it, in milliseconds.
const STALLED_MS: u32 = 10 * 60 * 1000;
/// The pause after a connection could not be accepted, such as for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// The sockets of a listener.
#[derive(Debug)]
pub struct Listener {
    sockets: Vec<TcpListener>,
}

impl Listener {
    /// Listens on an address; for `127.0.0.1` also on `::1`, because the name `localhost` may be
    /// either. Port 0 is any free port.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let first = TcpListener::bind(address).await?;
        let port = first.local_addr()?.port();
        let mut sockets = vec![first];
        if address.ip() == IpAddr::from([127, 0, 0, 1]) {
            match TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await {
                Ok(second) => sockets.push(second),
                // Another program would receive what clients send to `localhost`.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
                // This host has no IPv6.
                Err(_) => {}
            }
        }
        Ok(Self { sockets })
    }

    /// The address that was requested, with the port.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        let first = self.sockets.first().ok_or(io::ErrorKind::NotConnected)?;
        first.local_addr()
    }
}

/// Serves a listener until `stop` becomes true; then each connection ends after its current request.
pub async fn serve(
    listener: Listener,
    routes: Router,
    tls: Option<Acceptor>,
    connections: Connections,
    stop: watch::Receiver<bool>,
) {
    let shared = Arc::new(Shared {
        routes: TowerToHyperService::new(routes),
        tls,
        connections,
        addresses: Addresses::default(),
        slots: Arc::new(Semaphore::new(CONNECTIONS)),
        stop,
    });
    let mut accepting = JoinSet::new();
    for socket in listener.sockets {
        accepting.spawn(accept(socket, Arc::clone(&shared)));
    }
    while accepting.join_next().await.is_some() {}
}

struct Shared {
    routes: TowerToHyperService<Router>,
    tls: Option<Acceptor>,
    connections: Connections,
    addresses: Addresses,
    slots: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
}

/// How many connections each other host has.
#[derive(Debug, Clone, Default)]
struct Addresses(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// Counts one connection of an address until it is dropped.
#[derive(Debug)]
struct AddressGuard(Addresses, Option<IpAddr>);

impl Addresses {
    /// Counts a connection; `None` if there are too many. Those of this host are not limited.
    fn enter(&self, address: IpAddr) -> Option<AddressGuard> {
        let address = address.to_canonical();
        if address.is_loopback() {
            return Some(AddressGuard(self.clone(), None));
        }
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= CONNECTIONS_PER_ADDRESS {
            return None;
        }
        *count += 1;
        Some(AddressGuard(self.clone(), Some(address)))
    }
}

impl Drop for AddressGuard {
    fn drop(&mut self) {
        let Some(address) = self.1 else { return };
        let mut counts = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&address);
            }
        }
    }
}

async fn accept(socket: TcpListener, shared: Arc<Shared>) {
    let mut stop = shared.stop.clone();
    let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
    tokio::pin!(stopped);
    loop {
        let accepted = async {
            let slot = Arc::clone(&shared.slots).acquire_owned().await;
            loop {
                match socket.accept().await {
                    Ok((stream, peer)) => return (slot, stream, peer),
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
        };
        let (slot, stream, peer) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stopped => return,
        };
        // One above the limit is closed without a response.
        let Some(address) = shared.addresses.enter(peer.ip()) else { continue };
        let guard = ConnectionGuard::new(&shared.connections);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let _counted = (slot, address);
            connect(stream, peer, &shared, guard).await;
        });
    }
}

async fn connect(stream: TcpStream, peer: SocketAddr, shared: &Shared, guard: ConnectionGuard) {
    let Ok(own) = stream.local_addr() else { return };
    // Parts of a stream are small and must not wait for each other.
    let _ = stream.set_nodelay(true);
    // A peer that reads nothing, or no longer exists, does not keep its connection. A kernel that does
    // not support this keeps it.
    let _ = sockopt::set_tcp_user_timeout(&stream, STALLED_MS);
    let _ = sockopt::set_socket_keepalive(&stream, true);
    let peer = Arc::new(TcpPeer::new(peer, own));
    match &shared.tls {
        None => serve_connection(stream, peer, shared, guard).await,
        Some(tls) => {
            let accepted = tokio::time::timeout(HEAD_TIMEOUT, tls.accept(stream)).await;
            if let Ok(Ok(stream)) = accepted {
                serve_connection(stream, peer, shared, guard).await;
            }
        }
    }
}

async fn serve_connection<S>(stream: S, peer: Arc<TcpPeer>, shared: &Shared, guard: ConnectionGuard)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let routes = shared.routes.clone();
    let stream = Cut::new(stream, peer.lifetime(), guard.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&peer));
        // What upgrades the connection keeps a copy: it is open longer than it is one of HTTP.
        request.extensions_mut().insert(guard.clone());
        routes.call(request)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::pin!(connection);
    let mut stop = shared.stop.clone();
    tokio::select! {
        // The client detects errors of the connection itself.
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_host_has_a_limited_number_of_connections() {
        let addresses = Addresses::default();
        let one = IpAddr::from([192, 0, 2, 1]);
        let mut guards: Vec<_> =
            (0..CONNECTIONS_PER_ADDRESS).map(|_| addresses.enter(one).unwrap()).collect();
        assert!(addresses.enter(one).is_none());
        assert!(addresses.enter(IpAddr::from([192, 0, 2, 2])).is_some());
        assert!(addresses.enter(IpAddr::from([127, 0, 0, 1])).is_some());
        guards.pop();
        assert!(addresses.enter(one).is_some());
        drop(guards);
        assert!(addresses.0.lock().unwrap().is_empty());
    }
}
