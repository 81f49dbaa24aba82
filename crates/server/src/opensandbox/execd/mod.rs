//! The interface for commands and files of a sandbox (`execd`), which the server has on one port of
//! each sandbox. No program for it runs inside.
//!
//! `command` runs commands, `events` is the stream of their output, `variables` the file with
//! variables for later commands, `session` runs commands that share a shell's state; `files`,
//! `content` and `directories` are about files, `metrics` about resource usage.

mod command;
mod content;
mod directories;
mod events;
mod files;
mod metrics;
mod session;
mod upload;
mod variables;

use std::collections::BTreeMap;

use axum::extract::DefaultBodyLimit;
use serde_json::json;

use super::target::{EXECD_TOKEN, PortState};
use super::unavailable;
use crate::openapi::{Api, Security, delete, get, post};

/// The variable with the path of the file with variables for later commands.
const VARIABLES: &str = "EXECD_ENVS";

/// The paths of the interface.
pub(super) fn routes() -> Api<PortState> {
    let files = json!({ "/tmp/a": { "mode": 644 } });
    Api::new(Security::Token(EXECD_TOKEN))
        .route("/ping", get(ping))
        .route(
            "/command",
            post(command::run)
                .body::<command::Request>(&json!({ "command": "true" }))
                .delete(command::interrupt)
                .query(&["id!"]),
        )
        .route("/command/status/{command}", get(command::status))
        .route("/command/{command}/logs", get(command::logs).query(&["cursor"]))
        .route("/session", post(session::create).body::<session::Create>(&json!({})))
        .route("/session/{session}", delete(session::remove))
        .route(
            "/session/{session}/run",
            post(session::run).body::<session::Run>(&json!({ "command": "true" })),
        )
        .route("/files", delete(files::remove).query(&["path!"]))
        .route("/files/info", get(files::info).query(&["path!"]))
        .route(
            "/files/permissions",
            post(files::set_permissions).body::<BTreeMap<String, files::Permissions>>(&files),
        )
        .route(
            "/files/mv",
            post(files::rename)
                .body::<Vec<files::Rename>>(&json!([{ "src": "/tmp/a", "dest": "/tmp/b" }])),
        )
        .route("/files/search", get(files::search).query(&["path!", "pattern"]))
        .route(
            "/files/replace",
            post(files::replace).body::<BTreeMap<String, files::Replacement>>(
                &json!({ "/tmp/a": { "old": "a", "new": "b" } }),
            ),
        )
        .route("/files/download", get(content::download).query(&["path!", "offset", "limit"]))
        .route("/files/upload", post(upload::upload).layer(DefaultBodyLimit::disable()))
        .route(
            "/directories",
            post(directories::create)
                .body::<BTreeMap<String, files::Permissions>>(&files)
                .delete(directories::remove)
                .query(&["path!"]),
        )
        .route("/directories/list", get(directories::list).query(&["path!", "depth"]))
        .route("/metrics", get(metrics::current))
        .route("/metrics/watch", get(metrics::watch))
        .merge(unavailable::execd())
        .fallback(unavailable::unknown)
        .method_not_allowed_fallback(unavailable::unknown)
}

async fn ping() {}
