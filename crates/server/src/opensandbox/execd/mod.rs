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

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{delete, get, post};

use super::target::PortState;
use super::unavailable;

/// The variable with the path of the file with variables for later commands.
const VARIABLES: &str = "EXECD_ENVS";

/// The paths of the interface.
pub(super) fn routes() -> Router<PortState> {
    Router::new()
        .route("/ping", get(ping))
        .route("/command", post(command::run).delete(command::interrupt))
        .route("/command/status/{id}", get(command::status))
        .route("/command/{id}/logs", get(command::logs))
        .route("/session", post(session::create))
        .route("/session/{session}", delete(session::remove))
        .route("/session/{session}/run", post(session::run))
        .route("/files", delete(files::remove))
        .route("/files/info", get(files::info))
        .route("/files/permissions", post(files::set_permissions))
        .route("/files/mv", post(files::rename))
        .route("/files/search", get(files::search))
        .route("/files/replace", post(files::replace))
        .route("/files/download", get(content::download))
        .route("/files/upload", post(upload::upload).layer(DefaultBodyLimit::disable()))
        .route("/directories", post(directories::create).delete(directories::remove))
        .route("/directories/list", get(directories::list))
        .route("/metrics", get(metrics::current))
        .route("/metrics/watch", get(metrics::watch))
        .merge(unavailable::execd())
        .fallback(unavailable::unknown)
        .method_not_allowed_fallback(unavailable::unknown)
}

async fn ping() {}
