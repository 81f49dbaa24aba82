//! `/code`: runs code in contexts that keep their state. A context of this dialect always starts in the home of
//! the sandbox's user.

use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::super::request::{JsonBody, Query};
use super::super::target::{EXECD_TOKEN, PortState, Target};
use super::events::{event, event_stream};
use crate::code::{self, Event, Run, Running};
use crate::failure::Failure;
use crate::inside::Channel;
use crate::openapi::{Api, Security, get, post};

/// How many events may wait for a slow client; then the code waits.
const CHANNEL_CAPACITY: usize = 64;
/// How often a silent stream shows that it is alive.
const PING_INTERVAL: Duration = Duration::from_secs(3);

/// The paths.
pub(super) fn routes() -> Api<PortState> {
    Api::new(Security::Token(EXECD_TOKEN))
        .route(
            "/code",
            post(run)
                .body::<Request>(&json!({ "code": "true", "context": { "language": "bash" } }))
                .delete(interrupt)
                .query(&["id!"]),
        )
        .route("/code/context", post(create).body::<Create>(&json!({ "language": "bash" })))
        .route(
            "/code/contexts",
            get(list).query(&["language"]).delete(remove_all).query(&["language!"]),
        )
        .route("/code/contexts/{context}", get(show).delete(remove))
}

/// A context.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Context {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default)]
    language: Option<String>,
}

impl Context {
    fn new(context: code::Context) -> Self {
        Self { id: Some(context.id), language: Some(context.language) }
    }
}

/// The request to run code.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    code: String,
    #[serde(default)]
    context: Option<Context>,
}

/// The request for a context.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    #[serde(default)]
    language: Option<String>,
}

/// `POST /code`. If the client disconnects, the code is interrupted.
async fn run(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    JsonBody(request): JsonBody<Request>,
) -> Result<Response, Failure> {
    let Request { code, context } = request;
    let (context, language) = match context {
        Some(Context { id: Some(id), .. }) if !id.is_empty() => (Some(id), None),
        Some(Context { language, .. }) => (None, language.filter(|language| !language.is_empty())),
        None => (None, None),
    };
    let run = Run { code, context, language, ..Run::default() };
    let (caller, sandbox) = (&target.caller, &target.sandbox);
    let running = state.code.run(&state.sandboxes, caller, sandbox, run).await?;
    let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
    tokio::spawn(relay(running, sender));
    Ok(event_stream(Body::new(Channel(receiver))))
}

/// Passes on the events of code until it has ended.
async fn relay(mut running: Running, to: mpsc::Sender<Bytes>) {
    let started = Instant::now();
    let first = json!({ "type": "init", "text": running.context.id });
    let mut next = Some((first, false));
    loop {
        let (value, is_last) = match next.take() {
            Some(next) => next,
            None => {
                let received = tokio::select! {
                    next = tokio::time::timeout(PING_INTERVAL, running.events.recv()) => next,
                    () = to.closed() => return running.interrupt().await,
                };
                match received {
                    Err(_) => (json!({ "type": "ping", "text": "pong" }), false),
                    Ok(Some(event)) => (value(event), false),
                    Ok(None) => {
                        let millis = u64::try_from(started.elapsed().as_millis());
                        let millis = millis.unwrap_or(u64::MAX);
                        (json!({ "type": "execution_complete", "execution_time": millis }), true)
                    }
                }
            }
        };
        if to.send(Bytes::from(event(value))).await.is_err() {
            return running.interrupt().await;
        }
        if is_last {
            return;
        }
    }
}

fn value(event: Event) -> Value {
    match event {
        Event::Count { count } => json!({ "type": "execution_count", "execution_count": count }),
        Event::Stdout { text } => json!({ "type": "stdout", "text": text }),
        Event::Stderr { text } => json!({ "type": "stderr", "text": text }),
        Event::Result { mut forms, .. } => {
            // The clients read the text from here.
            if let Some(text) = forms.get("text/plain").cloned() {
                forms.insert("text".to_owned(), text);
            }
            json!({ "type": "result", "results": forms })
        }
        Event::Error { name, value, traceback } => {
            let lines: Vec<_> = traceback.lines().collect();
            json!({
                "type": "error",
                "error": { "ename": name, "evalue": value, "traceback": lines },
            })
        }
    }
}

/// `DELETE /code?id=`: interrupts what runs in a context.
async fn interrupt(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    RawQuery(query): RawQuery,
) -> Result<(), Failure> {
    let query = Query::parse(query.as_deref(), &["id"])?;
    Ok(state.code.interrupt(&target.sandbox, query.required("id")?).await?)
}

/// `POST /code/context`.
async fn create(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    JsonBody(Create { language }): JsonBody<Create>,
) -> Result<Json<Context>, Failure> {
    let language = language.filter(|language| !language.is_empty());
    let context = (language.as_deref().unwrap_or("python"), None);
    let (caller, sandbox) = (&target.caller, &target.sandbox);
    let created = state.code.create(&state.sandboxes, caller, sandbox, context).await?;
    Ok(Json(Context::new(created)))
}

async fn contexts(
    state: &PortState,
    target: &Target,
    language: Option<&str>,
) -> Result<Vec<code::Context>, Failure> {
    let mut found = state.code.contexts(&target.sandbox).await;
    if let Some(language) = language.filter(|language| !language.is_empty()) {
        let language = code::language(language)?;
        found.retain(|context| context.language == language);
    }
    Ok(found)
}

/// `GET /code/contexts?language=`.
async fn list(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<Context>>, Failure> {
    let query = Query::parse(query.as_deref(), &["language"])?;
    let found = contexts(&state, &target, query.one("language")?).await?;
    Ok(Json(found.into_iter().map(Context::new).collect()))
}

/// `DELETE /code/contexts?language=`.
async fn remove_all(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    RawQuery(query): RawQuery,
) -> Result<(), Failure> {
    let query = Query::parse(query.as_deref(), &["language"])?;
    for context in contexts(&state, &target, Some(query.required("language")?)).await? {
        state.code.remove(&target.sandbox, &context.id).await?;
    }
    Ok(())
}

/// `GET /code/contexts/{context}`.
async fn show(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    Path(id): Path<String>,
) -> Result<Json<Context>, Failure> {
    let found = contexts(&state, &target, None).await?.into_iter().find(|it| it.id == id);
    let found = found.ok_or_else(|| {
        stockade_api::Problem::new(
            stockade_core::Code::NotFound,
            format!("there is no context {id:?}"),
        )
    })?;
    Ok(Json(Context::new(found)))
}

/// `DELETE /code/contexts/{context}`.
async fn remove(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    Path(id): Path<String>,
) -> Result<(), Failure> {
    Ok(state.code.remove(&target.sandbox, &id).await?)
}
