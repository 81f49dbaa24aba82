//! A run that continues from a step of another one. What had ended when the step started is copied; the
//! files of the project are those of that moment, in a directory of their own. Of the other run, nothing
//! is changed.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::Deserialize as _;
use serde_json::Value;
use stockade_api::{Caller, Fork, ForkOrigin, Result, Run, TaskStatus};
use stockade_core::{Code, Problem};
use stockade_durable::Statement;

use super::super::commands;
use super::super::execution::journal_row;
use super::super::prepare::check_executable;
use super::super::problem::{from_store, from_user_code};
use super::super::start::{RunId, RunRequest};
use super::super::user_code::UserCode;
use super::super::workflows::Workflows;
use super::super::{program, project_files, run_secrets};
use crate::graph::{Graph, Node};
use crate::journal::Journal;
use crate::schedule::{Key, LoopState};
use crate::store::runs::RunRow;
use crate::store::tasks::TaskRow;
use crate::store::{events, loops, run_state, tasks};

/// How many letters of a run's id are in the name of its directory.
const SHORT_ID: usize = 8;

/// What the events of a run say about one of its steps.
struct History {
    /// The number of its first event.
    started: i64,
    /// The agents that have changed files.
    changed: Vec<Key>,
}

/// The rows of tasks, by their keys.
type Rows = HashMap<Key, TaskRow>;

impl Workflows {
    pub(super) async fn fork_run(&self, caller: &Caller, request: Fork) -> Result<Run> {
        if caller.remote {
            let message =
                "a request over the network cannot make a directory of the server's machine";
            return Err(Problem::new(Code::Forbidden, message)
                .remedied_by("on the server's machine: stockade up --from RUN:STEP"));
        }
        let row = self.find_own(caller, &request.source).await?;
        if row.run.parent_id.is_some() {
            let message =
                format!("{} is a child run: fork the run that has started it", row.run.id);
            return Err(Problem::new(Code::InvalidInput, message));
        }
        run_secrets::check_named(&row.run.id, &row.environment, request.secrets.keys())?;
        let id = match self.reserve_id(caller, request.run_id.clone()).await? {
            RunId::Existing(run) => return Ok(*run),
            RunId::New(id) => id,
        };
        self.state.servers.copy(&row.run.id, &id, &row.environment);
        let given = self.state.servers.renew(&id, &row.environment, request.server.clone()).await;
        // There is no run yet that could be resumed.
        given.map_err(|problem| match problem.code {
            Code::Unauthenticated => {
                problem.remedied_by("STOCKADE_API_KEY=KEY stockade up --from RUN:STEP")
            }
            _ => problem,
        })?;
        let state = run_state::load(self.state.store(), &row.run.id).await.map_err(from_store)?;
        let step = find_step(&state.tasks, &row, &request)?;
        let history = self.history(&row, &step).await?;
        let done = ended_before(&state.tasks, &step, &history)?;
        let options = &self.state.options;
        let stored = program::stored(self.state.store(), &row.run.program).await;
        let stored = stored.map_err(from_store)?.ok_or_else(|| {
            Problem::new(Code::NotFound, format!("the program of run {} is not stored", row.run.id))
        })?;
        let file = PathBuf::from(&row.run.file);
        let refused = |error| from_user_code(&file, error);
        let (realms, known) = (&options.realms, &options.rust_workflows);
        let user_code = UserCode::of(stored, realms, row.environment.clone(), known);
        let user_code = user_code.map_err(refused)?;
        let journal = journal(&id, &row.run.input, &done);
        user_code.open(&journal).await.map_err(refused)?;
        let rendering = user_code.render(&id).await.map_err(refused)?;
        let loops = loop_states(&rendering.graph, &state.loops, &state.tasks, (&done, &step));
        check_executable(&rendering.graph, options, &file)?;
        let at = (&step, history.started);
        let directory = self.forked_files(&row, at, &id, request.directory).await?;
        let origin = ForkOrigin {
            run: row.run.id.clone(),
            task: step.node.clone(),
            iteration: step.iteration,
            tasks: done.len() as u64,
            directory: directory.as_ref().map(|(root, _)| root.clone()),
        };
        let mut statements: Vec<Statement> =
            done.iter().map(|(key, row)| tasks::upsert(&id, key, row)).collect();
        statements.extend(loops.iter().map(|(name, state)| loops::upsert(&id, name, *state)));
        self.state.secrets.add(&id, request.secrets);
        let new = RunRequest {
            id,
            file: directory.map_or(file, |(_, file)| file),
            input: row.run.input,
            environment: row.environment,
            max_concurrency: row.max_concurrency,
            fork: Some((origin, statements)),
        };
        // The execution opens a realm of its own, with the rows as they are stored.
        let user_code = UserCode::of(user_code.program(), realms, new.environment.clone(), known);
        let user_code = user_code.map_err(|error| from_user_code(&new.file, error))?;
        self.submit(caller, new, user_code, &rendering).await
    }

