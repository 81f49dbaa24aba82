//! Stockade's own dialect, over a Unix socket: `stockade_api::wire` as HTTP.
//!
//! The kernel identifies the peer process of a connection, and from that [`crate::auth`] determines
//! the caller of its requests. Everything else here is translation. `over_tcp` serves the same on a
//! listener over TCP.

mod over_tcp;
mod request;
mod response;
pub(crate) mod routes;
mod session;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use stockade_api::{Caller, Sandboxes, Workflows};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

pub(crate) use over_tcp::api;
pub(crate) use response::Failure;

use crate::auth::{Authenticate, Connection, Peer};

/// A counter of open connections.
#[derive(Debug, Clone, Default)]
pub struct Connections(Arc<AtomicUsize>);

impl Connections {
    /// The current number.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts one connection until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionGuard(Connections);

impl Clone for ConnectionGuard {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl ConnectionGuard {
    pub(crate) fn new(connections: &Connections) -> Self {
        connections.0.fetch_add(1, Ordering::Relaxed);
        Self(connections.clone())
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a server serves.
#[derive(Debug, Clone)]
pub struct Operations {
    /// The operations on sandboxes.
    pub sandboxes: Arc<dyn Sandboxes>,
    /// The operations on workflow runs.
    pub workflows: Arc<dyn Workflows>,
    /// Whether the server was started by a command that needed it.
    pub is_on_demand: bool,
}

/// Serves a socket until `stop` becomes true. Open connections continue: the process decides how
/// long it waits for [`Connections::count`] to become 0.
///
/// # Errors
/// If the socket cannot accept connections any more.
pub async fn serve(
    listener: UnixListener,
    operations: Operations,
    authenticate: Arc<dyn Authenticate>,
    connections: Connections,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let routes = TowerToHyperService::new(routes::all(operations));
    let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
    tokio::pin!(stopped);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // A client that has disconnected already, or no free file descriptor: neither ends
                // the server.
                Err(error) => {
                    if error.kind() == io::ErrorKind::InvalidInput {
                        return Err(error);
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
            () = &mut stopped => return Ok(()),
        };
        // A refused connection is closed without a response.
        let Ok(caller) = authenticate.caller(&connection(&stream)) else { continue };
        let guard = ConnectionGuard::new(&connections);
        let routes = routes.clone();
        tokio::spawn(serve_connection(stream, routes, caller, guard));
    }
}

/// The peer of a socket, as the kernel reports it.
fn connection(stream: &UnixStream) -> Connection {
    match stream.peer_cred() {
        Ok(peer) => Connection::from_peer(Peer { uid: peer.uid() }),
        Err(_) => Connection::default(),
    }
}

async fn serve_connection(
    stream: UnixStream,
    routes: TowerToHyperService<axum::Router>,
    caller: Caller,
    guard: ConnectionGuard,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(caller.clone());
        request.extensions_mut().insert(guard.clone());
        routes.call(request)
    });
    // The client detects errors of the connection itself.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}
