//! One request on a connection of its own, and its response.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Collected, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, UPGRADE};
use hyper::http::request::Builder;
use hyper::upgrade::Upgraded;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stockade_api::body::FileBody;
use stockade_api::wire::{
    EXECUTION_HEADER, ErrorBody, KEY_HEADER, PROTOCOL, REQUEST_HEADER, RESPONSE_HEADER,
};
use stockade_api::{Caller, FileContent, Problem, Result};
use stockade_core::Code;

use crate::{Client, unreachable, unreadable};

/// The largest response of a plain operation.
const MAX_RESPONSE_BYTES: usize = 256 << 20;

/// The body of a request.
pub(crate) type Content = UnsyncBoxBody<Bytes, io::Error>;

/// A body that is completely in memory.
pub(crate) fn full_body(bytes: Vec<u8>) -> Content {
    Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed_unsync()
}

/// A body that is read while it is sent.
pub(crate) fn stream_body(from: FileContent) -> Content {
    FileBody(from).boxed_unsync()
}

/// A request that is being built.
pub(crate) struct Request {
    path: String,
    head: Builder,
    content: Content,
    upgrades: bool,
}

impl Request {
    /// A GET request without a caller.
    pub(crate) fn get(path: &str) -> Self {
        let head = hyper::Request::builder();
        Self { path: path.to_owned(), head, content: full_body(Vec::new()), upgrades: false }
    }

    /// A POST request of a caller.
    pub(crate) fn post(path: &str, caller: &Caller) -> Self {
        let mut head = hyper::Request::builder().method(Method::POST);
        if let Some(key) = &caller.idempotency_key {
            head = head.header(KEY_HEADER, key);
        }
        if let Some(execution) = &caller.execution_id {
            head = head.header(EXECUTION_HEADER, execution.as_str());
        }
        Self { path: path.to_owned(), head, content: full_body(Vec::new()), upgrades: false }
    }

    /// Adds the parameters as a JSON body.
    pub(crate) fn json(self, request: &impl Serialize) -> Result<Self> {
        let head = self.head.header(CONTENT_TYPE, "application/json");
        Ok(Self { head, content: full_body(to_json(request)?), ..self })
    }

    /// Adds the parameters as a header, beside the body.
    pub(crate) fn json_header(self, request: &impl Serialize) -> Result<Self> {
        let head = self.head.header(REQUEST_HEADER, STANDARD.encode(to_json(request)?));
        Ok(Self { head, ..self })
    }

    /// Sets the body.
    pub(crate) fn content(self, content: Content) -> Self {
        Self { content, ..self }
    }

    /// Asks the server to upgrade the connection.
    pub(crate) fn with_upgrade(self) -> Self {
        let head = self.head.header(CONNECTION, "upgrade").header(UPGRADE, PROTOCOL);
        Self { head, upgrades: true, ..self }
    }

    /// Sends the request on a connection of its own.
    pub(crate) async fn send(self, client: &Client) -> Result<Response<Incoming>> {
        let mut head = self.head.uri(format!("{}{}", client.prefix, self.path));
        for (name, value) in &client.headers {
            head = head.header(name, value);
        }
        let request = head.body(self.content).map_err(|error| {
            Problem::new(Code::InvalidInput, "the request cannot be sent")
                .because(error.to_string())
        })?;
        let stream = client.dial.dial().await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(unreachable)?;
        // The task ends when the sender, the response body and the upgraded connection are all
        // dropped.
        if self.upgrades {
            tokio::spawn(connection.with_upgrades());
        } else {
            tokio::spawn(connection);
        }
        sender.send_request(request).await.map_err(unreachable)
    }
}

fn to_json(request: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(request).map_err(|error| {
        Problem::new(Code::InvalidInput, "the request cannot be written").because(error.to_string())
    })
}

/// The failure of a request in the form of OpenSandbox.
#[derive(serde::Deserialize)]
struct Refused {
    code: Code,
    message: String,
    #[serde(default)]
    remediation: Option<String>,
    #[serde(default)]
    retryable: bool,
}

/// The body of a successful response.
pub(crate) async fn check_status(answer: Response<Incoming>) -> Result<Incoming> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer.into_body());
    }
    let bytes = collect_body(answer.into_body()).await?;
    if let Ok(failed) = serde_json::from_slice::<ErrorBody>(&bytes) {
        return Err(failed.error);
    }
    // A listener over TCP refuses some requests before it knows in which protocol they are.
    if let Ok(Refused { code, message, remediation, retryable }) = serde_json::from_slice(&bytes) {
        return Err(Problem { code, message, cause: None, remediation, retryable });
    }
    Err(unreadable(format!("status {status}")))
}

/// Parses a JSON response.
pub(crate) async fn json<T: DeserializeOwned>(answer: Response<Incoming>) -> Result<T> {
    let bytes = collect_body(check_status(answer).await?).await?;
    serde_json::from_slice(&bytes).map_err(unreadable)
}

/// Parses the part of a response that is in a header, beside the body.
pub(crate) fn response_header<T: DeserializeOwned>(head: &HeaderMap) -> Result<T> {
    let text = head.get(RESPONSE_HEADER).ok_or_else(|| unreadable("a header is missing"))?;
    let text = STANDARD.decode(text).map_err(unreadable)?;
    serde_json::from_slice(&text).map_err(unreadable)
}

/// The upgraded connection of a request, and the headers of its response.
pub(crate) async fn upgraded_connection(
    answer: Response<Incoming>,
) -> Result<(HeaderMap, TokioIo<Upgraded>)> {
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        drop(check_status(answer).await?);
        return Err(unreadable("the connection was not upgraded"));
    }
    let head = answer.headers().clone();
    let connection = hyper::upgrade::on(answer).await.map_err(unreachable)?;
    Ok((head, TokioIo::new(connection)))
}

async fn collect_body(body: Incoming) -> Result<Bytes> {
    let whole = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
    whole.map(Collected::to_bytes).map_err(|error| match error.is::<LengthLimitError>() {
        true => unreadable(error),
        // A server that ends in the middle of a response has not responded.
        false => unreachable(error),
    })
}
