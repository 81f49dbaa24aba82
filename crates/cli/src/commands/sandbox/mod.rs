//! The commands that work on persistent sandboxes, through the local server: one file for each
//! kind. Data goes to stdout, messages go to stderr.

mod attach;
pub(super) mod collect;
mod command_name;
pub(super) mod copy;
pub(crate) mod create;
pub(super) mod events;
pub(super) mod exec;
pub(super) mod forward;
pub(super) mod lifecycle;
pub(super) mod list;
pub(super) mod logs;
mod many;
pub(super) mod network;
mod path_argument;
pub(super) mod ps;
pub(super) mod rejoin;
pub(super) mod remove;
pub(super) mod secret;
pub(super) mod show;
pub(super) mod snapshot;
pub(super) mod tool;

use stockade_api::{ListSandboxes, Sandbox};
use stockade_core::{Code, Problem, SandboxId, State};

use crate::problem::Failure;
use crate::remote::Remote;

/// All states, so that terminated sandboxes are included.
pub(super) const STATES: [State; 7] = [
    State::New,
    State::Creating,
    State::Running,
    State::Paused,
    State::Stopped,
    State::Error,
    State::Terminated,
];

/// Every sandbox that a request selects, the newest first; sends as many requests as needed.
async fn list_all(remote: &Remote, request: ListSandboxes) -> Result<Vec<Sandbox>, Failure> {
    let mut found: Vec<Sandbox> = Vec::new();
    loop {
        let after = found.last().map(|sandbox| sandbox.id.clone());
        let request = ListSandboxes { after, ..request.clone() };
        let list = remote.sandboxes.list(remote.caller(), request).await?;
        let ends = !list.more || list.sandboxes.is_empty();
        found.extend(list.sandboxes);
        if ends {
            return Ok(found);
        }
    }
}

/// Finds a sandbox by its id, a unique prefix of it, or `latest`. Sandboxes that are not
/// terminated take precedence.
async fn find(remote: &Remote, name: &str) -> Result<SandboxId, Failure> {
    // A generated id needs no search.
    if name.len() == 12
        && name.bytes().all(|byte| byte.is_ascii_hexdigit())
        && let Ok(id) = SandboxId::new(name)
    {
        return Ok(id);
    }
    let alive = list_all(remote, ListSandboxes::default()).await?;
    if name == "latest" {
        let latest = alive.into_iter().next().map(|sandbox| sandbox.id);
        return latest.ok_or_else(|| not_found("there is no sandbox").into());
    }
    if let Some(id) = find_by_prefix(&alive, name)? {
        return Ok(id);
    }
    let request = ListSandboxes { states: STATES.to_vec(), ..ListSandboxes::default() };
    let found = find_by_prefix(&list_all(remote, request).await?, name)?;
    found.ok_or_else(|| not_found(&format!("there is no sandbox {name}")).into())
}

/// The sandbox whose id is `name`, or the only one whose id starts with it.
fn find_by_prefix(sandboxes: &[Sandbox], name: &str) -> Result<Option<SandboxId>, Failure> {
    let ids = || sandboxes.iter().map(|sandbox| &sandbox.id);
    if let Some(exact) = ids().find(|id| id.as_str() == name) {
        return Ok(Some(exact.clone()));
    }
    let found: Vec<_> = ids().filter(|id| id.as_str().starts_with(name)).collect();
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some((*one).clone())),
        several => {
            let ids: Vec<_> = several.iter().map(|id| id.as_str()).collect();
            let message = format!("{name} is the prefix of several ids: {}", ids.join(", "));
            Err(Problem::new(Code::InvalidInput, message).remedied_by("stockade ls").into())
        }
    }
}

fn not_found(message: &str) -> Problem {
    Problem::new(Code::NotFound, message).remedied_by("stockade ls")
}
