//! `/v1/isolated`: sessions that see the files of a sandbox copy-on-write. A session is a sandbox of its
//! own, with the files that the outer one had when the session began: no process of it is in the outer
//! sandbox, so no wall of that one is weakened. What a session has changed can be shown, and committed to
//! the outer sandbox.
//!
//! `session` creates and finds sessions, `request` is what a client may request, `run` runs commands in
//! them; `changes` compares the files of a session with those at its beginning, `archive` shows the
//! difference, `commit` applies it.

mod archive;
mod changes;
mod commit;
mod request;
mod run;
mod session;

use axum::extract::{Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use serde_json::{Value, json};
use stockade_api::{Caller, Empty, KillSandbox, ListSandboxes, Sandbox, Sandboxes};
use stockade_core::SandboxId;

use super::super::extensions;
use super::super::target::{EXECD_TOKEN, PortState, Target};
use crate::failure::Failure;
use crate::openapi::{Api, Security, get, post};

/// The metadata of the sandbox of a session: in which sandbox it is.
pub(crate) const ISOLATED_IN: &str = "opensandbox.io/isolated-in";

/// The paths of the interface, with those for the files of a session.
pub(super) fn routes(state: Option<&PortState>) -> Api<PortState> {
    let files = super::file_routes().layered(state, |router, state| {
        router.layer(middleware::from_fn_with_state(state, enter_session))
    });
    Api::new(Security::Token(EXECD_TOKEN))
        .route("/v1/isolated/capabilities", get(capabilities))
        .route("/v1/isolated/sessions", get(session::list))
        .route(
            "/v1/isolated/session",
            post(session::create)
                .body::<request::Create>(&json!({ "workspace": { "path": "/tmp" } })),
        )
        .route("/v1/isolated/session/{session}", get(session::get).delete(session::remove))
        .route(
            "/v1/isolated/session/{session}/run",
            post(run::run).body::<run::Run>(&json!({ "code": "true" })),
        )
        .route("/v1/isolated/session/{session}/runs/{run}", get(run::status))
        .route("/v1/isolated/session/{session}/runs/{run}/logs", get(run::logs).query(&["cursor"]))
        .route("/v1/isolated/session/{session}/diff", get(archive::diff))
        .route("/v1/isolated/session/{session}/commit", post(commit::commit))
        .nest("/v1/isolated/session/{session}", files)
}

/// The routes for files in a session are those for files in a sandbox.
async fn enter_session(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    Path(path): Path<std::collections::HashMap<String, String>>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = path.get("session").map_or("", String::as_str);
    match session::find(&state, &target, id).await {
        Ok(session) => {
            request.extensions_mut().insert(session.target);
            next.run(request).await
        }
        Err(failure) => failure.into_response(),
    }
}

/// `GET /v1/isolated/capabilities`.
async fn capabilities(Extension(target): Extension<Target>) -> Json<Value> {
    let is_available = !extensions::refuses_sessions(&target.sandbox);
    let mut body = json!({
        "available": is_available,
        "isolator": "stockade",
        "version": env!("CARGO_PKG_VERSION"),
        "setpriv_available": is_available,
        "userns_available": false,
        "commit_supported": is_available,
        "diff_supported": is_available,
    });
    if !is_available {
        body["message"] = json!("the sandbox was created without isolated sessions");
    }
    Json(body)
}

/// The sandboxes of the sessions of a sandbox.
pub(in super::super) async fn sessions(
    sandboxes: &dyn Sandboxes,
    caller: &Caller,
    outer: &SandboxId,
) -> Result<Vec<Sandbox>, Failure> {
    let metadata = [(ISOLATED_IN.to_owned(), outer.to_string())].into();
    let request = ListSandboxes { metadata, ..ListSandboxes::default() };
    Ok(sandboxes.list(caller, request).await?.sandboxes)
}

/// Ends the sessions of a sandbox.
pub(crate) async fn end_sessions(
    sandboxes: &dyn Sandboxes,
    caller: &Caller,
    outer: &SandboxId,
) -> Result<(), Failure> {
    let mut caller = caller.clone();
    caller.idempotency_key = None;
    for session in sessions(sandboxes, &caller, outer).await? {
        sandboxes.kill(&caller, KillSandbox::discarding(session.id)).await?;
    }
    let all = sandboxes.snapshots(&caller, Empty {}).await?;
    for id in session::snapshots_of(&all, outer) {
        // One of a session that is just being created is removed by its creator.
        let _ = sandboxes.remove_snapshot(&caller, id.clone()).await;
    }
    Ok(())
}
