//! `commands`, `kill_command`: the commands of sandboxes, and the end of one of them.

use std::cmp::Reverse;

use serde::Deserialize;
use stockade_api::{
    Caller, CommandInfo, CommandList, Execute, KillCommand, ListCommands, OperationId,
    OperationStatus, OutputEnd, Result, Terminal,
};
use stockade_core::{Code, Problem};
use stockade_durable::{Filter, Status, WorkflowId, WorkflowInfo};
use stockade_runtime::Error;

use super::{COMMANDS, cancel, execute, output};
use crate::clock::timestamp;
use crate::failure::{invalid, runtime_problem, store_problem};
use crate::operation;
use crate::owned_sandbox::OwnedSandbox;
use crate::service::Service;

/// The maximal number of listed commands.
const LIMIT: usize = 1000;

/// The caller's commands, the newest first.
pub(crate) async fn list(
    service: &Service,
    caller: &Caller,
    request: ListCommands,
) -> Result<CommandList> {
    let mut after = None;
    if let Some(id) = &request.sandbox_id {
        let owned = OwnedSandbox::check(&*service.inner.store, &caller.owner, id).await?;
        // An earlier sandbox may have had the same id.
        after = Some(owned.created_at);
    }
    let mut commands = Vec::new();
    for name in COMMANDS {
        // A client that waited for a command's end has its result, and the record is large.
        let statuses = match request.ended && name != execute::NAME {
            true => vec![None],
            false => vec![Some(Status::Pending), Some(Status::Enqueued)],
        };
        for status in statuses {
            let filter = Filter {
                name: Some(name.to_owned()),
                owner: Some(caller.owner.as_str().to_owned()),
                status,
                after,
                ..Filter::default()
            };
            let found = service.engine.list(filter).await.map_err(store_problem)?;
            commands.extend(found.into_iter().filter_map(|info| describe(info, &request)));
        }
    }
    commands.sort_by_key(|command| Reverse((command.created_at, command.workflow_id.clone())));
    let more = commands.len() > LIMIT;
    commands.truncate(LIMIT);
    Ok(CommandList { commands, more })
}

fn describe(info: WorkflowInfo, request: &ListCommands) -> Option<CommandInfo> {
    let command = to_command(info)?;
    let wanted = request.sandbox_id.as_ref().is_none_or(|id| *id == command.sandbox_id);
    wanted.then_some(command)
}

/// The command of an operation of the caller.
pub(crate) async fn find(
    service: &Service,
    caller: &Caller,
    id: &OperationId,
) -> Result<CommandInfo> {
    let unknown = || {
        Problem::new(Code::NotFound, format!("there is no command {id}"))
            .remedied_by("stockade ps --all")
    };
    let workflow = WorkflowId::new(id.0.clone()).map_err(|_| unknown())?;
    let info = service.engine.info(&workflow).await.map_err(store_problem)?;
    let own = info.filter(|info| info.owner.as_deref() == Some(caller.owner.as_str()));
    let command = own.filter(|info| COMMANDS.contains(&info.name.as_str())).and_then(to_command);
    command.ok_or_else(unknown)
}

/// Ends a command with everything that it has started, or sends a signal to it.
pub(crate) async fn kill(
    service: &Service,
    caller: &Caller,
    request: KillCommand,
) -> Result<CommandInfo> {
    let KillCommand { workflow_id, signal } = request;
    if let Some(number) = signal.filter(|number| !(1..=64).contains(number)) {
        return Err(invalid(format!("{number} is no signal: use a number from 1 to 64")));
    }
    let known = find(service, caller, &workflow_id).await?;
    match (known.status, signal) {
        (OperationStatus::Running, _) => {}
        (OperationStatus::Waiting, None) => {
            cancel::cancel(service, caller, &workflow_id).await?;
            return find(service, caller, &workflow_id).await;
        }
        (OperationStatus::Waiting, Some(_)) => return Err(not_started()),
        // It has ended.
        _ => return Ok(known),
    }
    // Also a command of a paused sandbox can be ended.
    let store = &*service.inner.store;
    let owned = OwnedSandbox::check(store, &caller.owner, &known.sandbox_id).await?;
    service.inner.check_here(&owned)?;
    let runtime = service.inner.runtime(&owned.runtime)?;
    let workflow = workflow(&workflow_id)?;
    let exec = execute::exec_id_for(&workflow)?;
    if let Some(signal) = signal {
        return match service.inner.with_deadline(runtime.signal(&owned.id, &exec, signal)).await {
            Ok(()) => find(service, caller, &workflow_id).await,
            Err(Error::NoExec { .. }) => Err(not_started()),
            Err(error) => Err(runtime_problem(&error)),
        };
    }
    match service.inner.with_deadline(runtime.kill(&owned.id, &exec)).await {
        Ok(()) => {}
        // It is not started yet, or has ended: the operation is cancelled unless it has ended.
        Err(Error::NoExec { .. } | Error::NoSandbox(_)) => {
            cancel::cancel(service, caller, &workflow_id).await?;
        }
        Err(error) => return Err(runtime_problem(&error)),
    }
    service.inner.kill_notices.give(&exec);
    let handle = service.engine.handle(&workflow);
    let ended = handle.get_result::<serde_json::Value>();
    // The record contains the result.
    let _ = tokio::time::timeout(service.inner.options.deadline, ended).await;
    find(service, caller, &workflow_id).await
}

/// The workflow of an operation.
pub(crate) fn workflow(id: &OperationId) -> Result<WorkflowId> {
    WorkflowId::new(id.0.clone()).map_err(|error| store_problem(error.into()))
}

fn not_started() -> Problem {
    Problem::new(Code::InvalidState, "the command is not started yet")
        .remedied_by("repeat it in a moment")
}

/// What the inputs of all workflows that run a command have in common.
#[derive(Deserialize)]
struct RecordedInput {
    request: RecordedRequest,
}

#[derive(Deserialize)]
struct RecordedRequest {
    execute: Execute,
    #[serde(default)]
    terminal: Option<Terminal>,
    #[serde(default)]
    input: bool,
}

fn to_command(info: WorkflowInfo) -> Option<CommandInfo> {
    let detached = info.name == output::NAME;
    let RecordedInput { request } = serde_json::from_value(info.input.clone()).ok()?;
    let RecordedRequest { execute, terminal, input } = request;
    let (created, ended) = (info.created_at, info.completed_at);
    let workflow_id = OperationId(info.id.as_str().to_owned());
    let record = operation::to_info(info);
    let end: Option<OutputEnd> =
        record.result.and_then(|result| serde_json::from_value(result).ok());
    Some(CommandInfo {
        id: workflow_id.short().to_owned(),
        workflow_id,
        sandbox_id: execute.sandbox_id,
        command: execute.command,
        status: record.status,
        detached,
        terminal: terminal.is_some() || execute.terminal.is_some(),
        input: input || execute.input || execute.terminal.is_some(),
        created_at: timestamp(created),
        ended_at: ended.map(timestamp),
        ending: end.as_ref().map(|end| end.ending),
        exit_code: end.and_then(|end| end.exit_code),
    })
}
