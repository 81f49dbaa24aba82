//! `start`, `stop`, `pause`, `resume`, `renew`, `update`, `kill`, `prune`: the lifecycle of a sandbox.

use std::sync::{Arc, Mutex, PoisonError};

use stockade_api::{
    ById, ChangeLimits, CommandInfo, GetSandbox, KillCommand, KillSandbox, ListSandboxes, Sandbox,
};
use stockade_core::sandbox::LimitChange;
use stockade_core::{Code, Problem, SandboxId, State};

use super::command_name::{find_command, is_operation, name};
use super::create::{self, START_SCRIPT};
use super::many::{find_all, side_by_side};
use super::{find, list_all, secret, show};
use crate::args::sandbox::{Kill, Prune, Renew, Sandboxes, Update};
use crate::base;
use crate::commands::print::{notify, print, print_text};
use crate::problem::{Failure, short_id};
use crate::remote::{self, Remote};

/// Starts sandboxes.
pub(crate) fn start(arguments: Sandboxes) -> Result<u8, Failure> {
    let json = arguments.json;
    let hints = Arc::new(Mutex::new(Vec::new()));
    let found = hints.clone();
    let code = change(
        arguments,
        ("starting", Some(State::Running), state_text),
        move |remote, ById { id }| {
            let found = found.clone();
            async move {
                let request = ById { id: id.clone() };
                let started = remote.sandboxes.start(&remote.idempotent(), request).await?;
                if let Some(script) = started.metadata.get(START_SCRIPT) {
                    // The sandbox runs all the same, as one whose command fails at its creation does not.
                    create::run_in(&remote, &id, script).await.map_err(|problem| {
                        problem.remedied_by(format!("the sandbox runs: stockade exec {id} -- sh"))
                    })?;
                }
                // Values do not outlive the processes. The start is reported in any case.
                let request = GetSandbox { id: id.clone(), metrics: false };
                if let Ok(sandbox) = remote.sandboxes.get_status(remote.caller(), request).await
                    && let Some(network) = sandbox.network
                {
                    let hint = secret::command_for_missing(&id, &network.secrets);
                    found.lock().unwrap_or_else(PoisonError::into_inner).extend(hint);
                }
                Ok(started)
            }
        },
    );
    if !json {
        for command in hints.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            notify(&format!("the values of its secrets are missing; give them again: {command}"));
        }
    }
    code
}

/// Stops sandboxes.
pub(crate) fn stop(arguments: Sandboxes) -> Result<u8, Failure> {
    change(arguments, ("stopping", Some(State::Stopped), state_text), |remote, id| async move {
        Ok(remote.sandboxes.stop(&remote.idempotent(), id).await?)
    })
}

/// Pauses sandboxes.
pub(crate) fn pause(arguments: Sandboxes) -> Result<u8, Failure> {
    change(arguments, ("pausing", Some(State::Paused), state_text), |remote, id| async move {
        Ok(remote.sandboxes.pause(&remote.idempotent(), id).await?)
    })
}

/// Resumes sandboxes.
pub(crate) fn resume(arguments: Sandboxes) -> Result<u8, Failure> {
    change(arguments, ("resuming", Some(State::Running), state_text), |remote, id| async move {
        Ok(remote.sandboxes.resume(&remote.idempotent(), id).await?)
    })
}

/// Resumes a sandbox.
pub(crate) async fn resume_one(remote: &Remote, name: &str, json: bool) -> Result<u8, Failure> {
    let id = find(remote, name).await?;
    let sandbox = remote.sandboxes.resume(&remote.idempotent(), ById { id }).await?;
    print_change(&sandbox, json, state_text)?;
    Ok(0)
}

