//! Loads a workflow, and checks that it can be executed, before a run of it starts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use stockade_core::{Code, Problem};

use super::base_branch;
use super::commands;
use super::options::Options;
use super::problem::from_user_code;
use super::redaction::Redaction;
use super::sandbox::{impossible, impossible_node};
use super::schemas::Schemas;
use super::user_code::{Interface, Rendering, UserCode};
use crate::authoring::{Error, Processes};
use crate::graph::{Graph, Task, Work, unknown};
use crate::journal::{CONTINUATION, Journal};
use crate::rust_workflow::RustWorkflow;

/// The graph of the first rendering of a workflow file with an input.
///
/// # Errors
/// [`Code::InvalidInput`] for a file that is not a workflow, or an input that it does not accept.
pub async fn preview(
    realms: Processes,
    file: &Path,
    input: &Value,
    environment: &BTreeMap<String, String>,
) -> Result<Graph, Problem> {
    let schemas = Schemas::default();
    let (_, rendering) = load(realms, file, "preview", input, environment, &schemas).await?;
    Ok(Arc::unwrap_or_clone(rendering.graph))
}

/// The program of a `<Sandbox>`'s child workflow, in the first rendering of a workflow file with an
/// input. `stockade up` can execute `bundle.tsx` of these files without any other file.
///
/// # Errors
/// [`Code::InvalidInput`] for a file that is not a workflow, an input that it does not accept, or a
/// `<Sandbox>` that it does not render.
pub async fn child_program(
    realms: Processes,
    file: &Path,
    input: &Value,
    environment: &BTreeMap<String, String>,
    sandbox: &str,
) -> Result<BTreeMap<String, Vec<u8>>, Problem> {
    let (run, schemas) = ("preview", Schemas::default());
    let (user_code, _) = load(realms, file, run, input, environment, &schemas).await?;
    user_code.child_program(run, sandbox).await.map_err(|error| from_user_code(file, error))
}

/// The graph of the first rendering of a workflow in Rust with an input.
///
/// # Errors
/// [`Code::InvalidInput`] for a graph that cannot be executed, or an input that it does not accept.
pub async fn preview_rust(workflow: &RustWorkflow, input: &Value) -> Result<Graph, Problem> {
    let user_code = UserCode::of_rust(workflow.clone());
    let (file, schemas) = (Path::new(workflow.name()), Schemas::default());
    let rendering = check(&user_code, file, "preview", input, &schemas).await?;
    Ok(Arc::unwrap_or_clone(rendering.graph))
}

/// Loads a workflow file, checks it and renders it.
pub(super) async fn load(
    realms: Processes,
    file: &Path,
    run: &str,
    input: &Value,
    environment: &BTreeMap<String, String>,
    schemas: &Schemas,
) -> Result<(UserCode, Rendering), Problem> {
    let redaction = Redaction::default();
    redaction.add_environment(environment);
    let user_code = UserCode::load(realms, file, environment.clone()).await;
    let user_code = user_code.map_err(|error| redaction.problem(from_user_code(file, error)))?;
    let rendering = check(&user_code, file, run, input, schemas).await;
    let rendering = rendering.map_err(|problem| redaction.problem(problem))?;
    check_sandboxes(&rendering.graph, environment).map_err(|problem| redaction.problem(problem))?;
    Ok((user_code, rendering))
}

