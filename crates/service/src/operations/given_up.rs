//! `kill` of a sandbox whose server was given up. Any other server ends its record, so that its id is free
//! and it counts for no quota any more. What is left of it on the machine that does not answer is removed by
//! its own server, if that comes back.

use stockade_api::{Result, Sandbox};
use stockade_core::event::{EndReason, Payload, Reason};
use stockade_core::{Code, Problem, State};
use stockade_durable::Context;

use super::lifecycle;
use crate::events;
use crate::failure::{runtime_problem, store_problem};
use crate::inner::Inner;
use crate::store::hosts;
use crate::store::sandboxes::{self, SandboxRow};

/// Ends the record of a sandbox whose server was given up. A conflict if that is back when the end is
/// recorded.
pub(crate) fn terminate(context: &Context, mut row: SandboxRow, discard: bool) -> Result<Sandbox> {
    if row.state.is_terminal() {
        return Ok(row.to_sandbox(None));
    }
    let may_have_changes = row.damaged || row.request.workspace.is_some() && !row.is_bundled;
    if may_have_changes && !discard {
        return Err(changes_are_there(&row));
    }
    let remains = remains(&row.host);
    let (files, bundle) = (row.files.clone(), row.bundle.clone());
    let end = row.change(State::Terminated, Some(remains.clone()));
    let payload = Payload::SandboxKilled(EndReason { reason: Reason::HostLost, bundle });
    let event = events::statement(context.id().as_str(), &row, payload);
    let files = sandboxes::set_left_files(&row.id, files.as_ref(), &remains);
    context.finish_with(vec![hosts::expect_given_up(&row.host), end, files, event]);
    Ok(row.to_sandbox(None))
}

/// The start of the reason of a sandbox whose server has still to remove what it has of it.
fn remains_prefix() -> String {
    format!("{}; ", Reason::HostLost)
}

fn remains(host: &str) -> String {
    format!(
        "{}its server {host} does not answer: processes and files of the sandbox may still be on that \
         machine, and are removed when the server is back",
        remains_prefix()
    )
}

fn changes_are_there(row: &SandboxRow) -> Problem {
    let message = format!("the sandbox {} may have changes that are in no bundle", row.id);
    Problem::new(Code::Unreachable, message)
        .because(format!("they are on the machine of the server {}, which was given up", row.host))
        .remedied_by(format!(
            "start that server again, or give up the changes: stockade kill --discard {}",
            row.id
        ))
}

/// Removes what this server still has of sandboxes that have ended while it was given up. What cannot be
/// removed now is removed by the next sweep.
pub(crate) async fn remove_remains(inner: &Inner) {
    if inner.options.cluster.is_none() {
        return;
    }
    let (store, host) = (&*inner.store, inner.host());
    let ended = match sandboxes::ended_elsewhere(store, host, &remains_prefix()).await {
        Ok(ended) => ended,
        Err(problem) => {
            tracing::warn!(problem = problem.message, "what was given up is not known");
            return;
        }
    };
    for row in ended {
        if let Err(problem) = remove(inner, &row).await {
            tracing::warn!(sandbox = %row.id, problem = problem.message, "not removed after its end");
        }
    }
}

async fn remove(inner: &Inner, ended: &SandboxRow) -> Result<()> {
    let mut row = ended.clone();
    if let Some(id) = &ended.request.id {
        // Since its end, another one may have got its id.
        row.id = id.clone();
    }
    // While another one with its id is being started, the next sweep removes it.
    let Some(_driver) = inner.locks.try_lock(&row.id) else { return Ok(()) };
    let current = sandboxes::find(&*inner.store, &row.id).await?;
    let has_follower =
        current.is_some_and(|current| current.host == inner.host() && !current.state.is_terminal());
    if has_follower {
        // It was created without what was left in its place.
        if let Some(files) = &row.files {
            let removed = inner.with_deadline(inner.runtime(&row.runtime)?.remove_snapshot(files));
            removed.await.map_err(|error| runtime_problem(&error))?;
        }
    } else if let Some(leak) = lifecycle::release(inner, &row).await {
        return Err(Problem::new(Code::Unreachable, leak));
    }
    let reason = Reason::HostLost.as_str();
    let done = sandboxes::set_left_files(&ended.id, None, reason);
    inner.store.execute(vec![done]).await.map_err(store_problem)
}