/// Changes sandboxes, also if some of them cannot be changed. One that is in the state `end` already
/// is left as it is.
fn change<Fut>(
    arguments: Sandboxes,
    (word, end, text): (&'static str, Option<State>, fn(&Sandbox) -> String),
    act: impl Fn(Arc<Remote>, ById) -> Fut + Clone + Send + Sync + 'static,
) -> Result<u8, Failure>
where
    Fut: Future<Output = Result<Sandbox, Failure>> + Send + 'static,
{
    let (changed, failed) = remote::with(arguments.server_mode, async |remote| {
        let remote = Arc::new(remote);
        let found = find_all(&remote, &arguments.id).await?;
        let (ids, mut failed) = split(found);
        let names: Vec<_> = ids.iter().map(ToString::to_string).collect();
        let change = move |remote: Arc<Remote>, id: SandboxId| {
            let act = act.clone();
            async move {
                match act(remote.clone(), ById { id: id.clone() }).await {
                    Err(failure)
                        if end.is_some() && failure.problem().code == Code::InvalidState =>
                    {
                        let request = GetSandbox { id, metrics: false };
                        let found = remote.sandboxes.get_status(remote.caller(), request).await;
                        let reached = found.ok().filter(|sandbox| Some(sandbox.state) == end);
                        reached.ok_or(failure)
                    }
                    changed => changed,
                }
            }
        };
        let changed = side_by_side(&remote, word, ids, change).await;
        let (changed, more) = split(named(&names, changed));
        failed.extend(more);
        Ok((changed, failed))
    })?;
    match changed.as_slice() {
        [one] if arguments.id.len() == 1 => print_change(one, arguments.json, text)?,
        [] if arguments.id.len() == 1 => {}
        several if arguments.json => {
            return Failure::report(failed, Some(serde_json::json!({ "sandboxes": several })));
        }
        several => {
            for sandbox in several {
                print_change(sandbox, false, text)?;
            }
        }
    }
    Failure::report(failed, None)
}

/// Each result with the name of what it is about.
pub(super) fn named<T>(
    names: &[String],
    results: Vec<Result<T, Failure>>,
) -> Vec<Result<T, (String, Failure)>> {
    let pairs = names.iter().zip(results);
    pairs.map(|(name, result)| result.map_err(|failure| (name.clone(), failure))).collect()
}

/// What succeeded, and the failures.
pub(super) fn split<T, E>(results: Vec<Result<T, E>>) -> (Vec<T>, Vec<E>) {
    let (mut succeeded, mut failed) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(value) => succeeded.push(value),
            Err(failure) => failed.push(failure),
        }
    }
    (succeeded, failed)
}

fn print_change(
    sandbox: &Sandbox,
    json: bool,
    text: fn(&Sandbox) -> String,
) -> Result<(), Failure> {
    if json {
        print(sandbox)?;
    } else {
        notify(&text(sandbox));
    }
    Ok(())
}

fn state_text(sandbox: &Sandbox) -> String {
    format!("the sandbox {} is {}{}", sandbox.id, sandbox.state, show::expiry(sandbox))
}

fn limits_text(sandbox: &Sandbox) -> String {
    let limits = show::limits(sandbox).unwrap_or_else(|| "those of its runtime".to_owned());
    format!("the limits of the sandbox {} are now {limits}", sandbox.id)
}

/// Extends the TTL of sandboxes.
pub(crate) fn renew(arguments: Renew) -> Result<u8, Failure> {
    let Renew { id, ttl, shorten, json, server_mode } = arguments;
    let ttl_seconds = ttl.0.map(|length| length.as_secs_f64());
    let sandboxes = Sandboxes { id, json, server_mode };
    change(sandboxes, ("renewing", None, state_text), move |remote, ById { id }| async move {
        let request = stockade_api::Renew { id, ttl_seconds, shorten };
        Ok(remote.sandboxes.renew(&remote.idempotent(), request).await?)
    })
}

/// Changes limits of sandboxes.
pub(crate) fn update(arguments: Update) -> Result<u8, Failure> {
    let Update { id, memory, cpus, pids, traffic, json, server_mode } = arguments;
    let limits = LimitChange { memory_bytes: memory, cpu_millis: cpus, processes: pids };
    let network_limits = traffic.limits();
    let sandboxes = Sandboxes { id, json, server_mode };
    change(sandboxes, ("changing", None, limits_text), move |remote, ById { id }| async move {
        let request = ChangeLimits { id, limits, network_limits };
        Ok(remote.sandboxes.change_limits(&remote.idempotent(), request).await?)
    })
}

/// Terminates sandboxes and ends commands, even if some of them fail to end.
pub(crate) fn kill(arguments: Kill) -> Result<u8, Failure> {
    let Kill { discard, signal, json, .. } = arguments;
    let (commands, sandboxes, failed) = remote::with(arguments.server_mode, async |remote| {
        let remote = Arc::new(remote);
        let (names, sandboxes) = command_names(&remote, &arguments.id).await?;
        check_flags(&names, &sandboxes, discard, signal)?;
        let ended = side_by_side(
            &remote,
            "ending commands",
            names.clone(),
            move |remote, name| async move {
                let workflow_id = find_command(&remote, &name).await?.workflow_id;
                let request = KillCommand { workflow_id, signal };
                Ok(remote.sandboxes.kill_command(&remote.idempotent(), request).await?)
            },
        );
        let (commands, mut failed) = split(named(&names, ended.await));
        let mut killed = Vec::new();
        if !sandboxes.is_empty() {
            let found = find_all(&remote, &sandboxes).await?;
            let (ids, missing) = split(found);
            failed.extend(missing);
            let (ended, more) = kill_all(&remote, ids, discard).await;
            killed = ended;
            failed.extend(more);
        }
        Ok((commands, killed, failed))
    })?;
    report_ended(&commands, &sandboxes, failed, json)
}

