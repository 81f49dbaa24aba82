//! Loads a workflow file, and looks whether it can be run, before anything of it is.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use stockade_core::{Code, Problem};

use super::commands;
use super::options::Options;
use super::problem::of_author;
use super::schemas::Schemas;
use super::user_code::{Interface, Rendering, UserCode};
use crate::authoring::{Error, Processes};
use crate::built::Built;
use crate::graph::{Graph, Task, Work, unknown};
use crate::journal::Journal;

/// What a workflow file would do with an input: the graph of its first rendering.
///
/// # Errors
/// [`Code::InvalidInput`] for a file that is no workflow, or an input that it does not take.
pub async fn preview(
    realms: Processes,
    file: &Path,
    input: &Value,
    environment: &BTreeMap<String, String>,
) -> Result<Graph, Problem> {
    let schemas = Schemas::default();
    let (_, view) = prepared(realms, file, "preview", input, environment, &schemas).await?;
    Ok(Arc::unwrap_or_clone(view.graph))
}

/// The program of a `<Sandbox>`'s child workflow, as the first rendering of a workflow file with an
/// input has it: what `stockade up` does with `bundle.tsx` of these files, it does without any other.
///
/// # Errors
/// [`Code::InvalidInput`] for a file that is no workflow, an input that it does not take, or a
/// `<Sandbox>` that it does not render.
pub async fn child_program(
    realms: Processes,
    file: &Path,
    input: &Value,
    environment: &BTreeMap<String, String>,
    sandbox: &str,
) -> Result<BTreeMap<String, Vec<u8>>, Problem> {
    let (run, schemas) = ("preview", Schemas::default());
    let (user_code, _) = prepared(realms, file, run, input, environment, &schemas).await?;
    user_code.child_program(run, sandbox).await.map_err(|error| of_author(file, error))
}

/// What a workflow in Rust would do with an input: the graph that it gives first.
///
/// # Errors
/// [`Code::InvalidInput`] for a graph that cannot be done, or an input that it does not take.
pub async fn preview_built(workflow: &Built, input: &Value) -> Result<Graph, Problem> {
    let user_code = UserCode::built(workflow.clone());
    let (file, schemas) = (Path::new(workflow.name()), Schemas::default());
    let view = rendered(&user_code, file, "preview", input, &schemas).await?;
    Ok(Arc::unwrap_or_clone(view.graph))
}

/// An author whose workflow was opened, checked and rendered.
pub(super) async fn prepared(
    realms: Processes,
    file: &Path,
    run: &str,
    input: &Value,
    environment: &BTreeMap<String, String>,
    schemas: &Schemas,
) -> Result<(UserCode, Rendering), Problem> {
    let user_code = UserCode::load(realms, file, environment.clone()).await;
    let user_code = user_code.map_err(|error| of_author(file, error))?;
    let view = rendered(&user_code, file, run, input, schemas).await?;
    Ok((user_code, view))
}

/// The first rendering of a workflow that was opened and checked. `file` is what it is called.
pub(super) async fn rendered(
    user_code: &UserCode,
    file: &Path,
    run: &str,
    input: &Value,
    schemas: &Schemas,
) -> Result<Rendering, Problem> {
    let refused = |error| of_author(file, error);
    let journal = Arc::new(Mutex::new(Journal::new(run, input.clone())));
    let Interface { input: schema, .. } = user_code.open(&journal).await.map_err(refused)?;
    if let Some(schema) = schema
        && let Err(told) = schemas.check(&schema, input)
    {
        let message = format!("the input is not what {} takes", file.display());
        return Err(Problem::new(Code::InvalidInput, message).because(told));
    }
    let view = user_code.render(run).await.map_err(refused)?;
    if view.is_settled() {
        unknown(&view.graph).map_err(|faults| of_author(file, Error::Faults(faults)))?;
    }
    for task in view.graph.tasks() {
        let schema = task.output.as_ref().and_then(|output| output.schema.as_ref());
        if let Some(Err(told)) = schema.map(|schema| schemas.check_schema(schema)) {
            let message = format!("{}the output of task \"{}\"", at(task), task.id);
            return Err(Problem::new(Code::InvalidInput, message).because(told));
        }
    }
    Ok(view)
}

/// Refuses what cannot be executed yet.
pub(super) fn executable(graph: &Graph, options: &Options) -> Result<(), Problem> {
    let mut tasks = graph.tasks().into_iter().filter(|task| !task.is_skipped);
    let refused = tasks.find_map(|task| inexecutable(task, options));
    refused.map_or(Ok(()), |message| Err(Problem::new(Code::Unsupported, message)))
}

/// Why a task cannot be executed yet, where it cannot.
pub(super) fn inexecutable(task: &Task, options: &Options) -> Option<String> {
    let what = match &task.work {
        Work::Command { agent, .. } => match commands::resolve(agent, options.agents.as_deref()) {
            Ok(ready) if ready.network && !options.reaches() => commands::without_network(&task.id),
            Ok(_) if options.sandboxes.is_none() && options.inside.is_none() => {
                commands::no_executor().message
            }
            Ok(_) => return None,
            Err(problem) => {
                let cause = problem.cause.map(|cause| format!(": {cause}")).unwrap_or_default();
                format!("the agent of task \"{}\": {}{cause}", task.id, problem.message)
            }
        },
        _ => return None,
    };
    Some(at(task) + &what)
}

/// The place of a task, to begin a message with.
pub(super) fn at(task: &Task) -> String {
    task.place.as_ref().map(|place| format!("{place} — ")).unwrap_or_default()
}
