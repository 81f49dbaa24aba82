//! What comes from outside: decisions, signals and time.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use stockade_api::TaskStatus;
use stockade_durable::Failure;

use super::{Drive, LONGEST_WAIT};
use crate::engine::clock::now_ms;
use crate::engine::open_waits::question;
use crate::engine::trouble::Trouble;
use crate::graph::{Event, OnDeny, OnTimeout, Task, Work};
use crate::schedule::Key;
use crate::store::answers::{self, Answer};

impl Drive {
    /// Takes the decisions and signals that came.
    pub(super) async fn take_answers(&mut self) -> Result<(), Failure> {
        let waits = self.waiting_tasks();
        self.has_new_waits = false;
        if waits.is_empty() {
            return Ok(());
        }
        let mut answers = answers::list_unused(self.state.store(), &self.run).await?;
        answers.retain(|answer| !self.taken.contains(&answer.seq));
        for (key, task) in waits {
            if self.paused.has(&key) {
                self.take_for_child(&key, &task, &mut answers);
                continue;
            }
            let attempts = self.attempts(&key);
            let found = answers.iter().position(|answer| answers_to(answer, &key, attempts, &task));
            let Some(answer) = found.map(|found| answers.remove(found)) else { continue };
            self.take(answer.seq, &key);
            match &task.work {
                Work::Approval(approval) => {
                    self.decided(&key, &task, approval.on_deny, answer.payload);
                }
                _ if task.needs_approval => self.allow(&key, &task, &answer.payload),
                Work::Sandbox(_) => self.reviewed(&key, &task, &answer.payload),
                _ => self.finish(&key, &task, answer.payload),
            }
        }
        Ok(())
    }

    /// Recorder that an answer was taken.
    pub(super) fn take(&mut self, seq: i64, key: &Key) {
        self.taken.insert(seq);
        self.gathered.push(answers::mark_used(seq, key));
    }

    /// How often a task was tried.
    pub(super) fn attempts(&self, key: &Key) -> u32 {
        self.tasks.get(key).map_or(0, |row| row.attempts)
    }

    /// Somebody has decided whether a task may begin.
    fn allow(&mut self, key: &Key, task: &Task, decision: &Value) {
        let is_approved = decision["approved"] == true;
        let kind = if is_approved { "ApprovalGranted" } else { "ApprovalDenied" };
        self.event(json!({ "type": kind, "nodeId": key.node, "iteration": key.iteration }));
        if is_approved {
            self.allowed(key);
        } else {
            self.fail(key, task, denied(task, decision));
        }
    }

    fn decided(&mut self, key: &Key, task: &Task, on_deny: OnDeny, decision: Value) {
        let is_approved = decision["approved"] == true;
        let kind = if is_approved { "ApprovalGranted" } else { "ApprovalDenied" };
        self.event(json!({ "type": kind, "nodeId": key.node, "iteration": key.iteration }));
        match on_deny {
            OnDeny::Fail if !is_approved => {
                self.fail(key, task, denied(task, &decision));
            }
            OnDeny::Skip if !is_approved => self.done(key, TaskStatus::Skipped, None),
            _ => self.finish(key, task, decision),
        }
    }

    /// Takes note of what was waited for and whose time has come.
    pub(super) fn take_times(&mut self) {
        let now = now_ms();
        let is_due = |wake_at: Option<i64>| wake_at.is_some_and(|at| at <= now);
        let due: Vec<(Key, TaskStatus)> = self
            .open_rows()
            .filter(|(_, row)| is_due(row.wake_at))
            .map(|(key, row)| (key.clone(), row.status))
            .collect();
        for (key, status) in due {
            match status {
                // It can begin again.
                TaskStatus::Retrying => drop(self.phases.remove(&key)),
                _ if self.paused.has(&key) => self.resume_child_of(&key),
                TaskStatus::WaitingTimer => {
                    self.done(&key, TaskStatus::Finished, Some(json!({ "firedAtMs": now })));
                }
                TaskStatus::WaitingApproval | TaskStatus::WaitingEvent => self.late(&key),
                _ => {}
            }
        }
    }

    /// What was waited for did not come in time.
    fn late(&mut self, key: &Key) {
        let Some(task) = self.rendered_task(key) else { return };
        let on_timeout = match &task.work {
            Work::Event(Event { on_timeout, .. }) => *on_timeout,
            _ => OnTimeout::Fail,
        };
        match on_timeout {
            OnTimeout::Fail => {
                let message = format!("what \"{}\" waits for did not come in time", task.name());
                self.fail(key, &task, Trouble::new("TASK_TIMEOUT", message));
            }
            OnTimeout::Continue => self.done(key, TaskStatus::Finished, None),
            OnTimeout::Skip => self.done(key, TaskStatus::Skipped, None),
        }
    }

    /// How long until something is due.
    pub(super) fn next_time(&self) -> Duration {
        let next = self.open_rows().filter_map(|(_, row)| row.wake_at).min();
        let left = next.map(|at| u64::try_from(at.saturating_sub(now_ms())).unwrap_or(0));
        left.map_or(LONGEST_WAIT, |left| Duration::from_millis(left).min(LONGEST_WAIT))
    }

    /// The tasks that wait for a decision or a signal.
    fn waiting_tasks(&self) -> Vec<(Key, Arc<Task>)> {
        let mut found: Vec<(Key, Arc<Task>)> = self
            .open_rows()
            .filter(|(key, row)| {
                let waits =
                    matches!(row.status, TaskStatus::WaitingApproval | TaskStatus::WaitingEvent);
                waits && (!row.waits_for_host() || self.paused.has(key))
            })
            .filter_map(|(key, _)| Some((key.clone(), self.rendered_task(key)?)))
            .collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found
    }

    /// A task as the last rendering has it.
    pub(super) fn rendered_task(&self, key: &Key) -> Option<Arc<Task>> {
        let id = key.node.split("@@").next().unwrap_or(&key.node);
        self.index.task(id).cloned()
    }
}

fn denied(task: &Task, decision: &Value) -> Trouble {
    let note = decision["note"].as_str().map(|note| format!(": {note}")).unwrap_or_default();
    Trouble::new("APPROVAL_DENIED", format!("\"{}\" was denied{note}", task.name()))
}

/// Whether an answer is for a task. A decision is for the very question that was seen.
fn answers_to(answer: &Answer, key: &Key, attempts: u32, task: &Task) -> bool {
    match &task.work {
        Work::Event(event) if !task.needs_approval => {
            answer.kind == "signal"
                && answer.name == event.name
                && (event.correlation.is_none() || event.correlation == answer.correlation)
        }
        Work::Approval(_) | Work::Sandbox(_) => answer.decides(&key.node, &question(key, attempts)),
        _ if task.needs_approval => answer.decides(&key.node, &question(key, attempts)),
        _ => false,
    }
}