/// Separates names of commands from names of sandboxes. No id of a sandbox contains a slash; an
/// operation's id in full names a command, unless a sandbox has that id.
async fn command_names(
    remote: &Remote,
    names: &[String],
) -> Result<(Vec<String>, Vec<String>), Failure> {
    let mut alive = None;
    let (mut commands, mut sandboxes) = (Vec::new(), Vec::new());
    for name in names {
        let mut is_command = name.contains('/');
        if is_operation(name) {
            if alive.is_none() {
                alive = Some(list_all(remote, ListSandboxes::default()).await?);
            }
            let is_sandbox = |sandbox: &Sandbox| sandbox.id.as_str() == name;
            is_command = !alive.as_deref().unwrap_or_default().iter().any(is_sandbox);
        }
        match is_command {
            true => commands.push(name.clone()),
            false => sandboxes.push(name.clone()),
        }
    }
    Ok((commands, sandboxes))
}

/// Refuses a flag that has no effect on what is named.
fn check_flags(
    commands: &[String],
    sandboxes: &[String],
    discard: bool,
    signal: Option<i32>,
) -> Result<(), Problem> {
    if signal.is_some()
        && let Some(id) = sandboxes.first()
    {
        return Err(Problem::new(
            Code::InvalidInput,
            "a signal is for commands, not for sandboxes",
        )
        .because(format!("{id} names a sandbox"))
        .remedied_by(format!("stockade ps {id}")));
    }
    if discard && sandboxes.is_empty() && !commands.is_empty() {
        return Err(Problem::new(Code::InvalidInput, "`--discard` is for sandboxes")
            .because("the end of a command discards nothing")
            .remedied_by(format!("stockade kill {}", commands.join(" "))));
    }
    Ok(())
}

async fn kill_all(
    remote: &Arc<Remote>,
    ids: Vec<SandboxId>,
    discard: bool,
) -> (Vec<Sandbox>, Vec<(String, Failure)>) {
    let names: Vec<_> = ids.iter().map(ToString::to_string).collect();
    let kill = move |remote: Arc<Remote>, id| async move {
        let request = KillSandbox { id, discard };
        Ok(remote.sandboxes.kill(&remote.idempotent(), request).await?)
    };
    let ended = side_by_side(remote, "terminating sandboxes", ids, kill).await;
    split(named(&names, ended))
}

/// Terminates failed and stopped sandboxes, or all, even if some of them fail to terminate.
pub(crate) fn prune(arguments: Prune) -> Result<u8, Failure> {
    let (killed, failed) = remote::with(arguments.server_mode, async |remote| {
        let remote = Arc::new(remote);
        let states = match arguments.all {
            true => Vec::new(),
            false => vec![State::Error, State::Stopped, State::New],
        };
        let request = ListSandboxes { states, ..ListSandboxes::default() };
        let found = list_all(&remote, request).await?.into_iter();
        let found = found.filter(|sandbox| !sandbox.keep || arguments.all);
        let ids = found.map(|sandbox| sandbox.id).collect();
        Ok(kill_all(&remote, ids, arguments.discard).await)
    })?;
    base::prune_former()?;
    report_ended(&[], &killed, failed, arguments.json)
}

fn report_ended(
    commands: &[CommandInfo],
    sandboxes: &[Sandbox],
    failed: Vec<(String, Failure)>,
    json: bool,
) -> Result<u8, Failure> {
    if json {
        let mut answer = serde_json::json!({ "killed": sandboxes });
        if !commands.is_empty() {
            answer["commands"] = serde_json::json!(commands);
        }
        return Failure::report(failed, Some(answer));
    }
    let names = commands.iter().map(|command| format!("{}\n", name(command)));
    let ids = sandboxes.iter().map(|sandbox| format!("{}\n", sandbox.id));
    print_text(&names.chain(ids).collect::<String>())?;
    for sandbox in sandboxes {
        if let Some(bundle) = &sandbox.bundle {
            let (id, bundle) = (&sandbox.id, short_id(bundle));
            notify(&format!("the changes of {id} are in a bundle: stockade diff {bundle}"));
        }
        // What follows the reason itself is what could not be removed.
        if let Some((_, left)) = sandbox.reason.as_ref().and_then(|why| why.split_once("; ")) {
            notify(&format!("{}: {left}", sandbox.id));
        }
    }
    Failure::report(failed, None)
}
