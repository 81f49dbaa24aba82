//! `process.Process`: commands of a sandbox. `table` has those that run, `message` their messages.

mod message;
mod restored;
mod start;
mod table;

use axum::Extension;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use stockade_api::{KillCommand, SessionInput};
use tokio::sync::mpsc;

use super::App;
use super::connect::whole_stream;
use super::connect::{Envelope, Envelopes, StreamBody, StreamError, Terms, Unary, respond};
use super::failure::{RpcCode, RpcError};
use crate::inside::Target;
use crate::openapi::{Api, Security, post};
use message::{Input, Select, Selector, SendInput, Signal, keepalive, started};
use table::Process;
pub(super) use table::Processes;

/// The routes.
pub(super) fn routes() -> Api<App> {
    let route = |name: &str| format!("/process.Process/{name}");
    let by_pid = json!({ "process": { "pid": 1 } });
    let start = json!({ "process": { "cmd": "true" } });
    Api::new(Security::Token(super::ENVD_TOKEN))
        .route(&route("Start"), post(start::start).body::<message::Start>(&start))
        .route(&route("Connect"), post(connect).body::<Select>(&by_pid))
        .route(&route("List"), post(list).body::<message::Empty>(&json!({})))
        .route(&route("Update"), post(update).body::<message::Update>(&by_pid))
        .route(&route("SendInput"), post(send_input).body::<SendInput>(&by_pid))
        .route(&route("StreamInput"), post(stream_input))
        .route(&route("SendSignal"), post(send_signal).body::<Signal>(&by_pid))
        .route(&route("CloseStdin"), post(close_stdin).body::<Select>(&by_pid))
}

async fn find(app: &App, target: &Target, selector: &Selector) -> Result<Process, RpcError> {
    if let Some(process) = app.processes.find(&target.sandbox, selector) {
        return Ok(process);
    }
    restored::restore(app, target).await?;
    app.processes.find(&target.sandbox, selector).ok_or_else(|| {
        RpcError::new(RpcCode::NotFound, format!("process with {selector} not found"))
    })
}

/// `Connect`: the output of a process from now on.
async fn connect(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    headers: HeaderMap,
    StreamBody(Select { process }): StreamBody<Select>,
) -> Result<Response, StreamError> {
    let terms = Terms::of(&headers)?;
    let process = find(&app, &target, &process).await?;
    let (sender, receiver) = mpsc::channel(table::CLIENT_CAPACITY);
    // The first message is always this one.
    let _ = sender.send(Ok(started(process.pid))).await;
    process.join(sender);
    Ok(respond(terms, receiver, keepalive))
}

/// `List`: the processes that run.
async fn list(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Unary(message::Empty {}): Unary<message::Empty>,
) -> Result<Json<Value>, RpcError> {
    restored::restore(&app, &target).await?;
    let running = app.processes.running(&target.sandbox);
    let processes: Vec<_> = running.iter().map(|process| process.to_json()).collect();
    Ok(Json(json!({ "processes": processes })))
}

/// `Update`: the size of its terminal.
async fn update(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Unary(message::Update { process, pty }): Unary<message::Update>,
) -> Result<Json<Value>, RpcError> {
    let process = find(&app, &target, &process).await?;
    if let Some(size) = pty.and_then(|pty| pty.size) {
        if !process.is_terminal {
            let message = "the process has no terminal";
            return Err(RpcError::new(RpcCode::FailedPrecondition, message));
        }
        process.send(SessionInput::Resize(size.terminal()?)).await?;
    }
    Ok(Json(json!({})))
}

/// `SendInput`.
async fn send_input(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Unary(SendInput { process, input }): Unary<SendInput>,
) -> Result<Json<Value>, RpcError> {
    let process = find(&app, &target, &process).await?;
    write(&process, input.unwrap_or_default()).await?;
    Ok(Json(json!({})))
}

/// Writes to the input or the terminal of a process.
async fn write(process: &Process, input: Input) -> Result<(), RpcError> {
    let data = match (input.stdin, input.pty, process.is_terminal) {
        (Some(data), None, false) | (None, Some(data), true) => data,
        (None, None, _) => return Ok(()),
        (_, _, true) => {
            let message = "the process has a terminal: its input is `pty`";
            return Err(RpcError::new(RpcCode::FailedPrecondition, message));
        }
        (_, _, false) => {
            let message = "the process has no terminal: its input is `stdin`";
            return Err(RpcError::new(RpcCode::FailedPrecondition, message));
        }
    };
    process.send(SessionInput::Stdin { data: data.into() }).await
}

/// `StreamInput`: a stream of the client, whose first message names the process.
async fn stream_input(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    request: Request,
) -> Result<Response, StreamError> {
    let mut body = request.into_body();
    let mut envelopes = Envelopes::default();
    let mut process: Option<Process> = None;
    loop {
        while let Some(envelope) = envelopes.next()? {
            let Envelope::Message(message) = envelope else { return Ok(whole_stream(&json!({}))) };
            let message: message::StreamInput =
                serde_json::from_value(message).map_err(|error| {
                    let text = format!("the message cannot be read: {error}");
                    RpcError::new(RpcCode::InvalidArgument, text)
                })?;
            match (message, &process) {
                (message::StreamInput { start: Some(start), .. }, None) => {
                    process = Some(find(&app, &target, &start.process).await?);
                }
                (message::StreamInput { data: Some(data), .. }, Some(process)) => {
                    write(process, data.input.unwrap_or_default()).await?;
                }
                (message::StreamInput { start: None, data: None }, Some(_)) => {}
                _ => {
                    let text = "the first message of the stream names the process";
                    return Err(RpcError::new(RpcCode::InvalidArgument, text).into());
                }
            }
        }
        match body.frame().await {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    envelopes.push(data);
                }
            }
            None if !envelopes.is_incomplete() => return Ok(whole_stream(&json!({}))),
            Some(Err(_)) | None => {
                let text = "the stream of the client broke off";
                return Err(RpcError::new(RpcCode::Canceled, text).into());
            }
        }
    }
}

/// `SendSignal`. SIGKILL ends the process with everything that it has started.
async fn send_signal(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Unary(Signal { process, signal }): Unary<Signal>,
) -> Result<Json<Value>, RpcError> {
    let number = signal.number().ok_or_else(|| {
        RpcError::new(RpcCode::InvalidArgument, "the signal is SIGNAL_SIGTERM or SIGNAL_SIGKILL")
    })?;
    let process = find(&app, &target, &process).await?;
    let signal = (number != message::SIGKILL).then_some(number);
    let kill = KillCommand { workflow_id: process.operation.clone(), signal };
    app.sandboxes.kill_command(&target.caller, kill).await?;
    Ok(Json(json!({})))
}

/// `CloseStdin`. Has no effect when it is closed.
async fn close_stdin(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Unary(Select { process }): Unary<Select>,
) -> Result<Json<Value>, RpcError> {
    let process = find(&app, &target, &process).await?;
    if process.is_terminal {
        let message = "the input of a terminal ends with the byte 4, not by closing it";
        return Err(RpcError::new(RpcCode::FailedPrecondition, message));
    }
    process.close_input().await?;
    Ok(Json(json!({})))
}
