//! The effect of an answer to a run: whether the run has used it, and whether what was decided has happened.

use std::time::{Duration, Instant};

use serde_json::Value;
use stockade_api::{Follow, RunById, Wait};
use stockade_core::{Code, Problem};

use crate::problem::Failure;
use crate::remote::Remote;

/// How long to wait for the effect. A run that takes longer uses the answer later.
const LONGEST: Duration = Duration::from_secs(10);
/// How long one request may wait for its response.
const WAIT_MS: u32 = 2_000;
/// The events of a task with which an answer to it has had its effect.
const EFFECTS: [&str; 11] = [
    "ApprovalDenied",
    "ApprovalGranted",
    "NodeFailed",
    "NodeFinished",
    "NodeRetrying",
    "NodeSkipped",
    "SandboxCompleted",
    "SandboxDiffAccepted",
    "SandboxDiffRejected",
    "SandboxFailed",
    "SandboxResumed",
];

/// Waits for the effect of an answer to a task, in the events from a number on.
///
/// # Errors
/// If the run has not accepted the answer: it waits for another one.
pub(super) async fn wait(
    remote: &Remote,
    (run, task): (&str, &str),
    mut from: i64,
) -> Result<(), Failure> {
    let deadline = Instant::now() + LONGEST;
    // The first part is the task of this run; what follows is in its child or sandbox.
    let node = task.split('/').next().unwrap_or(task);
    while Instant::now() < deadline {
        let request = Follow { id: run.to_owned(), from, wait_ms: WAIT_MS, known_status: None };
        let news = remote.workflows.follow(remote.caller(), request).await?;
        from = news.next;
        for event in &news.events {
            let text = |name: &str| event[name].as_str().unwrap_or_default();
            let id = text("nodeId");
            if id != node && id.split("@@").next() != Some(node) {
                continue;
            }
            match text("type") {
                "AnswerRefused" => return Err(refused(run, task, event).into()),
                "SandboxDiffNotApplied" => return Err(not_applied(run, task, event).into()),
                kind if EFFECTS.contains(&kind) => return Ok(()),
                _ => {}
            }
        }
        if news.run.status.is_terminal() {
            return Ok(());
        }
    }
    Ok(())
}

/// The task that waits for a signal; `None` if none does.
pub(super) async fn receiver(
    remote: &Remote,
    run: &str,
    name: &str,
) -> Result<Option<String>, Failure> {
    let request = RunById { id: run.to_owned() };
    let waits = remote.workflows.inspect(remote.caller(), request).await?.waits;
    let is_it = |wait: &&Wait| {
        matches!(wait, Wait::Signal { .. }) && wait.answer_name().as_deref() == Some(name)
    };
    Ok(waits.iter().find(is_it).map(|wait| wait.node().to_owned()))
}

fn message_of(event: &Value) -> String {
    event["error"]["message"].as_str().unwrap_or_default().to_owned()
}

fn refused(run: &str, task: &str, event: &Value) -> Problem {
    let message = format!("\"{task}\" of run {run} does not accept this answer");
    Problem::new(Code::InvalidInput, message)
        .because(message_of(event))
        .remedied_by(format!("stockade inspect {run}"))
}

fn not_applied(run: &str, task: &str, event: &Value) -> Problem {
    let message = format!("the changes of \"{task}\" of run {run} were approved, but not applied");
    Problem::new(Code::BundleConflict, message)
        .because(message_of(event))
        .remedied_by(format!("stockade approve {run} {task}"))
}
