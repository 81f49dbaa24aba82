//! Waiting children in sandboxes: their tasks wait with them, and continue on an answer or at a time.
//! Their sandboxes are retained until then, or until the run has ended.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use stockade_api::{Answer as ChildAnswer, TaskStatus, Wait};
use stockade_durable::Failure;

use super::state::Execution;
use crate::engine::clock::now_ms;
use crate::engine::open_waits::question_of_child;
use crate::engine::sandbox::{NestedCleanup, SandboxHandle, WAIT_LEASE};
use crate::graph::Task;
use crate::schedule::Key;
use crate::store::answers::Answer;
use crate::store::sandboxes::{self, Pause, Stage};

/// The shortest wait of a child for a time. It prevents a child that falsely reports that its time has
/// come from keeping the host busy.
const SHORTEST_MS: i64 = 1_000;

impl Execution {
    /// Restores the waits that an earlier process left.
    pub(super) async fn restore_pauses(&mut self) -> Result<(), Failure> {
        let is_waiting = |key: &Key| {
            let row = self.tasks.get(key);
            row.is_some_and(|row| row.status.is_waiting() && row.kind == "sandbox")
        };
        if !self.tasks.open().any(|(key, _)| is_waiting(key)) {
            return Ok(());
        }
        let mut pauses = sandboxes::pauses(self.state.store(), &self.run.id).await?;
        pauses.retain(|(key, _)| is_waiting(key));
        self.sandboxes.restore(pauses.into_iter());
        Ok(())
    }

    /// Makes a task wait because its child waits.
    pub(super) fn wait_for_child(&mut self, key: &Key, pause: Pause) {
        let has = |is: fn(&Wait) -> bool| pause.waits.iter().any(is);
        let status = if has(|wait| matches!(wait, Wait::Approval { .. })) {
            TaskStatus::WaitingApproval
        } else if has(|wait| matches!(wait, Wait::Signal { .. })) {
            TaskStatus::WaitingEvent
        } else {
            TaskStatus::WaitingTimer
        };
        let due = pause.waits.iter().filter_map(Wait::due_ms).min();
        let Some(row) = self.tasks.get_mut(key) else { return };
        row.wake_at = due.map(|due| due.max(now_ms().saturating_add(SHORTEST_MS)));
        let attempt = row.attempts;
        self.tasks.set_status(key, status);
        // The answer may have arrived already.
        self.has_new_waits = true;
        self.store_task(key);
        self.ledger.event(json!({
            "type": "NodeWaiting", "nodeId": key.node, "iteration": key.iteration,
            "attempt": attempt, "status": status, "waits": pause.waits,
        }));
        self.sandboxes.insert_pause(key, pause);
    }

    /// Uses the answers for the child of a task, if there are any.
    pub(super) fn take_answers_for_child(
        &mut self,
        key: &Key,
        task: &Arc<Task>,
        answers: &mut Vec<Answer>,
    ) {
        let attempts = self.tasks.attempts(key);
        let Some(pause) = self.sandboxes.pause(key) else { return };
        let mut for_child = Vec::new();
        let mut used = Vec::new();
        for wait in &pause.waits {
            let is_for = |answer: &Answer| answers_child(answer, key, attempts, wait);
            let Some(found) = answers.iter().position(is_for) else { continue };
            let answer = answers.remove(found);
            used.push(answer.seq);
            let is_nested = pause.waits.iter().any(|it| it.is_for_host() && it.is_same(wait));
            for_child.extend(child_answer(wait, answer, is_nested));
        }
        if !for_child.is_empty() {
            used.into_iter().for_each(|seq| self.ledger.use_answer(seq, key));
            self.resume_child(key, task, for_child);
        }
    }

    /// Resumes the child of a task without an answer, for example because a time has come.
    pub(super) fn resume_child_of(&mut self, key: &Key) {
        if let Some(task) = self.plan.task(key) {
            self.resume_child(key, &task, Vec::new());
        }
    }

    /// Resumes the same attempt.
    fn resume_child(&mut self, key: &Key, task: &Arc<Task>, answers: Vec<ChildAnswer>) {
        let (Some(row), Some(pause)) = (self.tasks.get_mut(key), self.sandboxes.remove_pause(key))
        else {
            return;
        };
        row.wake_at = None;
        let attempt = row.attempts;
        self.tasks.set_status(key, TaskStatus::Running);
        self.store_task(key);
        let answered: Vec<Value> = answers.iter().map(|it| it.origin().0.into()).collect();
        self.ledger.event(json!({
            "type": "SandboxResumed", "sandboxId": key.node, "nodeId": key.node,
            "iteration": key.iteration, "attempt": attempt, "answered": answered,
        }));
        let pause = Pause { answers, ..pause };
        self.ledger.push(sandboxes::resume(&self.run.id, key, &pause, now_ms()));
        self.queue.start(key, task);
    }

    /// Renews the leases of the sandboxes, first immediately and then periodically. A child whose
    /// sandbox does not exist any more is resumed, which fails its attempt.
    pub(super) async fn renew_sandboxes(&mut self) {
        for key in self.sandboxes.take_renewals() {
            let Some((handle, _)) = self.sandbox_of(&key) else { continue };
            if handle.renew(WAIT_LEASE, false).await.is_err() && handle.has_ended().await {
                self.resume_child_of(&key);
            }
        }
    }

    /// Ends the retained sandboxes, because the run has ended.
    pub(super) async fn end_run_sandboxes(&mut self) {
        for key in self.sandboxes.take_pauses() {
            if let Some((handle, name)) = self.sandbox_of(&key) {
                let root = self.state.options.project_of(Path::new(&self.run.origin.file));
                let owner = self.run.origin.owner.as_str();
                let nested = NestedCleanup { state: &self.state, owner, root: &root };
                nested.end(&self.run.id, &name).await;
                handle.end().await;
            }
            self.ledger.push(sandboxes::end(&self.run.id, &key, Stage::Cancelled, now_ms()));
        }
    }

    /// The sandbox of the current attempt of a task, and the name of the attempt.
    fn sandbox_of(&self, key: &Key) -> Option<(SandboxHandle, String)> {
        let sandboxes = Arc::clone(self.state.options.sandboxes.as_ref()?);
        let attempt = self.tasks.get(key)?.attempts;
        let name = self.run.attempt_name(key, attempt);
        let handle = SandboxHandle::of(sandboxes, &self.run.origin.owner, &name).ok()?;
        Some((handle, name))
    }
}

/// Whether an answer to the run is for a wait of the child of a task. It must have the address of the
/// child: another wait may have the same name.
fn answers_child(answer: &Answer, key: &Key, attempts: u32, wait: &Wait) -> bool {
    let Some(name) = wait.clone().with_outer(&key.node).answer_name() else { return false };
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

/// An answer in the form that the child receives, or the nested sandbox whose changes are to be
/// reviewed.
fn child_answer(wait: &Wait, answer: Answer, is_nested: bool) -> Option<ChildAnswer> {
    let (node, iteration) = (wait.node().to_owned(), wait.iteration());
    match wait {
        Wait::Approval { .. } => Some(ChildAnswer::Approval {
            node,
            iteration,
            approved: answer.payload["approved"] == true,
            note: answer.payload["note"].as_str().map(str::to_owned),
            decision: is_nested.then_some(answer.payload),
        }),
        Wait::Signal { .. } => Some(ChildAnswer::Signal {
            node,
            iteration,
            name: wait.answer_name()?,
            correlation: answer.correlation,
            payload: answer.payload,
        }),
        Wait::Timer { .. } | Wait::Sandbox { .. } => None,
    }
}