    /// The step that a run was forked from, if it was.
    pub(super) async fn origin_of_fork(&self, run: &str) -> Result<Option<ForkOrigin>> {
        let first = events::list(self.state.store(), run, 0, 1).await.map_err(from_store)?;
        let origin = first.first().and_then(|(_, event)| event.get("forkedFrom"));
        Ok(origin.and_then(|origin| ForkOrigin::deserialize(origin).ok()))
    }

    /// What the events of a run say about a step.
    async fn history(&self, row: &RunRow, step: &Key) -> Result<History> {
        let mut history = History { started: i64::MAX, changed: Vec::new() };
        let mut from = 0;
        loop {
            let page = events::list(self.state.store(), &row.run.id, from, super::MAX_EVENTS).await;
            let page = page.map_err(from_store)?;
            let Some((last, _)) = page.last() else { return Ok(history) };
            from = last + 1;
            for (seq, event) in page {
                let Some(key) = key_of(&event) else { continue };
                if key == *step {
                    history.started = history.started.min(seq);
                }
                if event["type"] == "NodeBundle" {
                    history.changed.push(key);
                }
            }
        }
    }

    /// Makes the directory with the files of the project; returns it and the workflow file in it. `None`
    /// if no step of the run works on files.
    async fn forked_files(
        &self,
        row: &RunRow,
        (step, started): (&Key, i64),
        id: &str,
        directory: Option<PathBuf>,
    ) -> Result<Option<(PathBuf, PathBuf)>> {
        let Some(data) = self.state.options.data.clone() else { return Ok(None) };
        let file = PathBuf::from(&row.run.file);
        let project = self.state.options.project_of(&file);
        let (source, step) = (row.run.id.clone(), step.clone());
        let directory = directory.unwrap_or_else(|| beside(&project, id));
        let made = tokio::task::spawn_blocking(move || {
            let tree = project_files::tree_at(&data, &project, &source, (&step, started))?;
            let Some(tree) = tree else { return Ok(None) };
            let root = project_files::restore(&data, &project, tree, &directory)?;
            let inside = file.strip_prefix(&project).map(|name| root.join(name));
            let inside = inside.unwrap_or_else(|_| file.clone());
            if commands::project_of(&inside) == root {
                return Ok(Some((root, inside)));
            }
            // A run would work on the project around it.
            let _ = std::fs::remove_dir_all(&root);
            let message = format!("{} is a part of another project", root.display());
            Err(Problem::new(Code::InvalidInput, message)
                .because("a directory above it has a .git or a package.json")
                .remedied_by("name a directory outside of it with --directory"))
        });
        made.await.map_err(|error| Problem::new(Code::Io, error.to_string()))?
    }
}

/// The directory of a forked run, beside the project.
fn beside(project: &Path, id: &str) -> PathBuf {
    let mut name = project.file_name().unwrap_or_default().to_owned();
    // The beginning of a generated id is the time.
    let short = &id[id.len().saturating_sub(SHORT_ID)..];
    name.push(format!("-fork-{short}"));
    project.with_file_name(name)
}

/// The step of a run.
fn find_step(rows: &Rows, row: &RunRow, request: &Fork) -> Result<Key> {
    let (run, task) = (&row.run.id, &request.task);
    let mut found: Vec<&Key> = rows.keys().filter(|key| key.node == *task).collect();
    found.sort();
    if let Some(iteration) = request.iteration {
        found.retain(|key| key.iteration == iteration);
    }
    match found.as_slice() {
        [only] => Ok((*only).clone()),
        [] => {
            let mut known: Vec<String> = rows.keys().map(shown).collect();
            known.sort();
            let message = format!("run {run} has not started the step \"{task}\"");
            Err(Problem::new(Code::NotFound, message)
                .because(format!("it has started {}", known.join(", ")))
                .remedied_by(format!("stockade inspect {run}")))
        }
        several => {
            let all: Vec<String> = several.iter().map(|key| shown(key)).collect();
            let message = format!("\"{task}\" was started in several iterations of its loop");
            Err(Problem::new(Code::InvalidInput, message)
                .because(format!("name one of {}", all.join(", ")))
                .remedied_by(format!("stockade up --from {run}:{}", all[0])))
        }
    }
}

/// The step that an event is about.
fn key_of(event: &Value) -> Option<Key> {
    let iteration = event["iteration"].as_u64().and_then(|number| u32::try_from(number).ok())?;
    Some(Key { node: event["nodeId"].as_str()?.to_owned(), iteration })
}

