//! Functions that build the model in Rust.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use stockade_api::CommandLine;

use super::agent::{Command, Program, Variables};
use super::budget::Budgets;
use super::function::Function;
use super::limits::ToolLimits;
use super::model::{Graph, Group, Loop, Node, Order, Output, Prompt, Task, Work};
use super::retry::Retry;
use super::sandbox::{OnLimit, Sandbox};
use super::wait::{Approval, Event, OnTimeout, Timer};

impl Graph {
    /// A workflow with this name, whose nodes are executed one after another.
    pub fn new(name: &str, body: impl IntoIterator<Item = Node>) -> Self {
        Self { name: name.to_owned(), body: body.into_iter().collect() }
    }
}

impl Node {
    /// Nodes that are executed one after another.
    pub fn sequence(children: impl IntoIterator<Item = Self>) -> Self {
        let children = children.into_iter().collect();
        Self::Group(Group { order: Order::Sequence, children })
    }

    /// Nodes that are executed in parallel, `limit` tasks at a time.
    pub fn parallel(limit: Option<u32>, children: impl IntoIterator<Item = Self>) -> Self {
        let children = children.into_iter().collect();
        Self::Group(Group { order: Order::Parallel { limit, subtrees: None }, children })
    }

    /// Nodes that are executed repeatedly until a condition holds, with a maximum of iterations.
    pub fn repeated(
        id: &str,
        until: bool,
        max_iterations: u32,
        children: impl IntoIterator<Item = Self>,
    ) -> Self {
        Self::Loop(Loop {
            id: id.to_owned(),
            until,
            max_iterations,
            fails_at_maximum: false,
            children: children.into_iter().collect(),
            location: None,
        })
    }
}

impl From<Task> for Node {
    fn from(task: Task) -> Self {
        Self::Task(Arc::new(task))
    }
}

impl Task {
    /// A task with this id and work.
    pub fn new(id: &str, work: Work) -> Self {
        let retry = match work {
            Work::Compute { .. }
            | Work::Agent { .. }
            | Work::Command { .. }
            | Work::Subflow { .. }
            | Work::Sandbox(_)
            | Work::Node(_) => Retry::DEFAULT,
            Work::Static(_)
            | Work::Approval(_)
            | Work::Timer(_)
            | Work::Event(_)
            | Work::Continue(_) => Retry::NONE,
        };
        Self {
            id: id.to_owned(),
            work,
            output: None,
            after: Vec::new(),
            is_skipped: false,
            retry,
            timeout: None,
            heartbeat_timeout: None,
            needs_approval: false,
            continue_on_fail: false,
            cache: None,
            label: None,
            meta: Map::new(),
            fallbacks: Vec::new(),
            worktree: None,
            budgets: Budgets::default(),
            is_async: false,
            location: None,
        }
    }

    /// A task whose output is a constant.
    pub fn value(id: &str, value: Value) -> Self {
        Self::new(id, Work::Static(value))
    }

    /// A task that calls a function.
    pub fn compute(id: &str, function: Function) -> Self {
        Self::new(id, Work::Compute { function, inputs: None })
    }

    /// A task that passes a prompt to an agent that is a function.
    pub fn agent(id: &str, agent: Function, prompt: impl Into<Prompt>) -> Self {
        Self::new(id, Work::Agent { agent, prompt: prompt.into() })
    }

    /// A task that passes a prompt to an agent that is a command.
    pub fn command(id: &str, agent: Command, prompt: impl Into<Prompt>) -> Self {
        Self::new(id, Work::Command { agent: Box::new(agent), prompt: prompt.into() })
    }

    /// A task that runs another workflow of this program, by its name.
    pub fn subflow(id: &str, workflow: &str, input: Value) -> Self {
        Self::new(id, Work::Subflow { workflow: Function::named(workflow), input })
    }

    /// A task that is executed in a sandbox.
    pub fn sandbox(id: &str, sandbox: Sandbox) -> Self {
        Self::new(id, Work::Sandbox(Box::new(sandbox)))
    }

    /// A task that waits for a user's decision.
    pub fn approval(id: &str, approval: Approval) -> Self {
        Self::new(id, Work::Approval(approval))
    }

    /// A task that waits for this length of time.
    pub fn timer(id: &str, length: Duration) -> Self {
        Self::new(id, Work::Timer(Timer::After(length)))
    }

    /// A task that waits for a signal.
    pub fn event(id: &str, name: &str) -> Self {
        let event =
            Event { name: name.to_owned(), correlation: None, on_timeout: OnTimeout::default() };
        Self::new(id, Work::Event(event))
    }

    /// Stores the output of the task in a table.
    #[must_use]
    pub fn into_table(mut self, table: &str, schema: Option<Value>) -> Self {
        self.output = Some(Output { table: table.to_owned(), schema, parse: None });
        self
    }

    /// Passes the output of another task to the function of this task, under a name. This task runs
    /// after the other one.
    #[must_use]
    pub fn needing(mut self, name: &str, task: &str) -> Self {
        let inputs = match &mut self.work {
            Work::Compute { inputs, .. }
            | Work::Agent { prompt: Prompt::Computed { inputs, .. }, .. }
            | Work::Command { prompt: Prompt::Computed { inputs, .. }, .. } => Some(inputs),
            _ => None,
        };
        if let Some(inputs) = inputs {
            inputs.get_or_insert_default().insert(name.to_owned(), task.to_owned());
        }
        self.after(&[task])
    }

    /// Makes the task run after other tasks.
    #[must_use]
    pub fn after(mut self, ids: &[&str]) -> Self {
        self.after.extend(ids.iter().map(|id| (*id).to_owned()));
        self.after.sort();
        self.after.dedup();
        self
    }
}

impl Command {
    /// An agent that is a program with its arguments, or a shell command line. Its answer is parsed as
    /// JSON, unless `read` names a function.
    pub fn new(line: CommandLine) -> Self {
        Self::of(Program::Line(line))
    }

    /// An agent that is started by the adapter with this name.
    pub fn adapter(name: &str) -> Self {
        Self::of(Program::Adapter(name.to_owned()))
    }

    fn of(program: Program) -> Self {
        Self {
            program,
            model: None,
            arguments: Vec::new(),
            image: None,
            environment: Variables::default(),
            timeout: None,
            output_bytes: None,
            network: false,
            system_prompt: None,
            read: Function::NONE,
        }
    }
}

impl Sandbox {
    /// A sandbox that executes a shell command line; its changes wait for a decision.
    pub fn command(line: &str) -> Self {
        Self {
            workflow: None,
            input: Value::Null,
            provider: None,
            runtime: None,
            fallback_runtime: None,
            allow_network: false,
            review_diffs: true,
            auto_accept_diffs: false,
            allow_nested: false,
            image: None,
            env: BTreeMap::new(),
            egress: None,
            ports: Vec::new(),
            volumes: Vec::new(),
            memory_limit: None,
            cpu_limit: None,
            command: Some(line.to_owned()),
            workspace: None,
            tools: ToolLimits::default(),
            on_limit: OnLimit::Fail,
            config: Map::new(),
        }
    }
}
