//! The start of tasks: their rows, their first events, and the attempts of their work.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use stockade_api::TaskStatus;

use super::budgets::report;
use super::outcome::Attempt;
use super::state::Execution;
use crate::engine::accept::{accept, demand};
use crate::engine::clock::now_ms;
use crate::engine::models::Models;
use crate::engine::prepare::inexecutable;
use crate::engine::run_secrets;
use crate::engine::sandbox::{AttemptOutcome, Recorder, SandboxAttempt};
use crate::engine::task_error::TaskError;
use crate::engine::timings::Timings;
use crate::engine::user_code::{ModelHost, TaskCall, attempt};
use crate::graph::{Approval, Task, Timer, ToolLimits, Work};
use crate::schedule::Key;

impl Execution {
    /// Starts a task; returns whether it finished immediately.
    pub(super) fn start(&mut self, key: &Key, task: &Arc<Task>) -> bool {
        if self.use_cached_output(key, task) {
            return true;
        }
        if self.ends_by_budget(key, task) {
            return true;
        }
        // A task that has started was approved.
        let asks_first = task.needs_approval || self.needs_consent(task);
        if asks_first && self.tasks.start(key, task).attempts == 0 {
            self.wait_for_approval(key, task);
            return false;
        }
        let (status, attempt) = self.start_attempt(key, task);
        self.ledger.event(started_event(key, task, status, attempt));
        // A later rendering may have tasks that were not checked when the run started.
        if let Some(message) =
            inexecutable(task, &self.state.options, Path::new(&self.run.origin.file))
        {
            self.fail(key, task, TaskError::new("UNSUPPORTED", message));
            return true;
        }
        match &task.work {
            Work::Static(value) => {
                self.finish(key, task, value.clone());
                return true;
            }
            // It never starts: it ends the run (`planning`).
            Work::Continue(_) => {}
            Work::Compute { .. }
            | Work::Agent { .. }
            | Work::Command { .. }
            | Work::Subflow { .. }
            | Work::Sandbox(_)
            | Work::Node(_) => {
                self.store_task(key);
                self.queue.start(key, task);
            }
            Work::Approval(_) | Work::Event(_) | Work::Timer(_) => {
                // The answer may have arrived already.
                self.has_new_waits = true;
                self.store_task(key);
            }
        }
        false
    }

    /// Starts an attempt of a task, or continues one that a crash interrupted; returns its status and
    /// number.
    fn start_attempt(&mut self, key: &Key, task: &Task) -> (TaskStatus, u32) {
        let status = match &task.work {
            Work::Approval(_) => TaskStatus::WaitingApproval,
            Work::Event(_) => TaskStatus::WaitingEvent,
            Work::Timer(_) => TaskStatus::WaitingTimer,
            _ => TaskStatus::Running,
        };
        let after = |limit: Duration| {
            now_ms().saturating_add(i64::try_from(limit.as_millis()).unwrap_or(i64::MAX))
        };
        let row = self.tasks.start(key, task);
        // A crash does not end an attempt.
        if row.status != TaskStatus::Running {
            row.attempts += 1;
        }
        row.executions += 1;
        row.wake_at = match &task.work {
            Work::Timer(Timer::After(length)) => Some(after(*length)),
            Work::Timer(Timer::Until(at)) => Some(*at),
            Work::Approval(_) | Work::Event(_) => task.timeout.map(after),
            _ => None,
        };
        let attempt = row.attempts;
        self.tasks.set_status(key, status);
        (status, attempt)
    }

    /// Makes a task wait for an approval before it starts.
    fn wait_for_approval(&mut self, key: &Key, task: &Task) {
        let status = TaskStatus::WaitingApproval;
        self.tasks.set_status(key, status);
        // The approval may have arrived already.
        self.has_new_waits = true;
        self.store_task(key);
        let mut event = json!({
            "type": "NodeWaiting", "nodeId": key.node, "iteration": key.iteration, "attempt": 0,
            "label": task.name(), "status": status,
        });
        if let Some(ports) = host_ports(task) {
            let ports: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
            event["title"] =
                format!("it uses the proxy {} of this machine", ports.join(" and ")).into();
        }
        self.ledger.event(event);
    }

    /// Whether a sandbox uses a proxy of this machine that the user has not allowed in this run. A sandbox
    /// that has started with the same proxies was allowed. In a sandbox, the host asks.
    fn needs_consent(&self, task: &Task) -> bool {
        let Some(ports) = host_ports(task).filter(|_| self.state.options.sandboxes.is_some())
        else {
            return false;
        };
        let mut started = self.tasks.started();
        !started.any(|key| {
            let known = self.plan.task(key).and_then(|known| host_ports(&known));
            known.is_some_and(|known| ports.is_subset(&known))
        })
    }

    /// Handles an approval: the task may start.
    pub(super) fn start_approved(&mut self, key: &Key) {
        let Some(row) = self.tasks.get_mut(key) else { return };
        // The same state as if a crash had interrupted its first attempt.
        (row.status, row.attempts) = (TaskStatus::Running, 1);
        self.tasks.start_again(key);
        self.store_task(key);
    }

