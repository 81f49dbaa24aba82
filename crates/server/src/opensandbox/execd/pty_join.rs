//! Joining a shell with a terminal: what is checked before the WebSocket is accepted.

use axum::Extension;
use axum::extract::{Path, RawQuery, State, WebSocketUpgrade};
use axum::response::Response;
use stockade_api::Problem;
use stockade_core::Code;

use super::super::request::Query;
use super::super::target::{PortState, Target};
use super::pty::Pty;
use super::{command, pty_socket};
use crate::failure::{Failure, invalid};

/// `GET /pty/{pty}/ws?pty=&since=&takeover=`: joins a shell.
pub(super) async fn join(
    State(state): State<PortState>,
    Extension(target): Extension<Target>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Failure> {
    let query = Query::parse(query.as_deref(), &["pty", "since", "takeover"])?;
    let is_terminal = !matches!(query.one("pty")?, Some("0" | "false"));
    let since = query.number("since")?.unwrap_or(0);
    let takes_over = query.flag("takeover")?;
    let pty = Pty::find(&state, &target, &id).await?;
    if let Some(started) = &pty.started {
        command::find(&state, &target, &started.operation.0).await?;
        if query.one("pty")?.is_some() && started.is_terminal != is_terminal {
            return Err(invalid("the shell was started with the other value of `pty`"));
        }
    }
    let place = state.clients.place(&target.sandbox.id, &id);
    let taken = place.try_take();
    if taken.is_none() && !takes_over {
        let message = format!("another client has joined the terminal {id}");
        return Err(Problem::new(Code::Conflict, message).remedied_by("add `takeover=1`").into());
    }
    let client = pty_socket::Client { state, target, pty, place, is_terminal, since };
    let upgrade = upgrade.max_message_size(pty_socket::MESSAGE_BYTES);
    Ok(upgrade.on_upgrade(move |socket| client.serve(socket, taken)))
}
