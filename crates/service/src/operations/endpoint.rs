//! `resolve_endpoint`, `http_request`, `connect`: servers on ports inside. Their addresses are
//! never given out.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use serde::{Deserialize, Serialize};
use stockade_api::{
    Caller, Connect, Duplex, Endpoint, HttpRequest, HttpResponse, Method, ResolveEndpoint, Result,
};
use stockade_core::{Code, Problem};
use stockade_durable::{Context, Failure, StartOptions, Step};
use stockade_runtime::{Error, Target};

use super::{exchange, record_with_next};
use crate::connection::SandboxConnection;
use crate::failure::{runtime_problem, store_problem, to_failure};
use crate::handoff::{Handoff, Once};
use crate::inner::Inner;
use crate::operation::Input;
use crate::owned_sandbox::OwnedSandbox;
use crate::service::Service;
use crate::spec;

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.http_request";

/// The limit of a response body if the request has none.
const LIMIT_BYTES: u64 = 10 << 20;

/// Whether a port can be reached.
pub(crate) async fn resolve(
    service: &Service,
    caller: &Caller,
    request: ResolveEndpoint,
) -> Result<Endpoint> {
    let owned = service.use_sandbox(caller, &request.id).await?;
    let runtime = service.inner.runtime(&owned.runtime)?;
    let listening = match runtime.connect(&owned.id, &Target::Tcp(request.port)).await {
        Ok(_) => true,
        Err(Error::Connect { .. }) => false,
        Err(error) => return Err(runtime_problem(&error)),
    };
    Ok(Endpoint { sandbox_id: request.id, port: request.port, listening })
}

/// A connection to a port.
pub(crate) async fn connect(
    service: &Service,
    caller: &Caller,
    request: Connect,
) -> Result<Box<dyn Duplex>> {
    let used = service.use_sandbox(caller, &request.sandbox_id).await?;
    let runtime = service.inner.runtime(&used.runtime)?;
    let connected = runtime.connect(&used.id, &Target::Tcp(request.port)).await;
    let connection = connected.map_err(|error| runtime_problem(&error))?;
    // It counts as a use until it is closed.
    Ok(Box::new(SandboxConnection::new(connection, used)))
}

/// The input of the workflow: no value that may hold a secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RequestInput {
    sandbox_id: stockade_core::SandboxId,
    port: u16,
    method: Method,
}

/// Sends a request. Its path, headers and body are not recorded, nor is the response.
pub(crate) async fn request(
    service: &Service,
    caller: &Caller,
    request: HttpRequest,
) -> Result<HttpResponse> {
    let _used = service.use_sandbox(caller, &request.sandbox_id).await?;
    exchange::check(&request)?;
    let input = RequestInput {
        sandbox_id: request.sandbox_id.clone(),
        port: request.port,
        method: request.method,
    };
    let (sender, answer) = tokio::sync::oneshot::channel();
    let handoff = Handoff { request: Some((Box::new(request), sender)), ..Handoff::default() };
    let options = StartOptions::default();
    let started = service.start_with(NAME, caller, &input, handoff, options);
    let _: u16 = started.await?.get_result().await.map_err(store_problem)?;
    answer.await.map_err(|_| {
        Problem::new(Code::Conflict, "the response of an earlier request is not stored")
            .remedied_by("send the request under another idempotency key")
    })
}

/// The workflow. Returns the status.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<RequestInput>,
) -> std::result::Result<u16, Failure> {
    let id = &input.request.sandbox_id;
    let handoff = Once::new(inner.handoffs.take(context.id()).and_then(|handed| handed.request));
    let owned = inner.use_in_workflow(&context, &input.owner, id, None).await?;
    let status = context
        .step_with("request", record_with_next(), async |_: Step| {
            let Some((request, answer)) = handoff.take() else {
                return Err(to_failure(interrupted()));
            };
            let answered = send(&inner, &owned, *request).await.map_err(to_failure)?;
            let status = answered.status;
            // The caller may have stopped waiting.
            let _ = answer.send(answered);
            Ok(status)
        })
        .await?;
    context.finish_with(vec![owned.touch()]);
    Ok(status)
}

/// The problem for a request that was lost with the process that had it.
fn interrupted() -> Problem {
    Problem::new(Code::OutcomeUnknown, "the server exited during the request")
        .because("requests to ports are not recorded and never repeated")
}

async fn send(inner: &Inner, owned: &OwnedSandbox, request: HttpRequest) -> Result<HttpResponse> {
    let timeout =
        request.timeout_seconds.map(spec::duration).transpose()?.unwrap_or(exchange::TIMEOUT);
    let exchanged = tokio::time::timeout(timeout, answer(inner, owned, request)).await;
    exchanged.unwrap_or_else(|_| {
        Err(Problem::new(Code::TimedOut, format!("no response within {timeout:?}")))
    })
}

async fn answer(inner: &Inner, owned: &OwnedSandbox, request: HttpRequest) -> Result<HttpResponse> {
    let (port, limit) = (request.port, request.limit_bytes.unwrap_or(LIMIT_BYTES));
    let markdown = request.markdown;
    let mut answer = exchange::send(inner, owned, request).await?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let (mut bytes, mut truncated) = (Vec::new(), false);
    while let Some(frame) = answer.body.frame().await {
        let frame = frame
            .map_err(|error| exchange::port_problem(port, "interrupted its response", &error))?;
        let Ok(data) = frame.into_data() else { continue };
        let room = limit.saturating_sub(bytes.len());
        bytes.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            truncated = true;
            break;
        }
    }
    let headers = exchange::headers(&answer.head);
    let html = headers.get("content-type").is_some_and(|kind| kind.starts_with("text/html"));
    let markdown = markdown && html;
    let body = if markdown { to_markdown(&bytes)? } else { bytes };
    let status = answer.head.status.as_u16();
    Ok(HttpResponse { status, headers, body: body.into(), truncated, markdown })
}

/// Converts HTML to Markdown, without scripts and styles.
fn to_markdown(html: &[u8]) -> Result<Vec<u8>> {
    let converter = htmd::HtmlToMarkdown::builder().skip_tags(vec!["script", "style"]).build();
    let text = converter.convert(&String::from_utf8_lossy(html)).map_err(|error| {
        Problem::new(Code::InvalidInput, "the response is not valid HTML")
            .because(error.to_string())
    })?;
    Ok(text.into_bytes())
}
