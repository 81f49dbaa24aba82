//! HTTP/2 (RFC 9113) to hosts whose requests are read: each stream is one request, which is checked
//! and gets its credentials by itself, also for gRPC. A connection from inside has one connection to
//! its host, and no stream of it is for another host.

mod answer;
mod body;
mod message;
mod stream;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use h2::client::SendRequest;
use h2::{client, server};
use stockade_core::network::{Host, Name, Policy, Refusal, Transport};
use stockade_egress_control::Outcome;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};

use crate::credentials::Credentials;
use crate::first_bytes::http::HEAD_BYTES;
use crate::relay::{RelayError, Traffic};
use crate::sandbox::Sandbox;

/// The most streams of a connection at a time.
const STREAMS: u32 = 128;
/// How much may arrive before it is forwarded: of a stream, and of all streams of a connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// How much may wait to be sent in a stream.
const SEND_BUFFER: usize = 256 << 10;
/// How long the last frames may take to be sent.
const LAST_FRAMES: Duration = Duration::from_secs(1);

/// What all streams of a connection have in common.
pub(crate) struct Streams<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) transport: Transport,
    pub(crate) name: &'a Name,
    pub(crate) port: u16,
    /// Without it no credential is sent.
    pub(crate) is_tls: bool,
    pub(crate) traffic: &'a Traffic,
}

impl Streams<'_> {
    fn host(&self) -> Host {
        Host::Name(self.name.clone())
    }

    fn record(&self, outcome: impl Into<Outcome>) {
        self.sandbox.record(self.transport, Some(&self.host()), Some(self.port), outcome);
    }

    /// The policy of this moment, and the credentials.
    fn current(&self) -> (Arc<Policy>, Option<Arc<Credentials>>) {
        let installed = self.sandbox.installed_for(self.name, self.port);
        match installed.filter(|_| self.is_tls) {
            Some((credentials, policy, _)) => (policy, Some(credentials)),
            None => (self.sandbox.current_policy(), None),
        }
    }

    /// Serves a connection from inside until either side ends it. `outside` is connected to the host
    /// and speaks HTTP/2, or is the reason why there is no such connection.
    pub(crate) async fn relay<O>(
        &self,
        inside: impl AsyncRead + AsyncWrite + Unpin,
        outside: Result<O, Refusal>,
    ) -> Result<(), RelayError>
    where
        O: AsyncRead + AsyncWrite + Unpin,
    {
        let limits = self.sandbox.limits();
        let shaking = settings().handshake::<_, Bytes>(inside);
        let Ok(Ok(mut inside)) = timeout(limits.first_bytes, shaking).await else {
            return Err(RelayError::Io);
        };
        let mut outside = Some(outside);
        let mut client = Err(self.unreachable("the connection has ended"));
        let mut connection = None;
        let mut streams = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = inside.accept() => {
                    let (request, respond) = match accepted {
                        Some(Ok(accepted)) => accepted,
                        Some(Err(_)) => return Err(RelayError::Io),
                        None => return Ok(()),
                    };
                    // The host hears nothing of a connection without a request.
                    if let Some(outside) = outside.take() {
                        (client, connection) = self.open(outside).await;
                    }
                    streams.push(self.stream(request, respond, client.clone()));
                }
                Some(()) = streams.next(), if !streams.is_empty() => {}
                () = end_of(&mut connection) => {
                    // The client makes a new connection for its next request.
                    connection = None;
                    inside.graceful_shutdown();
                }
                () = sleep(limits.idle), if streams.is_empty() => {
                    inside.graceful_shutdown();
                    let closing = poll_fn(|context| inside.poll_closed(context));
                    let _ = timeout(LAST_FRAMES, closing).await;
                    return Ok(());
                }
            }
        }
    }

    /// Begins HTTP/2 with the host.
    async fn open<O: AsyncRead + AsyncWrite + Unpin>(
        &self,
        outside: Result<O, Refusal>,
    ) -> (Result<SendRequest<Bytes>, Refusal>, Option<client::Connection<O, Bytes>>) {
        let outside = match outside {
            Ok(outside) => outside,
            Err(refusal) => return (Err(refusal), None),
        };
        let shaking = client_settings().handshake::<_, Bytes>(outside);
        match timeout(self.sandbox.limits().connect, shaking).await {
            Ok(Ok((client, connection))) => (Ok(client), Some(connection)),
            _ => (Err(self.unreachable("it does not speak HTTP/2")), None),
        }
    }

    fn unreachable(&self, cause: &str) -> Refusal {
        Refusal::Unreachable { host: self.host(), port: self.port, cause: cause.to_owned() }
    }
}

/// Moves the frames of a connection until the host has ended it; without one, never ends.
async fn end_of<O: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Option<client::Connection<O, Bytes>>,
) {
    match connection {
        Some(connection) => drop(connection.await),
        None => std::future::pending().await,
    }
}

fn settings() -> server::Builder {
    let mut settings = server::Builder::new();
    settings
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER);
    settings
}

fn client_settings() -> client::Builder {
    let mut settings = client::Builder::new();
    settings
        .enable_push(false)
        .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER);
    settings
}
