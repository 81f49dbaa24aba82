//! Watching a directory: as a stream of events, or as a watcher whose events a client fetches. The
//! directory is listed again and again; no program for it runs inside.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use stockade_api::{FileKind, ListDirectory, Sandbox};
use stockade_core::Code;
use tokio::sync::mpsc;

use super::changes::{Kind, Listing, between};
use super::entry::{self, Details};
use super::failure;
use crate::e2b::App;
use crate::e2b::connect::{StreamBody, StreamError, Terms, Unary, respond};
use crate::e2b::failure::{RpcCode, RpcError};
use crate::e2b::user::User;
use crate::inside::{Target, stat};

/// How often a directory of a stream is listed.
const INTERVAL: Duration = Duration::from_millis(100);
/// How many levels below the directory are watched recursively.
const DEPTH: u32 = 64;
/// How many watchers a sandbox may have.
const WATCHERS: usize = 64;
/// After how long a watcher is removed whose events nobody fetches.
const ABANDONED: Duration = Duration::from_secs(3600);
/// How many events may wait for a slow client.
const CHANNEL_CAPACITY: usize = 64;

/// The request to watch a directory.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Watch {
    #[serde(default)]
    path: String,
    #[serde(default)]
    recursive: bool,
    /// Whether an event has the properties of the file.
    #[serde(default, alias = "include_entry")]
    include_entry: bool,
}

/// A message about a watcher.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ById {
    #[serde(default, alias = "watcher_id")]
    watcher_id: String,
}

/// A directory that is watched.
#[derive(Debug, Clone)]
struct Watched {
    /// The path without links.
    path: String,
    recursive: bool,
    include_entry: bool,
    user: User,
    seen: Listing,
}

/// The watchers whose events clients fetch, by sandbox and id.
#[derive(Debug, Clone, Default)]
pub(in crate::e2b) struct Watchers(Arc<Mutex<BTreeMap<(Place, String), Watcher>>>);

/// A sandbox: a later one may have the same id.
type Place = (String, i64);

#[derive(Debug, Clone)]
struct Watcher {
    watched: Arc<tokio::sync::Mutex<Watched>>,
    used_at: Instant,
}

fn place(sandbox: &Sandbox) -> Place {
    (sandbox.id.to_string(), sandbox.created_at.as_ms())
}

impl Watchers {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(Place, String), Watcher>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, sandbox: &Sandbox, watched: Watched) -> Result<String, RpcError> {
        let mut all = self.lock();
        all.retain(|_, watcher| watcher.used_at.elapsed() < ABANDONED);
        let place = place(sandbox);
        if all.keys().filter(|(of, _)| *of == place).count() >= WATCHERS {
            let message = format!("the sandbox already has {WATCHERS} watchers, the maximum");
            return Err(RpcError::new(RpcCode::ResourceExhausted, message));
        }
        let id = uuid::Uuid::new_v4().simple().to_string();
        let watched = Arc::new(tokio::sync::Mutex::new(watched));
        all.insert((place, id.clone()), Watcher { watched, used_at: Instant::now() });
        Ok(id)
    }

    fn find(&self, sandbox: &Sandbox, id: &str) -> Option<Arc<tokio::sync::Mutex<Watched>>> {
        let mut all = self.lock();
        let watcher = all.get_mut(&(place(sandbox), id.to_owned()))?;
        watcher.used_at = Instant::now();
        Some(Arc::clone(&watcher.watched))
    }
}

impl Watched {
    async fn open(app: &App, target: &Target, user: &User, watch: Watch) -> Result<Self, RpcError> {
        let Watch { path, recursive, include_entry } = watch;
        let asked = user.path(&path);
        let found = stat(&app.sandboxes, target, &asked, true).await;
        let found = found.map_err(|error| failure(error, &asked))?;
        if found.kind != FileKind::Directory {
            let message = format!("path {asked} not a directory");
            return Err(RpcError::new(RpcCode::InvalidArgument, message));
        }
        let path = found.path.lossy().into_owned();
        let user = user.clone();
        let mut watched = Self { path, recursive, include_entry, user, seen: Listing::new() };
        watched.seen = watched.list(app, target).await?.unwrap_or_default();
        Ok(watched)
    }

