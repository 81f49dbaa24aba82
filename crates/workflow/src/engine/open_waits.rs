//! What runs wait for from outside: their own tasks, those of the runs below them, and the children
//! in their sandboxes; and which run an answer goes to, under which name.

use std::collections::HashMap;

use futures_util::future::BoxFuture;
use serde_json::Value as Json;
use stockade_api::{TaskInfo, TaskStatus, Wait};
use stockade_durable::{Error, Store};

use crate::schedule::Key;
use crate::store::answers::Question;
use crate::store::sandboxes::{self, Pause};
use crate::store::{events, runs, tasks};

/// The longest that is told of a question, in characters.
const TOLD: usize = 1_000;

/// Something that is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenWait {
    /// The run that takes an answer to it.
    pub(crate) run: String,
    /// The name that an answer has there; none for a time.
    pub(crate) name: Option<String>,
    /// Which question of that name it is, for a decision.
    pub(crate) question: Option<Question>,
    /// What an answer has to be, for a signal.
    pub(crate) schema: Option<Json>,
    /// It, as it is seen from the run that was asked about.
    pub(crate) wait: Wait,
    /// Whether it is waited for at this moment. What a child in a sandbox has waited for that goes on
    /// with something else is not, and can be answered all the same.
    pub(crate) is_now: bool,
}

/// Tells a question of a task from all others that it asks: a decision about one is none about the
/// next, which nobody has seen.
pub(crate) fn question(key: &Key, attempts: u32) -> String {
    format!("{}.{attempts}", key.iteration)
}

/// The same for a question of the child in the sandbox of a task.
pub(crate) fn question_of_child(key: &Key, attempts: u32, wait: &Wait) -> String {
    format!("{}.{}", question(key, attempts), wait.iteration())
}

/// All that a run waits for, in the order in which it takes answers.
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
        let asked = if has_own { events::last_waiting(store, run).await? } else { HashMap::new() };
        for task in &tasks {
            let key = Key { node: task.id.clone(), iteration: task.iteration };
            let pause = paused.get(&key);
            let waits = match pause {
                Some(pause) => of_child(&key, pause),
                None if is_now(task) => vec![own(task, asked.get(&key))],
                None => Vec::new(),
            };
            let is_now = is_now(task);
            let open = |(name, wait)| {
                let question = matches!(wait, Wait::Approval { .. }).then(|| match pause {
                    Some(_) => Question::OfChild(question_of_child(&key, task.attempts, &wait)),
                    None => Question::OfTask(question(&key, task.attempts)),
                });
                let said = asked.get(&key).filter(|_| matches!(wait, Wait::Signal { .. }));
                let schema = said.map(|said| said["schema"].clone()).filter(|it| !it.is_null());
                let schema = schema.filter(|_| pause.is_none());
                OpenWait { run: run.to_owned(), name, question, schema, wait, is_now }
            };
            found.extend(waits.into_iter().map(open));
        }
        for (id, outer) in below(store, run, &tasks).await? {
            let tasks = tasks::list(store, &id).await?;
            let inner = list(store, &id, tasks).await?;
            found.extend(
                inner.into_iter().map(|it| OpenWait { wait: it.wait.within(&outer), ..it }),
            );
        }
        Ok(found)
    })
}

/// What the child in a sandbox waits for, and was not told yet.
fn of_child(key: &Key, pause: &Pause) -> Vec<(Option<String>, Wait)> {
    let is_told = |wait: &&Wait| {
        pause.answers.iter().any(|told| told.asked_by() == (wait.node(), wait.iteration()))
    };
    let open = pause.waits.iter().filter(|wait| !wait.is_of_host() && !is_told(wait));
    let seen = open.map(|wait| wait.clone().within(&key.node));
    seen.map(|wait| (wait.answer_name(), wait)).collect()
}

/// What a task waits for itself.
fn own(task: &TaskInfo, asked: Option<&Json>) -> (Option<String>, Wait) {
    let (node, iteration, due_ms) = (task.id.clone(), task.iteration, task.wake_at);
    let text = |name: &str| {
        let text = asked?[name].as_str()?;
        Some(text.chars().take(TOLD).collect::<String>())
    };
    let label = Some(task.label.chars().take(TOLD).collect()).filter(|label| *label != node);
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
            let (title, summary) = (text("title"), text("summary"));
            let name = Some(node.clone());
            (name, Wait::Approval { node, iteration, label, title, summary, due_ms })
        }
    }
}

/// The runs right below one that have not ended, each with the address of what it is in.
async fn below(
    store: &dyn Store,
    run: &str,
    tasks: &[TaskInfo],
) -> Result<Vec<(String, String)>, Error> {
    let mut found = Vec::new();
    for id in runs::unfinished_children(store, run).await? {
        // The id of a run below is made of that of the run and of the task (`execution::child_workflow`), with
        // the name that a provider gives it, where one does.
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
