//! Handles answers from outside (decisions and signals) and due times.

use std::sync::Arc;

use serde_json::{Value, json};
use stockade_api::TaskStatus;
use stockade_durable::Failure;

use super::state::Execution;
use crate::engine::accept::accept;
use crate::engine::clock::now_ms;
use crate::engine::open_waits::question;
use crate::engine::task_error::TaskError;
use crate::graph::{Event, OnDeny, OnTimeout, Task, Work};
use crate::schedule::Key;
use crate::store::answers::{self, Answer};

impl Execution {
    /// Uses the decisions and signals that have arrived.
    pub(super) async fn take_answers(&mut self) -> Result<(), Failure> {
        let waiting = self.waiting_tasks();
        self.has_new_waits = false;
        if waiting.is_empty() {
            return Ok(());
        }
        let mut answers = answers::list_unused(self.state.store(), &self.run.id).await?;
        answers.retain(|answer| !self.ledger.is_used(answer.seq));
        for (key, task) in waiting {
            if self.sandboxes.has_pause(&key) {
                self.take_answers_for_child(&key, &task, &mut answers);
                continue;
            }
            let attempts = self.tasks.attempts(&key);
            let found = answers.iter().position(|answer| answers_to(answer, &key, attempts, &task));
            let Some(answer) = found.map(|found| answers.remove(found)) else { continue };
            let row = match self.row_of_answer(&task, &answer.payload).await {
                Ok(row) => row,
                Err(error) => {
                    self.refuse_answer(&key, answer.seq, error);
                    continue;
                }
            };
            self.ledger.use_answer(answer.seq, &key);
            match &task.work {
                Work::Approval(approval) => {
                    let on_deny = approval.on_deny;
                    self.apply_decision(&key, &task, on_deny, (&answer.payload, row));
                }
                _ if task.needs_approval => self.approve_or_fail(&key, &task, &answer.payload),
                // It waits for the permission to start.
                Work::Sandbox(_) if attempts == 0 => {
                    self.approve_or_fail(&key, &task, &answer.payload);
                }
                Work::Sandbox(_) => self.apply_review(&key, &task, &answer.payload),
                _ => self.finish(&key, &task, row),
            }
        }
        Ok(())
    }

    /// The row that an answer becomes; null for one that becomes none.
    async fn row_of_answer(&self, task: &Task, answer: &Value) -> Result<Value, TaskError> {
        let raw = match &task.work {
            Work::Approval(approval) => {
                let is_approved = answer["approved"] == true;
                if !is_approved && approval.on_deny != OnDeny::Continue {
                    return Ok(Value::Null);
                }
                approval.output(answer).map_err(|why| TaskError::new("INVALID_INPUT", why))?
            }
            Work::Event(_) if !task.needs_approval => answer.clone(),
            _ => return Ok(Value::Null),
        };
        let (schemas, run) = (&self.state.schemas, &self.run.id);
        accept(schemas, &self.user_code, run, task, raw).await
    }

    /// Handles an answer that does not fit: the task continues to wait for another one.
    fn refuse_answer(&mut self, key: &Key, seq: i64, error: TaskError) {
        let error = self.ledger.redaction.task_error(error);
        self.ledger.drop_answer(seq);
        self.ledger.event(json!({
            "type": "AnswerRefused", "nodeId": key.node, "iteration": key.iteration,
            "error": error.to_json(),
        }));
    }

    /// Handles a decision whether a task may start.
    fn approve_or_fail(&mut self, key: &Key, task: &Task, decision: &Value) {
        if self.record_decision(key, decision) {
            self.start_approved(key);
        } else {
            self.fail(key, task, denied_error(task, decision));
        }
    }

    /// Handles a decision about an `<Approval>`.
    fn apply_decision(
        &mut self,
        key: &Key,
        task: &Task,
        on_deny: OnDeny,
        (decision, row): (&Value, Value),
    ) {
        let is_approved = self.record_decision(key, decision);
        match on_deny {
            OnDeny::Fail if !is_approved => {
                self.fail(key, task, denied_error(task, decision));
            }
            OnDeny::Skip if !is_approved => self.close_task(key, TaskStatus::Skipped, None),
            _ => self.finish(key, task, row),
        }
    }

    /// Adds the event of a decision; returns whether it approves.
    fn record_decision(&mut self, key: &Key, decision: &Value) -> bool {
        let is_approved = decision["approved"] == true;
        let kind = if is_approved { "ApprovalGranted" } else { "ApprovalDenied" };
        self.ledger.event(json!({ "type": kind, "nodeId": key.node, "iteration": key.iteration }));
        is_approved
    }

    /// Resumes tasks that are due.
    pub(super) fn take_due(&mut self) {
        let now = now_ms();
        for (key, status) in self.tasks.due() {
            match status {
                TaskStatus::Retrying => self.tasks.start_again(&key),
                _ if self.sandboxes.has_pause(&key) => self.resume_child_of(&key),
                TaskStatus::WaitingTimer => {
                    self.close_task(&key, TaskStatus::Finished, Some(json!({ "firedAtMs": now })));
                }
                TaskStatus::WaitingApproval | TaskStatus::WaitingEvent => self.time_out(&key),
                _ => {}
            }
        }
    }

    /// Handles an answer that did not arrive in time.
    fn time_out(&mut self, key: &Key) {
        let Some(task) = self.plan.task(key) else { return };
        let on_timeout = match &task.work {
            Work::Event(Event { on_timeout, .. }) => *on_timeout,
            _ => OnTimeout::Fail,
        };
        match on_timeout {
            OnTimeout::Fail => {
                let message = format!("\"{}\" timed out while waiting", task.name());
                self.fail(key, &task, TaskError::new("TASK_TIMEOUT", message));
            }
            OnTimeout::Continue => self.close_task(key, TaskStatus::Finished, None),
            OnTimeout::Skip => self.close_task(key, TaskStatus::Skipped, None),
        }
    }

    /// The tasks that wait for a decision or a signal.
    fn waiting_tasks(&self) -> Vec<(Key, Arc<Task>)> {
        let mut found: Vec<(Key, Arc<Task>)> = self
            .tasks
            .open()
            .filter(|(key, row)| {
                let waits =
                    matches!(row.status, TaskStatus::WaitingApproval | TaskStatus::WaitingEvent);
                waits && (!row.waits_for_host() || self.sandboxes.has_pause(key))
            })
            .filter_map(|(key, _)| Some((key.clone(), self.plan.task(key)?)))
            .collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found
    }
}

fn denied_error(task: &Task, decision: &Value) -> TaskError {
    let note = decision["note"].as_str().map(|note| format!(": {note}")).unwrap_or_default();
    TaskError::new("APPROVAL_DENIED", format!("\"{}\" was denied{note}", task.name())).denied()
}

/// Whether an answer is for a task. A decision is only for the exact question that was displayed.
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
