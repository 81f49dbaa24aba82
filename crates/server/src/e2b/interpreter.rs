//! The port for code: `/execute` and `/contexts`. Events are lines of JSON.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use axum::Extension;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Frame;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use stockade_api::GetSandbox;
use stockade_core::{Code, State as SandboxState};
use tokio::sync::mpsc;

use super::failure::{Refused, message};
use super::request::JsonBody;
use super::{App, TRAFFIC_TOKEN};
use crate::code::{Context, Event, Forms, Run, Running};
use crate::failure::invalid;
use crate::inside::{Parts, Target};
use crate::openapi::{Api, Security, delete, post};
use crate::opensandbox::now;

/// How often a silent stream shows that it is alive.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long it may take until the end of a sandbox is recorded, and how often that is checked.
const END_TIMEOUT: Duration = Duration::from_secs(2);
const END_INTERVAL: Duration = Duration::from_millis(20);
/// How many lines may wait for a slow client.
const CHANNEL_CAPACITY: usize = 64;

/// The routes.
pub(super) fn routes() -> Api<App> {
    Api::new(Security::Token(TRAFFIC_TOKEN))
        .route("/execute", post(execute).body::<Execute>(&json!({ "code": "1" })))
        .route("/contexts", post(create).body::<Create>(&json!({ "language": "bash" })).get(list))
        .route("/contexts/{context}", delete(remove))
        .route("/contexts/{context}/restart", post(restart))
}

/// The request to run code.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Execute {
    #[serde(default)]
    code: String,
    #[serde(default)]
    context_id: Option<String>,
    #[serde(default)]
    language: Option<String>,
    /// Variables for this code only.
    #[serde(default)]
    env_vars: Option<BTreeMap<String, String>>,
}

/// `POST /execute`. If the client disconnects, the code is interrupted.
async fn execute(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    JsonBody(request): JsonBody<Execute>,
) -> Result<Response, Response> {
    let Execute { code, context_id, language, env_vars } = request;
    if context_id.is_some() && language.is_some() {
        let refused = invalid("`context_id` and `language` exclude each other");
        return Err(Refused::from(refused).into_response());
    }
    let run = Run { code, context: context_id, language, variables: env_vars.unwrap_or_default() };
    let running = app.code.run(&app.sandboxes, &target.caller, &target.sandbox, run).await;
    let running = running.map_err(refusal)?;
    let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
    tokio::spawn(relay(app, target, running, sender));
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((kind, Body::new(Parts(receiver))).into_response())
}

/// The clients read the text of a response about a context that does not exist.
fn refusal(problem: stockade_api::Problem) -> Response {
    if problem.code != Code::NotFound {
        return Refused(problem).into_response();
    }
    let text = message(&problem);
    let mut response = (StatusCode::NOT_FOUND, text).into_response();
    response.extensions_mut().insert(crate::failure::Reported(problem));
    response
}

/// Passes on the events of code until it has ended. If it ends with the sandbox, the response is broken off, so that the client asks
/// whether the sandbox still runs.
async fn relay(
    app: App,
    target: Target,
    mut running: Running,
    to: mpsc::Sender<io::Result<Frame<Bytes>>>,
) {
    loop {
        let next = tokio::select! {
            next = tokio::time::timeout(KEEPALIVE, running.events.recv()) => next,
            () = to.closed() => {
                running.interrupt().await;
                return;
            }
        };
        let (line, is_last) = match next {
            Err(_) => (json!({ "type": "keepalive" }), false),
            Ok(Some(event)) => (line(event), false),
            Ok(None) if !running.is_complete() => {
                wait_for_end(&app, &target).await;
                let _ = to.send(Err(io::ErrorKind::ConnectionReset.into())).await;
                return;
            }
            Ok(None) => (json!({ "type": "end_of_execution" }), true),
        };
        let mut text = line.to_string().into_bytes();
        text.push(b'\n');
        if to.send(Ok(Frame::data(Bytes::from(text)))).await.is_err() {
            running.interrupt().await;
            return;
        }
        if is_last {
            return;
        }
    }
}

