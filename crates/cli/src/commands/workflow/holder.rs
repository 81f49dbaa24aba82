//! Which machine a run is on: it is looked for here first, and then on the server that was chosen. A run
//! that is here may have its sandboxes on a server, whose key is given to the engine with a request.

use std::io::Read as _;
use std::path::Path;

use stockade_api::{FindRun, LATEST, ResumeRun, Run, RunById, ServerAccess};
use stockade_core::{Code, Problem};

use super::latest;
use crate::args::sandbox::ServerMode;
use crate::data_dir::{data_path, find_data_dir};
use crate::problem::{Failure, caused};
use crate::remote::{Remote, chosen, credentials, here, with};

/// The largest file with authorities.
const AUTHORITIES_BYTES: u64 = 4 << 20;
/// The database in which the runs of a data directory are.
const DATABASE: &str = "stockade.db";

/// How a command names a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RunName<'a> {
    /// By its id, a unique prefix of it, or `latest`.
    Any(&'a str),
    /// By its id or `latest`: the name may also mean something else.
    Exact(&'a str),
}

/// Calls `act` with the operations of the machine that a run is on.
pub(crate) fn with_run<T, F, Fut>(mode: ServerMode, name: RunName<'_>, act: F) -> Result<T, Failure>
where
    F: FnOnce(Remote) -> Fut,
    Fut: Future<Output = Result<T, Failure>>,
{
    // With a server elsewhere in its own process, a command works on a run of this machine.
    if chosen::chosen().is_some() && (mode.in_process || is_here(name)?) {
        return here(mode, act);
    }
    with(mode, act)
}

/// The runs of this machine whose sandboxes are on the server that was chosen.
pub(crate) fn of_chosen(limit: u32) -> Result<Vec<Run>, Failure> {
    let Some(server) = chosen::chosen() else { return Ok(Vec::new()) };
    let url = server.url.to_string();
    if !has_records()? {
        return Ok(Vec::new());
    }
    let mut runs = here(ServerMode { in_process: false }, async |remote| {
        let request = stockade_api::ListRuns { limit };
        Ok(remote.workflows.runs(remote.caller(), request).await?)
    })?;
    runs.retain(|run| run.server.as_ref() == Some(&url));
    Ok(runs)
}

/// Whether the data directory has records of runs, for which its server is started.
fn has_records() -> Result<bool, Problem> {
    let found = find_data_dir(&data_path()?)?;
    Ok(found.is_some_and(|directory| directory.path().join(DATABASE).exists()))
}

fn is_here(name: RunName<'_>) -> Result<bool, Failure> {
    let Some(server) = chosen::chosen() else { return Ok(true) };
    if !has_records()? {
        return Ok(false);
    }
    let url = server.url.to_string();
    here(ServerMode { in_process: false }, async |remote| {
        let found = match name {
            RunName::Any(LATEST) | RunName::Exact(LATEST) => {
                let latest = latest(&remote).await?;
                // The last run there may be meant otherwise.
                return Ok(latest.is_some_and(|run| run.server == Some(url)));
            }
            RunName::Any(name) => {
                let request = FindRun { name: name.to_owned() };
                remote.workflows.find(remote.caller(), request).await
            }
            RunName::Exact(id) => {
                remote.workflows.run(remote.caller(), RunById { id: id.to_owned() }).await
            }
        };
        match found {
            Ok(_) => Ok(true),
            Err(problem) if problem.code == Code::NotFound => Ok(false),
            Err(problem) => Err(problem.into()),
        }
    })
}

/// How the server that was chosen is used by a run of this machine; `None` if none was.
///
/// # Errors
/// If the stored keys or the file with authorities cannot be read.
pub(crate) fn access_to_chosen() -> Result<Option<ServerAccess>, Problem> {
    chosen::chosen().map(access_to).transpose()
}

/// How a server is used: with the key of the environment, else with the one that is stored.
fn access_to(server: &chosen::ChosenServer) -> Result<ServerAccess, Problem> {
    let login = credentials::login_for(server, |name| std::env::var_os(name))?;
    let stored = login.as_ref().and_then(|login| login.tls_ca.clone());
    let authorities = server.authorities.clone().or(stored);
    Ok(ServerAccess {
        url: server.url.to_string(),
        key: login.map(|login| login.key),
        authorities: authorities.map(|path| read_authorities(&path)).transpose()?,
    })
}

fn read_authorities(path: &Path) -> Result<String, Problem> {
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(AUTHORITIES_BYTES).read_to_string(&mut text));
    read.map_err(|error| {
        let problem = caused(Code::InvalidInput, &error);
        Problem { message: format!("cannot read the authorities in {}", path.display()), ..problem }
    })?;
    Ok(text)
}

/// What a request about a run of this machine gives its engine, so that it can use the server of the run:
/// nothing where it has the key, and none is found here. A server that was chosen must be that one.
///
/// # Errors
/// If the stored keys cannot be read, or the run cannot be inspected.
pub(crate) async fn access_for(
    remote: &Remote,
    run: &Run,
) -> Result<Option<ServerAccess>, Failure> {
    let Some(url) = &run.server else { return Ok(None) };
    let access = match chosen::chosen() {
        Some(server) if server.url.to_string() != *url => return Ok(Some(access_to(server)?)),
        Some(server) => access_to(server)?,
        None => access_to(&chosen::at(url)?)?,
    };
    if access.key.is_some() || is_missing(remote, run).await? {
        return Ok(Some(access));
    }
    Ok(None)
}

/// Whether the engine waits for the key of the server of a run.
async fn is_missing(remote: &Remote, run: &Run) -> Result<bool, Failure> {
    let request = RunById { id: run.id.clone() };
    let found = remote.workflows.inspect(remote.caller(), request).await?;
    Ok(found.problem.is_some_and(|problem| problem.code == Code::Unauthenticated))
}

/// Gives the engine the key of the server of a run, if it waits for that and one is found here. Returns
/// whether it did.
///
/// # Errors
/// If the server does not answer, or refuses the key.
pub(crate) async fn give_key(remote: &Remote, run: &Run) -> Result<bool, Failure> {
    if run.server.is_none() || !is_missing(remote, run).await? {
        return Ok(false);
    }
    let Some(access) = access_for(remote, run).await?.filter(|access| access.key.is_some()) else {
        return Ok(false);
    };
    let request = ResumeRun {
        id: run.id.clone(),
        accept_changes: false,
        retry: false,
        secrets: std::collections::BTreeMap::new(),
        server: Some(access),
    };
    remote.workflows.resume_run(&remote.idempotent(), request).await?;
    Ok(true)
}
