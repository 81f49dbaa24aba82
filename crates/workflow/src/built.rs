//! Workflows in Rust: a function gives the [graph](crate::graph), closures do its tasks. They are
//! executed by the same engine as workflow files, under the same rules: what is finished is kept and
//! never done again, and a run goes on in any process that was given the same workflow.
//!
//! Nothing of a closure can be kept with a run. So an engine is given its workflows before it is
//! launched ([`Options::built`](crate::engine::Options::built)), and [`Built::version`] tells those
//! apart that had one name. Unlike a workflow file they are no stranger's code: they run in the
//! process of the engine, without walls.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::sync::Notify;

use crate::graph::{Function, Graph, Task};
use crate::journal::{Journal, SharedJournal};
use crate::sync::lock;

/// Why a closure did not give what it was to give.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// What a closure is doing.
type Doing = Pin<Box<dyn Future<Output = Result<Value, Error>> + Send>>;
type Build = dyn Fn(&Context) -> Graph + Send + Sync;
type Do = dyn Fn(Call) -> Doing + Send + Sync;

/// A workflow in Rust. Its clones are the same workflow.
#[derive(Clone)]
pub struct Built {
    name: Arc<str>,
    version: Arc<str>,
    pub(crate) input: Option<Value>,
    pub(crate) output: Option<String>,
    pub(crate) build: Arc<Build>,
    pub(crate) functions: BTreeMap<Function, Arc<Do>>,
    pub(crate) workflows: BTreeMap<Function, Self>,
}

impl fmt::Debug for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version, .. } = self;
        f.debug_struct("Built")
            .field("name", name)
            .field("version", version)
            .finish_non_exhaustive()
    }
}

impl Built {
    /// A workflow whose graph `build` gives, each time from the beginning: after each change of what
    /// it asked its [`Context`] for. It must answer soon, and the same to the same.
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

    /// The same, told from others of its name: a run that began with one is not gone on with by
    /// another, unless that is accepted. Without this it is `1`.
    #[must_use]
    pub fn with_version(mut self, version: &str) -> Self {
        self.version = version.into();
        self
    }

    /// The same, which takes no input but what this JSON Schema says.
    #[must_use]
    pub fn with_input(mut self, schema: Value) -> Self {
        self.input = Some(schema);
        self
    }

    /// The same, whose result is the rows of this table; otherwise that is `output`, or the table
    /// that was written last.
    #[must_use]
    pub fn with_output(mut self, table: &str) -> Self {
        self.output = Some(table.to_owned());
        self
    }

    /// The same with a closure, which tasks know as [`Function::named`]. It may be called again, also
    /// after it ended, when a crash came before its answer was kept: what it does outside should be
    /// known by [`Call::key`]. It must not block. An error is a failed try, and so is a panic.
    #[must_use]
    pub fn with_function<F>(
        mut self,
        name: &str,
        function: impl Fn(Call) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Value, Error>> + Send + 'static,
    {
        let function = move |call| -> Doing { Box::pin(function(call)) };
        self.functions.insert(Function::named(name), Arc::new(function));
        self
    }

    /// The same with another workflow, which a [`Work::Subflow`](crate::graph::Work::Subflow) knows
    /// as [`Function::named`] by its name.
    #[must_use]
    pub fn with_workflow(mut self, workflow: Self) -> Self {
        self.workflows.insert(Function::named(&workflow.name), workflow);
        self
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What tells it from others of its name.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// What a workflow knows while its graph is made: its input, and what its tasks have given so far.
#[derive(Debug, Clone)]
pub struct Context {
    journal: SharedJournal,
    /// The tables that were looked into.
    read: Arc<Mutex<BTreeSet<String>>>,
}

impl Context {
    pub(crate) fn new(journal: &SharedJournal) -> Self {
        Self { journal: Arc::clone(journal), read: Arc::default() }
    }

    pub(crate) fn into_read(self) -> BTreeSet<String> {
        std::mem::take(&mut *lock(&self.read))
    }

    fn with<T>(&self, look: impl FnOnce(&Journal) -> T) -> T {
        look(&lock(&self.journal))
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

    /// The id of the run.
    pub fn run_id(&self) -> String {
        self.with(|journal| journal.run.clone())
    }

    /// What the run was given.
    pub fn input(&self) -> Value {
        self.with(|journal| journal.input.clone())
    }

    /// The values in a table, in the order in which tasks gave them.
    pub fn outputs(&self, table: &str) -> Vec<Value> {
        self.rows(table).into_iter().map(|(.., value)| value).collect()
    }

    /// The value that a task has in a table; in a loop, that of the last iteration that has one.
    pub fn output(&self, table: &str, task: &str) -> Option<Value> {
        let rows = self.rows(table).into_iter().filter(|(node, ..)| node == task);
        rows.max_by_key(|(_, iteration, _)| *iteration).map(|(.., value)| value)
    }

    /// How many values a task has in a table: in a loop, one of each iteration.
    pub fn count(&self, table: &str, task: &str) -> usize {
        self.rows(table).iter().filter(|(node, ..)| node == task).count()
    }

    /// In which iteration a loop is, from 0.
    pub fn iteration(&self, of_loop: &str) -> u32 {
        self.with(|journal| journal.iterations.get(of_loop).copied().unwrap_or_default())
    }
}

/// What a closure is called with.
#[derive(Debug, Clone)]
pub struct Call {
    pub(crate) context: Context,
    pub(crate) key: String,
    pub(crate) task: Arc<Task>,
    pub(crate) inputs: BTreeMap<String, Value>,
    pub(crate) text: Option<String>,
    pub(crate) beats: Arc<Notify>,
}

impl Call {
    /// What is known of the run now.
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// The task that is done; its [`meta`](Task::meta) tells tasks apart that share a closure.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// What a task gave that this one [needs](Task::needing), by the name for it.
    pub fn needed(&self, name: &str) -> Option<&Value> {
        self.inputs.get(name)
    }

    /// What an agent is asked, or what a command has answered.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Names this doing of the task: the same after a crash and at each try, and that of no other task
    /// or iteration of any run.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Tells that the closure is alive, where its task has a
    /// [`heartbeat_timeout`](Task::heartbeat_timeout).
    pub fn heartbeat(&self) {
        self.beats.notify_one();
    }
}