/// Waits until it is recorded that the sandbox has ended, if its code has ended with it.
async fn wait_for_end(app: &App, target: &Target) {
    let ended = async {
        loop {
            let request = GetSandbox { id: target.sandbox.id.clone(), metrics: false };
            match app.sandboxes.get_status(&target.caller, request).await {
                Ok(sandbox) if sandbox.state == SandboxState::Running => {
                    tokio::time::sleep(END_INTERVAL).await;
                }
                _ => return,
            }
        }
    };
    // A sandbox that has not ended lost the process that runs code.
    let _ = tokio::time::timeout(END_TIMEOUT, ended).await;
}

/// An event in the form of the clients.
fn line(event: Event) -> Value {
    match event {
        Event::Count { count } => {
            json!({ "type": "number_of_executions", "execution_count": count })
        }
        Event::Stdout { text } => json!({ "type": "stdout", "text": text, "timestamp": now() }),
        Event::Stderr { text } => json!({ "type": "stderr", "text": text, "timestamp": now() }),
        Event::Result { is_main, forms } => result(is_main, forms),
        Event::Error { name, value, traceback } => {
            json!({ "type": "error", "name": name, "value": value, "traceback": traceback })
        }
    }
}

/// The members of a result by media type.
const MEMBERS: [(&str, &str); 12] = [
    ("text/plain", "text"),
    ("text/html", "html"),
    ("text/markdown", "markdown"),
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("application/pdf", "pdf"),
    ("text/latex", "latex"),
    ("application/json", "json"),
    ("application/javascript", "javascript"),
    ("e2b/data", "data"),
    ("e2b/chart", "chart"),
];

fn result(is_main: bool, forms: Forms) -> Value {
    let mut body = json!({ "type": "result", "is_main_result": is_main });
    let mut extra = serde_json::Map::new();
    for (kind, form) in forms {
        match MEMBERS.iter().find(|(known, _)| *known == kind) {
            Some((_, member)) => body[*member] = form,
            None => drop(extra.insert(kind, form)),
        }
    }
    if !extra.is_empty() {
        body["extra"] = Value::Object(extra);
    }
    body
}

/// The request for a context.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Create {
    #[serde(default)]
    language: Option<String>,
    #[serde(default)]
    cwd: Option<String>,
}

fn body(context: &Context) -> Value {
    json!({ "id": context.id, "language": context.language, "cwd": context.cwd })
}

/// `POST /contexts`.
async fn create(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    JsonBody(Create { language, cwd }): JsonBody<Create>,
) -> Result<Json<Value>, Response> {
    let language = language.as_deref().unwrap_or("python");
    let context = (language, cwd.as_deref());
    let created = app.code.create(&app.sandboxes, &target.caller, &target.sandbox, context).await;
    created.map(|context| Json(body(&context))).map_err(refusal)
}

/// `GET /contexts`.
async fn list(
    State(app): State<App>,
    Extension(target): Extension<Target>,
) -> Result<Json<Vec<Value>>, Response> {
    let all = app.code.all_contexts(&app.sandboxes, &target.caller, &target.sandbox).await;
    all.map(|all| Json(all.iter().map(body).collect())).map_err(refusal)
}

/// `DELETE /contexts/{context}`.
async fn remove(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Path(context): Path<String>,
) -> Result<(), Response> {
    app.code.remove(&target.sandbox, &context).await.map_err(refusal)
}

/// `POST /contexts/{context}/restart`.
async fn restart(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Path(context): Path<String>,
) -> Result<(), Response> {
    app.code.restart(&target.sandbox, &context).await.map_err(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_has_its_forms_as_members() {
        let forms = Forms::from([
            ("text/plain".to_owned(), json!("1")),
            ("image/png".to_owned(), json!("AAAA")),
            ("text/x-own".to_owned(), json!("own")),
        ]);
        let expected = json!({
            "type": "result", "is_main_result": true, "text": "1", "png": "AAAA",
            "extra": { "text/x-own": "own" },
        });
        assert_eq!(line(Event::Result { is_main: true, forms }), expected);
    }
}