/// Opens a workflow, checks it and renders it. `file` is its name in errors.
pub(super) async fn check(
    user_code: &UserCode,
    file: &Path,
    run: &str,
    input: &Value,
    schemas: &Schemas,
) -> Result<Rendering, Problem> {
    let refused = |error| from_user_code(file, error);
    let journal = Arc::new(Mutex::new(Journal::new(run, input.clone())));
    let Interface { input: schema, .. } = user_code.open(&journal).await.map_err(refused)?;
    let mut own = input.clone();
    if let Value::Object(own) = &mut own {
        own.remove(CONTINUATION);
    }
    if let Some(schema) = schema
        && let Err(why) = schemas.check(&schema, &own)
    {
        let message = format!("the input does not match the schema of {}", file.display());
        return Err(Problem::new(Code::InvalidInput, message).because(why));
    }
    let rendering = user_code.render(run).await.map_err(refused)?;
    if rendering.is_settled() {
        unknown(&rendering.graph).map_err(|faults| from_user_code(file, Error::Faults(faults)))?;
    }
    for task in rendering.graph.tasks() {
        let schema = task.output.as_ref().and_then(|output| output.schema.as_ref());
        if let Some(Err(why)) = schema.map(|schema| schemas.check_schema(schema)) {
            let message = format!("{}the output of task \"{}\"", location_prefix(task), task.id);
            return Err(Problem::new(Code::InvalidInput, message).because(why));
        }
    }
    Ok(rendering)
}

/// Rejects a graph with tasks that cannot be executed.
pub(super) fn check_executable(
    graph: &Graph,
    options: &Options,
    file: &Path,
) -> Result<(), Problem> {
    let mut tasks = graph.tasks().into_iter().filter(|task| !task.is_skipped);
    let refused = tasks.find_map(|task| inexecutable(task, options, file));
    refused.map_or(Ok(()), |message| Err(Problem::new(Code::Unsupported, message)))
}

/// Why a task of a workflow file cannot be executed; `None` if it can.
pub(super) fn inexecutable(task: &Task, options: &Options, file: &Path) -> Option<String> {
    let base = task.worktree.as_ref().and_then(|worktree| worktree.base.as_deref());
    let mismatch = base.and_then(|base| base_branch::mismatch(&options.project_of(file), base));
    let mismatch = mismatch.map(|why| location_prefix(task) + "<Worktree> " + &why);
    mismatch.or_else(|| task.works().find_map(|work| inexecutable_work(task, work, options)))
}

fn inexecutable_work(task: &Task, work: &Work, options: &Options) -> Option<String> {
    let what = match work {
        Work::Command { agent, .. } => match commands::resolve(agent, options.agents.as_deref()) {
            Ok(ready) if task.budgets.tokens.is_some() && !ready.tells_tokens() => format!(
                "the agent of task \"{}\" does not say how many tokens it uses, so it cannot be in a \
                 `tokenBudget` of <Aspects>: use another agent, such as ClaudeCodeAgent, or an adapter with `tokens`",
                task.id
            ),
            Ok(ready) if ready.network && !options.has_network() => {
                commands::without_network(&task.id)
            }
            Ok(_) if options.sandboxes.is_none() && options.outer_sandbox.is_none() => {
                commands::no_executor().message
            }
            Ok(_) => return None,
            Err(problem) => {
                let cause = problem.cause.map(|cause| format!(": {cause}")).unwrap_or_default();
                format!("the agent of task \"{}\": {}{cause}", task.id, problem.message)
            }
        },
        Work::Node(_) if options.sandboxes.is_none() => commands::no_executor().message,
        _ => return None,
    };
    Some(location_prefix(task) + &what)
}

/// Rejects a graph with a sandbox that can never be executed.
fn check_sandboxes(graph: &Graph, environment: &BTreeMap<String, String>) -> Result<(), Problem> {
    let tasks = graph.tasks().into_iter().filter(|task| !task.is_skipped);
    for task in tasks {
        if let Some(reason) = impossible_sandbox(task, environment) {
            return Err(Problem::new(Code::InvalidInput, location_prefix(task) + &reason));
        }
    }
    Ok(())
}

/// Why a task is a sandbox that can never be executed; `None` if it can, or is none.
pub(super) fn impossible_sandbox(
    task: &Task,
    environment: &BTreeMap<String, String>,
) -> Option<String> {
    match &task.work {
        Work::Sandbox(sandbox) => impossible(sandbox, environment),
        Work::Node(node) => impossible_node(node, environment),
        _ => None,
    }
}

/// The location of a task, as the prefix of a message.
pub(super) fn location_prefix(task: &Task) -> String {
    task.location.as_ref().map(|location| format!("{location} — ")).unwrap_or_default()
}
