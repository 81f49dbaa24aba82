//! The output of `stockade events` and `stockade logs` for a run.

use std::io::Write as _;

use serde_json::Value;
use stockade_api::Follow;
use stockade_core::Time;

use super::find_exact;
use crate::commands::print::{escaped, notify, print_line, print_text};
use crate::problem::Failure;
use crate::remote::Remote;

/// How long one request may wait for its response.
const WAIT_MS: u32 = 20_000;

/// Which events of a run are printed, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventFilter<'a> {
    /// The first event to print, counted from 0.
    pub(crate) from: i64,
    /// Whether to wait for future events, until the run has ended.
    pub(crate) follow: bool,
    /// Whether to print only what the workflow wrote to its console, and the commands of its tasks to
    /// their streams, unchanged.
    pub(crate) console: bool,
    /// Print only events of this task.
    pub(crate) task: Option<&'a str>,
    /// Print only events of this kind or type.
    pub(crate) kind: Option<&'a str>,
    /// Whether to print one JSON object per line.
    pub(crate) json: bool,
}

/// Whether the type of an event is this one, or of this kind: a prefix of the type.
pub(crate) fn is_of_kind(name: &str, kind: &str) -> bool {
    let plain = |text: &str| text.replace(['-', '_', '.'], "").to_lowercase();
    plain(name).starts_with(&plain(kind))
}

/// Prints the events of a run; `false` when no run has the name.
pub(crate) async fn print_events(
    remote: &Remote,
    name: &str,
    wanted: EventFilter<'_>,
) -> Result<bool, Failure> {
    let Some(run) = find_exact(remote, name).await? else { return Ok(false) };
    let mut from = wanted.from;
    loop {
        let wait_ms = if wanted.follow { WAIT_MS } else { 0 };
        let request = Follow { id: run.id.clone(), from, wait_ms, known_status: None };
        let news = remote.workflows.follow(remote.caller(), request).await?;
        let is_all = news.events.is_empty();
        for (number, event) in (from..).zip(&news.events) {
            print(number, event, wanted)?;
        }
        from = news.next;
        if is_all && (!wanted.follow || news.run.status.is_terminal()) {
            return Ok(true);
        }
    }
}

fn print(number: i64, event: &Value, wanted: EventFilter<'_>) -> Result<(), Failure> {
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    if wanted.console && !matches!(text("type"), "Log" | "TaskOutput") {
        return Ok(());
    }
    let node = text("nodeId").split("@@").next().unwrap_or_default();
    if wanted.task.is_some_and(|task| task != text("nodeId") && task != node) {
        return Ok(());
    }
    if wanted.kind.is_some_and(|kind| !is_of_kind(text("type"), kind)) {
        return Ok(());
    }
    if wanted.json {
        return print_line(event);
    }
    if wanted.console && text("type") == "TaskOutput" {
        if let Some(bytes) = event["omittedBytes"].as_u64() {
            notify(&format!("{bytes} bytes of {} of {node} were not stored", text("stream")));
        }
        if text("stream") == "stdout" {
            return print_text(text("text"));
        }
        // If stderr has no reader, the failure cannot be reported.
        drop(std::io::stderr().write_all(text("text").as_bytes()));
        return Ok(());
    }
    if wanted.console {
        let line = format!("{}\n", text("message"));
        if text("level") == "log" {
            return print_text(&line);
        }
        // If stderr has no reader, the failure cannot be reported.
        drop(std::io::stderr().write_all(line.as_bytes()));
        return Ok(());
    }
    let at = text("at").parse::<Time>().map(|at| format!("{at:.0}")).unwrap_or_default();
    let node = event["sandboxId"].as_str().or_else(|| event["nodeId"].as_str());
    let node = node.map(|node| format!("  {}", escaped(node)));
    let error = event["error"]["message"].as_str().map(|message| format!("  {}", escaped(message)));
    let (node, error) = (node.unwrap_or_default(), error.unwrap_or_default());
    print_text(&format!("{number:>6}  {at}  {}{node}{error}\n", text("type")))
}
