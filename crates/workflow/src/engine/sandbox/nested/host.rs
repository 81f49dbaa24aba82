//! The work of the host while a child waits: it executes the nested sandboxes that the child requested,
//! concurrently, and delivers each answer from outside to the sandbox that it is for.

use futures_util::future::join_all;
use stockade_api::{Answer, Wait};

use super::inner_sandbox::{InnerSandbox, Outcome};
use super::request::NestedId;
use crate::engine::clock::now_ms;
use crate::engine::sandbox::attempt::SandboxAttempt;
use crate::engine::sandbox::grant::Grant;
use crate::engine::sandbox::handle::SandboxHandle;
use crate::engine::task_error::TaskError;
use crate::graph::Sandbox;
use crate::store::sandboxes::{self, Pause};

/// How many nested sandboxes a child may request at the same time.
const MAX_AT_ONCE: usize = 16;

/// How a child continues.
pub(in super::super) enum ChildStep {
    /// It is executed again, with the answers of the pause.
    Resume(Pause),
    /// It needs an answer from outside.
    Wait(Pause),
}

/// The sandboxes that a child waits for.
fn requested(pause: &Pause) -> Vec<NestedId> {
    let id = |wait: &Wait| match wait {
        Wait::Sandbox { node, iteration, attempt, request } => Some(NestedId {
            name: request.clone(),
            node: node.clone(),
            iteration: *iteration,
            attempt: *attempt,
        }),
        _ => None,
    };
    pause.waits.iter().filter_map(id).collect()
}

/// Whether a node is a nested sandbox, or is contained in it.
fn matches(id: &NestedId, node: &str, iteration: u32) -> bool {
    let below = node.strip_prefix(id.node.as_str());
    below
        .is_some_and(|rest| rest.starts_with('/') || (rest.is_empty() && iteration == id.iteration))
}

impl SandboxAttempt {
    /// Executes the sandboxes that a child waits for, as far as that is possible now.
    ///
    /// # Errors
    /// `INVALID_INPUT` for a child that must not request sandboxes.
    pub(in super::super) async fn execute_nested(
        &self,
        sandbox: &Sandbox,
        handle: &SandboxHandle,
        pause: Pause,
    ) -> Result<ChildStep, TaskError> {
        let requested = requested(&pause);
        let is_own =
            |node: &str, iteration| !requested.iter().any(|it| matches(it, node, iteration));
        let is_due = |wait: &Wait| wait.due_ms().is_some_and(|due| due <= now_ms());
        let own: Vec<Wait> = pause
            .waits
            .iter()
            .filter(|wait| {
                matches!(wait, Wait::Sandbox { .. }) || is_own(wait.node(), wait.iteration())
            })
            .cloned()
            .collect();
        if requested.is_empty() {
            let goes_on = !pause.answers.is_empty() || own.iter().any(is_due);
            return Ok(if goes_on { ChildStep::Resume(pause) } else { ChildStep::Wait(pause) });
        }
        if requested.len() > MAX_AT_ONCE {
            let message =
                format!("a child requests more than {MAX_AT_ONCE} nested <Sandbox> at once");
            return Err(TaskError::new("INVALID_INPUT", message));
        }
        let depth = self.enclosing.as_ref().map_or(0, |enclosing| enclosing.lineage.depth);
        let grant = Grant::of(sandbox, self.task.timeout, self.tools(sandbox), depth)?;
        let inner = requested.iter().map(|id| InnerSandbox::new(self, handle, &grant, id));
        let inner = inner.collect::<Result<Vec<_>, _>>()?;
        for one in &inner {
            one.deliver(&pause.answers).await?;
        }
        let is_for_child = |answer: &&Answer| {
            let (node, iteration) = answer.origin();
            matches!(answer, Answer::Sandbox { .. }) || is_own(node, iteration)
        };
        let mut answers: Vec<Answer> = pause.answers.iter().filter(is_for_child).cloned().collect();
        let mut waits = own;
        if answers.is_empty() && !waits.iter().any(is_due) {
            let all = join_all(inner.iter().map(InnerSandbox::execute));
            for (one, outcome) in inner.iter().zip(self.keep_alive(handle, all).await?) {
                match outcome? {
                    Outcome::Returned => answers.push(one.answer()),
                    Outcome::Waits(more) => waits.extend(more),
                }
            }
            if answers.is_empty() {
                return Ok(ChildStep::Wait(Pause { waits, answers, ..pause }));
            }
        }
        let pause = Pause { waits, answers, ..pause };
        let resume = sandboxes::resume(&self.run, &self.key, &pause, now_ms());
        self.recorder.record(Vec::new(), vec![resume]).await?;
        Ok(ChildStep::Resume(pause))
    }

    /// Keeps the sandbox of a child alive while the host works for it.
    async fn keep_alive<T>(
        &self,
        handle: &SandboxHandle,
        work: impl Future<Output = T>,
    ) -> Result<T, TaskError> {
        let mut work = std::pin::pin!(work);
        loop {
            if let Some(done) = handle.while_alive(work.as_mut()).await? {
                return Ok(done);
            }
            let heartbeat = sandboxes::heartbeat(&self.run, &self.key, now_ms());
            self.recorder.record(Vec::new(), vec![heartbeat]).await?;
        }
    }
}
