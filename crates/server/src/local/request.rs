//! Common parts of all routes: the caller, and requests and responses as JSON.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stockade_api::wire::{EXECUTION_HEADER, KEY_HEADER};
use stockade_api::{Caller, Problem};
use stockade_core::{Code, ExecutionId};

use super::Operations;
use super::response::Failure;

/// The caller of a request: that of its connection, with the idempotency key and the execution that
/// the request names.
pub(super) struct RequestCaller(pub(super) Caller);

impl FromRequestParts<Operations> for RequestCaller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &Operations) -> Result<Self, Failure> {
        let text = |name: &str| match parts.headers.get(name).map(|value| value.to_str()) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text.to_owned())),
            Some(Err(_)) => {
                let message = format!("the header `{name}` is not text");
                Err(Failure(Problem::new(Code::InvalidInput, message)))
            }
        };
        let execution = text(EXECUTION_HEADER)?.map(ExecutionId::new).transpose();
        let invalid = |error: stockade_core::id::InvalidId| {
            Failure(Problem::new(Code::InvalidInput, error.to_string()))
        };
        let caller = parts.extensions.get::<Caller>().ok_or_else(|| {
            let message = "the connection of the request has no caller";
            Failure(Problem::new(Code::AccessDenied, message))
        })?;
        Ok(Self(Caller {
            idempotency_key: text(KEY_HEADER)?,
            execution_id: execution.map_err(invalid)?,
            ..caller.clone()
        }))
    }
}

/// Parses a JSON request.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| {
        Problem::new(Code::InvalidInput, "the request cannot be read").because(error.to_string())
    })
}

/// A response that accompanies a body, as the value of a header.
pub(super) fn header_value(answer: &impl Serialize) -> Result<HeaderValue, Problem> {
    let unwritten = |error: &dyn std::fmt::Display| {
        Problem::new(Code::Io, "the answer cannot be written").because(error.to_string())
    };
    let text = serde_json::to_vec(answer).map_err(|error| unwritten(&error))?;
    HeaderValue::try_from(STANDARD.encode(text)).map_err(|error| unwritten(&error))
}

/// The status of a response after which the connection is not HTTP any more.
pub(super) const UPGRADED: StatusCode = StatusCode::SWITCHING_PROTOCOLS;
