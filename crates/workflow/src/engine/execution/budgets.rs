//! The budgets of `<Aspects>`: what happens to a task that starts, or has ended, when a budget is exceeded.

use std::sync::Arc;

use serde_json::json;
use stockade_api::TaskStatus;

use super::state::{AgentEvents, Execution};
use super::token_count::USAGE;
use crate::authoring::TokenUsage;
use crate::engine::clock::now_ms;
use crate::engine::task_error::TaskError;
use crate::graph::{Budget, Exceeded, Task, Work};
use crate::schedule::Key;
use crate::sync::lock;

/// Adds the event of an attempt whose agent has told what it used, or a warning if a budget counts it.
pub(super) fn report(
    events: &AgentEvents,
    (key, task, attempt): (&Key, &Task, u32),
    used: Option<TokenUsage>,
) {
    let event = match used {
        Some(TokenUsage { input_tokens, output_tokens }) => json!({
            "type": USAGE, "nodeId": key.node, "iteration": key.iteration, "attempt": attempt,
            "inputTokens": input_tokens, "outputTokens": output_tokens,
        }),
        None if task.budgets.tokens.is_some() => json!({
            "type": "Log", "level": "warn", "message": format!(
                "the agent of task \"{}\" did not say how many tokens it used, so `tokenBudget` does not count them: \
                 return `usage` with `inputTokens` and `outputTokens` beside the answer",
                task.id,
            ),
        }),
        None => return,
    };
    lock(events).push((key.clone(), event));
}

impl Execution {
    /// Applies the budgets of a task that is about to start; returns whether it has ended instead.
    pub(super) fn ends_by_budget(&mut self, key: &Key, task: &Arc<Task>) -> bool {
        if matches!(task.work, Work::Approval(_) | Work::Event(_) | Work::Timer(_)) {
            return false;
        }
        let elapsed = now_ms().saturating_sub(self.run.origin.created_at);
        let elapsed = u64::try_from(elapsed).unwrap_or_default();
        let used = [
            (task.budgets.tokens, self.tokens.total(), "tokens", "tokenBudget"),
            (task.budgets.time, elapsed, "ms", "latencySlo"),
        ];
        for (budget, used, unit, name) in used {
            let Some(Budget { most, exceeded, .. }) = budget.filter(|budget| used >= budget.most)
            else {
                continue;
            };
            let message = format!(
                "task \"{}\" is over the `{name}` of its <Aspects>: the run has used {used} of {most} {unit}",
                task.id
            );
            match exceeded {
                Exceeded::Warn => self.warn(message),
                Exceeded::Skip => {
                    self.tasks.start(key, task);
                    self.warn(message);
                    self.close_task(key, TaskStatus::Skipped, None);
                    return true;
                }
                Exceeded::Fail => {
                    self.tasks.start(key, task);
                    self.fail(key, task, over_budget(message));
                    return true;
                }
            }
        }
        false
    }

    /// Applies the budget of one task to a task that has an output; returns its failure.
    pub(super) fn over_own_budget(&mut self, key: &Key, task: &Task) -> Option<TaskError> {
        let budget = task.budgets.tokens?;
        let most = budget.per_task?;
        let used = self.tokens.of(key).filter(|used| *used > most)?;
        let message = format!(
            "task \"{}\" is over the `tokenBudget.perTask` of its <Aspects>: it has used {used} of {most} tokens",
            task.id
        );
        if budget.exceeded == Exceeded::Fail {
            return Some(over_budget(message));
        }
        self.warn(message);
        None
    }

    fn warn(&mut self, message: String) {
        self.ledger.event(json!({ "type": "Log", "level": "warn", "message": message }));
    }
}

fn over_budget(message: String) -> TaskError {
    TaskError::new("ASPECT_BUDGET_EXCEEDED", message)
}
