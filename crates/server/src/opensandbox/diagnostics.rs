//! `/v1/sandboxes/{id}/diagnostics/…`: what is recorded of a sandbox, as text for people: its events,
//! the output of its commands in the background, and its properties.

use std::fmt::Write as _;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use stockade_api::{CommandLine, ListCommands, OutputChunk, ReadEvents, ReadOutput, Sandbox};
use stockade_core::SandboxId;
use stockade_core::event::Kind;

use super::App;
use super::request::{Id, Query};
use super::sandboxes::{SandboxBody, find};
use crate::auth::Principal;
use crate::failure::{Failure, invalid};

/// The most bytes of a text: the end of a longer one.
const TEXT_BYTES: usize = 1 << 20;
/// The kind of every text.
const PLAIN: &str = "text/plain; charset=utf-8";

/// What a text is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    Lifecycle,
    Network,
    Process,
}

impl Scope {
    /// The scope of a request; `None` if it names none, as older clients.
    fn of(query: &Query) -> Result<Option<(Self, String)>, Failure> {
        let Some(name) = query.one("scope")? else { return Ok(None) };
        let scope = match name {
            "all" => Self::All,
            "lifecycle" | "runtime" => Self::Lifecycle,
            "network" => Self::Network,
            "container" | "process" => Self::Process,
            other => {
                return Err(invalid(format!(
                    "there is no scope {other:?}: all, container, lifecycle, network, process, runtime"
                )));
            }
        };
        Ok(Some((scope, name.to_owned())))
    }

    const fn includes(self, kind: Kind) -> bool {
        match self {
            Self::All => true,
            Self::Network => matches!(
                kind,
                Kind::NetworkRefused
                    | Kind::NetworkChanged
                    | Kind::SecretMisdirected
                    | Kind::SshAgentUsed
            ),
            Self::Process => matches!(kind, Kind::CommandCompleted),
            Self::Lifecycle => !matches!(
                kind,
                Kind::NetworkRefused
                    | Kind::NetworkChanged
                    | Kind::SecretMisdirected
                    | Kind::SshAgentUsed
                    | Kind::CommandCompleted
            ),
        }
    }
}

/// A text, of which the beginning may be missing.
#[derive(Debug, Default)]
struct Text {
    content: String,
    is_truncated: bool,
}

impl Text {
    fn push(&mut self, text: &str) {
        self.content.push_str(text);
        let excess = self.content.len().saturating_sub(TEXT_BYTES);
        if excess > 0 {
            let end = (excess..).find(|at| self.content.is_char_boundary(*at));
            self.content.drain(..end.unwrap_or(excess));
            self.is_truncated = true;
        }
    }

    /// Keeps the last lines, if a parameter of the query says how many.
    fn keep(mut self, query: &Query, parameter: &str) -> Result<Self, Failure> {
        let Some(count) = query.number(parameter)? else { return Ok(self) };
        let lines: Vec<&str> = self.content.split_inclusive('\n').collect();
        let before = lines.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
        self.is_truncated |= before > 0;
        self.content = lines.into_iter().skip(before).collect();
        Ok(self)
    }

    fn respond(self, sandbox: &Sandbox, kind: &str, scope: Option<(Scope, String)>) -> Response {
        let Some((_, scope)) = scope else { return plain(self.content) };
        let body: Value = json!({
            "sandboxId": sandbox.id,
            "kind": kind,
            "scope": scope,
            "delivery": "inline",
            "contentType": PLAIN,
            "contentLength": self.content.len(),
            "content": self.content,
            "truncated": self.is_truncated,
        });
        Json(body).into_response()
    }
}

