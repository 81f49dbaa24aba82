//! A run as a durable workflow: the process that owns the workflow executes the run, and one commit
//! ends both.

use std::sync::Arc;

use serde_json::{Value, json};
use stockade_api::RunStatus;
use stockade_durable::{Builder, Context, Failure, Store};

pub(super) use super::durable_run::{Input, NAME, workflow_id};
use super::execution::{End, Execution};
use super::options::Options;
use super::program;
use super::redaction::Redaction;
use super::state::EngineState;
use super::task_error::TaskError;
use super::user_code::UserCode;
use crate::engine::clock::now_ms;
use crate::journal::Journal;
use crate::store::runs;

pub(super) fn register(builder: Builder, state: &Arc<EngineState>) -> Builder {
    let state = Arc::clone(state);
    builder.workflow(NAME, move |context: Context, input: Input| {
        let state = Arc::clone(&state);
        async move { run(state, context, input).await }
    })
}

async fn run(
    state: Arc<EngineState>,
    context: Context,
    Input { run }: Input,
) -> Result<Value, Failure> {
    let prepared = state.take_prepared(&run);
    let failed = |error: &Value| runs::end(&run, RunStatus::Failed, now_ms(), None, Some(error));
    let done = match prepare(&state, &context, &run, prepared).await {
        Ok(Ok(execution)) => execution.run_to_end().await,
        Ok(Err(task_error)) => {
            let error = task_error.to_json();
            let end = failed(&error);
            Ok((End::Failed(error), vec![end]))
        }
        Err(failure) => Err(failure),
    };
    if matches!(done, Ok((End::Finished(_) | End::Failed(_), _))) {
        state.secrets.remove(&run);
    }
    let (end, statements) = match done {
        Ok(done) => done,
        Err(failure) => {
            // If the execution only stops, none of this is stored.
            let error = json!({ "code": failure.code, "message": failure.message });
            context.finish_with_on_failure(vec![failed(&error)]);
            return Err(failure);
        }
    };
    match end {
        End::Finished(output) => {
            context.finish_with(statements);
            Ok(output)
        }
        End::Failed(error) => {
            context.finish_with_on_failure(statements);
            let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
            Err(Failure::new(text("code"), text("message")).with_details(error.clone()))
        }
    }
}

/// The execution of the run. Uses the user's code that was already loaded for it, or loads it now.
async fn prepare(
    state: &Arc<EngineState>,
    context: &Context,
    run: &str,
    prepared: Option<UserCode>,
) -> Result<Result<Execution, TaskError>, Failure> {
    let store: &dyn Store = state.store();
    let no_record = || Failure::new("not_found", format!("there is no record of run {run}"));
    let row = runs::find(store, run).await?.ok_or_else(no_record)?;
    context.wait(state.servers.wait(run, &row.environment)).await?;
    let redaction = Redaction::default();
    redaction.add_environment(&row.environment);
    let refused = |error| Ok(Err(redaction.task_error(TaskError::from(error))));
    let user_code = match prepared {
        Some(user_code) => user_code,
        None => {
            let program = program::stored(store, &row.run.program).await?.ok_or_else(no_record)?;
            let Options { realms, rust_workflows: built, .. } = &state.options;
            match UserCode::of(program, realms, row.environment, built) {
                Ok(user_code) => user_code,
                Err(error) => return refused(error),
            }
        }
    };
    let journal = Arc::new(std::sync::Mutex::new(Journal::new(run, row.run.input)));
    let user_code = Arc::new(user_code);
    let interface = match user_code.open(&journal).await {
        Ok(interface) => interface,
        Err(error) => return refused(error),
    };
    let (state, context) = (Arc::clone(state), context.clone());
    Ok(
        Ok(Execution::new(state, context, user_code, journal, interface, row.max_concurrency)
            .await?),
    )
}
