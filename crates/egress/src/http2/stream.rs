//! One stream: a request that is checked and sent, and its response.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use stockade_core::network::Refusal;
use tokio::time::timeout;

use super::answer::Answer;
use super::body::{self, Redacted};
use super::{LAST_FRAMES, Streams, message};
use crate::activity::Activity;
use crate::first_bytes::check_port;
use crate::first_bytes::http::Head;
use crate::first_bytes::names::check_trailer;
use crate::negotiation;
use crate::placeholders::Search;
use crate::redaction::Redaction;
use crate::response::{Exchange, ResponseHead};
use crate::sandbox::check_request;

/// How long nothing may arrive before the end of an unfinished body is forwarded, as with HTTP/1.
const QUIET: Duration = Duration::from_millis(500);

/// Why a stream ends early.
enum End {
    /// It is refused.
    Refused(Refusal),
    /// One side has reset it, or its connection has ended.
    Reset(Reason),
}

impl From<h2::Error> for End {
    fn from(error: h2::Error) -> Self {
        Self::Reset(error.reason().unwrap_or(Reason::CANCEL))
    }
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A request that was checked, with its credentials.
struct Outgoing {
    request: Request<()>,
    /// What the policy decides on: without credentials.
    line: (String, String),
    exchange: Exchange,
    redaction: Redaction,
}

impl Streams<'_> {
    const fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// Serves one stream.
    pub(super) async fn stream(
        &self,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        client: Result<SendRequest<Bytes>, Refusal>,
    ) {
        let is_grpc = message::is_grpc(request.headers());
        let mut answer = Answer::new(respond, is_grpc);
        match self.exchange(request, &mut answer, client).await {
            Ok(()) => {}
            Err(End::Refused(refusal)) => {
                self.record(&refusal);
                // A client that reads nothing misses it.
                let _ = timeout(LAST_FRAMES, answer.refuse(&refusal)).await;
            }
            Err(End::Reset(reason)) => answer.reset(reason),
        }
    }

    async fn exchange(
        &self,
        request: Request<RecvStream>,
        answer: &mut Answer,
        client: Result<SendRequest<Bytes>, Refusal>,
    ) -> Result<(), End> {
        let (parts, body) = request.into_parts();
        let host = self.host();
        let mut search = self.sandbox.search(self.transport, &host, self.port);
        let head = message::head(self.name, self.scheme(), &parts)?;
        let outgoing = self.outgoing(head, &mut search)?;
        let idle = self.sandbox.limits().idle;
        // A host limits the number of streams.
        let ready = timeout(idle, client?.ready()).await;
        let mut client = ready.map_err(|_| End::Reset(Reason::REFUSED_STREAM))??;
        let is_end = body.is_end_stream();
        let (response, to_host) = client.send_request(outgoing.request, is_end)?;
        drop(client);
        let activity = Activity::new(idle, &self.traffic.meter);
        let send = async {
            if !is_end {
                self.send(body, to_host, &activity, &mut search).await?;
            }
            // The response decides when the stream ends.
            std::future::pending().await
        };
        let receiving =
            Receiving { streams: self, activity: &activity, exchange: outgoing.exchange };
        let receive = receiving.response(response, outgoing.redaction, answer);
        tokio::select! {
            biased;
            received = receive => received,
            sent = send => sent,
            refusal = self.violation(&outgoing.line) => Err(refusal.into()),
            () = activity.end_of_patience() => Err(End::Reset(Reason::CANCEL)),
        }
    }

    /// Checks a request, and puts the credentials into it.
    fn outgoing(&self, mut head: Head, search: &mut Search<'_>) -> Result<Outgoing, Refusal> {
        if self.is_tls {
            check_port(&self.host(), self.port, &head)?;
        }
        let (policy, credentials) = self.current();
        check_request(&policy, self.name, self.port, &head)?;
        search.first(&head.to_origin(None))?;
        self.sandbox.report_request(self.transport, (self.name, self.port), &head);
        let line = (head.method.clone(), head.target.clone());
        let redaction = match &credentials {
            Some(credentials) => credentials.insert_into(self.name, self.port, &mut head)?,
            None => Redaction::default(),
        };
        let is_redacted = !redaction.is_empty();
        if self.is_tls {
            negotiation::without_compression(&mut head);
        }
        if is_redacted {
            let has_trailers = head.value("te").is_some();
            negotiation::as_a_whole(&mut head);
            // The only value that HTTP/2 has. Servers of gRPC demand it.
            if has_trailers {
                head.set("te", b"trailers");
            }
        }
        let exchange = Exchange::of(&head, is_redacted);
        let request = message::request(self.scheme(), &head);
        let invalid = |_| Refusal::InvalidRequest { what: "its head cannot be sent by HTTP/2" };
        Ok(Outgoing { request: request.map_err(invalid)?, line, exchange, redaction })
    }

