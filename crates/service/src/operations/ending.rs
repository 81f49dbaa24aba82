//! How a sandbox ends. Its processes end first; then its changes become a bundle; only then are its
//! files removed. Each part may be repeated after a crash: processes that have ended stay ended, and
//! changes that are in a bundle do not become another one.

use stockade_api::Result;
use stockade_core::event::{EndReason, Payload, Reason};
use stockade_core::{Code, Problem, State};
use stockade_durable::Statement;
use stockade_runtime::Error;

use super::collect::{self, NextStep};
use crate::events;
use crate::failure::runtime_problem;
use crate::inner::Inner;
use crate::store::sandboxes::SandboxRow;

/// Ends the processes of a sandbox. Its files stay where they are.
pub(crate) async fn end_processes(inner: &Inner, row: &SandboxRow) -> Result<()> {
    if !matches!(row.state, State::Running | State::Paused) {
        return Ok(());
    }
    let runtime = inner.runtime(&row.runtime)?;
    match inner.with_deadline(runtime.end(&row.id)).await {
        Ok(()) | Err(Error::NoSandbox(_)) => {}
        Err(error) => return Err(runtime_problem(&error)),
    }
    inner.leave(&row.id).await;
    inner.activity.forget(&row.id);
    Ok(())
}

/// Makes a bundle of the changes of a sandbox whose processes have ended, unless there is one.
/// Returns its id: none if nothing has changed, or if this server stores no bundles of the owner.
pub(crate) async fn bundle(
    inner: &Inner,
    row: &SandboxRow,
    next: NextStep,
) -> Result<Option<String>> {
    if row.is_bundled {
        return Ok(row.bundle.clone());
    }
    match inner.home(&row.owner) {
        Some(home) if has_changes_to_store(inner, row) => {
            let bundle = collect::remaining(inner, home, row, next).await;
            bundle.map_err(|problem| not_stored(row, problem))
        }
        _ => Ok(None),
    }
}

/// Whether a sandbox may have changes of which this server can make a bundle.
pub(crate) fn has_changes_to_store(inner: &Inner, row: &SandboxRow) -> bool {
    let has_files = match row.state {
        State::Running | State::Paused | State::Stopped => true,
        State::New | State::Creating | State::Error | State::Terminated => row.files.is_some(),
    };
    has_files && row.request.workspace.is_some() && inner.home(&row.owner).is_some()
}

/// The problem of changes that could not be stored: the files are still there.
fn not_stored(row: &SandboxRow, problem: Problem) -> Problem {
    let why = match &problem.cause {
        Some(cause) => format!("{}: {cause}", problem.message),
        None => problem.message.clone(),
    };
    let message = format!("the changes of the sandbox {} could not be stored as a bundle", row.id);
    let discard = format!("stockade kill --discard {}", row.id);
    let remedy = match &problem.remediation {
        // It frees space, and the general remedy is what has just failed.
        _ if problem.code == Code::StorageFull => discard,
        remedy => remedy.clone().unwrap_or(discard),
    };
    Problem { message, ..problem }
        .because(format!("{why}; its files remain, and `kill --discard` removes them"))
        .remedied_by(remedy)
}

/// The statements that record that the changes of a sandbox that is to be terminated could not be
/// stored: it is stopped with its files.
pub(crate) fn kept(
    operation: &str,
    row: &mut SandboxRow,
    reason: Reason,
    problem: &Problem,
) -> Vec<Statement> {
    if matches!(row.state, State::Running | State::Paused) {
        stopped(operation, row, reason, Some(problem))
    } else {
        vec![row.change(row.state, Some(why(reason, Some(problem))))]
    }
}

/// The statements that record that a sandbox has stopped, by the operation with that id. `problem`
/// is why there is no bundle of its changes.
pub(crate) fn stopped(
    operation: &str,
    row: &mut SandboxRow,
    reason: Reason,
    problem: Option<&Problem>,
) -> Vec<Statement> {
    let bundle = row.bundle.clone();
    // An operation stops a sandbox more than once: the generation distinguishes the events.
    let operation = format!("{operation}:{}", row.generation);
    let change = row.change(State::Stopped, Some(why(reason, problem)));
    let payload = Payload::SandboxStopped(EndReason { reason, bundle });
    vec![change, events::statement(&operation, row, payload)]
}

/// The reason of a state, in words.
pub(crate) fn why(reason: Reason, problem: Option<&Problem>) -> String {
    match problem {
        None => reason.as_str().to_owned(),
        Some(problem) => {
            let cause = problem.cause.as_ref().map(|cause| format!(": {cause}"));
            format!("{reason}; {}{}", problem.message, cause.unwrap_or_default())
        }
    }
}

/// The statements that record that its changes are in a bundle, before any file is removed.
pub(crate) fn bundled(row: &mut SandboxRow, bundle: Option<String>) -> Statement {
    row.bundle = bundle;
    row.is_bundled = true;
    row.change(row.state, row.reason.clone())
}
