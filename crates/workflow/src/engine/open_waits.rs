//! The events from outside that runs wait for, in their own tasks, in those of their descendants, and
//! in the children in their sandboxes; with the run and the name that an answer must have.

use std::collections::HashMap;

use futures_util::future::BoxFuture;
use serde_json::Value as Json;
use stockade_api::{TaskInfo, TaskStatus, Wait};
use stockade_core::Time;
use stockade_durable::{Error, Store};

use crate::schedule::Key;
use crate::store::answers::Question;
use crate::store::sandboxes::{self, Pause};
use crate::store::{events, runs, tasks};

/// The maximum length of the displayed text of a question, in characters.
const MAX_CHARACTERS: usize = 1_000;

/// A wait for an event from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenWait {
    /// The run that receives an answer.
    pub(crate) run: String,
    /// The name of an answer in that run; `None` for a time.
    pub(crate) name: Option<String>,
    /// The question that a decision is about.
    pub(crate) question: Option<Question>,
    /// The JSON Schema of a signal's payload.
    pub(crate) schema: Option<Json>,
    /// The wait, with its address from the run that was listed.
    pub(crate) wait: Wait,
    /// Whether the wait is active at this moment. It is not while the child in a sandbox continues with
    /// another answer; it can be answered all the same.
    pub(crate) is_now: bool,
}

/// Identifies a question among those of a task: a decision about one is not valid for the next one,
/// which was not displayed yet.
pub(crate) fn question(key: &Key, attempts: u32) -> String {
    format!("{}.{attempts}", key.iteration)
}

/// Like `question`, for a question of the child in the sandbox of a task.
pub(crate) fn question_of_child(key: &Key, attempts: u32, wait: &Wait) -> String {
    format!("{}.{}", question(key, attempts), wait.iteration())
}

/// All waits of a run, in the order in which it uses answers.
pub(crate) fn list<'a>(
    store: &'a dyn Store,
    run: &'a str,
    mut tasks: Vec<TaskInfo>,
) -> BoxFuture<'a, Result<Vec<OpenWait>, Error>> {
    Box::pin(async move {
        tasks.retain(|task| task.finished_at.is_none());
        tasks.sort_by(|one, other| (&one.id, one.iteration).cmp(&(&other.id, other.iteration)));
        let mut found = Vec::new();
        let is_now = |task: &TaskInfo| task.status.is_waiting();
        let (has_sandboxes, has_own) =
            (tasks.iter().any(|task| task.kind == "sandbox"), tasks.iter().any(is_now));
        let paused = if has_sandboxes { sandboxes::pauses(store, run).await? } else { Vec::new() };
        let paused: HashMap<Key, Pause> = paused.into_iter().collect();
        let events = if has_own { events::last_waiting(store, run).await? } else { HashMap::new() };
        for task in &tasks {
            let key = Key { node: task.id.clone(), iteration: task.iteration };
            let pause = paused.get(&key);
            let waits = match pause {
                Some(pause) => waits_of_child(&key, pause),
                None if is_now(task) => vec![wait_of_task(task, events.get(&key))],
                None => Vec::new(),
            };
            let is_now = is_now(task);
            let open = |(name, wait)| {
                let question = matches!(wait, Wait::Approval { .. }).then(|| match pause {
                    Some(_) => Question::Child(question_of_child(&key, task.attempts, &wait)),
                    None => Question::Task(question(&key, task.attempts)),
                });
                let event = events.get(&key).filter(|_| matches!(wait, Wait::Signal { .. }));
                let schema = event.map(|event| event["schema"].clone()).filter(|it| !it.is_null());
                let schema = schema.filter(|_| pause.is_none());
                OpenWait { run: run.to_owned(), name, question, schema, wait, is_now }
            };
            found.extend(waits.into_iter().map(open));
        }
        for (id, outer) in open_children(store, run, &tasks).await? {
            let tasks = tasks::list(store, &id).await?;
            let inner = list(store, &id, tasks).await?;
            found.extend(
                inner.into_iter().map(|it| OpenWait { wait: it.wait.with_outer(&outer), ..it }),
            );
        }
        Ok(found)
    })
}

/// The unanswered waits of the child in a sandbox.
fn waits_of_child(key: &Key, pause: &Pause) -> Vec<(Option<String>, Wait)> {
    let is_answered = |wait: &&Wait| {
        pause.answers.iter().any(|answer| answer.origin() == (wait.node(), wait.iteration()))
    };
    let open = pause.waits.iter().filter(|wait| !wait.is_for_host() && !is_answered(wait));
    let seen = open.map(|wait| wait.clone().with_outer(&key.node));
    seen.map(|wait| (wait.answer_name(), wait)).collect()
}

/// The wait of a task itself. `event` is its last `NodeWaiting`.
fn wait_of_task(task: &TaskInfo, event: Option<&Json>) -> (Option<String>, Wait) {
    let (node, iteration, due_ms) =
        (task.id.clone(), task.iteration, task.wake_at.map(Time::as_ms));
    let text = |name: &str| event?[name].as_str().map(shortened);
    let label =
        Some(task.label.chars().take(MAX_CHARACTERS).collect()).filter(|label| *label != node);
    match task.status {
        TaskStatus::WaitingEvent if task.kind == "sandbox" => {
            let (attempt, request) = (task.attempts, text("request").unwrap_or_default());
            (None, Wait::Sandbox { node, iteration, attempt, request })
        }
        TaskStatus::WaitingEvent => {
            let name = text("signal").unwrap_or_else(|| node.clone());
            let correlation = text("correlationId");
            let wait =
                Wait::Signal { node, iteration, label, name: name.clone(), correlation, due_ms };
            (Some(name), wait)
        }
        TaskStatus::WaitingTimer => {
            (None, Wait::Timer { node, iteration, due_ms: due_ms.unwrap_or_default() })
        }
        _ => {
            let title = text("title");
            // The last decision was not applied.
            let failed = || event?["error"]["message"].as_str().map(shortened);
            let summary = text("summary").or_else(failed);
            let name = Some(node.clone());
            (name, Wait::Approval { node, iteration, label, title, summary, due_ms })
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_CHARACTERS).collect()
}

/// The unfinished children of a run, each with its address.
async fn open_children(
    store: &dyn Store,
    run: &str,
    tasks: &[TaskInfo],
) -> Result<Vec<(String, String)>, Error> {
    let mut found = Vec::new();
    for id in runs::unfinished_children(store, run).await? {
        // The id of a child consists of the ids of the run and of the task
        // (`execution::child_workflow`), and of the name from the provider, if there is one.
        let outer = tasks.iter().find_map(|task| {
            let of_task = format!("{run}:child:{}:{}", task.id, task.iteration);
            match id.strip_prefix(&of_task)? {
                "" => Some(task.id.clone()),
                named => Some(format!("{}/{}", task.id, named.strip_prefix(':')?)),
            }
        });
        found.extend(outer.map(|outer| (id, outer)));
    }
    Ok(found)
}
