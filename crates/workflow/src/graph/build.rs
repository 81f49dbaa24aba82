//! The same model, written in Rust.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{
    Approval, Event, Function, Graph, Group, Loop, Node, OnTimeout, Order, Output, Retry, Task,
    Timer, Work,
};

impl Graph {
    /// A workflow of that name, whose nodes are done one after another.
    pub fn new(name: &str, body: impl IntoIterator<Item = Node>) -> Self {
        Self { name: name.to_owned(), body: body.into_iter().collect() }
    }
}

impl Node {
    /// Nodes that are done one after another.
    pub fn sequence(children: impl IntoIterator<Item = Self>) -> Self {
        let children = children.into_iter().collect();
        Self::Group(Group { order: Order::Sequence, children })
    }

    /// Nodes that are done at once, `limit` tasks at a time.
    pub fn parallel(limit: Option<u32>, children: impl IntoIterator<Item = Self>) -> Self {
        let children = children.into_iter().collect();
        Self::Group(Group { order: Order::Parallel { limit }, children })
    }

    /// Nodes that are done again and again until something holds, at most so often.
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
            place: None,
        })
    }
}

impl From<Task> for Node {
    fn from(task: Task) -> Self {
        Self::Task(Arc::new(task))
    }
}

impl Task {
    /// A task that does that.
    pub fn new(id: &str, work: Work) -> Self {
        let retry = match work {
            Work::Compute { .. }
            | Work::Agent { .. }
            | Work::Command { .. }
            | Work::Subflow { .. }
            | Work::Sandbox(_) => Retry::USUAL,
            Work::Static(_) | Work::Approval(_) | Work::Timer(_) | Work::Event(_) => Retry::NONE,
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
            place: None,
        }
    }

    /// A task that gives a value.
    pub fn value(id: &str, value: Value) -> Self {
        Self::new(id, Work::Static(value))
    }

    /// A task that calls a function.
    pub fn compute(id: &str, function: Function) -> Self {
        Self::new(id, Work::Compute { function, inputs: None })
    }

    /// A task that waits until somebody decides.
    pub fn approval(id: &str, approval: Approval) -> Self {
        Self::new(id, Work::Approval(approval))
    }

    /// A task that waits so long.
    pub fn timer(id: &str, length: Duration) -> Self {
        Self::new(id, Work::Timer(Timer::After(length)))
    }

    /// A task that waits for a signal.
    pub fn event(id: &str, name: &str) -> Self {
        let event =
            Event { name: name.to_owned(), correlation: None, on_timeout: OnTimeout::default() };
        Self::new(id, Work::Event(event))
    }

    /// The same, whose value is kept in a table.
    #[must_use]
    pub fn into_table(mut self, table: &str, schema: Option<Value>) -> Self {
        self.output = Some(Output { table: table.to_owned(), schema });
        self
    }

    /// The same, which comes after others.
    #[must_use]
    pub fn after(mut self, ids: &[&str]) -> Self {
        self.after.extend(ids.iter().map(|id| (*id).to_owned()));
        self
    }
}
