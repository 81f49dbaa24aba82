//! Streams of messages from the server: their first message is always that the call has started, silent
//! ones show that they are alive, and each has an end.

use std::io;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;

use super::terms::Terms;
use super::unary::check_type;
use super::{Envelope, Envelopes, data, end};
use crate::e2b::failure::{RpcCode, RpcError};
use crate::inside::Parts;

/// The type of the messages of a stream.
pub(in crate::e2b) const CONTENT_TYPE: &str = "application/connect+json";
/// How many messages may wait for a slow client.
const CHANNEL_CAPACITY: usize = 16;

/// The one message of a call whose answer is a stream.
pub(in crate::e2b) struct StreamBody<T>(pub(in crate::e2b) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for StreamBody<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        check_type(request.headers(), CONTENT_TYPE).map_err(|refusal| *refusal)?;
        let body = Bytes::from_request(request, state).await;
        let invalid = |message: String| {
            StreamError(RpcError::new(RpcCode::InvalidArgument, message)).into_response()
        };
        let body = body.map_err(|error| invalid(error.to_string()))?;
        let mut envelopes = Envelopes::default();
        envelopes.push(&body);
        let first = envelopes.next().map_err(|error| StreamError(error).into_response())?;
        let Some(Envelope::Message(message)) = first else {
            return Err(invalid("the stream has no message".to_owned()));
        };
        let parsed = serde_json::from_value(message);
        parsed.map(Self).map_err(|error| invalid(format!("the message cannot be read: {error}")))
    }
}

/// The failure of a call whose answer is a stream.
#[derive(Debug)]
pub(in crate::e2b) struct StreamError(pub(in crate::e2b) RpcError);

impl<E: Into<RpcError>> From<E> for StreamError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for StreamError {
    fn into_response(self) -> Response {
        let mut response = stream(Body::from(end(Some(&self.0))));
        response.extensions_mut().insert(crate::failure::Reported(self.0.problem));
        response
    }
}

fn stream(body: Body) -> Response {
    ([(header::CONTENT_TYPE, CONTENT_TYPE), (header::CACHE_CONTROL, "no-cache")], body)
        .into_response()
}

/// The answer to a stream of the client: one message.
pub(in crate::e2b) fn whole_stream(message: &Value) -> Response {
    let mut parts = data(message).to_vec();
    parts.extend(end(None));
    stream(Body::from(parts))
}

/// The message of a silent stream.
pub(in crate::e2b) type Keepalive = fn() -> Value;

/// The response that streams messages. The call ends with its time, with an error, or with the messages. If the sandbox is
/// gone, the connection breaks: only then every client asks whether the sandbox runs, and reports its end as that.
pub(in crate::e2b) fn respond(
    terms: Terms,
    mut messages: mpsc::Receiver<Result<Value, RpcError>>,
    keepalive: Keepalive,
) -> Response {
    let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
    tokio::spawn(async move {
        let deadline = async {
            match terms.timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(deadline);
        loop {
            let next = tokio::select! {
                biased;
                next = tokio::time::timeout(terms.keepalive, messages.recv()) => next,
                () = &mut deadline => {
                    let error = RpcError::new(RpcCode::DeadlineExceeded, "context deadline exceeded");
                    let _ = sender.send(Ok(Frame::data(end(Some(&error))))).await;
                    return;
                }
                () = sender.closed() => return,
            };
            let (part, is_last) = match next {
                Err(_) => (data(&keepalive()), false),
                Ok(Some(Ok(message))) => (data(&message), false),
                Ok(Some(Err(error))) if error.code == RpcCode::Unavailable => {
                    let gone = io::Error::other(error.problem.message);
                    let _ = sender.send(Err(gone)).await;
                    return;
                }
                Ok(Some(Err(error))) => (end(Some(&error)), true),
                Ok(None) => (end(None), true),
            };
            if sender.send(Ok(Frame::data(part))).await.is_err() || is_last {
                return;
            }
        }
    });
    stream(Body::new(Parts(receiver)))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;

    async fn messages(response: Response) -> Vec<(u8, Value)> {
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let (mut rest, mut found) = (&body[..], Vec::new());
        while let [flags, a, b, c, d, message @ ..] = rest {
            let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            found.push((*flags, serde_json::from_slice(&message[..length]).unwrap()));
            rest = &message[length..];
        }
        found
    }

    #[tokio::test]
    async fn a_stream_has_an_end() {
        let (sender, receiver) = mpsc::channel(4);
        sender.send(Ok(json!({ "n": 1 }))).await.unwrap();
        drop(sender);
        let terms = Terms::of(&HeaderMap::new()).unwrap();
        let found = messages(respond(terms, receiver, || json!({}))).await;
        assert_eq!(found, [(0, json!({ "n": 1 })), (2, json!({}))]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_is_alive_until_its_time_is_over() {
        let (_sender, receiver) = mpsc::channel(4);
        let mut headers = HeaderMap::new();
        headers.insert("connect-timeout-ms", "2500".parse().unwrap());
        headers.insert("keepalive-ping-interval", "1".parse().unwrap());
        let response =
            respond(Terms::of(&headers).unwrap(), receiver, || json!({ "keepalive": {} }));
        let found = messages(response).await;
        assert_eq!(found[..2], [(0, json!({ "keepalive": {} })), (0, json!({ "keepalive": {} }))]);
        assert_eq!(found[2].1["error"]["code"], "deadline_exceeded");
    }

    #[tokio::test]
    async fn the_connection_breaks_if_the_sandbox_is_gone() {
        let (sender, receiver) = mpsc::channel(4);
        sender.send(Ok(json!({ "n": 1 }))).await.unwrap();
        sender.send(Err(RpcError::new(RpcCode::Unavailable, "gone"))).await.unwrap();
        let terms = Terms::of(&HeaderMap::new()).unwrap();
        assert!(respond(terms, receiver, || json!({})).into_body().collect().await.is_err());
    }

    #[tokio::test]
    async fn a_failed_call_has_the_status_200() {
        let error = RpcError::new(RpcCode::NotFound, "x");
        let response = StreamError(error).into_response();
        assert_eq!(response.status(), 200);
        assert_eq!(messages(response).await[0].0, 2);
    }
}
