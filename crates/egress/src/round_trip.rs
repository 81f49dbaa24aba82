//! One request to a host that has credentials, and its response, between two TLS connections. All
//! of an honest response arrives, also if the host ends the connection without notice, and while
//! the request is unfinished.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use stockade_core::network::{Host, Refusal};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::activity::{Activity, BUFFER_BYTES, renew};
use crate::body::ResponseBody;
use crate::first_bytes::body::Body;
use crate::limits::Limits;
use crate::placeholders::Search;
use crate::redaction::Redaction;
use crate::rejection;
use crate::relay::{Halves, RelayError, Traffic};
use crate::response::{Exchange, ResponseHead};
use crate::sending::{SendError, Sending};
use crate::watch::Seen;

/// A request that was checked, with its credentials.
pub(crate) struct Outgoing {
    /// The host that it is for.
    pub(crate) host: Host,
    /// Its head, and the part of its body that has arrived.
    pub(crate) bytes: Vec<u8>,
    /// How much may follow.
    pub(crate) body: Body,
    /// What its response may be.
    pub(crate) exchange: Exchange,
    /// What is redacted from its response.
    pub(crate) redaction: Redaction,
}

/// Sends the request, and relays its response until that is complete. The search is for placeholders
/// in what is sent, of secrets that are not bound to the host.
pub(crate) async fn round_trip(
    halves: Halves<
        impl AsyncRead + Unpin,
        impl AsyncWrite + Unpin,
        impl AsyncRead + Unpin,
        impl AsyncWrite + Unpin,
    >,
    (outgoing, search): (Outgoing, Search<'_>),
    limits: &Limits,
    traffic: &Traffic,
) -> Result<(), RelayError> {
    let Halves { mut from_inside, mut to_inside, mut from_outside, mut to_outside } = halves;
    let Outgoing { host, bytes, body, exchange, redaction } = outgoing;
    let activity = Activity::new(limits.idle, &traffic.meter);
    // What follows a switch of protocols is sent once its response is accepted.
    let (seen, receiver) = watch::channel(Seen::Nothing);
    let is_request = AtomicBool::new(true);
    let send = async {
        let sending = Sending {
            activity: &activity,
            from: &mut from_inside,
            to: &mut to_outside,
            count: &traffic.sent,
            search,
            seen: receiver,
            is_request: &is_request,
        };
        match sending.send(bytes, body).await {
            Err(SendError::Read) => Ended::Disconnected,
            Err(SendError::Refused(refusal)) => Ended::Refused(refusal),
            // A host may answer before it has read all of the request, and close.
            Err(SendError::Write) | Ok(()) => std::future::pending().await,
        }
    };
    let receive = async {
        let (from, to) = (&mut from_outside, &mut to_inside);
        let mut receiving = Receiving { activity: &activity, from, to, traffic, seen };
        receiving.response(host, exchange, redaction).await
    };
    let ended = tokio::select! {
        biased;
        received = receive => return received,
        ended = send => ended,
    };
    match ended {
        Ended::Disconnected => Err(RelayError::Io),
        Ended::Refused(refusal) => {
            // A response that has begun cannot become another one.
            if traffic.bytes().1 == 0 {
                let mut inside = tokio::io::join(from_inside, to_inside);
                rejection::write_and_close(&mut inside, &rejection::response(&refusal)).await;
            }
            Err(RelayError::Reported(refusal))
        }
    }
}

/// Why an unfinished request ends the exchange.
enum Ended {
    Disconnected,
    Refused(Refusal),
}

/// The direction of a response.
struct Receiving<'a, Source, Target> {
    activity: &'a Activity,
    from: &'a mut Source,
    to: &'a mut Target,
    traffic: &'a Traffic,
    /// Receives the status once the head is accepted.
    seen: watch::Sender<Seen>,
}

/// What arrives next.
enum Arrival {
    Bytes,
    /// Nothing, for some time.
    Quiet,
    /// The end; it is known whether the host meant it.
    End {
        is_clean: bool,
    },
}

impl<Source: AsyncRead + Unpin, Target: AsyncWrite + Unpin> Receiving<'_, Source, Target> {
    async fn response(
        &mut self,
        host: Host,
        exchange: Exchange,
        redaction: Redaction,
    ) -> Result<(), RelayError> {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        let head = match self.head(&mut buffer, exchange, &redaction).await? {
            Ok(head) => head.body(exchange).map(|framing| (head, framing)),
            Err(what) => Err(what),
        };
        let (head, framing) = match head {
            Ok(head) => head,
            Err(what) => {
                let refusal = Refusal::Unreadable { host, what };
                self.write(&rejection::response(&refusal)).await?;
                self.to.shutdown().await?;
                return Err(RelayError::Reported(refusal));
            }
        };
        self.write(&head.bytes(framing, exchange, &redaction)).await?;
        self.seen.send_replace(Seen::Status(head.status));
        if let Some(framing) = framing {
            let body = ResponseBody::new(framing, redaction, exchange.minor);
            self.body(body, buffer).await?;
        }
        self.to.shutdown().await?;
        Ok(())
    }

    /// The final head. Informational ones are forwarded at once: the client may wait for them.
    async fn head(
        &mut self,
        buffer: &mut Vec<u8>,
        exchange: Exchange,
        redaction: &Redaction,
    ) -> Result<Result<ResponseHead, &'static str>, RelayError> {
        loop {
            match ResponseHead::parse(buffer) {
                Err(what) => return Ok(Err(what)),
                Ok(None) => {
                    if self.activity.read(self.from, buffer).await? == 0 {
                        return Err(RelayError::Io);
                    }
                }
                Ok(Some((head, length))) => {
                    buffer.drain(..length);
                    if !head.is_informational() {
                        return Ok(Ok(head));
                    }
                    // HTTP/1.0 has none.
                    if exchange.minor > 0 {
                        self.write(&head.bytes(None, exchange, redaction)).await?;
                    }
                }
            }
        }
    }

    async fn body(
        &mut self,
        mut body: ResponseBody,
        mut buffer: Vec<u8>,
    ) -> Result<(), RelayError> {
        let mut output = Vec::new();
        loop {
            let pushed = body.push(&buffer, &mut output);
            self.write(&output).await?;
            output.clear();
            match pushed {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(_) => return Err(RelayError::Cut),
            }
            renew(&mut buffer);
            match self.next(&mut buffer, body.quiet()).await? {
                Arrival::Bytes => {}
                Arrival::Quiet => body.release(&mut output),
                Arrival::End { is_clean } => {
                    body.finish(&mut output);
                    self.write(&output).await?;
                    let is_complete = is_clean && body.ends_with_connection();
                    return if is_complete { Ok(()) } else { Err(RelayError::Cut) };
                }
            }
        }
    }

    async fn next(
        &mut self,
        buffer: &mut Vec<u8>,
        quiet: Option<Duration>,
    ) -> Result<Arrival, RelayError> {
        let reading = self.activity.read(self.from, buffer);
        let read = match quiet {
            None => reading.await,
            Some(quiet) => match timeout(quiet, reading).await {
                Ok(read) => read,
                Err(_) => return Ok(Arrival::Quiet),
            },
        };
        Ok(match read {
            Ok(0) => Arrival::End { is_clean: true },
            Ok(_) => Arrival::Bytes,
            Err(_) => Arrival::End { is_clean: false },
        })
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), RelayError> {
        if !bytes.is_empty() {
            self.activity.write(self.to, bytes, &self.traffic.received).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
