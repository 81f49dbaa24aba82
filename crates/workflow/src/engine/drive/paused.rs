//! Children in sandboxes that wait: their tasks wait with them, and go on when somebody has answered
//! or a time has come. Their sandboxes live until then, or until the run is over.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stockade_api::{Answer as ForChild, TaskStatus, Wait};
use stockade_durable::Failure;

use super::{Drive, phase_of};
use crate::engine::clock::now_ms;
use crate::engine::open_waits::question_of_child;
use crate::engine::sandbox::NestedCleanup;
use crate::engine::sandbox::SandboxHandle;
use crate::engine::sandbox::WAIT_LEASE;
use crate::graph::Task;
use crate::schedule::Key;
use crate::store::answers::Answer;
use crate::store::sandboxes::{self, Pause, Stage};

/// How often a sandbox that is kept is told to live on, while somebody is awake.
const RENEWED: Duration = Duration::from_secs(24 * 60 * 60);
/// The shortest that a child waits for a time: what says that one has come when it has not cannot
/// make its host busy.
const SHORTEST_MS: i64 = 1_000;

/// Those of a run.
#[derive(Debug, Default)]
pub(super) struct Paused {
    children: HashMap<Key, Pause>,
    /// When their sandboxes were told to live on.
    renewed: Option<Instant>,
}

impl Paused {
    pub(super) fn has(&self, key: &Key) -> bool {
        self.children.contains_key(key)
    }
}

impl Drive {
    /// Takes up those that an earlier process left.
    pub(super) async fn recall_paused(&mut self) -> Result<(), Failure> {
        let is_one = |key: &Key| {
            let row = self.tasks.get(key);
            row.is_some_and(|row| row.status.is_waiting() && row.kind == "sandbox")
        };
        if !self.open.iter().any(is_one) {
            return Ok(());
        }
        let mut kept = sandboxes::pauses(self.state.store(), &self.run).await?;
        kept.retain(|(key, _)| is_one(key));
        self.paused.children = kept.into_iter().collect();
        Ok(())
    }

    /// The child of a task waits.
    pub(super) fn wait_for_child(&mut self, key: &Key, pause: Pause) {
        let Some(row) = self.tasks.get_mut(key) else { return };
        let is_any = |is: fn(&Wait) -> bool| pause.waits.iter().any(is);
        row.status = if is_any(|wait| matches!(wait, Wait::Approval { .. })) {
            TaskStatus::WaitingApproval
        } else if is_any(|wait| matches!(wait, Wait::Signal { .. })) {
            TaskStatus::WaitingEvent
        } else {
            TaskStatus::WaitingTimer
        };
        let due = pause.waits.iter().filter_map(Wait::due_ms).min();
        row.wake_at = due.map(|due| due.max(now_ms().saturating_add(SHORTEST_MS)));
        let (status, attempt) = (row.status, row.attempts);
        self.phases.insert(key.clone(), phase_of(status));
        // It may be here already.
        self.has_new_waits = true;
        self.keep(key);
        self.event(json!({
            "type": "NodeWaiting", "nodeId": key.node, "iteration": key.iteration,
            "attempt": attempt, "status": status, "waits": pause.waits,
        }));
        self.paused.children.insert(key.clone(), pause);
    }

    /// Takes the answers for a child of a sandbox, if there are any.
    pub(super) fn take_for_child(
        &mut self,
        key: &Key,
        task: &Arc<Task>,
        answers: &mut Vec<Answer>,
    ) {
        let attempts = self.attempts(key);
        let Some(pause) = self.paused.children.get(key) else { return };
        let mut given = Vec::new();
        let mut used = Vec::new();
        for wait in &pause.waits {
            let is_for = |answer: &Answer| answers_child(answer, key, attempts, wait);
            let Some(found) = answers.iter().position(is_for) else { continue };
            let answer = answers.remove(found);
            used.push(answer.seq);
            let is_inner = pause.waits.iter().any(|it| it.is_of_host() && it.is_same(wait));
            given.extend(for_child(wait, answer, is_inner));
        }
        if !given.is_empty() {
            used.into_iter().for_each(|seq| self.take(seq, key));
            self.resume_child(key, task, given);
        }
    }

    /// The child of a task goes on without an answer: a time has come that it waits for.
    pub(super) fn resume_child_of(&mut self, key: &Key) {
        if let Some(task) = self.rendered_task(key) {
            self.resume_child(key, &task, Vec::new());
        }
    }

