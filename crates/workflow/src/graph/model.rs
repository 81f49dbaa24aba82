//! A workflow as one rendering defines it: a tree of nodes, whose leaves are tasks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::agent::Command;
use super::budget::Budgets;
use super::cache::Cache;
use super::fault::SourceLocation;
use super::function::Function;
use super::node::PortNode;
use super::retry::Retry;
use super::sandbox::Sandbox;
use super::wait::{Approval, Event, Timer};

/// A workflow as one rendering defines it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Graph {
    /// Its name.
    pub name: String,
    /// Its nodes, which are executed one after another.
    pub body: Vec<Node>,
}

/// A node of the tree.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// Work to be executed.
    Task(Arc<Task>),
    /// Several nodes, with an order.
    Group(Group),
    /// Nodes that are executed repeatedly.
    Loop(Loop),
}

/// Several nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The order in which they are executed.
    pub order: Order,
    /// The nodes.
    pub children: Vec<Node>,
}

/// The order in which the nodes of a group are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// One after another.
    Sequence,
    /// In parallel, with a limit for all tasks below the group.
    Parallel {
        /// The maximum; `None` means no limit.
        limit: Option<u32>,
        /// How many of the nodes may have begun without having ended.
        subtrees: Option<u32>,
    },
    /// Three nodes: work, the reaction to a failure of it, and what follows in any case.
    Boundary {
        /// Whether the reaction replaces a failure of the work.
        caught: bool,
        /// Whether the failure remains one after the reaction.
        rethrows: bool,
    },
}

impl Order {
    /// The limits of nodes that are executed in parallel, as text for people; `None` if there are none.
    pub fn limits(&self) -> Option<String> {
        let Self::Parallel { limit, subtrees } = self else { return None };
        let tasks = limit.map(|limit| format!("{limit} in parallel"));
        let nodes = subtrees.map(|subtrees| format!("subtrees: {subtrees} at a time"));
        let limits: Vec<_> = tasks.into_iter().chain(nodes).collect();
        (!limits.is_empty()).then(|| limits.join(", "))
    }
}

/// Nodes that are executed repeatedly, one after another in each iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct Loop {
    /// Identifies it among the loops.
    pub id: String,
    /// Whether the end condition holds in this rendering.
    pub until: bool,
    /// The maximum number of iterations.
    pub max_iterations: u32,
    /// Whether the run fails when the loop reaches the maximum while `until` does not hold.
    pub fails_at_maximum: bool,
    /// The nodes of the current iteration.
    pub children: Vec<Node>,
    /// Its location in the source.
    pub location: Option<SourceLocation>,
}

impl Loop {
    /// How often it is executed at most; `None` if without a limit.
    pub fn limit(&self) -> Option<u32> {
        (self.max_iterations != u32::MAX).then_some(self.max_iterations)
    }
}

/// Work to be executed.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Identifies it among all tasks.
    pub id: String,
    /// What the task does.
    pub work: Work,
    /// The table of its output; `None` for a task without output.
    pub output: Option<Output>,
    /// The ids of tasks that must have succeeded before.
    pub after: Vec<String>,
    /// Whether it is left out, and counts as finished.
    pub is_skipped: bool,
    /// How often and when it is retried.
    pub retry: Retry,
    /// The time limit of one attempt.
    pub timeout: Option<Duration>,
    /// How long one attempt may run without a heartbeat.
    pub heartbeat_timeout: Option<Duration>,
    /// Whether it starts only after an approval.
    pub needs_approval: bool,
    /// Whether the run continues when the task has failed.
    pub continue_on_fail: bool,
    /// Whether and how its output is cached for other runs.
    pub cache: Option<Cache>,
    /// Its display name.
    pub label: Option<String>,
    /// Any data of the workflow's author.
    pub meta: Map<String, Value>,
    /// The agents of the attempts after the first, in order. The last one is also that of all further
    /// attempts.
    pub fallbacks: Vec<Work>,
    /// The git worktree of its agent; `None` for the project itself.
    pub worktree: Option<Worktree>,
    /// The budgets of the scope that it is in.
    pub budgets: Budgets,
    /// Whether what follows it does not wait for its answer from outside.
    pub is_async: bool,
    /// Its location in the source.
    pub location: Option<SourceLocation>,
}

/// A copy of the project in which agents work apart from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worktree {
    /// Identifies it among those of the run.
    pub path: String,
    /// The branch for its changes.
    pub branch: Option<String>,
    /// The branch that its agents start from, which must be checked out.
    pub base: Option<String>,
}

impl Task {
    /// The same task as one of its attempts executes it, from 1: with the agent of that attempt.
    pub(crate) fn for_attempt(self: &Arc<Self>, attempt: u32) -> Arc<Self> {
        let next = usize::try_from(attempt).unwrap_or(usize::MAX).checked_sub(2);
        let Some(work) =
            next.and_then(|at| self.fallbacks.get(at).or_else(|| self.fallbacks.last()))
        else {
            return Arc::clone(self);
        };
        Arc::new(Self { work: work.clone(), ..Self::clone(self) })
    }

