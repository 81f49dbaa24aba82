//! `filesystem.Filesystem`: the files of a sandbox. `entry` is a file in responses, `watch` and `changes`
//! report what happens to files.
//!
//! Requests have the rights of the sandbox's owner; what is new belongs to the user of the request.

mod changes;
mod entry;
mod watch;

use axum::Extension;
use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use stockade_api::{FileKind, ListDirectory, MoveFile, RemoveFile};
use stockade_core::Code;

use super::App;
use super::connect::Unary;
use super::failure::{RpcCode, RpcError};
use super::user::User;
use crate::failure::Failure;
use crate::inside::directories::{create_as, sort_as_walked};
use crate::inside::{Target, stat};
use crate::openapi::{Api, Security, post};
use entry::Details;
pub(super) use watch::Watchers;

/// The routes.
pub(super) fn routes() -> Api<App> {
    let route = |name: &str| format!("/filesystem.Filesystem/{name}");
    let path = json!({ "path": "/tmp/absent" });
    let from_to = json!({ "source": "/tmp/absent", "destination": "/tmp/b" });
    let watcher = json!({ "watcherId": "x" });
    Api::new(Security::Token(super::ENVD_TOKEN))
        .route(&route("Stat"), post(stat_entry).body::<AtPath>(&path))
        .route(&route("MakeDir"), post(make).body::<AtPath>(&json!({ "path": "/tmp" })))
        .route(&route("Move"), post(rename).body::<Move>(&from_to))
        .route(&route("ListDir"), post(list).body::<List>(&path))
        .route(&route("Remove"), post(remove).body::<AtPath>(&path))
        .route(&route("WatchDir"), post(watch::stream).body::<watch::Watch>(&path))
        .route(&route("CreateWatcher"), post(watch::create).body::<watch::Watch>(&path))
        .route(&route("GetWatcherEvents"), post(watch::events).body::<watch::ById>(&watcher))
        .route(&route("RemoveWatcher"), post(watch::remove).body::<watch::ById>(&watcher))
}

/// A message with a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct AtPath {
    #[serde(default)]
    path: String,
}

/// A message with two paths.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Move {
    #[serde(default)]
    source: String,
    #[serde(default)]
    destination: String,
}

/// A message with a path and a depth.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct List {
    #[serde(default)]
    path: String,
    #[serde(default)]
    depth: u32,
}

/// A failure about a path. Where a path leads through a file, there is nothing.
pub(super) fn failure(Failure(problem): Failure, path: &str) -> RpcError {
    match problem.code {
        Code::FileNotFound => {
            RpcError::new(RpcCode::NotFound, format!("path '{path}' does not exist"))
        }
        _ => problem.into(),
    }
}

/// A file in a response.
async fn entry_at(app: &App, target: &Target, user: &User, path: &str) -> Result<Value, RpcError> {
    let found = stat(&app.sandboxes, target, path, false).await;
    let found = found.map_err(|error| failure(error, path))?;
    let details = Details::read(app, target, user, [&found]).await;
    Ok(entry::to_json(app, target, (&found, path), &details).await)
}

/// `Stat`.
async fn stat_entry(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Extension(user): Extension<User>,
    Unary(AtPath { path }): Unary<AtPath>,
) -> Result<Json<Value>, RpcError> {
    let path = user.path(&path);
    Ok(Json(json!({ "entry": entry_at(&app, &target, &user, &path).await? })))
}

/// `MakeDir`.
async fn make(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Extension(user): Extension<User>,
    Unary(AtPath { path }): Unary<AtPath>,
) -> Result<Json<Value>, RpcError> {
    let path = user.path(&path);
    match stat(&app.sandboxes, &target, &path, true).await {
        Ok(found) if found.kind == FileKind::Directory => {
            let message = format!("directory already exists: {path}");
            return Err(RpcError::new(RpcCode::AlreadyExists, message));
        }
        Ok(_) => return Err(is_file(&path)),
        Err(Failure(problem)) if problem.code == Code::FileNotFound => {}
        Err(failure) => return Err(failure.into()),
    }
    create_as(&app.sandboxes, &target, (user.uid, user.gid), &path, None).await?;
    Ok(Json(json!({ "entry": entry_at(&app, &target, &user, &path).await? })))
}