/// A step as a user names it.
fn shown(key: &Key) -> String {
    format!("{}#{}", key.node, key.iteration)
}

/// The tasks that had ended when a step started, without what belongs to the other run alone.
fn ended_before(rows: &Rows, step: &Key, history: &History) -> Result<Vec<(Key, TaskRow)>> {
    let Some(first) = rows.get(step) else { return Ok(Vec::new()) };
    let is_over = |row: &TaskRow| {
        row.position < first.position
            && row.finished_at.is_some_and(|at| at <= first.started_at)
            && matches!(row.status, TaskStatus::Finished | TaskStatus::Skipped | TaskStatus::Failed)
    };
    let mut done: Vec<(Key, TaskRow)> = Vec::new();
    for (key, row) in rows.iter().filter(|(_, row)| is_over(row)) {
        // The changes of agents come to the project after their run, not before.
        if history.changed.contains(key) {
            let message = format!(
                "the changes of the agent of \"{}\" were no part of the project when \"{}\" started",
                key.node, step.node
            );
            return Err(Problem::new(Code::Unsupported, message)
                .because("the changes of all agents are one bundle, which is decided after the run")
                .remedied_by(format!("fork from \"{}\" or an earlier step", key.node)));
        }
        let row = TaskRow { bundle: None, wake_at: None, ..row.clone() };
        done.push((key.clone(), row));
    }
    done.sort_by_key(|(_, row)| row.position);
    Ok(done)
}

/// The data of the new run that its workflow can query.
fn journal(run: &str, input: &Value, done: &[(Key, TaskRow)]) -> Arc<Mutex<Journal>> {
    let mut journal = Journal::new(run, input.clone());
    let mut finished: Vec<&(Key, TaskRow)> =
        done.iter().filter(|(_, row)| row.status == TaskStatus::Finished).collect();
    finished.sort_by_key(|(_, row)| (row.finished_at, row.position));
    journal.rows.extend(finished.iter().filter_map(|(key, row)| journal_row(key, row)));
    Arc::new(Mutex::new(journal))
}

/// The states of the loops when a step started, from the tasks that had ended, and those of the end.
fn loop_states(
    graph: &Graph,
    last: &HashMap<String, LoopState>,
    rows: &Rows,
    (done, step): (&[(Key, TaskRow)], &Key),
) -> BTreeMap<String, LoopState> {
    let mut enclosing: HashMap<&str, Vec<&str>> = HashMap::new();
    for node in &graph.body {
        collect(node, &mut Vec::new(), &mut enclosing);
    }
    let states = |key: &Key| -> Vec<(String, u32)> {
        let plain = key.node.split("@@").next().unwrap_or_default();
        let Some(all) = enclosing.get(plain) else { return Vec::new() };
        let scopes: Vec<&str> = key.node.split("@@").skip(1).collect();
        let state = |(depth, name): (usize, &&str)| {
            let outer = scopes[..depth.min(scopes.len())].iter().map(|scope| format!("@@{scope}"));
            let iteration = match scopes.get(depth).and_then(|scope| scope.rsplit_once('=')) {
                Some((_, iteration)) => iteration.parse().unwrap_or_default(),
                None => key.iteration,
            };
            (format!("{name}{}", outer.collect::<String>()), iteration)
        };
        all.iter().enumerate().map(state).collect()
    };
    let mut found: BTreeMap<String, LoopState> = BTreeMap::new();
    for key in done.iter().map(|(key, _)| key).chain([step]) {
        for (name, iteration) in states(key) {
            let state = found.entry(name).or_default();
            state.iteration = state.iteration.max(iteration);
        }
    }
    let is_done = |key: &Key| done.iter().any(|(known, _)| known == key);
    for (name, state) in &mut found {
        let ended =
            last.get(name).is_some_and(|last| last.has_ended && last.iteration == state.iteration);
        let is_open =
            |key: &&Key| !is_done(key) && states(key).iter().any(|(known, _)| known == name);
        state.has_ended = ended && !rows.keys().any(|key| is_open(&key));
    }
    found
}

/// The loops that enclose each task, the outermost first.
fn collect<'a>(
    node: &'a Node,
    loops: &mut Vec<&'a str>,
    found: &mut HashMap<&'a str, Vec<&'a str>>,
) {
    match node {
        Node::Task(task) => drop(found.insert(task.id.as_str(), loops.clone())),
        Node::Group(group) => group.children.iter().for_each(|node| collect(node, loops, found)),
        Node::Loop(repeated) => {
            loops.push(&repeated.id);
            repeated.children.iter().for_each(|node| collect(node, loops, found));
            loops.pop();
        }
    }
}