    /// Ends when a new policy does not allow the request.
    async fn violation(&self, (method, target): &(String, String)) -> Refusal {
        let mut policies = self.sandbox.policy();
        loop {
            let policy = Arc::clone(&policies.borrow_and_update());
            if let Err(refusal) = policy.check_request(self.name, self.port, (method, target)) {
                return refusal;
            }
            if policies.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    async fn send(
        &self,
        mut from: RecvStream,
        mut to: SendStream<Bytes>,
        activity: &Activity,
        search: &mut Search<'_>,
    ) -> Result<(), End> {
        while let Some(bytes) = from.data().await {
            let bytes = bytes?;
            let length = bytes.len();
            search.bytes(&bytes)?;
            self.count(length, &self.traffic.sent).await;
            if let Err(error) = body::send(&mut to, bytes).await {
                // A host may answer before it has read all of the request.
                return match error.reason() {
                    Some(Reason::NO_ERROR) => Ok(()),
                    _ => Err(error.into()),
                };
            }
            activity.note();
            from.flow_control().release_capacity(length)?;
        }
        match from.trailers().await? {
            Some(trailers) => {
                for (name, value) in &trailers {
                    check_trailer(name.as_str())
                        .map_err(|what| Refusal::InvalidRequest { what })?;
                    search.bytes(value.as_bytes())?;
                }
                to.send_trailers(trailers)?;
            }
            None => to.send_data(Bytes::new(), true)?,
        }
        Ok(())
    }

    async fn count(&self, bytes: usize, counter: &AtomicU64) {
        let mut left = bytes;
        while left > 0 {
            let piece = self.traffic.meter.piece().min(left);
            self.traffic.meter.admit(piece).await;
            left -= piece;
        }
        counter.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// The direction of a response.
struct Receiving<'a> {
    streams: &'a Streams<'a>,
    activity: &'a Activity,
    exchange: Exchange,
}

impl Receiving<'_> {
    async fn response(
        &self,
        mut response: ResponseFuture,
        redaction: Redaction,
        answer: &mut Answer,
    ) -> Result<(), End> {
        let (head, mut from) = loop {
            let next = poll_fn(|context| match response.poll_informational(context) {
                Poll::Ready(Some(head)) => Poll::Ready(Err(head)),
                _ => Pin::new(&mut response).poll(context).map(Ok),
            });
            tokio::select! {
                biased;
                next = next => match next {
                    Err(head) => answer.inform(self.head(&head?, &redaction)?)?,
                    Ok(response) => break response?.into_parts(),
                },
                reason = answer.cancelled() => return Err(End::Reset(reason)),
            }
        };
        self.activity.note();
        let head = Response::from_parts(head, ());
        self.check(&head)?;
        let is_grpc = message::has_messages(head.headers()) && self.exchange.is_redacted;
        answer.start(self.head(&head, &redaction)?, from.is_end_stream())?;
        if from.is_end_stream() {
            return Ok(());
        }
        let mut redacted = Redacted::new(redaction, is_grpc);
        let is_sized = head.headers().contains_key(http::header::CONTENT_LENGTH);
        loop {
            let data = async {
                match !is_sized && redacted.holds() {
                    true => timeout(QUIET, from.data()).await.map_err(|_| ()),
                    false => Ok(from.data().await),
                }
            };
            let data = tokio::select! {
                data = data => data,
                reason = answer.cancelled() => return Err(End::Reset(reason)),
            };
            match data {
                Err(()) => answer.data(redacted.release()).await?,
                Ok(None) => break,
                Ok(Some(bytes)) => {
                    let bytes = bytes?;
                    self.activity.note();
                    self.streams.count(bytes.len(), &self.streams.traffic.received).await;
                    let forwarded = redacted.push(&bytes).map_err(|what| self.unreadable(what))?;
                    answer.data(forwarded).await?;
                    from.flow_control().release_capacity(bytes.len())?;
                }
            }
        }
        answer.data(redacted.release()).await?;
        let trailers = match from.trailers().await? {
            Some(trailers) => Some(redacted_headers(&trailers, redacted.values())?),
            None => None,
        };
        Ok(answer.end(trailers)?)
    }

    /// Whether the response can be redacted.
    fn check(&self, head: &Response<()>) -> Result<(), End> {
        let headers = head.headers();
        let own = headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
        let own = ResponseHead::of_stream(head.status().as_u16(), own.collect());
        own.body(self.exchange).map_err(|what| self.unreadable(what))?;
        Ok(())
    }

    fn unreadable(&self, what: &'static str) -> End {
        Refusal::Unreadable { host: self.streams.host(), what }.into()
    }

    /// The redacted head for the client.
    fn head(&self, head: &Response<()>, redaction: &Redaction) -> Result<Response<()>, End> {
        let mut redacted = Response::new(());
        *redacted.status_mut() = head.status();
        *redacted.headers_mut() = redacted_headers(head.headers(), redaction)?;
        Ok(redacted)
    }
}

/// Headers or trailers without values of secrets.
fn redacted_headers(headers: &HeaderMap, redaction: &Redaction) -> Result<HeaderMap, End> {
    let redact = |bytes: &[u8]| redaction.head(bytes);
    // A name that is a value is left out: there is nothing that it could be called instead.
    let named = headers
        .iter()
        .filter(|(name, _)| redact(name.as_str().as_bytes()) == name.as_str().as_bytes());
    let all: Vec<_> =
        named.map(|(name, value)| (name.as_str(), redact(value.as_bytes()))).collect();
    let all = all.iter().map(|(name, value)| (*name, value.as_slice()));
    message::header_map(all).map_err(|_| End::Reset(Reason::INTERNAL_ERROR))
}