    /// The same try goes on.
    fn resume_child(&mut self, key: &Key, task: &Arc<Task>, answers: Vec<ForChild>) {
        let (Some(row), Some(pause)) = (self.tasks.get_mut(key), self.paused.children.remove(key))
        else {
            return;
        };
        row.status = TaskStatus::Running;
        row.wake_at = None;
        let attempt = row.attempts;
        self.phases.insert(key.clone(), phase_of(TaskStatus::Running));
        self.keep(key);
        let answered: Vec<Value> = answers.iter().map(|it| it.asked_by().0.into()).collect();
        self.event(json!({
            "type": "SandboxResumed", "sandboxId": key.node, "nodeId": key.node,
            "iteration": key.iteration, "attempt": attempt, "answered": answered,
        }));
        let pause = Pause { answers, ..pause };
        self.gathered.push(sandboxes::resume(&self.run, key, &pause, now_ms()));
        self.to_begin.push((key.clone(), Arc::clone(task)));
    }

    /// Lets their sandboxes live on: as soon as somebody is awake, and then now and again. A child
    /// whose sandbox is there no more cannot go on: its try fails with that.
    pub(super) async fn keep_paused(&mut self) {
        let is_due = self.paused.renewed.is_none_or(|at| at.elapsed() >= RENEWED);
        if self.paused.children.is_empty() || !is_due {
            return;
        }
        self.paused.renewed = Some(Instant::now());
        let keys: Vec<Key> = self.paused.children.keys().cloned().collect();
        for key in keys {
            let Some((handle, _)) = self.handle(&key) else { continue };
            if handle.renew(WAIT_LEASE, false).await.is_err() && handle.is_gone().await {
                self.resume_child_of(&key);
            }
        }
    }

    /// Ends their sandboxes: the run is over.
    pub(super) async fn end_paused(&mut self) {
        for key in std::mem::take(&mut self.paused.children).into_keys() {
            if let Some((handle, name)) = self.handle(&key) {
                let root = self.state.options.project_of(Path::new(&self.origin.file));
                let owner = self.origin.owner.as_str();
                let within = NestedCleanup { state: &self.state, owner, root: &root };
                within.end(&self.run, &name).await;
                handle.end().await;
            }
            self.gathered.push(sandboxes::end(&self.run, &key, Stage::Cancelled, now_ms()));
        }
    }

    /// The sandbox of the last try of a task.
    fn handle(&self, key: &Key) -> Option<(SandboxHandle, String)> {
        let sandboxes = Arc::clone(self.state.options.sandboxes.as_ref()?);
        let attempt = self.tasks.get(key)?.attempts;
        let name = self.origin.name_of_try(&self.run, key, attempt);
        Some((SandboxHandle::of(sandboxes, &self.origin.owner, &name).ok()?, name))
    }
}

/// Whether an answer to the run is for what the child of a task waits for: by its address, for what a
/// child says that it waits for may be another's.
fn answers_child(answer: &Answer, key: &Key, attempts: u32, wait: &Wait) -> bool {
    let Some(name) = wait.clone().within(&key.node).answer_name() else { return false };
    match wait {
        Wait::Approval { .. } => answer.decides(&name, &question_of_child(key, attempts, wait)),
        Wait::Signal { correlation, .. } => {
            answer.kind == "signal"
                && answer.name == name
                && (correlation.is_none() || *correlation == answer.correlation)
        }
        Wait::Timer { .. } | Wait::Sandbox { .. } => false,
    }
}

/// An answer as the child is told it, or the sandbox within that has changes to be decided about.
fn for_child(wait: &Wait, answer: Answer, is_inner: bool) -> Option<ForChild> {
    let (node, iteration) = (wait.node().to_owned(), wait.iteration());
    match wait {
        Wait::Approval { .. } => Some(ForChild::Approval {
            node,
            iteration,
            approved: answer.payload["approved"] == true,
            note: answer.payload["note"].as_str().map(str::to_owned),
            decision: is_inner.then_some(answer.payload),
        }),
        Wait::Signal { .. } => Some(ForChild::Signal {
            node,
            iteration,
            name: wait.answer_name()?,
            correlation: answer.correlation,
            payload: answer.payload,
        }),
        Wait::Timer { .. } | Wait::Sandbox { .. } => None,
    }
}
