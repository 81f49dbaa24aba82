//! Follows a run: prints its events, and finally its result.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use stockade_api::{Follow, Run, RunById, RunStatus, RunUpdate, Wait};

use crate::commands::print::{escaped, notify, print, print_line};
use crate::problem::Failure;
use crate::remote::Remote;

/// How long one request may wait for its response.
pub const WAIT_MS: u32 = 20_000;
/// A run that continues by itself within this time is still followed.
const SHORT_WAIT: Duration = Duration::from_secs(30);

/// Prints the events of a run, starting with event `from`, until it has ended or waits for
/// others. Returns the exit code. `first_wait_ms` is how long to wait for the first event.
pub async fn follow_to_end(
    remote: &Remote,
    id: &str,
    from: i64,
    first_wait_ms: u32,
    is_json: bool,
) -> Result<u8, Failure> {
    let (mut next, mut wait_ms) = (from, first_wait_ms);
    loop {
        let request = Follow { id: id.to_owned(), from: next, wait_ms };
        let news = remote.workflows.follow(remote.caller(), request).await?;
        let RunUpdate { run, events, next: after } = news;
        (next, wait_ms) = (after, WAIT_MS);
        for event in &events {
            print_event(event, is_json)?;
        }
        let is_late = events.len() >= 1_000;
        if !is_late && (run.status.is_terminal() || is_waiting(&run)) {
            return print_outcome(remote, run, is_json).await;
        }
    }
}

/// The number of the next event of a run.
pub async fn next_event(remote: &Remote, id: &str) -> Result<i64, Failure> {
    let mut next = 0;
    loop {
        let request = Follow { id: id.to_owned(), from: next, wait_ms: 0 };
        let news = remote.workflows.follow(remote.caller(), request).await?;
        if news.next == next {
            return Ok(next);
        }
        next = news.next;
    }
}

/// Whether a run waits for others, or for a long time.
fn is_waiting(run: &Run) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + SHORT_WAIT;
    let soon = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
    run.status == RunStatus::Waiting && run.wake_at.is_none_or(|at| at > soon)
}

fn print_event(event: &Value, is_json: bool) -> Result<(), Failure> {
    if is_json {
        return print_line(event);
    }
    let text = |name: &str| escaped(event[name].as_str().unwrap_or_default());
    let attempt = event["attempt"].as_u64().unwrap_or(1);
    let message = || escaped(event["error"]["message"].as_str().unwrap_or_default());
    let id = || match event["iteration"].as_u64() {
        Some(iteration) if iteration > 0 => format!("{} #{iteration}", text("nodeId")),
        _ => text("nodeId"),
    };
    match event["type"].as_str().unwrap_or_default() {
        "RunStarted" => {
            notify(&format!("run {} of {}", text("runId"), text("name")));
            if event["isolation"]["namespaces"] == false {
                notify(
                    "inside another sandbox: the process of the workflow file has no namespaces of its own, only a seccomp filter and Landlock",
                );
            }
        }
        "NodeStarted" => notify(&format!("→ {} (attempt {attempt})", id())),
        "NodeFinished" if event["cacheHit"] == true => notify(&format!("✓ {} (cached)", id())),
        "NodeFinished" => notify(&format!("✓ {}", id())),
        "NodeSkipped" => notify(&format!("- {}", id())),
        "NodeFailed" => notify(&format!("✗ {} (attempt {attempt}): {}", id(), message())),
        "NodeRetrying" => {
            notify(&format!("↻ {} failed (attempt {attempt}): {}", id(), message()));
        }
        "NodeWaiting" => notify(&format!("… {} ({})", id(), text("status"))),
        "Log" => notify(&format!("[{}] {}", text("level"), text("message"))),
        _ => {}
    }
    Ok(())
}

/// Prints the result of a run; returns the exit code.
pub async fn print_outcome(remote: &Remote, run: Run, is_json: bool) -> Result<u8, Failure> {
    if is_json {
        print_line(&json!({ "type": "Run", "run": run }))?;
    } else {
        match run.status {
            RunStatus::Finished => print(&run.output.clone().unwrap_or_default())?,
            RunStatus::Waiting | RunStatus::Running => print_waits(remote, &run).await?,
            RunStatus::Failed => print_error(&run),
            RunStatus::Cancelled => notify(&format!("run {} was cancelled", run.id)),
        }
    }
    Ok(exit_code(run.status))
}

/// 0 for finished, 1 for failed, 2 for cancelled, 3 for waiting.
pub const fn exit_code(status: RunStatus) -> u8 {
    match status {
        RunStatus::Finished => 0,
        RunStatus::Failed => 1,
        RunStatus::Cancelled => 2,
        RunStatus::Waiting | RunStatus::Running => 3,
    }
}

fn print_error(run: &Run) {
    let error = run.error.clone().unwrap_or_default();
    let text = |name: &str| escaped(error[name].as_str().unwrap_or_default());
    let task = error["task"].as_str().map(|task| format!(" at task {}", escaped(task)));
    notify(&format!(
        "run {} failed{}: {} [{}]",
        run.id,
        task.unwrap_or_default(),
        text("message"),
        text("code")
    ));
    for frame in error["frames"].as_array().map(Vec::as_slice).unwrap_or_default() {
        notify(&format!("    {}", escaped(frame.as_str().unwrap_or_default())));
    }
}

async fn print_waits(remote: &Remote, run: &Run) -> Result<(), Failure> {
    let request = RunById { id: run.id.clone() };
    let waits = remote.workflows.inspect(remote.caller(), request).await?.waits;
    for wait in &waits {
        notify(&format!("run {}: {}", run.id, describe_wait(&run.id, wait)));
    }
    Ok(())
}

/// What a run waits for, and how to continue it.
pub fn describe_wait(run: &str, wait: &Wait) -> String {
    let node = escaped(wait.node());
    match wait {
        Wait::Approval { title, summary, .. } => {
            let texts = [title, summary].into_iter().flatten().map(|text| escaped(text));
            let details = texts.collect::<Vec<_>>().join(" ");
            let details = if details.is_empty() { details } else { format!(" ({details})") };
            let word = shell_word(wait.node());
            format!("{node} waits for a decision{details}: stockade approve {run} {word}, or deny")
        }
        Wait::Signal { correlation, .. } => {
            let name = wait.answer_name().unwrap_or_default();
            let which =
                correlation.as_ref().map(|id| format!(" --correlation-id {}", shell_word(id)));
            let (name, which) = (shell_word(&name), which.unwrap_or_default());
            format!("{node} waits for a signal: stockade signal {run} {name}{which}")
        }
        Wait::Sandbox { .. } => format!("{node} waits for the host to make its sandbox"),
        Wait::Timer { due_ms, .. } => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let due = u64::try_from(due_ms / 1000).unwrap_or_default();
            format!("{node} waits for a timer, {} s left", due.saturating_sub(now))
        }
    }
}

/// Quotes a text as one shell word. The text is untrusted: a child in a sandbox chooses what it
/// waits for.
fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@+=,".contains(&byte);
    let text = escaped(text);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_typed_is_what_it_says_and_nothing_else() {
        let approval = |node: &str| {
            let wait = serde_json::json!({ "kind": "approval", "node": node });
            describe_wait("r", &serde_json::from_value(wait).unwrap())
        };
        assert!(approval("box/deploy").ends_with(": stockade approve r box/deploy, or deny"));
        let text = approval("box/x; touch y $(z) 'w'");
        let word = "'box/x; touch y $(z) '\\''w'\\'''";
        assert!(text.ends_with(&format!(": stockade approve r {word}, or deny")), "{text}");
    }
}
