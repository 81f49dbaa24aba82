//! Follows a run: prints its events, and finally its result.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use stockade_api::{Follow, Inspection, Run, RunById, RunStatus, RunUpdate, SandboxInfo, Wait};

use stockade_core::Code;

use super::holder;
use super::live::Live;
use crate::commands::print::{escaped, notify, print, print_line};
use crate::problem::Failure;
use crate::remote::Remote;

/// How long one request may wait for its response.
pub const WAIT_MS: u32 = 20_000;
/// The same where the list of tasks is shown with their times.
const LIVE_WAIT_MS: u32 = 1_000;
/// A run that continues by itself within this time is still followed.
const SHORT_WAIT: Duration = Duration::from_secs(30);

/// Prints the events of a run, starting with event `from`, until it has ended or waits for
/// others. Returns the exit code, and the number of the next event. `first_wait_ms` is how long to wait
/// for the first event.
pub async fn follow_to_end(
    remote: &Remote,
    id: &str,
    from: i64,
    first_wait_ms: u32,
    is_json: bool,
) -> Result<(u8, i64), Failure> {
    let mut followed = follow_one(remote, id, from, first_wait_ms, is_json).await?;
    // A run that ends with <ContinueAsNew> continues as another one.
    while let Some(id) = followed.continued_as {
        followed = follow_one(remote, &id, 0, WAIT_MS, is_json).await?;
    }
    Ok((print_outcome(remote, followed.run, is_json).await?, followed.next))
}

/// A run that has ended or waits.
struct Followed {
    run: Run,
    /// The number of its next event.
    next: i64,
    /// The run that continues it.
    continued_as: Option<String>,
}

/// The same for one run, without its result.
async fn follow_one(
    remote: &Remote,
    id: &str,
    from: i64,
    first_wait_ms: u32,
    is_json: bool,
) -> Result<Followed, Failure> {
    let live = if is_json { None } else { Live::start().map(RefCell::new) };
    let follow = async |from, wait_ms, known_status| {
        let mut longest: u32 = wait_ms;
        if let Some(live) = &live {
            live.borrow_mut().draw();
            longest = longest.min(LIVE_WAIT_MS);
        }
        let request = Follow { id: id.to_owned(), from, wait_ms: longest, known_status };
        match remote.workflows.follow(remote.caller(), request.clone()).await {
            // The process that had the key of the server of the run has ended.
            Err(problem) if problem.code == Code::Unauthenticated => {
                let run =
                    remote.workflows.run(remote.caller(), RunById { id: id.to_owned() }).await?;
                match holder::give_key(remote, &run).await? {
                    true => Ok(remote.workflows.follow(remote.caller(), request).await?),
                    false => Err(problem.into()),
                }
            }
            followed => Ok(followed?),
        }
    };
    let (mut has_bundles, mut continued_as) = (false, None);
    let print = |event: &Value| {
        continued_as = new_run(event).or_else(|| continued_as.take());
        has_bundles |= event["type"] == "NodeBundle";
        if let Some(live) = &live {
            let mut live = live.borrow_mut();
            if live.take(event) {
                return Ok(());
            }
            live.clear();
        }
        print_event(event, is_json)
    };
    let (run, next) = read_to_end(follow, (from, first_wait_ms), print).await?;
    if has_bundles && !is_json && run.status.is_terminal() {
        print_bundles(remote, &run).await?;
    }
    Ok(Followed { run, next, continued_as })
}

/// Reads events until the run cannot proceed by itself and there are no more events. The state is read
/// before the events, so events that come with the last state may not be all: only a read without
/// events ends it.
async fn read_to_end(
    follow: impl AsyncFn(i64, u32, Option<RunStatus>) -> Result<RunUpdate, Failure>,
    (from, first_wait_ms): (i64, u32),
    mut print: impl FnMut(&Value) -> Result<(), Failure>,
) -> Result<(Run, i64), Failure> {
    let (mut next, mut wait_ms, mut known_status) = (from, first_wait_ms, None);
    loop {
        let RunUpdate { run, events, next: after } = follow(next, wait_ms, known_status).await?;
        next = after;
        known_status = Some(run.status);
        for event in &events {
            print(event)?;
        }
        let is_over = run.status.is_terminal() || is_waiting(&run);
        if is_over && events.is_empty() {
            return Ok((run, next));
        }
        wait_ms = if is_over { 0 } else { WAIT_MS };
    }
}

