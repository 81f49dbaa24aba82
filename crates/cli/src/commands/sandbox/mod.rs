//! The commands that work on persistent sandboxes, through the local server: one file for each
//! kind. Data goes to stdout, messages go to stderr.

mod attach;
pub(super) mod collect;
mod command_name;
pub(super) mod copy;
pub(crate) mod create;
pub(super) mod elsewhere;
pub(super) mod events;
pub(super) mod exec;
pub(super) mod forward;
pub(super) mod lifecycle;
pub(super) mod list;
pub(super) mod logs;
mod many;
pub(super) mod network;
pub(super) mod open;
mod path_argument;
pub(super) mod ps;
pub(super) mod rejoin;
pub(super) mod remove;
pub(super) mod run_held;
pub(super) mod secret;
pub(super) mod show;
pub(super) mod snapshot;
pub(super) mod sync;
pub(super) mod tool;

use stockade_api::{ById, CommandLine, Execute, GetSandbox, LATEST, ListSandboxes, Sandbox};
use stockade_core::{Code, Problem, SandboxId, State};
use stockade_review::CurrentProject;

use crate::problem::Failure;
use crate::remote::Remote;
use crate::review::current_project;

/// All states, so that terminated sandboxes are included.
pub(crate) const STATES: [State; 7] = [
    State::New,
    State::Creating,
    State::Running,
    State::Paused,
    State::Stopped,
    State::Error,
    State::Terminated,
];

/// Every sandbox that a request selects, the newest first; sends as many requests as needed.
pub(crate) async fn list_all(
    remote: &Remote,
    request: ListSandboxes,
) -> Result<Vec<Sandbox>, Failure> {
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

/// Whether a sandbox belongs to a project: by its workspace, else by the project for which it was
/// created.
fn is_of(project: &CurrentProject, sandbox: &Sandbox) -> bool {
    let workspace = sandbox.workspace.as_ref().map(|workspace| &workspace.host);
    match workspace.or(sandbox.project.as_ref()) {
        Some(own) => project.has(own),
        None => project.root().is_none(),
    }
}

/// The sandbox of the current project that was created last, if there is one.
pub(super) async fn latest(remote: &Remote) -> Result<Option<Sandbox>, Failure> {
    let project = current_project()?;
    let alive = list_all(remote, ListSandboxes::default()).await?;
    Ok(alive.into_iter().find(|sandbox| is_of(&project, sandbox)))
}

/// Does what needs only the files of a sandbox. A stopped one is started for it, and stopped again.
async fn with_files<T>(
    remote: &Remote,
    id: &SandboxId,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let request = GetSandbox { id: id.clone(), metrics: false };
    if remote.sandboxes.get_status(remote.caller(), request).await?.state != State::Stopped {
        return work.await;
    }
    let by_id = || ById { id: id.clone() };
    remote.sandboxes.start(&remote.idempotent(), by_id()).await?;
    let done = work.await;
    let stopped = remote.sandboxes.stop(&remote.idempotent(), by_id()).await;
    let done = done?;
    stopped?;
    Ok(done)
}

/// Where commands of a sandbox start, for this user.
async fn start_directory(
    remote: &Remote,
    id: &SandboxId,
    uid: Option<u32>,
) -> Result<Vec<u8>, Failure> {
    let request = GetSandbox { id: id.clone(), metrics: false };
    let sandbox = remote.sandboxes.get_status(remote.caller(), request).await?;
    if let Some(directory) = sandbox.working_directory {
        return Ok(directory.into_os_string().into_encoded_bytes());
    }
    // The home of the user inside.
    let mut execute = Execute::new(id.clone(), CommandLine::Program(vec!["pwd".to_owned()]));
    execute.uid = uid;
    let told = remote.sandboxes.execute(&remote.idempotent(), execute).await?.stdout.0;
    let directory = told.strip_suffix(b"\n").unwrap_or(&told);
    if !directory.starts_with(b"/") {
        let message = format!("it is not known where commands of the sandbox {id} start");
        return Err(Problem::new(Code::InvalidInput, message)
            .remedied_by("write the path from the root of the sandbox, as in /tmp/file")
            .into());
    }
    Ok(directory.to_vec())
}

/// A path inside, made absolute: a relative one starts where commands of the sandbox start.
async fn absolute(
    remote: &Remote,
    id: &SandboxId,
    uid: Option<u32>,
    path: Vec<u8>,
) -> Result<Vec<u8>, Failure> {
    if path.starts_with(b"/") {
        return Ok(path);
    }
    let mut absolute = start_directory(remote, id, uid).await?;
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if absolute.last() != Some(&b'/') {
            absolute.push(b'/');
        }
        absolute.extend_from_slice(part);
    }
    Ok(absolute)
}

/// Finds a sandbox by its id, a unique prefix of it, or `latest`. Sandboxes that are not
/// terminated take precedence.
pub(super) async fn find(remote: &Remote, name: &str) -> Result<SandboxId, Failure> {
    // A generated id needs no search.
    if name.len() == 12
        && name.bytes().all(|byte| byte.is_ascii_hexdigit())
        && let Ok(id) = SandboxId::new(name)
    {
        return Ok(id);
    }
    let alive = list_all(remote, ListSandboxes::default()).await?;
    if name == LATEST {
        return find_latest(&alive);
    }
    if let Some(id) = find_by_prefix(&alive, name)? {
        return Ok(id);
    }
    let request = ListSandboxes { states: STATES.to_vec(), ..ListSandboxes::default() };
    let found = find_by_prefix(&list_all(remote, request).await?, name)?;
    found.ok_or_else(|| not_found(&format!("there is no sandbox {name}")).into())
}

/// The newest sandbox of the current project.
fn find_latest(alive: &[Sandbox]) -> Result<SandboxId, Failure> {
    let project = current_project()?;
    match alive.iter().find(|sandbox| is_of(&project, sandbox)) {
        Some(sandbox) => Ok(sandbox.id.clone()),
        None => Err(no_latest(&project, alive.len()).into()),
    }
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

/// The problem that the current project has no sandbox, while there are so many of others.
fn no_latest(project: &CurrentProject, others: usize) -> Problem {
    let message = match project.root() {
        Some(root) => format!("there is no sandbox of the project {}", root.display()),
        None => "there is no sandbox: this directory is in no project".to_owned(),
    };
    match others {
        0 => not_found(&message),
        count => not_found(&message).because(format!(
            "`latest` is a sandbox of the current project; {count} of other projects can be named by \
             their ids"
        )),
    }
}

fn not_found(message: &str) -> Problem {
    Problem::new(Code::NotFound, message).remedied_by("stockade ls")
}
