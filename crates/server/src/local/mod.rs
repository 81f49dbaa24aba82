//! Stockade's own dialect, over a Unix socket: `stockade_api::wire` as HTTP.
//!
//! Who may ask is decided by the kernel: the process at the other end must belong to the user who
//! owns the data directory. What it asks is then done in that user's name.

mod answer;
mod routes;
mod session;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use stockade_api::{Sandboxes, Workflows};
use stockade_core::OwnerId;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// Who asks over the socket.
#[derive(Debug, Clone)]
pub struct Owner {
    /// The user id that the process at the other end must have.
    pub uid: u32,
    /// In whose name it is done.
    pub id: OwnerId,
}

/// How many connections there are.
#[derive(Debug, Clone, Default)]
pub struct Connections(Arc<AtomicUsize>);

impl Connections {
    /// How many there are now.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

struct Counted(Connections);

impl Counted {
    fn new(connections: &Connections) -> Self {
        connections.0.fetch_add(1, Ordering::Relaxed);
        Self(connections.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers on a socket until `stop` becomes true. Connections that are open then have so long to
/// end as the caller waits for [`Connections::count`].
///
/// # Errors
/// When the socket cannot take connections any more.
pub async fn serve(
    listener: UnixListener,
    sandboxes: Arc<dyn Sandboxes>,
    workflows: Arc<dyn Workflows>,
    owner: Owner,
    connections: Connections,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let uid = owner.uid;
    let routes = routes::all(sandboxes, workflows, owner.id);
    let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
    tokio::pin!(stopped);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // A client that has gone again, or no descriptor left: neither ends the server.
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
        if !stream.peer_cred().is_ok_and(|peer| peer.uid() == uid) {
            // Somebody else is told nothing.
            continue;
        }
        let counted = Counted::new(&connections);
        let service = TowerToHyperService::new(routes.clone());
        tokio::spawn(async move {
            let _counted = counted;
            answer_one(stream, service).await;
        });
    }
}

async fn answer_one(stream: UnixStream, service: TowerToHyperService<axum::Router>) {
    // What goes wrong on a connection is known at its other end.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}
