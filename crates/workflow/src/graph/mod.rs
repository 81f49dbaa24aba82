//! The model of a workflow: what one rendering says is to be done, whoever wrote it. A rendering
//! of TSX becomes one by way of `tree` and `read`, Rust builds one with the functions of `build`;
//! [`check`](check::check) refuses what can never be executed. Nothing here does anything.

mod agent;
mod build;
mod cache;
mod check;
mod limits;
mod nearest;
mod props;
mod read;
mod sandbox;
mod tree;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use agent::{Command, Program, Variables};
pub use cache::{Cache, Depends, Scope};
pub use check::{check, unknown};
pub use limits::ToolLimits;
pub use sandbox::{OnLimit, Sandbox, Volume};

pub(crate) use nearest::nearest;
pub(crate) use tree::{Error, Told, Tree};

/// A place in a file of the user's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The file, as its name is shown.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Something wrong with a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Where, when it was written in a file.
    pub place: Option<Place>,
    /// What is wrong, and what was probably meant.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place} — {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// A workflow as one rendering has it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Graph {
    /// Its name.
    pub name: String,
    /// What it consists of, one after another.
    pub body: Vec<Node>,
}

/// A node of the tree.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// Something to be done.
    Task(Arc<Task>),
    /// Several nodes in some order.
    Group(Group),
    /// Nodes that are done again and again.
    Loop(Loop),
}

/// Several nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// In which order they are done.
    pub order: Order,
    /// The nodes.
    pub children: Vec<Node>,
}

/// In which order the nodes of a group are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// One after another.
    Sequence,
    /// At once, so many tasks of all that are below.
    Parallel {
        /// At most; `None` is no limit.
        limit: Option<u32>,
    },
}

/// Nodes that are done again and again, one after another each time.
#[derive(Debug, Clone, PartialEq)]
pub struct Loop {
    /// Names it among the loops.
    pub id: String,
    /// Whether the condition for its end holds in this rendering.
    pub until: bool,
    /// How often it is done at most.
    pub max_iterations: u32,
    /// Whether the run fails when it was done that often and `until` does not hold.
    pub fails_at_maximum: bool,
    /// The nodes of the iteration that is being done.
    pub children: Vec<Node>,
    /// Where it was written.
    pub place: Option<Place>,
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Names it among all tasks.
    pub id: String,
    /// What is done.
    pub work: Work,
    /// Where what it gives is kept; `None` for what gives nothing.
    pub output: Option<Output>,
    /// The ids of tasks that have ended well before.
    pub after: Vec<String>,
    /// Whether it is left out, and counts as done.
    pub is_skipped: bool,
    /// How often it is tried again, and when.
    pub retry: Retry,
    /// How long one try may take.
    pub timeout: Option<Duration>,
    /// How long one try may be silent.
    pub heartbeat_timeout: Option<Duration>,
    /// Whether it is not begun before somebody has said yes.
    pub needs_approval: bool,
    /// Whether the run goes on when it has failed.
    pub continue_on_fail: bool,
    /// What is kept of it for other runs.
    pub cache: Option<Cache>,
    /// What it is called for people.
    pub label: Option<String>,
    /// What its author says of it.
    pub meta: Map<String, Value>,
    /// Where it was written.
    pub place: Option<Place>,
}

impl Task {
    /// What it is called for people.
    pub fn name(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.id)
    }
}

/// A function of the author's, by its number: the same in each rendering that has its element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Function(pub u64);

impl Function {
    /// None: where one may be absent.
    pub const NONE: Self = Self(0);

    /// That of a workflow in Rust, which gave it this name.
    pub fn named(name: &str) -> Self {
        let mut number = [0; 8];
        number.copy_from_slice(&blake3::hash(name.as_bytes()).as_bytes()[..8]);
        Self(u64::from_le_bytes(number).max(1))
    }
}

