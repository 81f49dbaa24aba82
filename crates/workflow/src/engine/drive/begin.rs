//! Tasks begin, and end: what is kept of them, and what follows from a failure.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use stockade_api::TaskStatus;

use super::{Attempt, Drive, phase_of, told};
use crate::engine::clock::now_ms;
use crate::engine::prepare::inexecutable;
use crate::engine::sandbox::Recorder;
use crate::engine::sandbox::{Try, TryOutcome};
use crate::engine::timings::Timings;
use crate::engine::trouble::Trouble;
use crate::engine::user_code::TaskCall;
use crate::engine::user_code::attempt;
use crate::graph::{Approval, Task, Timer, ToolLimits, Work};
use crate::schedule::Key;
use crate::store::sandboxes;
use crate::store::tasks::{self, TaskRow};
use crate::sync::lock;

impl Drive {
    /// What is kept of a task, from now on.
    pub(super) fn row(&mut self, key: &Key, task: &Task) -> &mut TaskRow {
        self.open.insert(key.clone());
        let place = u32::try_from(self.tasks.len()).unwrap_or(u32::MAX);
        self.tasks.entry(key.clone()).or_insert_with(|| TaskRow {
            kind: task.work.kind().to_owned(),
            label: task.name().to_owned(),
            status: TaskStatus::Retrying,
            attempts: 0,
            executions: 0,
            place,
            table: task.output.as_ref().map(|output| output.table.clone()),
            output: None,
            error: None,
            meta: Value::Object(task.meta.clone()),
            bundle: None,
            wake_at: None,
            started_at: now_ms(),
            finished_at: None,
        })
    }

    /// Begins a task; whether it was done at once.
    pub(super) fn begin(&mut self, key: &Key, task: &Arc<Task>) -> bool {
        if self.take_kept(key, task) {
            return true;
        }
        let row = self.row(key, task);
        // What was begun once was allowed.
        if task.needs_approval && row.attempts == 0 {
            self.wait_for_approval(key, task);
            return false;
        }
        let row = self.row(key, task);
        // A try that a crash ended is the same try.
        if row.status != TaskStatus::Running {
            row.attempts += 1;
        }
        row.executions += 1;
        row.wake_at = None;
        row.status = match &task.work {
            Work::Approval(_) => TaskStatus::WaitingApproval,
            Work::Event(_) => TaskStatus::WaitingEvent,
            Work::Timer(_) => TaskStatus::WaitingTimer,
            _ => TaskStatus::Running,
        };
        let limit = |limit: Duration| {
            now_ms().saturating_add(i64::try_from(limit.as_millis()).unwrap_or(i64::MAX))
        };
        row.wake_at = match &task.work {
            Work::Timer(Timer::After(length)) => Some(limit(*length)),
            Work::Timer(Timer::Until(at)) => Some(*at),
            Work::Approval(_) | Work::Event(_) => task.timeout.map(limit),
            _ => None,
        };
        let (status, attempts) = (row.status, row.attempts);
        self.phases.insert(key.clone(), phase_of(status));
        let mut event = json!({
            "type": if status.is_waiting() { "NodeWaiting" } else { "NodeStarted" },
            "nodeId": key.node, "iteration": key.iteration, "attempt": attempts,
            "label": task.name(), "status": status,
        });
        // What whoever answers needs to know.
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
        self.event(event);
        // A later rendering may have what was not there when the run began.
        if let Some(message) = inexecutable(task, &self.state.options) {
            self.fail(key, task, Trouble::new("UNSUPPORTED", message));
            return true;
        }
        match &task.work {
            Work::Static(value) => {
                self.finish(key, task, value.clone());
                return true;
            }
            Work::Compute { .. }
            | Work::Agent { .. }
            | Work::Command { .. }
            | Work::Subflow { .. }
            | Work::Sandbox(_) => {
                self.keep(key);
                self.to_begin.push((key.clone(), Arc::clone(task)));
            }
            Work::Approval(_) | Work::Event(_) | Work::Timer(_) => {
                // An answer may be here already.
                self.has_new_waits = true;
                self.keep(key);
            }
        }
        false
    }

    /// A task is not begun before somebody has decided.
    fn wait_for_approval(&mut self, key: &Key, task: &Task) {
        let row = self.row(key, task);
        row.status = TaskStatus::WaitingApproval;
        let status = row.status;
        self.phases.insert(key.clone(), phase_of(status));
        // It may be here already.
        self.has_new_waits = true;
        self.keep(key);
        self.event(json!({
            "type": "NodeWaiting", "nodeId": key.node, "iteration": key.iteration, "attempt": 0,
            "label": task.name(), "status": status,
        }));
    }

