//! The resolver for sandboxes: queries are answered by the policy, with addresses that stand for
//! names. `message` is the format, `stub` queries the name servers of the host.

#[cfg(test)]
mod hostile_tests;
pub mod message;
mod stub;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto};
use stockade_core::network::{Host, Name, Refusal, Transport};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::accept::{PAUSE, accept};
use crate::sandbox::Sandbox;
use message::{Kind, Query, Reply};
pub use stub::{Configuration, Stub};

/// The longest query that is read, in bytes.
const QUESTION_BYTES: usize = 1232;
/// How long a connection may wait for its next query.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves queries over UDP.
pub(crate) async fn serve_datagrams(sandbox: &Arc<Sandbox>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let mut answering = JoinSet::new();
    let mut bytes = [0; QUESTION_BYTES];
    loop {
        let (length, asker) = tokio::select! {
            received = receive(&socket, &mut bytes) => match received {
                Ok(received) => received,
                // Probably an error of an earlier response; if not, an immediate retry would be too
                // early.
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
            Some(_) = answering.join_next() => continue,
        };
        // A client without a response retries.
        let Some(permit) = sandbox.admit_lookup() else { continue };
        let question = bytes.get(..length).unwrap_or_default().to_vec();
        let (sandbox, socket) = (Arc::clone(sandbox), Arc::clone(&socket));
        answering.spawn(async move {
            if let Some(answer) = answer(&sandbox, &question).await {
                let _ = send(&socket, &answer, asker).await;
            }
            drop(permit);
        });
    }
}

/// The next datagram and its sender. The sandbox's side shares the `O_NONBLOCK` flag of the socket,
/// so each call is made non-blocking by itself.
async fn receive(socket: &UdpSocket, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    let receive = || {
        let (length, _, from) = recvfrom(socket, &mut *bytes, RecvFlags::DONTWAIT)?;
        let from = from.ok_or(io::ErrorKind::InvalidData)?;
        Ok((length, SocketAddr::try_from(from)?))
    };
    socket.async_io(Interest::READABLE, receive).await
}

/// Sends a datagram, non-blocking in the same way.
async fn send(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
    let send = || Ok(sendto(socket, bytes, SendFlags::DONTWAIT, &to)?);
    socket.async_io(Interest::WRITABLE, send).await
}

/// Serves queries over TCP (RFC 7766).
pub(crate) async fn serve_streams(sandbox: &Arc<Sandbox>, listener: TcpListener) {
    accept(&listener, |stream| {
        let sandbox = Arc::clone(sandbox);
        async move {
            let Ok(permit) = sandbox.admit_connection() else { return };
            // It ends when the client disconnects, or sends something else.
            let _ = serve_connection(&sandbox, stream).await;
            drop(permit);
        }
    })
    .await;
}

async fn serve_connection(sandbox: &Sandbox, mut stream: TcpStream) -> std::io::Result<()> {
    loop {
        let question = timeout(PATIENCE, async {
            let length = usize::from(stream.read_u16().await?);
            let mut bytes = vec![0; length];
            stream.read_exact(&mut bytes).await?;
            std::io::Result::Ok(bytes)
        });
        let question = question.await??;
        let Some(permit) = sandbox.admit_lookup() else { return Ok(()) };
        let Some(answer) = answer(sandbox, &question).await else { return Ok(()) };
        drop(permit);
        let length = u16::try_from(answer.len()).map_err(std::io::Error::other)?;
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        timeout(PATIENCE, stream.write_all(&framed)).await??;
    }
}

/// The response to a query, if it is a query.
async fn answer(sandbox: &Sandbox, question: &[u8]) -> Option<Vec<u8>> {
    let query = match Query::parse(question) {
        Ok(query) => query,
        Err(malformed) => return malformed.answer(),
    };
    if !query.is_internet() {
        return Some(query.answer(&Reply::NotImplemented));
    }
    let reply = match resolve(sandbox, &query).await {
        Ok(reply) => reply,
        Err((name, refusal)) => {
            let host = name.map(Host::Name);
            sandbox.record(Transport::Dns, host.as_ref(), None, &refusal);
            let text = format!("{}: {refusal}", refusal.reason());
            match refusal {
                Refusal::Unresolved { certain: false, .. } | Refusal::TooMany { .. } => {
                    Reply::Failed(text)
                }
                Refusal::Unresolved { .. } => Reply::NoSuchName,
                _ => Reply::Denied(text),
            }
        }
    };
    Some(query.answer(&reply))
}

async fn resolve(sandbox: &Sandbox, query: &Query<'_>) -> Result<Reply, (Option<Name>, Refusal)> {
    let name = query.name().map_err(|invalid| (None, invalid.into()))?;
    let refused = |refusal| (Some(name.clone()), refusal);
    sandbox.lookup(&name, None).await.map_err(refused)?;
    let Some((v4, v6)) = sandbox.names().addresses(&name) else { return Ok(Reply::Nothing) };
    Ok(match query.kind() {
        Kind::A => Reply::Address(v4.into()),
        Kind::Aaaa => Reply::Address(v6.into()),
        Kind::Other => Reply::Nothing,
    })
}
