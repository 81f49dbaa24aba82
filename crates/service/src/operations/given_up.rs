//! `kill` of a sandbox whose server was given up. Any other server ends its record, so that its id is free
//! and it counts for no quota any more. What is left of it on the machine that does not answer is removed by
//! its own server, if that comes back (`remains`).

use stockade_api::{Result, Sandbox};
use stockade_core::event::{EndReason, Payload, Reason};
use stockade_core::{Code, Problem, State};
use stockade_durable::Context;

use crate::events;
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
pub(crate) fn remains_prefix() -> String {
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