fn plain(text: String) -> Response {
    let headers = [(header::CONTENT_TYPE, PLAIN), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (headers, text).into_response()
}

/// `GET …/diagnostics/events?scope=`.
pub(super) async fn events(
    State(app): State<App>,
    principal: Principal,
    Id(id): Id,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let query = Query::parse(query.as_deref(), &["scope", "limit"])?;
    let scope = Scope::of(&query)?;
    let sandbox = find(&app, &principal.caller, &id).await?;
    let which = scope.as_ref().map_or(Scope::All, |(scope, _)| *scope);
    let text = event_text(&app, &principal, &id, which).await?.keep(&query, "limit")?;
    Ok(text.respond(&sandbox, "events", scope))
}

/// `GET …/diagnostics/logs?scope=`.
pub(super) async fn logs(
    State(app): State<App>,
    principal: Principal,
    Id(id): Id,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let query = Query::parse(query.as_deref(), &["scope", "tail"])?;
    let scope = Scope::of(&query)?;
    let sandbox = find(&app, &principal.caller, &id).await?;
    let text = match scope {
        None | Some((Scope::All | Scope::Process, _)) => log_text(&app, &principal, &id).await?,
        Some((which, _)) => event_text(&app, &principal, &id, which).await?,
    };
    Ok(text.keep(&query, "tail")?.respond(&sandbox, "logs", scope))
}

/// `GET …/diagnostics/inspect`.
pub(super) async fn inspect(
    State(app): State<App>,
    principal: Principal,
    Id(id): Id,
) -> Result<Response, Failure> {
    Ok(plain(inspect_text(&find(&app, &principal.caller, &id).await?)?))
}

/// `GET …/diagnostics/summary?tail=&event_limit=`.
pub(super) async fn summary(
    State(app): State<App>,
    principal: Principal,
    Id(id): Id,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let query = Query::parse(query.as_deref(), &["tail", "event_limit"])?;
    let properties = inspect_text(&find(&app, &principal.caller, &id).await?)?;
    let events = event_text(&app, &principal, &id, Scope::All).await?;
    let events = events.keep(&query, "event_limit")?.content;
    let logs = log_text(&app, &principal, &id).await?.keep(&query, "tail")?.content;
    Ok(plain(format!("# Properties\n{properties}\n# Events\n{events}\n# Logs\n{logs}")))
}

fn inspect_text(sandbox: &Sandbox) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(&SandboxBody::new(sandbox));
    let mut text = text.map_err(|error| invalid(error.to_string()))?;
    let _ = write!(text, "\nruntime: {}\n", sandbox.runtime);
    Ok(text)
}

async fn event_text(
    app: &App,
    principal: &Principal,
    id: &SandboxId,
    scope: Scope,
) -> Result<Text, Failure> {
    let request = ReadEvents { sandbox_id: Some(id.clone()), after: 0, follow: false };
    let mut events = app.sandboxes.read_events(&principal.caller, request).await?;
    let mut text = Text::default();
    while let Some(event) = events.next().await {
        let event = event?;
        let kind = event.payload.kind();
        if !scope.includes(kind) {
            continue;
        }
        let value = serde_json::to_value(&event.payload).unwrap_or_default();
        text.push(&format!("{} {kind} {}\n", event.at, value["data"]));
    }
    Ok(text)
}

/// The recorded output of the commands in the background, the oldest first.
async fn log_text(app: &App, principal: &Principal, id: &SandboxId) -> Result<Text, Failure> {
    let request = ListCommands { sandbox_id: Some(id.clone()), ended: true };
    let list = app.sandboxes.commands(&principal.caller, request).await?;
    let mut text = Text { is_truncated: list.more, ..Text::default() };
    for command in list.commands.iter().rev().filter(|command| command.detached) {
        text.push(&format!("== {} {}\n", command.created_at, line(&command.command)));
        let workflow_id = command.workflow_id.clone();
        let request = ReadOutput { workflow_id, from: 0, follow: false, from_sandbox: false };
        let mut items = app.sandboxes.read_output(&principal.caller, request).await?;
        while let Some(item) = items.next().await {
            match item?.chunk {
                OutputChunk::Stdout { data } | OutputChunk::Stderr { data } => {
                    text.push(&data.lossy());
                }
                OutputChunk::Truncated { bytes } => {
                    text.push(&format!("[{bytes} bytes of output are not stored]\n"));
                }
                OutputChunk::Exit(end) => {
                    let code = end.exit_code.map_or_else(|| "?".to_owned(), |it| it.to_string());
                    text.push(&format!("== exit code {code}\n"));
                }
            }
        }
    }
    Ok(text)
}

fn line(command: &CommandLine) -> String {
    match command {
        CommandLine::Shell(line) => line.clone(),
        CommandLine::Program(words) => words.join(" "),
        CommandLine::Words(words) => {
            words.iter().map(|word| word.lossy().into_owned()).collect::<Vec<_>>().join(" ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_belongs_to_one_scope() {
        for kind in Kind::ALL.iter().copied() {
            let scopes = [Scope::Lifecycle, Scope::Network, Scope::Process];
            let including = scopes.iter().filter(|scope| scope.includes(kind)).count();
            assert_eq!(including, 1, "{kind}");
            assert!(Scope::All.includes(kind));
        }
    }

    #[test]
    fn a_long_text_loses_its_beginning() {
        let mut text = Text::default();
        text.push(&"ä".repeat(TEXT_BYTES / 2));
        assert!(!text.is_truncated);
        text.push("end");
        assert!(text.is_truncated && text.content.ends_with("end"));
        assert!(text.content.len() <= TEXT_BYTES);
    }
}