    /// The future of an attempt of a task's work.
    pub(super) fn attempt(&self, key: Key, task: Arc<Task>) -> Attempt {
        let task = task.for_attempt(self.tasks.current_attempt(&key));
        if matches!(task.work, Work::Command { .. }) {
            let agent = self.agent_task(&key, &task);
            return Box::pin(async move {
                let result = agent.execute(&key, &task).await;
                (key, result.map(AttemptOutcome::Value))
            });
        }
        if let Work::Subflow { workflow, input } = &task.work {
            let (workflow, input) = (*workflow, input.clone());
            let child = self.child();
            let (state, user_code, run) =
                (Arc::clone(&self.state), Arc::clone(&self.user_code), self.run.id.clone());
            return Box::pin(async move {
                let result = match child.execute(&key, workflow, input).await {
                    Ok(value) => accept(&state.schemas, &user_code, &run, &task, value).await,
                    Err(error) => Err(error),
                };
                (key, result.map(AttemptOutcome::Value))
            });
        }
        if let Work::Node(node) = &task.work {
            let call = self.node_call(&key, node, task.timeout);
            return Box::pin(async move {
                (key, Box::pin(call.execute()).await.map(AttemptOutcome::Value))
            });
        }
        if matches!(task.work, Work::Sandbox(_)) {
            let attempt = self.sandbox_attempt(key.clone(), task);
            return Box::pin(async move { (key, Box::pin(attempt.execute()).await) });
        }
        let (user_code, run) = (Arc::clone(&self.user_code), self.run.id.clone());
        let demand = self.demand(&key, &task);
        let (number, events) = (self.tasks.current_attempt(&key), Arc::clone(&self.agent_events));
        let secrets = run_secrets::bound(&self.run.environment()).unwrap_or_default();
        let models = Models::new(Arc::clone(&self.state), run.clone(), secrets);
        Box::pin(async move {
            let (demand, models) = (demand.as_str(), Some(&models as &dyn ModelHost));
            let call = TaskCall { run: &run, key: &key, task: &task, demand, models };
            let result = attempt(&user_code, call).await;
            if matches!(task.work, Work::Agent { .. }) {
                let used = user_code.take_usage(call);
                if used.is_some() || result.is_ok() {
                    report(&events, (&key, &task, number), used);
                }
            }
            (key, result.map(AttemptOutcome::Value))
        })
    }

    /// What the answer of an agent must be.
    pub(super) fn demand(&self, key: &Key, task: &Task) -> String {
        match &task.work {
            Work::Agent { .. } | Work::Command { .. } => {
                demand(task, self.tasks.get(key).and_then(|row| row.error.as_ref()))
            }
            _ => String::new(),
        }
    }

    /// The data for an attempt of a `<Sandbox>`.
    fn sandbox_attempt(&self, key: Key, task: Arc<Task>) -> SandboxAttempt {
        let attempt = self.tasks.current_attempt(&key);
        let tools = match &task.work {
            Work::Sandbox(sandbox) => sandbox.tools,
            _ => ToolLimits::default(),
        };
        let enclosing = self.sandboxes.enclosing.clone();
        SandboxAttempt {
            state: Arc::clone(&self.state),
            user_code: Arc::clone(&self.user_code),
            run: self.run.id.clone(),
            name: self.run.attempt_name(&key, attempt),
            owner: self.run.origin.owner.clone(),
            root: self.state.options.project_of(Path::new(&self.run.origin.file)),
            environment: self.run.environment(),
            recorder: Recorder {
                sender: self.sandboxes.sender.clone(),
                key: key.clone(),
                attempt,
                timings: Timings::default(),
                redaction: self.ledger.redaction.clone(),
                lineage: enclosing.as_ref().map(|enclosing| enclosing.lineage.clone()),
            },
            slots: Arc::clone(&self.sandboxes.slots),
            child_runs: Arc::new(self.provider_children(&key, &task, tools)),
            enclosing,
            nested_source: None,
            key,
            task,
        }
    }
}

/// The ports of the host's loopback that a sandbox uses as proxies, if there are any.
fn host_ports(task: &Task) -> Option<BTreeSet<u16>> {
    let Work::Sandbox(sandbox) = &task.work else { return None };
    Some(sandbox.host_ports()).filter(|ports| !ports.is_empty())
}

/// The event of an attempt that starts.
fn started_event(key: &Key, task: &Task, status: TaskStatus, attempt: u32) -> Value {
    let mut event = json!({
        "type": if status.is_waiting() { "NodeWaiting" } else { "NodeStarted" },
        "nodeId": key.node, "iteration": key.iteration, "attempt": attempt,
        "label": task.name(), "status": status,
    });
    // The data that is needed for an answer.
    match &task.work {
        Work::Approval(Approval { title, summary, .. }) => {
            event["title"] = json!(title);
            event["summary"] = json!(summary);
        }
        Work::Event(awaited) => {
            event["signal"] = json!(awaited.name);
            event["correlationId"] = json!(awaited.correlation);
            event["schema"] = json!(task.output.as_ref().and_then(|it| it.schema.as_ref()));
        }
        _ => {}
    }
    event
}
