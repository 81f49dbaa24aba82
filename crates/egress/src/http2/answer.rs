//! What a program inside receives in a stream: the response of its host, or a refusal, which gRPC is
//! told as a status of its own.

use std::future::poll_fn;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, Response, StatusCode};
use serde_json::json;
use stockade_core::network::{Evidence, Refusal};

use super::body;
use crate::redaction::percent_encoded;
use crate::rejection::HEADER;

/// The response of one stream.
pub(super) struct Answer {
    respond: SendResponse<Bytes>,
    /// The body, once the head is sent.
    body: Option<SendStream<Bytes>>,
    is_grpc: bool,
}

impl Answer {
    pub(super) const fn new(respond: SendResponse<Bytes>, is_grpc: bool) -> Self {
        Self { respond, body: None, is_grpc }
    }

    /// Sends a head to which another one follows.
    pub(super) fn inform(&mut self, head: Response<()>) -> Result<(), h2::Error> {
        self.respond.send_informational(head)
    }

    /// Sends the head.
    pub(super) fn start(&mut self, head: Response<()>, is_end: bool) -> Result<(), h2::Error> {
        self.body = Some(self.respond.send_response(head, is_end)?);
        Ok(())
    }

    /// Sends a part of the body.
    pub(super) async fn data(&mut self, bytes: Vec<u8>) -> Result<(), h2::Error> {
        match &mut self.body {
            Some(body) => body::send(body, Bytes::from(bytes)).await,
            None => Err(Reason::INTERNAL_ERROR.into()),
        }
    }

    /// Ends the body.
    pub(super) fn end(&mut self, trailers: Option<HeaderMap>) -> Result<(), h2::Error> {
        match (&mut self.body, trailers) {
            (Some(body), Some(trailers)) => body.send_trailers(trailers),
            (Some(body), None) => body.send_data(Bytes::new(), true),
            (None, _) => Ok(()),
        }
    }

    /// Ends when the client has cancelled the stream.
    pub(super) async fn cancelled(&mut self) -> Reason {
        let reset = poll_fn(|context| match &mut self.body {
            Some(body) => body.poll_reset(context),
            None => self.respond.poll_reset(context),
        });
        reset.await.unwrap_or(Reason::CANCEL)
    }

    /// Ends the stream without the rest of its response.
    pub(super) fn reset(&mut self, reason: Reason) {
        match &mut self.body {
            Some(body) => body.send_reset(reason),
            None => self.respond.send_reset(reason),
        }
    }

    /// Tells the client that its request is refused: in the response, if that has not begun.
    pub(super) async fn refuse(&mut self, refusal: &Refusal) {
        if self.body.is_some() {
            return self.reset(Reason::CANCEL);
        }
        let (head, text) = if self.is_grpc { (grpc(refusal), None) } else { plain(refusal) };
        let Ok(head) = head else { return self.reset(Reason::INTERNAL_ERROR) };
        let sent = match text {
            None => self.start(head, true),
            Some(text) => match self.start(head, false) {
                Ok(()) => self.data(text).await.and_then(|()| self.end(None)),
                Err(error) => Err(error),
            },
        };
        if sent.is_err() {
            self.reset(Reason::CANCEL);
        }
    }
}

/// The response for a refusal, and its body.
fn plain(refusal: &Refusal) -> (http::Result<Response<()>>, Option<Vec<u8>>) {
    let text = format!("{}\n", json!({ "error": refusal.problem() })).into_bytes();
    let status = match refusal {
        // A client that has used a connection of another host makes one for this host.
        Refusal::NameMismatch { evidence: Evidence::RequestTarget, .. } => {
            StatusCode::MISDIRECTED_REQUEST.as_u16()
        }
        _ => refusal.code().http_status(),
    };
    let head = Response::builder()
        .status(status)
        .header(HEADER, refusal.reason().as_str())
        .header("content-type", "application/json")
        .header("content-length", text.len());
    (head.body(()), Some(text))
}

/// The same for gRPC: a status without a message ("Trailers-Only").
fn grpc(refusal: &Refusal) -> http::Result<Response<()>> {
    const INVALID_ARGUMENT: u8 = 3;
    const PERMISSION_DENIED: u8 = 7;
    const RESOURCE_EXHAUSTED: u8 = 8;
    const UNAVAILABLE: u8 = 14;
    let status = match refusal.code().http_status() {
        400 => INVALID_ARGUMENT,
        429 => RESOURCE_EXHAUSTED,
        502..=504 => UNAVAILABLE,
        _ => PERMISSION_DENIED,
    };
    let message = percent_encoded(refusal.to_string().as_bytes()).replace("%20", " ");
    let head = Response::builder()
        .status(StatusCode::OK)
        .header("content-type", "application/grpc")
        .header(HEADER, refusal.reason().as_str())
        .header("grpc-status", u16::from(status))
        .header("grpc-message", message);
    head.body(())
}
