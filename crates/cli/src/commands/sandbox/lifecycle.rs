//! `start`, `stop`, `pause`, `resume`, `renew`, `kill`, `prune`: the lifecycle of a sandbox.

use stockade_api::{ById, GetSandbox, KillSandbox, ListSandboxes, Problem, Sandbox};
use stockade_core::{Code, State};

use super::{find, list_all, secret, show};
use crate::args::sandbox::{Kill, OneSandbox, Prune, Renew};
use crate::commands::print::{notify, print, print_text};
use crate::problem::{Failure, short_id};
use crate::remote::{self, Remote};

/// Starts a sandbox.
pub(crate) fn start(arguments: OneSandbox) -> Result<u8, Failure> {
    let json = arguments.json;
    let mut hint = None;
    let code = change(arguments, State::Running, async |remote, ById { id }| {
        let request = ById { id: id.clone() };
        let started = remote.sandboxes.start(&remote.idempotent(), request).await?;
        // Values do not outlive the processes. The start is reported in any case.
        let request = GetSandbox { id: id.clone(), metrics: false };
        if let Ok(sandbox) = remote.sandboxes.get_status(remote.caller(), request).await
            && let Some(network) = sandbox.network
        {
            hint = secret::command_for_missing(&id, &network.secrets);
        }
        Ok(started)
    })?;
    if let Some(command) = hint.filter(|_| !json) {
        notify(&format!("the values of its secrets are missing; give them again: {command}"));
    }
    Ok(code)
}

/// Stops a sandbox.
pub(crate) fn stop(arguments: OneSandbox) -> Result<u8, Failure> {
    change(arguments, State::Stopped, async |remote, id| {
        remote.sandboxes.stop(&remote.idempotent(), id).await
    })
}

/// Pauses a sandbox.
pub(crate) fn pause(arguments: OneSandbox) -> Result<u8, Failure> {
    change(arguments, State::Paused, async |remote, id| {
        remote.sandboxes.pause(&remote.idempotent(), id).await
    })
}

/// Resumes a sandbox.
pub(crate) async fn resume(remote: &Remote, name: &str, json: bool) -> Result<u8, Failure> {
    let id = find(remote, name).await?;
    let sandbox = remote.sandboxes.resume(&remote.idempotent(), ById { id }).await?;
    print_state(&sandbox, json)
}

/// Changes a sandbox. One that is in the state `end` already is left as it is.
fn change(
    arguments: OneSandbox,
    end: State,
    act: impl AsyncFnOnce(&Remote, ById) -> Result<Sandbox, Problem>,
) -> Result<u8, Failure> {
    let sandbox = remote::with(arguments.server_mode, async |remote| {
        let id = find(&remote, &arguments.id).await?;
        match act(&remote, ById { id: id.clone() }).await {
            Err(problem) if problem.code == Code::InvalidState => {
                let request = GetSandbox { id, metrics: false };
                let found = remote.sandboxes.get_status(remote.caller(), request).await;
                let reached = found.ok().filter(|sandbox| sandbox.state == end);
                Ok(reached.ok_or(problem)?)
            }
            changed => Ok(changed?),
        }
    })?;
    print_state(&sandbox, arguments.json)
}

fn print_state(sandbox: &Sandbox, json: bool) -> Result<u8, Failure> {
    if json {
        print(sandbox)?;
    } else {
        notify(&format!(
            "the sandbox {} is {}{}",
            sandbox.id,
            sandbox.state,
            show::expiry(sandbox)
        ));
    }
    Ok(0)
}

/// Extends the TTL of a sandbox.
pub(crate) fn renew(arguments: Renew) -> Result<u8, Failure> {
    let sandbox = remote::with(arguments.server_mode, async |remote| {
        let id = find(&remote, &arguments.id).await?;
        let ttl_seconds = arguments.ttl.0.map(|length| length.as_secs_f64());
        let request = stockade_api::Renew { id, ttl_seconds, shorten: arguments.shorten };
        Ok(remote.sandboxes.renew(&remote.idempotent(), request).await?)
    })?;
    print_state(&sandbox, arguments.json)
}

/// Terminates sandboxes, even if some of them fail to terminate.
pub(crate) fn kill(arguments: Kill) -> Result<u8, Failure> {
    let (killed, failed) = remote::with(arguments.server_mode, async |remote| {
        let (mut killed, mut failed) = (Vec::new(), Vec::new());
        for name in &arguments.id {
            let ended = async {
                let id = find(&remote, name).await?;
                let request = KillSandbox { id, discard: arguments.discard };
                Ok::<_, Failure>(remote.sandboxes.kill(&remote.idempotent(), request).await?)
            };
            match ended.await {
                Ok(sandbox) => killed.push(sandbox),
                Err(failure) => failed.push((name.clone(), failure)),
            }
        }
        Ok((killed, failed))
    })?;
    report_killed(&killed, failed, arguments.json)
}

/// Terminates failed and stopped sandboxes, or all, even if some of them fail to terminate.
pub(crate) fn prune(arguments: Prune) -> Result<u8, Failure> {
    let (killed, failed) = remote::with(arguments.server_mode, async |remote| {
        let states = match arguments.all {
            true => Vec::new(),
            false => vec![State::Error, State::Stopped, State::New],
        };
        let request = ListSandboxes { states, ..ListSandboxes::default() };
        let (mut killed, mut failed) = (Vec::new(), Vec::new());
        for sandbox in list_all(&remote, request).await? {
            if sandbox.keep && !arguments.all {
                continue;
            }
            let name = sandbox.id.to_string();
            let request = KillSandbox { id: sandbox.id, discard: arguments.discard };
            match remote.sandboxes.kill(&remote.idempotent(), request).await {
                Ok(sandbox) => killed.push(sandbox),
                Err(problem) => failed.push((name, problem.into())),
            }
        }
        Ok((killed, failed))
    })?;
    report_killed(&killed, failed, arguments.json)
}

fn report_killed(
    killed: &[Sandbox],
    failed: Vec<(String, Failure)>,
    json: bool,
) -> Result<u8, Failure> {
    if !json {
        let ids = killed.iter().map(|sandbox| format!("{}\n", sandbox.id));
        print_text(&ids.collect::<String>())?;
        for sandbox in killed {
            if let Some(bundle) = &sandbox.bundle {
                let (id, bundle) = (&sandbox.id, short_id(bundle));
                notify(&format!("the changes of {id} are in a bundle: stockade diff {bundle}"));
            }
        }
    }
    Failure::report(failed, json.then(|| serde_json::json!({ "killed": killed })))
}
