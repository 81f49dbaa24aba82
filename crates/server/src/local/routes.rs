//! From paths to operations.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use stockade_api::body::Received;
use stockade_api::wire::{
    ANSWER_HEADER, CALL, CONNECT, DIFF, EVENTS, EXECUTION_HEADER, HEALTH, HTTP_STREAM, KEY_HEADER,
    OUTPUT, READ, REQUEST_HEADER, SESSION, WEB_SOCKET, WRITE,
};
use stockade_api::{
    Caller, FileContent, HttpStream, Problem, Sandboxes, Workflows, WriteFile, dispatch,
    dispatch_workflows,
};
use stockade_core::{Code, ExecutionId, OwnerId};

use super::answer::{Failure, content, lines};
use super::session;

/// The largest request of a plain operation.
const REQUEST_BYTES: usize = 64 << 20;

/// What every route is given.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) sandboxes: Arc<dyn Sandboxes>,
    workflows: Arc<dyn Workflows>,
    owner: OwnerId,
}

/// Every path of the dialect.
pub(super) fn all(
    sandboxes: Arc<dyn Sandboxes>,
    workflows: Arc<dyn Workflows>,
    owner: OwnerId,
) -> Router {
    Router::new()
        .route(HEALTH, get(health))
        .route(&format!("{CALL}{{operation}}"), post(call))
        .route(OUTPUT, post(output))
        .route(EVENTS, post(events))
        .route(DIFF, post(diff))
        .route(READ, post(read))
        .route(WRITE, post(write))
        .route(SESSION, post(session::open))
        .route(CONNECT, post(session::connect))
        .route(HTTP_STREAM, post(http_stream))
        .route(WEB_SOCKET, post(session::web_socket))
        .fallback(unknown)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES))
        .with_state(Shared { sandboxes, workflows, owner })
}

async fn health() -> axum::Json<Value> {
    let version = env!("CARGO_PKG_VERSION");
    axum::Json(json!({ "version": version, "pid": std::process::id() }))
}

async fn unknown(request: Request) -> Failure {
    let message = format!("there is no path {}", request.uri().path());
    Failure(Problem::new(Code::NotFound, message))
}

async fn call(
    State(shared): State<Shared>,
    caller: Asking,
    Path(operation): Path<String>,
    body: Bytes,
) -> Result<axum::Json<Value>, Failure> {
    let answer = dispatch_workflows(&*shared.workflows, &caller.0, &operation, &body).await;
    let answer = match answer {
        Some(answer) => answer,
        None => dispatch(&*shared.sandboxes, &caller.0, &operation, &body).await,
    };
    Ok(axum::Json(answer?))
}

async fn output(
    State(shared): State<Shared>,
    caller: Asking,
    body: Bytes,
) -> Result<Response, Failure> {
    Ok(lines(shared.sandboxes.read_output(&caller.0, parse(&body)?).await?))
}

async fn events(
    State(shared): State<Shared>,
    caller: Asking,
    body: Bytes,
) -> Result<Response, Failure> {
    Ok(lines(shared.sandboxes.read_events(&caller.0, parse(&body)?).await?))
}

async fn diff(
    State(shared): State<Shared>,
    caller: Asking,
    body: Bytes,
) -> Result<Response, Failure> {
    Ok(lines(shared.sandboxes.diff_bundle(&caller.0, parse(&body)?).await?))
}

async fn read(
    State(shared): State<Shared>,
    caller: Asking,
    body: Bytes,
) -> Result<Response, Failure> {
    Ok(content(shared.sandboxes.read_file(&caller.0, parse(&body)?).await?))
}

async fn http_stream(
    State(shared): State<Shared>,
    caller: Asking,
    body: Bytes,
) -> Result<Response, Failure> {
    let HttpStream { head, body } = shared.sandboxes.http_stream(&caller.0, parse(&body)?).await?;
    let mut answer = content(body);
    answer.headers_mut().insert(ANSWER_HEADER, beside(&head)?);
    Ok(answer)
}

async fn write(
    State(shared): State<Shared>,
    caller: Asking,
    headers: HeaderMap,
    body: Body,
) -> Result<axum::Json<stockade_api::Written>, Failure> {
    let request = headers.get(REQUEST_HEADER).and_then(|text| STANDARD.decode(text).ok());
    let request: WriteFile = parse(&request.unwrap_or_default())?;
    let content = FileContent(Box::pin(Received::new(body)));
    Ok(axum::Json(shared.sandboxes.write_file(&caller.0, request, content).await?))
}

/// What is said beside a body.
pub(super) fn beside(answer: &impl Serialize) -> Result<HeaderValue, Problem> {
    let unwritten = |error: &dyn std::fmt::Display| {
        Problem::new(Code::Io, "the answer cannot be written").because(error.to_string())
    };
    let text = serde_json::to_vec(answer).map_err(|error| unwritten(&error))?;
    HeaderValue::try_from(STANDARD.encode(text)).map_err(|error| unwritten(&error))
}

/// A request as JSON.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| {
        Problem::new(Code::InvalidInput, "the request cannot be read").because(error.to_string())
    })
}

/// Who asks: the owner of the socket, with what the request says besides.
pub(super) struct Asking(pub(super) Caller);

impl FromRequestParts<Shared> for Asking {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Failure> {
        let text = |name: &str| match parts.headers.get(name).map(|value| value.to_str()) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text.to_owned())),
            Some(Err(_)) => {
                let message = format!("the header `{name}` is no text");
                Err(Failure(Problem::new(Code::InvalidInput, message)))
            }
        };
        let execution = text(EXECUTION_HEADER)?.map(ExecutionId::new).transpose();
        let invalid = |error: stockade_core::id::InvalidId| {
            Failure(Problem::new(Code::InvalidInput, error.to_string()))
        };
        Ok(Self(Caller {
            owner: shared.owner.clone(),
            idempotency_key: text(KEY_HEADER)?,
            execution_id: execution.map_err(invalid)?,
        }))
    }
}

/// What a path is answered with whose connection is taken over.
pub(super) const TAKEN_OVER: StatusCode = StatusCode::SWITCHING_PROTOCOLS;