    /// Somebody has said that a task may begin.
    pub(super) fn allowed(&mut self, key: &Key) {
        let Some(row) = self.tasks.get_mut(key) else { return };
        // As one whose first try was ended by a crash.
        (row.status, row.attempts) = (TaskStatus::Running, 1);
        self.phases.remove(key);
        self.keep(key);
    }

    /// A try of a task that is to be done.
    pub(super) fn attempt(&self, key: Key, task: Arc<Task>) -> Attempt {
        if matches!(task.work, Work::Command { .. }) {
            let asked = self.asked_command(&key);
            return Box::pin(async move {
                let result = asked.go(&key, &task).await;
                (key, result.map(TryOutcome::Value))
            });
        }
        if let Work::Subflow { workflow, input } = &task.work {
            let (workflow, input) = (*workflow, input.clone());
            let child = self.child();
            return Box::pin(async move {
                let result = child.run(&key, workflow, input).await;
                (key, result.map(TryOutcome::Value))
            });
        }
        if matches!(task.work, Work::Sandbox(_)) {
            let attempt = self.sandbox(key.clone(), task);
            return Box::pin(async move { (key, attempt.execute().await) });
        }
        let (user_code, run) = (Arc::clone(&self.user_code), self.run.clone());
        Box::pin(async move {
            let call = TaskCall { run: &run, key: &key, task: &task };
            let result = attempt(&user_code, call).await;
            (key, result.map(TryOutcome::Value))
        })
    }

    /// A try of a `<Sandbox>`.
    fn sandbox(&self, key: Key, task: Arc<Task>) -> Try {
        let attempt = self.tasks.get(&key).map_or(1, |row| row.attempts);
        let tools = match &task.work {
            Work::Sandbox(sandbox) => sandbox.tools,
            _ => ToolLimits::default(),
        };
        Try {
            state: Arc::clone(&self.state),
            user_code: Arc::clone(&self.user_code),
            run: self.run.clone(),
            name: self.origin.name_of_try(&self.run, &key, attempt),
            owner: self.origin.owner.clone(),
            root: self.state.options.project_of(Path::new(&self.origin.file)),
            environment: serde_json::from_str(&self.origin.environment).unwrap_or_default(),
            recorder: Recorder {
                sender: self.recorder.0.clone(),
                key: key.clone(),
                attempt,
                timings: Timings::default(),
                lineage: self.enclosing.as_ref().map(|enclosing| enclosing.lineage.clone()),
            },
            slots: Arc::clone(&self.slots),
            child_runs: Arc::new(self.provider_children(&key, &task, tools)),
            enclosing: self.enclosing.clone(),
            nested_source: None,
            key,
            task,
        }
    }

    /// A try has ended.
    pub(super) fn take_outcome(&mut self, key: Key, result: Result<TryOutcome, Trouble>) {
        self.take_news();
        let Some(task) = self.rendered_task(&key) else {
            // The rendering has it no more; what it gave is kept all the same.
            self.orphaned(&key, result);
            return;
        };
        match result {
            Ok(TryOutcome::Value(value)) => self.finish(&key, &task, value),
            Ok(TryOutcome::Review) => self.wait_for_review(&key),
            Ok(TryOutcome::Waits(pause)) => self.wait_for_child(&key, pause),
            Ok(TryOutcome::Host(request)) => self.wait_for_host(&key, &request),
            Err(trouble) => self.fail(&key, &task, trouble),
        }
    }

    /// The changes of a sandbox wait for a decision.
    fn wait_for_review(&mut self, key: &Key) {
        let Some(row) = self.tasks.get_mut(key) else { return };
        row.status = TaskStatus::WaitingApproval;
        let attempt = row.attempts;
        self.phases.insert(key.clone(), phase_of(TaskStatus::WaitingApproval));
        // It may be here already.
        self.has_new_waits = true;
        self.keep(key);
        self.event(json!({
            "type": "NodeWaiting", "nodeId": key.node, "iteration": key.iteration,
            "attempt": attempt, "status": TaskStatus::WaitingApproval,
        }));
    }

    /// The host is asked for a sandbox. It is looked for again when this engine is started again.
    fn wait_for_host(&mut self, key: &Key, request: &str) {
        let Some(row) = self.tasks.get_mut(key) else { return };
        row.status = TaskStatus::WaitingEvent;
        let attempt = row.attempts;
        self.phases.insert(key.clone(), phase_of(TaskStatus::WaitingEvent));
        self.keep(key);
        self.event(json!({
            "type": "NodeWaiting", "nodeId": key.node, "iteration": key.iteration,
            "attempt": attempt, "status": TaskStatus::WaitingEvent, "request": request,
        }));
    }

