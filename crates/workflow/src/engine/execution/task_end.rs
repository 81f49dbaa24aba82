//! The end of attempts: what is stored of them, and the consequences of a failure.

use std::sync::Arc;

use serde_json::{Value, json};
use stockade_api::TaskStatus;

use super::state::{Execution, journal_failure, journal_row};
use crate::engine::accept::check;
use crate::engine::clock::now_ms;
use crate::engine::sandbox::AttemptOutcome;
use crate::engine::task_error::TaskError;
use crate::graph::{Task, Work};
use crate::schedule::Key;
use crate::store::sandboxes;
use crate::sync::lock;

impl Execution {
    /// Handles the end of an attempt.
    pub(super) fn take_outcome(&mut self, key: Key, result: Result<AttemptOutcome, TaskError>) {
        self.take_agent_events();
        let Some(task) = self.plan.task(&key) else {
            // The rendering does not contain the task any more. Its output is stored all the same.
            self.finish_orphan(&key, result);
            return;
        };
        match result {
            Ok(AttemptOutcome::Value(value)) => match self.over_own_budget(&key, &task) {
                Some(error) => self.fail(&key, &task, error),
                None => self.finish(&key, &task, value),
            },
            Ok(AttemptOutcome::Changed(value)) => {
                self.changed.insert(key.clone());
                self.finish(&key, &task, value);
            }
            Ok(AttemptOutcome::Review(error)) => self.wait_for_review(&key, error),
            Ok(AttemptOutcome::Waits(pause)) => self.wait_for_child(&key, pause),
            Ok(AttemptOutcome::HostRequest(request)) => self.wait_for_host(&key, &request),
            Err(error) => self.fail(&key, &task, error),
        }
    }

    /// Makes a task wait for a decision about the changes of its sandbox. `error` is why the last decision
    /// was not applied.
    fn wait_for_review(&mut self, key: &Key, error: Option<TaskError>) {
        let status = TaskStatus::WaitingApproval;
        let Some(attempt) = self.tasks.set_status(key, status) else { return };
        let error = error.map(|error| self.ledger.redaction.task_error(error).to_json());
        if let Some(row) = self.tasks.get_mut(key) {
            row.error.clone_from(&error);
        }
        // The decision may have arrived already.
        self.has_new_waits = true;
        self.store_task(key);
        let mut event = json!({
            "type": "NodeWaiting", "nodeId": key.node, "iteration": key.iteration,
            "attempt": attempt, "status": status,
        });
        if let Some(error) = error {
            event["error"] = error;
        }
        self.ledger.event(event);
    }

    /// Makes a task wait for the host, which has its request for a sandbox. The result is checked when
    /// the engine starts again.
    fn wait_for_host(&mut self, key: &Key, request: &str) {
        let status = TaskStatus::WaitingEvent;
        let Some(attempt) = self.tasks.set_status(key, status) else { return };
        self.store_task(key);
        self.ledger.event(json!({
            "type": "NodeWaiting", "nodeId": key.node, "iteration": key.iteration,
            "attempt": attempt, "status": status, "request": request,
        }));
    }

    /// Handles a decision about the changes of a sandbox. The same attempt continues with it.
    pub(super) fn apply_review(&mut self, key: &Key, task: &Arc<Task>, decision: &Value) {
        if self.tasks.set_status(key, TaskStatus::Running).is_none() {
            return;
        }
        self.store_task(key);
        self.ledger.push(sandboxes::decide(&self.run.id, key, decision));
        self.queue.start(key, task);
    }

    /// Handles the output of a task.
    pub(super) fn finish(&mut self, key: &Key, task: &Task, value: Value) {
        if let Err(error) = check(&self.state.schemas, task, &value) {
            // An agent may give a better answer in the next attempt.
            let is_agent = matches!(task.work, Work::Agent { .. } | Work::Command { .. });
            let error = if is_agent { error.retryable() } else { error };
            self.fail(key, task, error);
            return;
        }
        self.close_task(key, TaskStatus::Finished, Some(value));
    }

    /// Ends a task that has finished or was skipped.
    pub(super) fn close_task(&mut self, key: &Key, status: TaskStatus, output: Option<Value>) {
        let is_cached = self.cache_output(key, output.as_ref());
        let Some(row) = self.tasks.get_mut(key) else { return };
        row.output = output;
        row.error = None;
        row.wake_at = None;
        row.finished_at = Some(now_ms());
        let attempt = row.attempts;
        if let Some(journal) = journal_row(key, row) {
            if let Some(table) = row.table.as_ref() {
                self.plan.table_changed(table);
            }
            lock(&self.run.journal).rows.push(journal);
        }
        self.tasks.close(key);
        self.tasks.set_status(key, status);
        self.store_task(key);
        let kind = if status == TaskStatus::Skipped { "NodeSkipped" } else { "NodeFinished" };
        let mut event = json!({
            "type": kind, "nodeId": key.node, "iteration": key.iteration, "attempt": attempt,
        });
        if is_cached {
            event["cacheHit"] = true.into();
        }
        self.ledger.event(event);
    }

    /// Handles a failed attempt: the task is retried, or has failed permanently.
    pub(super) fn fail(&mut self, key: &Key, task: &Task, error: TaskError) {
        let mut error = self.ledger.redaction.task_error(error);
        if error.frames.is_empty() {
            error.frames.extend(task.location.as_ref().map(|location| format!("at {location}")));
        }
        self.queue.remove_lookup(key);
        let Some(row) = self.tasks.get_mut(key) else { return };
        let pause = task.retry.pause(row.attempts).filter(|_| error.is_retryable);
        row.error = Some(error.to_json());
        let attempt = row.attempts;
        let status = match pause {
            Some(pause) => {
                let pause = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
                row.wake_at = Some(now_ms().saturating_add(pause));
                TaskStatus::Retrying
            }
            None => {
                row.wake_at = None;
                row.finished_at = Some(now_ms());
                self.tasks.close(key);
                TaskStatus::Failed
            }
        };
        self.tasks.set_status(key, status);
        if status == TaskStatus::Failed {
            if let Some(row) = self.tasks.get(key) {
                lock(&self.run.journal).failures.push(journal_failure(key, row));
            }
            // What is done after a failure may depend on it.
            if self.plan.graph().has_boundaries() {
                self.plan.mark_stale();
            }
        }
        self.store_task(key);
        let kind = if status == TaskStatus::Failed { "NodeFailed" } else { "NodeRetrying" };
        self.ledger.event(json!({
            "type": kind, "nodeId": key.node, "iteration": key.iteration, "attempt": attempt,
            "error": error.to_json(),
        }));
    }

    /// Handles the end of an attempt whose task the rendering does not contain any more.
    fn finish_orphan(&mut self, key: &Key, result: Result<AttemptOutcome, TaskError>) {
        match result {
            Ok(AttemptOutcome::Value(value) | AttemptOutcome::Changed(value)) => {
                self.close_task(key, TaskStatus::Finished, Some(value));
            }
            Ok(AttemptOutcome::Waits(pause)) => {
                // Its sandbox ends with the run.
                self.wait_for_child(key, pause);
                self.close_task(key, TaskStatus::Skipped, None);
            }
            Ok(AttemptOutcome::Review(_) | AttemptOutcome::HostRequest(_)) | Err(_) => {
                self.close_task(key, TaskStatus::Skipped, None);
            }
        }
    }
}
