//! Workflows in Rust: a function builds the [graph](crate::graph), closures execute its tasks. The
//! engine that executes workflow files executes them too, under the same rules: finished tasks are
//! never executed again, and any process that has the same workflow can continue a run.
//!
//! Closures cannot be stored with a run. So an engine gets its workflows before it is launched
//! ([`Options::rust_workflows`](crate::engine::Options::rust_workflows)), and [`RustWorkflow::version`] distinguishes workflows
//! with the same name. Unlike workflow files they are trusted: they run in the process of the engine,
//! without isolation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::sync::Notify;

use crate::graph::{Function, Graph, Task};
use crate::journal::{Journal, SharedJournal};
use crate::sync::lock;

/// Why a closure failed.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The future of a closure.
type ClosureFuture = Pin<Box<dyn Future<Output = Result<Value, Error>> + Send>>;
type Build = dyn Fn(&Context) -> Graph + Send + Sync;
type Closure = dyn Fn(Call) -> ClosureFuture + Send + Sync;

/// A workflow in Rust. Its clones are the same workflow.
#[derive(Clone)]
pub struct RustWorkflow {
    name: Arc<str>,
    version: Arc<str>,
    pub(crate) input: Option<Value>,
    pub(crate) output: Option<String>,
    pub(crate) build: Arc<Build>,
    pub(crate) functions: BTreeMap<Function, Arc<Closure>>,
    pub(crate) workflows: BTreeMap<Function, Self>,
}

impl fmt::Debug for RustWorkflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version, .. } = self;
        f.debug_struct("RustWorkflow")
            .field("name", name)
            .field("version", version)
            .finish_non_exhaustive()
    }
}

impl RustWorkflow {
    /// Creates a workflow whose graph `build` makes, again after each change of the values that it has
    /// read from its [`Context`]. `build` must be fast, and must make the same graph from the same
    /// values.
    pub fn new(name: &str, build: impl Fn(&Context) -> Graph + Send + Sync + 'static) -> Self {
        Self {
            name: name.into(),
            version: "1".into(),
            input: None,
            output: None,
            build: Arc::new(build),
            functions: BTreeMap::new(),
            workflows: BTreeMap::new(),
        }
    }

    /// Sets the version. A run is not continued with another version, unless that is accepted. The
    /// default is `1`.
    #[must_use]
    pub fn with_version(mut self, version: &str) -> Self {
        self.version = version.into();
        self
    }

    /// Accepts only inputs that are valid by this JSON Schema.
    #[must_use]
    pub fn with_input(mut self, schema: Value) -> Self {
        self.input = Some(schema);
        self
    }

    /// Uses the rows of this table as the result. The default is `output`, or else the table that was
    /// written last.
    #[must_use]
    pub fn with_output(mut self, table: &str) -> Self {
        self.output = Some(table.to_owned());
        self
    }

    /// Adds a closure, which tasks refer to by [`Function::named`]. It may be called again, even after
    /// it returned, if a crash happened before its result was stored: effects outside should have
    /// [`Call::key`] as their idempotency key. It must not block. An error or a panic fails the
    /// attempt.
    #[must_use]
    pub fn with_function<F>(
        mut self,
        name: &str,
        function: impl Fn(Call) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Value, Error>> + Send + 'static,
    {
        let function = move |call| -> ClosureFuture { Box::pin(function(call)) };
        self.functions.insert(Function::named(name), Arc::new(function));
        self
    }

    /// Adds another workflow, which a [`Work::Subflow`](crate::graph::Work::Subflow) refers to by
    /// [`Function::named`] with its name.
    #[must_use]
    pub fn with_workflow(mut self, workflow: Self) -> Self {
        self.workflows.insert(Function::named(&workflow.name), workflow);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version, which distinguishes it from other workflows with its name.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// The data that a workflow can read while its graph is made: its input, and the outputs of its tasks
/// so far.
#[derive(Debug, Clone)]
pub struct Context {
    journal: SharedJournal,
    /// The tables that were read.
    read: Arc<Mutex<BTreeSet<String>>>,
}

impl Context {
    pub(crate) fn new(journal: &SharedJournal) -> Self {
        Self { journal: Arc::clone(journal), read: Arc::default() }
    }

    pub(crate) fn into_read(self) -> BTreeSet<String> {
        std::mem::take(&mut *lock(&self.read))
    }

    fn with<T>(&self, inspect: impl FnOnce(&Journal) -> T) -> T {
        inspect(&lock(&self.journal))
    }

    /// The rows of a table: their tasks, iterations and values.
    fn rows(&self, table: &str) -> Vec<(String, u64, Value)> {
        let mut read = lock(&self.read);
        if !read.contains(table) {
            read.insert(table.to_owned());
        }
        drop(read);
        let row = |row: &Value| {
            let task = row["node"].as_str().unwrap_or_default().to_owned();
            (task, row["iteration"].as_u64().unwrap_or_default(), row["value"].clone())
        };
        self.with(|journal| {
            journal.rows.iter().filter(|row| row["table"] == table).map(row).collect()
        })
    }

    /// The rows of a task in the current iterations of the loops around it.
    fn rows_of(&self, table: &str, task: &str) -> Vec<(String, u64, Value)> {
        let is_current = |node: &str| {
            node == task
                || (node.split("@@").next() == Some(task)
                    && self.with(|journal| journal.is_current(node)))
        };
        self.rows(table).into_iter().filter(|(node, ..)| is_current(node)).collect()
    }

    /// The id of the run.
    pub fn run_id(&self) -> String {
        self.with(|journal| journal.run.clone())
    }

    /// The input of the run.
    pub fn input(&self) -> Value {
        self.with(|journal| journal.input.clone())
    }

    /// The values in a table, in the order in which their tasks finished.
    pub fn outputs(&self, table: &str) -> Vec<Value> {
        self.rows(table).into_iter().map(|(.., value)| value).collect()
    }

    /// The value of a task in a table; in a loop, the value of the last iteration that has one.
    pub fn output(&self, table: &str, task: &str) -> Option<Value> {
        let rows = self.rows_of(table, task).into_iter();
        rows.max_by_key(|(_, iteration, _)| *iteration).map(|(.., value)| value)
    }

    /// The number of values that a task has in a table: in a loop, one for each iteration.
    pub fn count(&self, table: &str, task: &str) -> usize {
        self.rows_of(table, task).len()
    }

    /// The current iteration of a loop, from 0.
    pub fn iteration(&self, of_loop: &str) -> u32 {
        self.with(|journal| journal.iterations.get(of_loop).copied().unwrap_or_default())
    }
}

/// The arguments of a closure.
#[derive(Debug, Clone)]
pub struct Call {
    pub(crate) context: Context,
    pub(crate) key: String,
    pub(crate) task: Arc<Task>,
    pub(crate) inputs: BTreeMap<String, Value>,
    pub(crate) text: Option<String>,
    pub(crate) heartbeats: Arc<Notify>,
}

impl Call {
    /// The context of the run at present.
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// The task; its [`meta`](Task::meta) distinguishes tasks that share a closure.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// The output of a task that this one [needs](Task::needing), by the name that this task uses for
    /// it.
    pub fn dependency(&self, name: &str) -> Option<&Value> {
        self.inputs.get(name)
    }

    /// The prompt of an agent, or the answer of an agent that is a command.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The idempotency key of the task: the same after a crash and in each attempt, and different from
    /// the key of any other task or iteration of any run.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Sends a heartbeat, for a task with a [`heartbeat_timeout`](Task::heartbeat_timeout).
    pub fn heartbeat(&self) {
        self.heartbeats.notify_one();
    }
}
