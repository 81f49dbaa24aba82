//! The code of a workflow in Rust. Its closures are called here, each in a separate tokio task, so that
//! a panic ends nothing else and a call can be aborted.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use stockade_script::realm::Failure;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};

use super::calls::{CALL_LIMIT, Interface, Rendering, TaskCall};
use crate::authoring::Error;
use crate::engine::program::RustWorkflowName;
use crate::graph::{Fault, Function, Graph, Prompt, Task, Work, check};
use crate::journal::{SharedJournal, WorkflowRef};
use crate::rust_workflow::{Call, Context, RustWorkflow};
use crate::sync::lock;

/// The code of a workflow in Rust, and of the workflows that it contains.
#[derive(Debug)]
pub(crate) struct RustCode {
    workflow: RustWorkflow,
    runs: Mutex<HashMap<String, (RustWorkflow, SharedJournal)>>,
}

impl RustCode {
    pub(super) fn new(workflow: RustWorkflow) -> Self {
        Self { workflow, runs: Mutex::default() }
    }

    /// The name under which its program is stored.
    pub(super) fn name(&self) -> RustWorkflowName {
        RustWorkflowName::of(&self.workflow)
    }

    pub(super) fn open(&self, journal: &SharedJournal) -> Result<Interface, Error> {
        let (run, parent_run) = {
            let journal = lock(journal);
            (journal.run.clone(), journal.parent.clone())
        };
        let workflow = match parent_run {
            None => self.workflow.clone(),
            Some((parent, WorkflowRef::Rendered(function))) => {
                let found = self.run(&parent)?.0.workflows.get(&function).cloned();
                found.ok_or_else(|| {
                    fault(None, "there is no such workflow: register it with `with_workflow`")
                })?
            }
            Some((_, WorkflowRef::Requested { .. })) => return Err(not_portable(&run)),
        };
        let about = Interface { input: workflow.input.clone(), output: workflow.output.clone() };
        lock(&self.runs).insert(run, (workflow, Arc::clone(journal)));
        Ok(about)
    }

    pub(super) async fn render(&self, run: &str) -> Result<Rendering, Error> {
        let (workflow, journal) = self.run(run)?;
        let context = Context::new(&journal);
        let seen = context.clone();
        let build = Arc::clone(&workflow.build);
        // The closure may block, and may panic.
        let building = tokio::task::spawn_blocking(move || build(&seen));
        let late = |_| Error::Timeout { what: "build its graph", limit: CALL_LIMIT };
        let graph = tokio::time::timeout(CALL_LIMIT, building).await.map_err(late)?;
        let graph = graph.map_err(|error| thrown_error(panicked(error)))?;
        check(&graph).map_err(Error::Faults)?;
        let faults = incomplete(&graph, &workflow);
        if !faults.is_empty() {
            return Err(Error::Faults(faults));
        }
        Ok(Rendering { graph: Arc::new(graph), read: context.into_read() })
    }

    pub(super) async fn work(
        &self,
        call: TaskCall<'_>,
        work: &Work,
        heartbeats: &Arc<Notify>,
    ) -> Result<Value, Error> {
        match work {
            Work::Compute { function, inputs } => {
                self.call(call, *function, inputs.as_ref(), None, heartbeats).await
            }
            Work::Agent { agent, prompt } => {
                let (text, inputs) = match prompt {
                    Prompt::Text(text) => (text.clone(), None),
                    Prompt::Computed { function, inputs } => {
                        let made =
                            self.call(call, *function, inputs.as_ref(), None, heartbeats).await?;
                        let text = made.as_str().map(str::to_owned);
                        (text.unwrap_or_else(|| made.to_string()), inputs.as_ref())
                    }
                };
                let text = text + call.demand;
                self.call(call, *agent, inputs, Some(text), heartbeats).await
            }
            other => Err(Error::Answer(format!("{} is not a function", other.kind()))),
        }
    }

    /// Reads the answer of a command: with the closure that its agent names, or else as JSON.
    pub(super) async fn read(
        &self,
        call: TaskCall<'_>,
        function: Function,
        text: &str,
    ) -> Result<Value, Error> {
        if function == Function::NONE {
            return parse_answer(text);
        }
        self.call(call, function, None, Some(text.to_owned()), &Arc::default()).await
    }