    /// The directory now; `None` if it is gone.
    async fn list(&self, app: &App, target: &Target) -> Result<Option<Listing>, RpcError> {
        let request = ListDirectory {
            sandbox_id: target.sandbox.id.clone(),
            path: self.path.as_str().into(),
            depth: Some(if self.recursive { DEPTH } else { 1 }),
        };
        let listing = match app.sandboxes.list_directory(&target.caller, request).await {
            Ok(listing) => listing,
            Err(problem) if problem.code == Code::FileNotFound => return Ok(None),
            Err(problem) => return Err(problem.into()),
        };
        let below = |path: &str| {
            let rest = path.strip_prefix(&self.path)?;
            Some(rest.trim_start_matches('/').to_owned())
        };
        let entries = listing.entries.into_iter();
        Ok(Some(entries.filter_map(|entry| Some((below(&entry.path.lossy())?, entry))).collect()))
    }

    /// The events since the last call.
    async fn events(&mut self, app: &App, target: &Target) -> Result<Vec<Value>, RpcError> {
        let now = self.list(app, target).await?.unwrap_or_default();
        let events = between(&self.seen, &now);
        self.seen = now;
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let details = match self.include_entry {
            true => {
                let files = events.iter().filter_map(|(name, _)| self.seen.get(name));
                Some(Details::read(app, target, &self.user, files).await)
            }
            false => None,
        };
        let mut found = Vec::new();
        for (name, kind) in events {
            let mut event = json!({ "name": name, "type": kind.name() });
            let has_entry = matches!(kind, Kind::Create | Kind::Write | Kind::Chmod);
            if let (Some(details), Some(file), true) = (&details, self.seen.get(&name), has_entry) {
                let path = file.path.lossy().into_owned();
                event["entry"] = entry::to_json(app, target, (file, &path), details).await;
            }
            found.push(event);
        }
        Ok(found)
    }
}

/// `WatchDir`.
pub(super) async fn stream(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
    StreamBody(watch): StreamBody<Watch>,
) -> Result<Response, StreamError> {
    let terms = Terms::of(&headers)?;
    let mut watched = Watched::open(&app, &target, &user, watch).await?;
    let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
    // The first message is always this one.
    let _ = sender.send(Ok(json!({ "start": {} }))).await;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = sender.closed() => return,
            }
            match watched.events(&app, &target).await {
                Ok(events) => {
                    for event in events {
                        if sender.send(Ok(json!({ "filesystem": event }))).await.is_err() {
                            return;
                        }
                    }
                }
                Err(error) => {
                    let _ = sender.send(Err(error)).await;
                    return;
                }
            }
        }
    });
    Ok(respond(terms, receiver, || json!({ "keepalive": {} })))
}

/// `CreateWatcher`.
pub(super) async fn create(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Extension(user): Extension<User>,
    Unary(watch): Unary<Watch>,
) -> Result<Json<Value>, RpcError> {
    let watched = Watched::open(&app, &target, &user, watch).await?;
    let id = app.watchers.add(&target.sandbox, watched)?;
    Ok(Json(json!({ "watcherId": id })))
}

fn unknown(id: &str) -> RpcError {
    RpcError::new(RpcCode::NotFound, format!("watcher with id {id} not found"))
}

/// `GetWatcherEvents`.
pub(super) async fn events(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Unary(ById { watcher_id }): Unary<ById>,
) -> Result<Json<Value>, RpcError> {
    let found = app.watchers.find(&target.sandbox, &watcher_id);
    let watcher = found.ok_or_else(|| unknown(&watcher_id))?;
    let events = watcher.lock().await.events(&app, &target).await?;
    Ok(Json(json!({ "events": events })))
}

/// `RemoveWatcher`.
pub(super) async fn remove(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Unary(ById { watcher_id }): Unary<ById>,
) -> Result<Json<Value>, RpcError> {
    let key = (place(&target.sandbox), watcher_id.clone());
    let removed = app.watchers.lock().remove(&key);
    removed.ok_or_else(|| unknown(&watcher_id))?;
    Ok(Json(json!({})))
}
