//! Plans the next steps, and starts them.

use std::sync::Arc;

use serde_json::Value;

use super::outcome::End;
use super::state::Execution;
use crate::engine::task_error::TaskError;
use crate::graph::{Graph, Task, Work, nearest};
use crate::journal::current_iterations;
use crate::schedule::{LoopStep, Phase};
use crate::store::loops;
use crate::sync::lock;

/// The result of planning.
pub(super) enum Step {
    /// A task was finished immediately, so there may be more to start.
    Repeat,
    /// There is nothing more to start now.
    Wait,
    /// The run has ended.
    End(End),
    /// The run ends, and continues as a new one with this state.
    Continue(Value),
}

impl Execution {
    /// Starts the tasks that can start now. Tasks without waiting time are finished immediately.
    pub(super) fn plan_next(&mut self, is_idle: bool) -> Step {
        let graph = Arc::clone(self.plan.graph());
        let plan = self.plan.next(&graph, &self.tasks, self.run.max_concurrency);
        if !plan.failed.is_empty() {
            // Running attempts may end; no new one starts.
            if !is_idle {
                return Step::Wait;
            }
            let first =
                plan.failed.iter().min_by_key(|key| self.tasks.get(key).map(|row| row.position));
            let error = first.and_then(|key| Some((key, self.tasks.get(key)?.error.clone()?)));
            let error = error.map_or(Value::Null, |(key, mut error)| {
                error["task"] = key.node.as_str().into();
                error
            });
            return Step::End(End::Failed(error));
        }
        let next = plan.ready.iter().find_map(|(_, task)| match &task.work {
            Work::Continue(state) => Some(state.clone()),
            _ => None,
        });
        if let Some(state) = next {
            return if is_idle { Step::Continue(state) } else { Step::Wait };
        }
        if plan.is_finished {
            return Step::End(End::Finished(self.output()));
        }
        for (name, step) in &plan.loops {
            if let Some(task_error) = self.advance_loop(name, *step) {
                return Step::End(End::Failed(task_error.to_json()));
            }
        }
        let mut moved = !plan.loops.is_empty();
        for (key, task) in &plan.ready {
            moved |= self.queue.look_up(key, task) || self.start(key, task);
        }
        let is_stuck = plan.ready.is_empty() && plan.loops.is_empty() && is_idle;
        if is_stuck && !self.tasks.has_open_in(&[Phase::Running, Phase::Waiting]) {
            let task_error = deadlock_error(&graph, &plan.blocked);
            return Step::End(End::Failed(task_error.to_json()));
        }
        if moved && !self.plan.is_stale() { Step::Repeat } else { Step::Wait }
    }

    /// Starts the next iteration of a loop, or ends the loop; returns the failure of a loop that must
    /// not end this way.
    fn advance_loop(&mut self, name: &str, step: LoopStep) -> Option<TaskError> {
        let state = self.tasks.loop_mut(name);
        match step {
            LoopStep::Again => state.iteration += 1,
            LoopStep::End | LoopStep::Maximum { fails: false } => state.has_ended = true,
            LoopStep::Maximum { fails: true } => {
                let message = format!(
                    "loop \"{name}\" ran {} times, and its condition is still not met",
                    state.iteration + 1
                );
                return Some(TaskError::new("LOOP_MAX_ITERATIONS", message));
            }
        }
        let state = *state;
        self.ledger.push(loops::upsert(&self.run.id, name, state));
        let loops = self.tasks.loops().iter().map(|(name, state)| (name, state.iteration));
        lock(&self.run.journal).iterations = current_iterations(loops);
        self.plan.mark_stale();
        None
    }
}

/// The failure of a run in which no task can start although not all have finished.
fn deadlock_error(graph: &Graph, blocked: &[(&Task, Vec<&str>)]) -> TaskError {
    let known: Vec<&str> = graph.tasks().iter().map(|task| task.id.as_str()).collect();
    let mut reasons = Vec::new();
    let mut frames = Vec::new();
    for (task, missing) in blocked {
        let missing = missing.iter().map(|id| {
            let others = known.iter().copied().filter(|known| *known != task.id);
            match nearest(id, others) {
                Some(meant) => format!("\"{id}\", which is not a task — did you mean \"{meant}\"?"),
                None => format!("\"{id}\", which is not a task"),
            }
        });
        let missing = missing.collect::<Vec<_>>().join(" and ");
        reasons.push(format!("task \"{}\" waits for {missing}", task.id));
        frames.extend(task.location.as_ref().map(|place| format!("at {place}")));
    }
    if reasons.is_empty() {
        reasons.push("no task can run, and not all tasks are finished".to_owned());
    }
    TaskError { frames, ..TaskError::new("WORKFLOW_INVALID", reasons.join("; ")) }
}
