//! Routing from paths to operations.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use stockade_api::body::BodyReader;
use stockade_api::wire::{
    ATTACH, CALL, CONNECT, DIFF, EVENTS, HEALTH, HTTP_STREAM, OUTPUT, READ, RECEIVE,
    REQUEST_HEADER, RESPONSE_HEADER, SEND, SESSION, WEB_SOCKET, WRITE,
};
use stockade_api::{FileContent, HttpStream, Problem, WriteFile, dispatch, dispatch_workflows};
use stockade_core::Code;

use super::Operations;
use super::request::{RequestCaller, header_value, parse};
use super::response::{Failure, content, json_lines};
use super::session;
use crate::openapi::{Api, Security, get, post};

/// The largest request of a plain operation, in bytes.
const REQUEST_BYTES: usize = 64 << 20;

/// Every path of the dialect.
pub(super) fn api() -> Api<Operations> {
    let call_path = format!("{CALL}{{operation}}");
    Api::new(Security::Key)
        .route(HEALTH, get(health))
        .route(&call_path, post(call))
        .route(OUTPUT, post(output))
        .route(EVENTS, post(events))
        .route(DIFF, post(diff))
        .route(READ, post(read))
        .route(WRITE, post(write))
        .route(SEND, post(send))
        .route(RECEIVE, post(receive))
        .route(SESSION, post(session::open))
        .route(ATTACH, post(session::attach))
        .route(CONNECT, post(session::connect))
        .route(HTTP_STREAM, post(http_stream))
        .route(WEB_SOCKET, post(session::web_socket))
        .fallback(unknown)
        .map(|router| router.layer(DefaultBodyLimit::max(REQUEST_BYTES)))
}

/// The routes for requests that have a caller already: those of a socket, whose callers the kernel
/// identifies, and those of other servers of a cluster.
pub(crate) fn all(operations: Operations) -> Router {
    api().with_state(Some(operations)).into_parts().0
}

async fn health(State(shared): State<Operations>) -> axum::Json<Value> {
    let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
    axum::Json(json!({ "version": version, "pid": pid, "onDemand": shared.is_on_demand }))
}

async fn unknown(request: Request) -> Failure {
    let message = format!("there is no path {}", request.uri().path());
    Failure(Problem::new(Code::NotFound, message))
}

async fn call(
    State(shared): State<Operations>,
    caller: RequestCaller,
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
    State(shared): State<Operations>,
    caller: RequestCaller,
    body: Bytes,
) -> Result<Response, Failure> {
    Ok(json_lines(shared.sandboxes.read_output(&caller.0, parse(&body)?).await?))
}

async fn events(
    State(shared): State<Operations>,
    caller: RequestCaller,
    body: Bytes,
) -> Result<Response, Failure> {
    Ok(json_lines(shared.sandboxes.read_events(&caller.0, parse(&body)?).await?))
}

async fn diff(
    State(shared): State<Operations>,
    caller: RequestCaller,
    body: Bytes,
) -> Result<Response, Failure> {
    Ok(json_lines(shared.sandboxes.diff_bundle(&caller.0, parse(&body)?).await?))
}

async fn read(
    State(shared): State<Operations>,
    caller: RequestCaller,
    body: Bytes,
) -> Result<Response, Failure> {
    Ok(content(shared.sandboxes.read_file(&caller.0, parse(&body)?).await?))
}

async fn http_stream(
    State(shared): State<Operations>,
    caller: RequestCaller,
    body: Bytes,
) -> Result<Response, Failure> {
    let HttpStream { head, body } = shared.sandboxes.http_stream(&caller.0, parse(&body)?).await?;
    let mut answer = content(body);
    answer.headers_mut().insert(RESPONSE_HEADER, header_value(&head)?);
    Ok(answer)
}

async fn write(
    State(shared): State<Operations>,
    caller: RequestCaller,
    headers: HeaderMap,
    body: Body,
) -> Result<axum::Json<stockade_api::WriteResult>, Failure> {
    let request = headers.get(REQUEST_HEADER).and_then(|text| STANDARD.decode(text).ok());
    let request: WriteFile = parse(&request.unwrap_or_default())?;
    let content = FileContent(Box::pin(BodyReader::new(body)));
    Ok(axum::Json(shared.sandboxes.write_file(&caller.0, request, content).await?))
}

async fn send(
    State(shared): State<Operations>,
    caller: RequestCaller,
    headers: HeaderMap,
    body: Body,
) -> Result<axum::Json<stockade_api::SentFiles>, Failure> {
    let request = headers.get(REQUEST_HEADER).and_then(|text| STANDARD.decode(text).ok());
    let request = parse(&request.unwrap_or_default())?;
    let content = FileContent(Box::pin(BodyReader::new(body)));
    Ok(axum::Json(shared.sandboxes.send_files(&caller.0, request, content).await?))
}

async fn receive(
    State(shared): State<Operations>,
    caller: RequestCaller,
    body: Bytes,
) -> Result<Response, Failure> {
    Ok(content(shared.sandboxes.receive_files(&caller.0, parse(&body)?).await?))
}
