//! Sessions and connections: requests that take over their connection.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, UPGRADE};
use axum::response::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use stockade_api::wire::{PROTOCOL, RESPONSE_HEADER, read_input, write_event};
use stockade_api::{Items, OpenWebSocket, Problem, Session, SessionEvent};
use stockade_core::Code;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional, split};

use super::request::{RequestCaller, UPGRADED, header_value, parse};
use super::response::Failure;
use super::{ConnectionGuard, Operations};
use crate::metered::body_problem;

/// The largest request, in bytes.
const REQUEST_BYTES: usize = 16 << 20;

/// Opens a session; frames follow.
pub(super) async fn open(
    State(shared): State<Operations>,
    caller: RequestCaller,
    request: Request,
) -> Result<Response, Failure> {
    let (upgrade, body) = upgrade_parts(request).await?;
    let session = shared.sandboxes.open_session(&caller.0, parse(&body)?).await?;
    serve(upgrade, session)
}

/// Joins a command; frames follow.
pub(super) async fn attach(
    State(shared): State<Operations>,
    caller: RequestCaller,
    request: Request,
) -> Result<Response, Failure> {
    let (upgrade, body) = upgrade_parts(request).await?;
    let session = shared.sandboxes.attach_command(&caller.0, parse(&body)?).await?;
    serve(upgrade, session)
}

fn serve(upgrade: Upgrade, session: Session) -> Result<Response, Failure> {
    let answer = upgrade_response().header("stockade-workflow-id", session.workflow_id.0.as_str());
    tokio::spawn(async move {
        let Upgrade { connection, counted: _counted } = upgrade;
        if let Ok(connection) = connection.await {
            relay(session, TokioIo::new(connection)).await;
        }
    });
    answer.body(Body::empty()).map_err(unreadable)
}

/// Connects to a port; its bytes follow.
pub(super) async fn connect(
    State(shared): State<Operations>,
    caller: RequestCaller,
    request: Request,
) -> Result<Response, Failure> {
    let (upgrade, body) = upgrade_parts(request).await?;
    let mut inside = shared.sandboxes.connect(&caller.0, parse(&body)?).await?;
    tokio::spawn(async move {
        let Upgrade { connection, counted: _counted } = upgrade;
        if let Ok(connection) = connection.await {
            // Either end may disconnect at any time.
            let _ = copy_bidirectional(&mut inside, &mut TokioIo::new(connection)).await;
        }
    });
    upgrade_response().body(Body::empty()).map_err(unreadable)
}

/// Opens a WebSocket to a port; its frames follow.
pub(super) async fn web_socket(
    State(shared): State<Operations>,
    caller: RequestCaller,
    request: Request,
) -> Result<Response, Failure> {
    let (upgrade, body) = upgrade_parts(request).await?;
    let opened = shared.sandboxes.web_socket(&caller.0, parse(&body)?).await?;
    let OpenWebSocket { protocol, connection: mut inside } = opened;
    let answer = upgrade_response().header(RESPONSE_HEADER, header_value(&protocol)?);
    tokio::spawn(async move {
        let Upgrade { connection, counted: _counted } = upgrade;
        if let Ok(connection) = connection.await {
            // Either end may disconnect at any time.
            let _ = copy_bidirectional(&mut inside, &mut TokioIo::new(connection)).await;
        }
    });
    answer.body(Body::empty()).map_err(unreadable)
}

fn upgrade_response() -> axum::http::response::Builder {
    Response::builder().status(UPGRADED).header(CONNECTION, "upgrade").header(UPGRADE, PROTOCOL)
}

/// The connection that a request is upgraded to. It counts as open until this value is dropped.
struct Upgrade {
    connection: OnUpgrade,
    counted: Option<ConnectionGuard>,
}

/// The connection that a request is upgraded to, and the request's body.
async fn upgrade_parts(mut request: Request) -> Result<(Upgrade, axum::body::Bytes), Failure> {
    let wants_upgrade = request.headers().get(UPGRADE).is_some_and(|protocol| protocol == PROTOCOL);
    let upgrade = request.extensions_mut().remove::<OnUpgrade>().filter(|_| wants_upgrade);
    let upgrade = upgrade.ok_or_else(|| {
        let message = format!("the request must ask to upgrade to `{PROTOCOL}`");
        Failure(Problem::new(Code::InvalidInput, message))
    })?;
    let counted = request.extensions_mut().remove::<ConnectionGuard>();
    let body = to_bytes(request.into_body(), REQUEST_BYTES).await;
    let body = body.map_err(|error| Failure(body_problem(&error)))?;
    Ok((Upgrade { connection: upgrade, counted }, body))
}

fn unreadable(error: impl ToString) -> Failure {
    let problem = Problem::new(Code::InvalidInput, "the request cannot be read");
    Failure(problem.because(error.to_string()))
}

/// Relays a session until the command has ended. The command does not end if the caller
/// disconnects.
async fn relay<C>(session: Session, connection: C)
where
    C: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let Session { mut events, input, .. } = session;
    let (mut from, mut to) = split(connection);
    let listener = tokio::spawn(async move {
        while let Ok(Some(message)) = read_input(&mut from).await {
            if input.send(message).await.is_err() {
                break;
            }
        }
    });
    while let Some(event) = next(&mut events).await {
        if write_event(&mut to, &event).await.is_err() {
            break;
        }
    }
    listener.abort();
    let _ = to.shutdown().await;
}

async fn next(events: &mut Items<SessionEvent>) -> Option<stockade_api::Result<SessionEvent>> {
    events.next().await
}