    async fn call(
        &self,
        TaskCall { run, key, task, .. }: TaskCall<'_>,
        function: Function,
        inputs: Option<&BTreeMap<String, String>>,
        text: Option<String>,
        heartbeats: &Arc<Notify>,
    ) -> Result<Value, Error> {
        let (workflow, journal) = self.run(run)?;
        let found = workflow.functions.get(&function);
        let found = found.ok_or_else(|| fault(Some(task), "there is no such closure"))?;
        let inputs = inputs.into_iter().flatten();
        let inputs = inputs.map(|(name, node)| (name.clone(), output_of(&journal, node))).collect();
        let call = Call {
            context: Context::new(&journal),
            key: format!("{run}:{key}"),
            task: Arc::clone(task),
            inputs,
            text,
            heartbeats: Arc::clone(heartbeats),
        };
        // Dropping the set aborts the call.
        let mut doing = JoinSet::new();
        doing.spawn(found(call));
        match doing.join_next().await {
            Some(Ok(Ok(value))) => Ok(value),
            Some(Ok(Err(error))) => Err(thrown_error(failure_chain(&*error))),
            Some(Err(error)) => Err(thrown_error(panicked(error))),
            None => Err(Error::Answer("the provider did nothing".to_owned())),
        }
    }

    fn run(&self, run: &str) -> Result<(RustWorkflow, SharedJournal), Error> {
        let found = lock(&self.runs).get(run).cloned();
        found.ok_or_else(|| Error::Answer(format!("there is no run {run}")))
    }
}

/// The error for a workflow in Rust that would have to be executed in another process.
pub(super) fn not_portable(node: &str) -> Error {
    let message = format!(
        "\"{node}\": a workflow in Rust cannot run inside a sandbox: give the sandbox a command, or a provider that is a program"
    );
    fault(None, message)
}

/// The errors in a graph that can never be executed.
fn incomplete(graph: &Graph, workflow: &RustWorkflow) -> Vec<Fault> {
    let mut faults = Vec::new();
    for task in graph.tasks() {
        let mut report =
            |message: String| faults.push(Fault { place: task.location.clone(), message });
        let id = &task.id;
        let (called, is_kept) = match &task.work {
            Work::Compute { function, .. } => (vec![*function], true),
            Work::Agent { agent, prompt } => (vec![*agent, prompt.function()], true),
            Work::Command { agent, prompt } => (vec![agent.read, prompt.function()], true),
            Work::Static(_)
            | Work::Subflow { .. }
            | Work::Sandbox(_)
            | Work::Node(_)
            | Work::Continue(_) => (Vec::new(), true),
            Work::Approval(_) | Work::Timer(_) | Work::Event(_) => (Vec::new(), false),
        };
        if called.iter().any(|it| *it != Function::NONE && !workflow.functions.contains_key(it)) {
            report(format!(
                "task \"{id}\" calls a closure that is not registered with workflow \"{}\": register it with `with_function`, under the name of `Function::named`",
                workflow.name()
            ));
        }
        if let Work::Subflow { workflow: inner, .. } = &task.work
            && !workflow.workflows.contains_key(inner)
        {
            report(format!(
                "task \"{id}\" runs a workflow that is not registered with \"{}\": register it with `with_workflow`",
                workflow.name()
            ));
        }
        if is_kept && task.output.is_none() && !task.is_skipped {
            report(format!("task \"{id}\" needs a table for its output: set it with `into_table`"));
        }
    }
    faults
}

/// The last output of a task.
fn output_of(journal: &SharedJournal, node: &str) -> Value {
    let journal = lock(journal);
    let rows = journal.rows_of(node);
    let last = rows.max_by_key(|row| row["iteration"].as_u64());
    last.map(|row| row["value"].clone()).unwrap_or_default()
}

/// An answer in JSON, which may be in a fenced block of Markdown.
fn parse_answer(text: &str) -> Result<Value, Error> {
    let fenced = text.split_once("```").and_then(|(_, rest)| {
        let (prefix, rest) = rest.split_once('\n')?;
        matches!(prefix.trim(), "" | "json").then(|| rest.split_once("\n```"))?
    });
    let text = fenced.map_or(text, |(inside, _)| inside);
    serde_json::from_str(text).map_err(|error| {
        let message = format!("the agent did not return JSON: {error}");
        let code = Some("INVALID_OUTPUT".to_owned());
        thrown_error(Failure { message, code, ..Failure::default() })
    })
}

fn fault(task: Option<&Task>, message: impl Into<String>) -> Error {
    let message = match task {
        Some(task) => format!("task \"{}\": {}", task.id, message.into()),
        None => message.into(),
    };
    Error::Faults(vec![Fault { place: None, message }])
}

fn thrown_error(failure: Failure) -> Error {
    Error::Threw(Box::new(failure))
}

/// An error with its causes.
fn failure_chain(error: &dyn std::error::Error) -> Failure {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    Failure { message, ..Failure::default() }
}

fn panicked(error: JoinError) -> Failure {
    let message = match error.try_into_panic() {
        Ok(payload) => {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            format!(
                "it panicked: {}",
                text.unwrap_or_else(|| "with a payload that is not a string".to_owned())
            )
        }
        Err(error) => error.to_string(),
    };
    Failure { message, ..Failure::default() }
}