/// The number of the next event of a run.
pub async fn next_event(remote: &Remote, id: &str) -> Result<i64, Failure> {
    Ok(recorded(remote, id).await?.0)
}

/// The last of the runs that continue a run, and the number of its next event.
pub async fn last_continuation(remote: &Remote, id: &str) -> Result<(String, i64), Failure> {
    let mut id = id.to_owned();
    loop {
        match recorded(remote, &id).await? {
            (_, Some(next)) => {
                notify(&format!("run {id} continued as {next}"));
                id = next;
            }
            (next, None) => return Ok((id, next)),
        }
    }
}

/// The number of the next event of a run, and the run that continues it.
async fn recorded(remote: &Remote, id: &str) -> Result<(i64, Option<String>), Failure> {
    let (mut next, mut continued_as) = (0, None);
    loop {
        let request = Follow { id: id.to_owned(), from: next, wait_ms: 0, known_status: None };
        let news = remote.workflows.follow(remote.caller(), request).await?;
        continued_as = news.events.iter().find_map(new_run).or(continued_as);
        if news.next == next {
            return Ok((next, continued_as));
        }
        next = news.next;
    }
}

/// The run that continues the run of an event.
fn new_run(event: &Value) -> Option<String> {
    let is_new = event["type"] == "RunContinuedAsNew";
    event["newRunId"].as_str().filter(|_| is_new).map(str::to_owned)
}

/// Whether a run waits for others, or for a long time.
fn is_waiting(run: &Run) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + SHORT_WAIT;
    let soon = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
    run.status == RunStatus::Waiting && run.wake_at.is_none_or(|at| at.as_ms() > soon)
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
        "TaskHeartbeat" => {
            if let Some(warning) = event["data"]["warning"].as_str() {
                notify(&format!("! {}: {}", id(), escaped(warning)));
            }
        }
        "RunContinuedAsNew" => notify(&format!("the run continues as {}", text("newRunId"))),
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

/// Reports the changes of agents that wait for a decision.
async fn print_bundles(remote: &Remote, run: &Run) -> Result<(), Failure> {
    let request = RunById { id: run.id.clone() };
    let tasks = remote.workflows.inspect(remote.caller(), request).await?.tasks;
    let mut bundles: Vec<&str> = tasks.iter().filter_map(|task| task.bundle.as_deref()).collect();
    bundles.sort_unstable();
    bundles.dedup();
    for bundle in bundles {
        notify(&format!(
            "the changes of its agents wait for a decision: stockade diff {bundle}, stockade apply {bundle}"
        ));
    }
    Ok(())
}

async fn print_waits(remote: &Remote, run: &Run) -> Result<(), Failure> {
    let request = RunById { id: run.id.clone() };
    let Inspection { waits, sandboxes, .. } =
        remote.workflows.inspect(remote.caller(), request).await?;
    for wait in &waits {
        notify(&format!("run {}: {}", run.id, describe_wait(&run.id, wait)));
        for bundle in changes_to_review(wait, &sandboxes) {
            let node = escaped(wait.node());
            notify(&format!("run {}: {node} has changed files: stockade diff {bundle}", run.id));
        }
    }
    Ok(())
}