/// What a task does.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Gives a value that is known.
    Static(Value),
    /// Calls a function, with what the tasks of these names gave.
    Compute {
        /// Which one.
        function: Function,
        /// The names and tasks of what it is called with.
        inputs: Option<BTreeMap<String, String>>,
    },
    /// Gives a prompt to an agent.
    Agent {
        /// The object or function that is the agent.
        agent: Function,
        /// What it is asked.
        prompt: Prompt,
    },
    /// Gives a prompt to an agent that is a command.
    Command {
        /// What it is.
        agent: Box<Command>,
        /// What it is asked.
        prompt: Prompt,
    },
    /// Waits until somebody decides.
    Approval(Approval),
    /// Waits for a time.
    Timer(Timer),
    /// Waits for a signal.
    Event(Event),
    /// Runs another workflow.
    Subflow {
        /// Which one.
        workflow: Function,
        /// What it is given.
        input: Value,
    },
    /// Runs another workflow in a sandbox.
    Sandbox(Box<Sandbox>),
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
        }
    }

    /// The names and tasks of what its function is called with.
    pub const fn inputs(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Compute { inputs, .. }
            | Self::Agent { prompt: Prompt::Made { inputs, .. }, .. }
            | Self::Command { prompt: Prompt::Made { inputs, .. }, .. } => inputs.as_ref(),
            _ => None,
        }
    }
}

/// What an agent is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// This.
    Text(String),
    /// What a function answers, with what the tasks of these names gave.
    Made {
        /// Which one.
        function: Function,
        /// The names and tasks of what it is called with.
        inputs: Option<BTreeMap<String, String>>,
    },
}

impl Prompt {
    /// The prompt, where it is known already.
    pub const fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text.as_str()),
            Self::Made { .. } => None,
        }
    }

    /// The function that makes it, else [`Function::NONE`].
    pub const fn function(&self) -> Function {
        match self {
            Self::Text(_) => Function::NONE,
            Self::Made { function, .. } => *function,
        }
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// What somebody is asked to decide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approval {
    /// The question.
    pub title: Option<String>,
    /// What is said with it.
    pub summary: Option<String>,
    /// What follows when it is denied.
    pub on_deny: OnDeny,
}

/// What follows when an approval is denied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnDeny {
    /// The task fails.
    #[default]
    Fail,
    /// The run goes on, with the answer.
    Continue,
    /// The run goes on, as if the task were not there.
    Skip,
}

/// A time that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// So long from when it is come to.
    After(Duration),
    /// Until this time, in milliseconds since 1970.
    Until(i64),
}

/// A signal that is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its name.
    pub name: String,
    /// Which one of that name.
    pub correlation: Option<String>,
    /// What follows when it does not come in time.
    pub on_timeout: OnTimeout,
}

/// What follows when a signal does not come in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnTimeout {
    /// The task fails.
    #[default]
    Fail,
    /// The run goes on, with no answer.
    Continue,
    /// The run goes on, as if the task were not there.
    Skip,
}

/// Where what a task gives is kept, and what it must be.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The name of the table.
    pub table: String,
    /// The JSON Schema of a row; `None` when nobody said.
    pub schema: Option<Value>,
}

/// How often something is tried again, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// How often; `None` is without end.
    pub limit: Option<u32>,
    /// How the pauses grow.
    pub growth: Growth,
    /// The first pause.
    pub first: Duration,
    /// The longest.
    pub longest: Duration,
}

/// How pauses grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// They do not.
    Fixed,
    /// Each is longer by the first.
    Linear,
    /// Each is twice as long.
    Exponential,
}

impl Retry {
    /// Never again.
    pub const NONE: Self = Self { limit: Some(0), ..Self::USUAL };
    /// Three times, after one, two and four seconds.
    pub const USUAL: Self = Self {
        limit: Some(3),
        growth: Growth::Exponential,
        first: Duration::from_secs(1),
        longest: Duration::from_secs(5 * 60),
    };

    /// How long to pause after so many failed tries; `None` when it is given up.
    pub fn pause(&self, failed: u32) -> Option<Duration> {
        if self.limit.is_some_and(|limit| failed > limit) {
            return None;
        }
        let factor = match self.growth {
            Growth::Fixed => 1,
            Growth::Linear => failed.max(1),
            Growth::Exponential => 1_u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX),
        };
        Some(self.first.saturating_mul(factor).min(self.longest))
    }
}

impl Graph {
    /// Whether anything is done again and again.
    pub fn has_loops(&self) -> bool {
        let mut found = false;
        for node in &self.body {
            node.visit(&mut |node| found |= matches!(node, Node::Loop(_)));
        }
        found
    }

    /// Every task, in the order of the text.
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
    /// Shows this node and all that are below it, in the order of the text.
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
