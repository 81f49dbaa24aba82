//! Accepting, checking and relaying connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::{Listener, peer};

/// How many connections a listener relays at the same time; further ones wait.
const CONNECTIONS: usize = 256;

/// The pause after a connection could not be accepted, such as for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection inside: bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Why a connection was closed without being relayed.
#[derive(Debug)]
pub enum Report<E> {
    /// It is not from a process of the user.
    Refused {
        /// The user of the process at the other end, if there is one.
        uid: Option<u32>,
    },
    /// No connection inside could be made.
    NotConnected(E),
}

/// Relays connections until this is dropped. A peer on this host must be a process of a user that
/// `admits` accepts; a peer of another host can only come over an address that is not of the
/// loopback. A connection that cannot be made inside is reset.
pub async fn serve<C, E, Fut>(
    listener: Listener,
    admits: impl Fn(u32) -> bool + Send + Sync + 'static,
    connect: C,
    report: impl Fn(Report<E>) + Send + Sync + 'static,
) where
    C: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Box<dyn Stream>, E>> + Send,
    E: Send + 'static,
{
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let shared = Arc::new((admits, connect, report));
    // At most two, in this task: they are closed as soon as it is dropped.
    let mut sockets = listener.sockets.into_iter().map(|socket| {
        let (slots, shared) = (slots.clone(), shared.clone());
        async move {
            let mut connections = JoinSet::new();
            loop {
                // The semaphore is never closed.
                let Ok(slot) = slots.clone().acquire_owned().await else { return };
                let (stream, peer, own) = accept(&socket).await;
                while connections.try_join_next().is_some() {}
                let shared = shared.clone();
                connections.spawn(async move {
                    let _slot = slot;
                    let (admits, connect, report) = &*shared;
                    if let Err(refused) = check(peer, own, admits).await {
                        report(refused);
                        return reset(stream);
                    }
                    match connect().await {
                        Ok(inside) => relay(stream, inside).await,
                        Err(error) => {
                            report(Report::NotConnected(error));
                            reset(stream);
                        }
                    }
                });
            }
        }
    });
    match (sockets.next(), sockets.next()) {
        (Some(first), Some(second)) => drop(tokio::join!(first, second)),
        (Some(only), None) => only.await,
        _ => {}
    }
}

async fn accept(socket: &TcpListener) -> (TcpStream, SocketAddr, SocketAddr) {
    loop {
        if let Ok((stream, peer)) = socket.accept().await
            && let Ok(own) = stream.local_addr()
        {
            return (stream, peer, own);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Refuses a process of this host that is not of the right user.
async fn check<E>(
    peer: SocketAddr,
    own: SocketAddr,
    admits: impl Fn(u32) -> bool,
) -> Result<(), Report<E>> {
    match peer::find_uid(peer, own).await {
        Some(uid) if admits(uid) => Ok(()),
        // It comes from another host, to which the address was opened.
        None if !peer.ip().to_canonical().is_loopback() => Ok(()),
        uid => Err(Report::Refused { uid }),
    }
}

/// Closes a connection so that its peer sees that it failed.
fn reset(stream: TcpStream) {
    // Without it the connection is closed in the usual way.
    let _ = set_socket_linger(&stream, Some(Duration::ZERO));
    drop(stream);
}

/// Relays until both directions have ended. The end of one is passed on, and the other continues.
async fn relay(mut outside: TcpStream, mut inside: Box<dyn Stream>) {
    let _ = outside.set_nodelay(true);
    if copy_bidirectional(&mut outside, &mut inside).await.is_err() {
        // One side has disconnected; the other learns that its stream is not complete.
        reset(outside);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    type Reports = Arc<Mutex<Vec<String>>>;

    /// A listener whose connections end in a task that answers after the end of the request.
    async fn start(admits: fn(u32) -> bool, connects: bool) -> (SocketAddr, Reports) {
        let listener = Listener::bind(IpAddr::V4(Ipv4Addr::LOCALHOST), 0).await.unwrap();
        let address = listener.addresses()[0];
        let reports = Reports::default();
        let seen = reports.clone();
        let connect = move || async move {
            if !connects {
                return Err("nothing listens".to_owned());
            }
            let (near, mut far) = tokio::io::duplex(64);
            tokio::spawn(async move {
                let mut text = String::new();
                far.read_to_string(&mut text).await.unwrap();
                far.write_all(format!("all of it: {text}").as_bytes()).await.unwrap();
            });
            Ok(Box::new(near) as Box<dyn Stream>)
        };
        let report = move |report: Report<String>| seen.lock().unwrap().push(format!("{report:?}"));
        tokio::spawn(serve(listener, admits, connect, report));
        (address, reports)
    }

    async fn ask(address: SocketAddr, text: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    fn is_me(uid: u32) -> bool {
        uid == rustix::process::geteuid().as_raw()
    }

    #[tokio::test]
    async fn several_connections_are_relayed_and_half_of_one_may_end() {
        let (address, reports) = start(is_me, true).await;
        let idle = TcpStream::connect(address).await.unwrap();
        let (one, two) = tokio::join!(ask(address, "one"), ask(address, "two"));
        assert_eq!(one.unwrap(), "all of it: one");
        assert_eq!(two.unwrap(), "all of it: two");
        drop(idle);
        assert!(reports.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn another_user_is_reset() {
        let (address, reports) = start(|_| false, true).await;
        assert!(ask(address, "x").await.is_err());
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(*reports.lock().unwrap(), [format!("Refused {{ uid: Some({uid}) }}")]);
    }

    #[tokio::test]
    async fn what_cannot_be_connected_is_reset() {
        let (address, reports) = start(is_me, false).await;
        assert!(ask(address, "x").await.is_err());
        assert_eq!(*reports.lock().unwrap(), ["NotConnected(\"nothing listens\")"]);
    }
}