/// The bundles that a wait for a decision is about.
fn changes_to_review<'a>(
    wait: &'a Wait,
    sandboxes: &'a [SandboxInfo],
) -> impl Iterator<Item = &'a str> {
    let reviewed = sandboxes.iter().filter(move |sandbox| {
        matches!(wait, Wait::Approval { .. })
            && sandbox.status == "review"
            && (sandbox.sandbox_id.as_str(), sandbox.iteration) == (wait.node(), wait.iteration())
    });
    reviewed.flat_map(|sandbox| &sandbox.bundles).map(String::as_str)
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
            format!(
                "{node} waits for a decision{details}: stockade approve {run} {word}, or stockade deny {run} {word}"
            )
        }
        Wait::Signal { correlation, .. } => {
            let name = wait.answer_name().unwrap_or_default();
            let which =
                correlation.as_ref().map(|id| format!(" --correlation-id {}", shell_word(id)));
            let (name, which) = (shell_word(&name), which.unwrap_or_default());
            format!("{node} waits for a signal: stockade signal {run} {name}{which} --payload JSON")
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
    use std::collections::VecDeque;

    use super::*;

    /// What a server responds, one after the other: the status and the events.
    fn read(script: &[(&str, &[&str])]) -> (Vec<String>, Vec<u32>) {
        let run = |status: &str| {
            serde_json::from_value::<Run>(json!({
                "id": "r", "name": "w", "file": "/w.tsx", "program": "p", "status": status,
                "input": null, "createdAt": 0, "updatedAt": 0,
            }))
        };
        let script: VecDeque<_> = script.iter().copied().collect();
        let (script, waits) = (RefCell::new(script), RefCell::new(Vec::new()));
        let follow = async |from: i64, wait_ms, _| {
            let (status, events) = script.borrow_mut().pop_front().expect("it reads on");
            waits.borrow_mut().push(wait_ms);
            let events: Vec<_> = events.iter().map(|kind| json!({ "type": kind })).collect();
            let next = from + i64::try_from(events.len()).unwrap();
            Ok(RunUpdate { run: run(status).unwrap(), events, next })
        };
        let mut printed = Vec::new();
        let reading = read_to_end(follow, (0, 7), |event| {
            printed.push(event["type"].as_str().unwrap().to_owned());
            Ok(())
        });
        let reading = block_on(reading);
        reading.unwrap();
        (printed, waits.into_inner())
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    #[test]
    fn all_events_are_read_before_a_run_counts_as_ended() {
        let (printed, waits) = read(&[
            ("running", &["RunStarted"]),
            ("running", &["NodeFinished", "RunFinished"]),
            ("finished", &[]),
        ]);
        assert_eq!(printed, ["RunStarted", "NodeFinished", "RunFinished"]);
        assert_eq!(waits, [7, WAIT_MS, WAIT_MS]);
        // The end was committed after the events were read, or they did not fit into one response.
        let (printed, waits) = read(&[
            ("finished", &["RunStarted"]),
            ("finished", &["NodeFinished", "RunFinished"]),
            ("finished", &[]),
        ]);
        assert_eq!(printed, ["RunStarted", "NodeFinished", "RunFinished"]);
        assert_eq!(waits, [7, 0, 0]);
    }

    #[test]
    fn a_run_that_waited_is_followed_when_it_goes_on_meanwhile() {
        let (printed, _) = read(&[
            ("waiting", &["RunWaiting"]),
            ("running", &["RunRunning"]),
            ("finished", &["RunFinished"]),
            ("finished", &[]),
        ]);
        assert_eq!(printed, ["RunWaiting", "RunRunning", "RunFinished"]);
    }

    #[test]
    fn what_is_to_be_typed_is_what_it_says_and_nothing_else() {
        let approval = |node: &str| {
            let wait = serde_json::json!({ "kind": "approval", "node": node });
            describe_wait("r", &serde_json::from_value(wait).unwrap())
        };
        assert!(
            approval("box/deploy")
                .ends_with(": stockade approve r box/deploy, or stockade deny r box/deploy")
        );
        let text = approval("box/x; touch y $(z) 'w'");
        let word = "'box/x; touch y $(z) '\\''w'\\'''";
        let expected = format!(": stockade approve r {word}, or stockade deny r {word}");
        assert!(text.ends_with(&expected), "{text}");
    }

    #[test]
    fn a_decision_is_about_the_changes_of_its_sandbox() {
        let wait: Wait =
            serde_json::from_value(json!({ "kind": "approval", "node": "edit", "iteration": 1 }))
                .unwrap();
        let sandbox = |iteration: u32, status: &str| {
            let found = json!({
                "sandboxId": "edit", "iteration": iteration, "attempt": 1, "runtime": "native",
                "config": {}, "status": status, "createdAt": 0, "bundles": [format!("b{iteration}")],
            });
            serde_json::from_value::<SandboxInfo>(found).unwrap()
        };
        let sandboxes = [sandbox(0, "review"), sandbox(1, "review")];
        assert_eq!(changes_to_review(&wait, &sandboxes).collect::<Vec<_>>(), ["b1"]);
        assert_eq!(changes_to_review(&wait, &[sandbox(1, "finished")]).count(), 0);
    }
}