fn is_file(path: &str) -> RpcError {
    let message = format!("path already exists but it is not a directory: {path}");
    RpcError::new(RpcCode::InvalidArgument, message)
}

/// `Move`. The directory of the new path is created if it is missing.
async fn rename(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Extension(user): Extension<User>,
    Unary(Move { source, destination }): Unary<Move>,
) -> Result<Json<Value>, RpcError> {
    let (from, to) = (user.path(&source), user.path(&destination));
    stat(&app.sandboxes, &target, &from, false).await.map_err(|error| failure(error, &from))?;
    ensure_parent(&app, &target, &user, &to).await?;
    let sandbox_id = target.sandbox.id.clone();
    let request = MoveFile { sandbox_id, from: from.as_str().into(), to: to.as_str().into() };
    app.sandboxes.move_file(&target.caller, request).await?;
    Ok(Json(json!({ "entry": entry_at(&app, &target, &user, &to).await? })))
}

/// Creates the directory of a path if it is missing; it belongs to the user. Returns whether the user may
/// create files in it.
pub(super) async fn ensure_parent(
    app: &App,
    target: &Target,
    user: &User,
    path: &str,
) -> Result<bool, Failure> {
    let parent = path.rfind('/').map_or("/", |at| &path[..at.max(1)]);
    match stat(&app.sandboxes, target, parent, true).await {
        Ok(found) => Ok(user.may_write(&found)),
        Err(Failure(problem)) if problem.code == Code::FileNotFound => {
            let owner = (user.uid, user.gid);
            create_as(&app.sandboxes, target, owner, parent, None).await.map(|()| true)
        }
        Err(failure) => Err(failure),
    }
}

/// `ListDir`. A depth of 0 is one of 1.
async fn list(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Extension(user): Extension<User>,
    Unary(List { path, depth }): Unary<List>,
) -> Result<Json<Value>, RpcError> {
    let asked = user.path(&path);
    let found = stat(&app.sandboxes, &target, &asked, true).await;
    let found = found.map_err(|error| failure(error, &asked))?;
    if found.kind != FileKind::Directory {
        let message = format!("path is not a directory: {asked}");
        return Err(RpcError::new(RpcCode::InvalidArgument, message));
    }
    // The path may be a link, and the entries have the path that was asked for.
    let real = found.path.lossy().into_owned();
    let request = ListDirectory {
        sandbox_id: target.sandbox.id.clone(),
        path: found.path.clone(),
        depth: Some(depth.max(1)),
    };
    let mut listing = app.sandboxes.list_directory(&target.caller, request).await?;
    sort_as_walked(&mut listing.entries);
    let details = Details::read(&app, &target, &user, &listing.entries).await;
    let mut entries = Vec::new();
    for entry in &listing.entries {
        let path = entry.path.lossy();
        let inner = path.strip_prefix(&real).unwrap_or(&path).trim_start_matches('/');
        let shown = format!("{}/{inner}", asked.trim_end_matches('/'));
        entries.push(entry::to_json(&app, &target, (entry, &shown), &details).await);
    }
    Ok(Json(json!({ "entries": entries })))
}

/// `Remove`. Succeeds if there is nothing.
async fn remove(
    State(app): State<App>,
    Extension(target): Extension<Target>,
    Extension(user): Extension<User>,
    Unary(AtPath { path }): Unary<AtPath>,
) -> Result<Json<Value>, RpcError> {
    let path = user.path(&path);
    let sandbox_id = target.sandbox.id.clone();
    let request = RemoveFile { sandbox_id, path: path.as_str().into() };
    match app.sandboxes.remove_file(&target.caller, request).await {
        Ok(_) => Ok(Json(json!({}))),
        Err(problem) if problem.code == Code::FileNotFound => Ok(Json(json!({}))),
        Err(problem) => Err(problem.into()),
    }
}
