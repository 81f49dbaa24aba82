//! `run_tool` and `tools` (Orbiter): runs a tool by its name, in a running sandbox.

use std::sync::Arc;

use serde_json::{Map, Value};
use stockade_api::{Caller, Result, RunTool, Tool, ToolResult};
use stockade_core::{Code, Problem};
use stockade_durable::{Context, Failure, StartOptions, Step, WorkflowId};
use tokio::sync::oneshot;

use super::{execute, record_with_outcome};
use crate::failure::{store_problem, to_failure};
use crate::handoff::{Handoff, Once};
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::owned_sandbox::OwnedSandbox;
use crate::service::Service;
use crate::spec;
use crate::tools::ToolCall;

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.run_tool";

/// The timeout of a tool if the request has none, in seconds (Orbiter's default).
const TIMEOUT_SECONDS: f64 = 30.0;

/// Runs a tool.
pub(crate) async fn run(
    service: &Service,
    caller: &Caller,
    request: RunTool,
) -> Result<ToolResult> {
    let owned =
        OwnedSandbox::check(&*service.inner.store, &caller.owner, &request.sandbox_id).await?;
    if !owned.is_usable() && !owned.state.is_terminal() {
        let message = format!("the sandbox must be running to run a tool, and is {}", owned.state);
        return Err(Problem::new(Code::InvalidState, message)
            .remedied_by(format!("stockade show {}", owned.id)));
    }
    let _used = service.use_sandbox(caller, &request.sandbox_id).await?;
    let handler = service.inner.tools.find(&request.tool)?;
    spec::duration(request.timeout_seconds.unwrap_or(TIMEOUT_SECONDS))?;
    if handler.is_recorded() {
        return operation::run(&service.engine, NAME, caller, &request).await;
    }
    let RunTool { tool, arguments, .. } = request.clone();
    let recorded_request = RunTool { arguments: Map::new(), ..request };
    let (sender, answer) = oneshot::channel();
    let call = Some((arguments.clone(), sender));
    let handoff = Handoff { call, ..Handoff::default() };
    let options = StartOptions::default();
    let started = service.start_with(NAME, caller, &recorded_request, handoff, options);
    let done: ToolResult = started.await?.get_result().await.map_err(store_problem)?;
    let result = answer.await.map_err(|_| {
        Problem::new(Code::Conflict, "the result of an earlier call is not stored")
            .remedied_by("call the tool under another idempotency key")
    })?;
    Ok(ToolResult { tool, arguments, status: done.status, result })
}

/// The problem for a call whose arguments were lost with the process that had them.
fn interrupted() -> Problem {
    Problem::new(Code::OutcomeUnknown, "the server exited during the tool call")
        .because("the arguments of this tool are not recorded")
        .remedied_by("check what it did, then call it again")
}

/// The registered tools, by name.
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
    let handoff = Once::new(inner.handoffs.take(context.id()).and_then(|handed| handed.call));
    let owned = inner.use_in_workflow(&context, &input.owner, &sandbox_id, None).await?;
    let handler = inner.tools.find(&tool).map_err(to_failure)?;
    let seconds = timeout_seconds.unwrap_or(TIMEOUT_SECONDS);
    let timeout = spec::duration(seconds).map_err(to_failure)?;
    let (status, result) = context
        .step_with("tool", record_with_outcome(), async |step: Step| {
            let caller = Caller::new(input.owner.clone()).with_key(step.key.clone());
            let (arguments, answer) = match handoff.take() {
                Some((arguments, answer)) => (arguments, Some(answer)),
                None if handler.is_recorded() => (arguments.clone(), None),
                None => return Err(to_failure(interrupted())),
            };
            let service = Service { engine: context.engine().clone(), inner: inner.clone() };
            let call = ToolCall {
                service: Arc::new(service),
                caller,
                sandbox_id: sandbox_id.clone(),
                arguments,
                timeout,
                paths: inner.clone(),
            };
            let late = || {
                let message = format!("the tool {tool} timed out after {seconds} s");
                to_failure(Problem::new(Code::TimedOut, message))
            };
            // The operations that a tool starts have their own timeout; this one is for a tool that
            // only waits.
            let workflow = ToolWorkflow(operation::workflow_id(&call.caller).map_err(to_failure)?);
            let result = tokio::select! {
                said = handler.call(call) => said,
                () = tokio::time::sleep(timeout + ToolCall::GRACE) => {
                    workflow.cancel(&context).await;
                    return Err(late());
                }
                () = step.token.cancelled() => {
                    if execute::is_cancelled(&context).await {
                        workflow.cancel(&context).await;
                    }
                    return Err(Failure::new("interrupted", "the call was interrupted"));
                }
            };
            let (status, result) = match result {
                Ok(result) => ("ok", result),
                Err(problem) if problem.code == Code::TimedOut => return Err(late()),
                // A failure of the tool is its result.
                Err(problem) => ("error", serde_json::json!({ "error": problem })),
            };
            let stored = match answer {
                None => result,
                Some(answer) => {
                    // The caller may have stopped waiting.
                    let _ = answer.send(result);
                    Value::Null
                }
            };
            Ok((status.to_owned(), stored))
        })
        .await?;
    context.finish_with(vec![owned.touch()]);
    Ok(ToolResult { tool, arguments, status, result })
}

/// The operation that a tool starts under the key that it was given.
struct ToolWorkflow(WorkflowId);

impl ToolWorkflow {
    /// Cancels it, if it was started.
    async fn cancel(&self, context: &Context) {
        let _ = context.engine().cancel(&self.0).await;
    }
}
