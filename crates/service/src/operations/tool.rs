//! `run_tool` and `tools` (seed 003): a tool by its name, in a sandbox that runs.

use std::sync::Arc;

use stockade_api::{Caller, Result, RunTool, Tool, ToolResult};
use stockade_core::{Code, Operation, Problem, State};
use stockade_durable::{Context, Failure, Step};

use super::{life, with_next};
use crate::failure::{to_failure, to_problem};
use crate::guard::Owned;
use crate::operation::{self, Input};
use crate::service::{Inner, Service};
use crate::spec;
use crate::tools::ToolCall;

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.run_tool";

/// How long a tool may take that does not say, in seconds (seed 003).
const TIMEOUT_SECONDS: f64 = 30.0;

/// Runs a tool.
pub(crate) async fn run(
    service: &Service,
    caller: &Caller,
    request: RunTool,
) -> Result<ToolResult> {
    life::wake_up(service, caller, &request.sandbox_id).await?;
    let owned = Owned::check(&*service.inner.store, &caller.owner, &request.sandbox_id).await?;
    if owned.state != State::Running && !owned.state.is_terminal() {
        let message = format!("the sandbox must be running to run a tool, and is {}", owned.state);
        return Err(Problem::new(Code::InvalidState, message)
            .remedied_by(format!("stockade show {}", owned.id)));
    }
    owned.admitting(Operation::Use)?;
    service.inner.tools.find(&request.tool)?;
    spec::duration(request.timeout_seconds.unwrap_or(TIMEOUT_SECONDS))?;
    operation::run(&service.engine, NAME, caller, &request).await
}

/// The tools that there are, by name.
pub(crate) fn list(service: &Service) -> Vec<Tool> {
    service.inner.tools.list()
}

/// The workflow.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<RunTool>,
) -> std::result::Result<ToolResult, Failure> {
    let RunTool { sandbox_id, tool, arguments, timeout_seconds } = input.request;
    let owned = inner.acl(&context, &input.owner, &sandbox_id, Operation::Use).await?;
    let _in_use = inner.activity.begin(&sandbox_id);
    let handler = inner.tools.find(&tool).map_err(to_failure)?;
    let seconds = timeout_seconds.unwrap_or(TIMEOUT_SECONDS);
    let timeout = spec::duration(seconds).map_err(to_failure)?;
    let (status, result) = context
        .step_with("tool", with_next(), async |step: Step| {
            let caller = Caller::new(input.owner.clone()).once(step.key.clone());
            let service = Service { engine: context.engine().clone(), inner: inner.clone() };
            let call = ToolCall {
                service,
                caller,
                sandbox_id: sandbox_id.clone(),
                arguments: arguments.clone(),
                timeout,
            };
            let late = || {
                let message = format!("the tool {tool} timed out after {seconds} s");
                to_failure(Problem::new(Code::TimedOut, message))
            };
            // What a tool starts is bounded by itself; this is for a tool that only waits.
            let answer = tokio::time::timeout(timeout + ToolCall::GRACE, handler.call(call)).await;
            match answer.map_err(|_| late())? {
                Ok(result) => Ok(("ok".to_owned(), result)),
                Err(problem) if problem.code == Code::TimedOut => Err(late()),
                Err(problem) => {
                    // What the tool did not manage is its answer.
                    let failed = to_problem(&to_failure(problem));
                    Ok(("error".to_owned(), serde_json::json!({ "error": failed })))
                }
            }
        })
        .await?;
    context.finish_with(vec![owned.touch()]);
    Ok(ToolResult { tool, arguments, status, result })
}