    /// Somebody has decided about the changes of a sandbox: the same try goes on with it.
    pub(super) fn reviewed(&mut self, key: &Key, task: &Arc<Task>, decision: &Value) {
        let Some(row) = self.tasks.get_mut(key) else { return };
        row.status = TaskStatus::Running;
        self.phases.insert(key.clone(), phase_of(TaskStatus::Running));
        self.keep(key);
        self.gathered.push(sandboxes::decide(&self.run, key, decision));
        self.to_begin.push((key.clone(), Arc::clone(task)));
    }

    /// A task gave something.
    pub(super) fn finish(&mut self, key: &Key, task: &Task, value: Value) {
        if let Some(schema) = task.output.as_ref().and_then(|output| output.schema.as_ref())
            && let Err(told) = self.state.schemas.check(schema, &value)
        {
            let id = &task.id;
            let message = if value.is_null() && matches!(task.work, Work::Compute { .. }) {
                format!("task \"{id}\" gave nothing: a function with braces needs `return`")
            } else {
                format!("task \"{id}\" gave something else than its output: {told}")
            };
            let trouble = Trouble::new("INVALID_OUTPUT", message);
            // An agent may answer better when it is asked again.
            let is_agent = matches!(task.work, Work::Agent { .. } | Work::Command { .. });
            let trouble = if is_agent { trouble.retryable() } else { trouble };
            self.fail(key, task, trouble);
            return;
        }
        self.done(key, TaskStatus::Finished, Some(value));
    }

    /// A task is done, with what it gave or without.
    pub(super) fn done(&mut self, key: &Key, status: TaskStatus, output: Option<Value>) {
        let is_kept = self.keep_answer(key, output.as_ref());
        let Some(row) = self.tasks.get_mut(key) else { return };
        row.status = status;
        row.output = output;
        row.error = None;
        row.wake_at = None;
        row.finished_at = Some(now_ms());
        self.open.remove(key);
        let attempt = row.attempts;
        if let Some(told) = told(key, row) {
            self.is_stale |= row.table.as_ref().is_some_and(|table| self.read.contains(table));
            lock(&self.journal).rows.push(told);
        }
        self.phases.insert(key.clone(), phase_of(status));
        self.keep(key);
        let kind = if status == TaskStatus::Skipped { "NodeSkipped" } else { "NodeFinished" };
        let mut event = json!({
            "type": kind, "nodeId": key.node, "iteration": key.iteration, "attempt": attempt,
        });
        if is_kept {
            event["cacheHit"] = true.into();
        }
        self.event(event);
    }

    /// A try of a task failed: it is tried again, or has failed for good.
    pub(super) fn fail(&mut self, key: &Key, task: &Task, mut trouble: Trouble) {
        if trouble.frames.is_empty() {
            trouble.frames.extend(task.place.as_ref().map(|place| format!("at {place}")));
        }
        self.lookups.remove(key);
        let Some(row) = self.tasks.get_mut(key) else { return };
        let pause = task.retry.pause(row.attempts).filter(|_| trouble.is_retryable);
        row.error = Some(trouble.to_json());
        let attempt = row.attempts;
        match pause {
            Some(pause) => {
                let pause = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
                row.status = TaskStatus::Retrying;
                row.wake_at = Some(now_ms().saturating_add(pause));
            }
            None => {
                row.status = TaskStatus::Failed;
                row.wake_at = None;
                row.finished_at = Some(now_ms());
                self.open.remove(key);
            }
        }
        let status = row.status;
        self.phases.insert(key.clone(), phase_of(status));
        self.keep(key);
        let kind = if status == TaskStatus::Failed { "NodeFailed" } else { "NodeRetrying" };
        self.event(json!({
            "type": kind, "nodeId": key.node, "iteration": key.iteration, "attempt": attempt,
            "error": trouble.to_json(),
        }));
    }

    /// A try has ended whose task the rendering has no more.
    fn orphaned(&mut self, key: &Key, result: Result<TryOutcome, Trouble>) {
        match result {
            Ok(TryOutcome::Value(value)) => self.done(key, TaskStatus::Finished, Some(value)),
            Ok(TryOutcome::Waits(pause)) => {
                // Its sandbox ends with the run.
                self.wait_for_child(key, pause);
                self.done(key, TaskStatus::Skipped, None);
            }
            Ok(TryOutcome::Review | TryOutcome::Host(_)) | Err(_) => {
                self.done(key, TaskStatus::Skipped, None);
            }
        }
    }

    /// Keeps a task as it is now, with the next commit.
    pub(super) fn keep(&mut self, key: &Key) {
        if let Some(row) = self.tasks.get(key) {
            self.gathered.push(tasks::upsert(&self.run, key, row));
        }
    }
}