    /// All its works: that of the first attempt, and those of its other agents.
    pub(crate) fn works(&self) -> impl Iterator<Item = &Work> {
        std::iter::once(&self.work).chain(&self.fallbacks)
    }

    /// Its display name.
    pub fn name(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.id)
    }
}

/// What a task does.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Returns a constant.
    Static(Value),
    /// Calls a function with the outputs of other tasks.
    Compute {
        /// The function.
        function: Function,
        /// The inputs of the function: a map from names to the ids of tasks.
        inputs: Option<BTreeMap<String, String>>,
    },
    /// Passes a prompt to an agent.
    Agent {
        /// The object or function that is the agent.
        agent: Function,
        /// Its prompt.
        prompt: Prompt,
    },
    /// Passes a prompt to an agent that is a command.
    Command {
        /// The command.
        agent: Box<Command>,
        /// Its prompt.
        prompt: Prompt,
    },
    /// Waits for a decision.
    Approval(Approval),
    /// Waits for a time.
    Timer(Timer),
    /// Waits for a signal.
    Event(Event),
    /// Runs another workflow.
    Subflow {
        /// The workflow.
        workflow: Function,
        /// Its input.
        input: Value,
    },
    /// Runs another workflow in a sandbox.
    Sandbox(Box<Sandbox>),
    /// Runs an operation with named ports.
    Node(Box<PortNode>),
    /// Ends the run, and continues it as a new one with this state.
    Continue(Value),
}

impl Work {
    /// The name of the element.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Static(_) => "static",
            Self::Compute { .. } => "compute",
            Self::Agent { .. } | Self::Command { .. } => "agent",
            Self::Approval(_) => "approval",
            Self::Timer(_) => "timer",
            Self::Event(_) => "event",
            Self::Subflow { .. } => "subflow",
            Self::Sandbox(_) => "sandbox",
            Self::Node(_) => "node",
            Self::Continue(_) => "continue",
        }
    }

    /// The inputs of its function: a map from names to the ids of tasks.
    pub const fn inputs(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Compute { inputs, .. }
            | Self::Agent { prompt: Prompt::Computed { inputs, .. }, .. }
            | Self::Command { prompt: Prompt::Computed { inputs, .. }, .. } => inputs.as_ref(),
            _ => None,
        }
    }
}

/// The prompt of an agent.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// A constant text.
    Text(String),
    /// The result of a function, which is called with the outputs of other tasks.
    Computed {
        /// The function.
        function: Function,
        /// The inputs of the function: a map from names to the ids of tasks.
        inputs: Option<BTreeMap<String, String>>,
    },
}

impl Prompt {
    /// The prompt, if it is a constant.
    pub const fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text.as_str()),
            Self::Computed { .. } => None,
        }
    }

    /// The function that makes the prompt, or else [`Function::NONE`].
    pub const fn function(&self) -> Function {
        match self {
            Self::Text(_) => Function::NONE,
            Self::Computed { function, .. } => *function,
        }
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// The table of a task's output, and its schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The name of the table.
    pub table: String,
    /// The JSON Schema of a row, if there is one.
    pub schema: Option<Value>,
    /// The function of the author's schema that makes the row of a raw answer; `None` if the JSON
    /// Schema decides.
    pub parse: Option<Function>,
}

impl Graph {
    /// Whether it reacts to failures of tasks.
    pub(crate) fn has_boundaries(&self) -> bool {
        let mut found = false;
        for node in &self.body {
            node.visit(&mut |node| {
                found |= matches!(node, Node::Group(Group { order: Order::Boundary { .. }, .. }));
            });
        }
        found
    }

    /// Whether it contains loops.
    pub fn has_loops(&self) -> bool {
        let mut found = false;
        for node in &self.body {
            node.visit(&mut |node| found |= matches!(node, Node::Loop(_)));
        }
        found
    }

    /// All tasks, in the order of the source.
    pub fn tasks(&self) -> Vec<&Task> {
        let mut found = Vec::new();
        for node in &self.body {
            node.visit(&mut |node| {
                if let Node::Task(task) = node {
                    found.push(&**task);
                }
            });
        }
        found
    }
}

impl Node {
    /// Visits this node and all nodes below it, in the order of the source.
    pub fn visit<'a>(&'a self, show: &mut impl FnMut(&'a Self)) {
        show(self);
        let children = match self {
            Self::Task(_) => return,
            Self::Group(group) => &group.children,
            Self::Loop(repeated) => &repeated.children,
        };
        for child in children {
            child.visit(show);
        }
    }
}
