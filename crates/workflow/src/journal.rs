//! The data of a run that its workflow can query: its input, and the outputs so far.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::graph::Function;

/// The member of the input of a run with the state of the run that was continued as it.
pub(crate) const CONTINUATION: &str = "__smithersContinuation";

/// The data of a run that its workflow can query.
#[derive(Debug)]
pub(crate) struct Journal {
    /// The id of the run.
    pub(crate) run: String,
    /// Its input.
    pub(crate) input: Value,
    /// The run that defines the workflow, and which of that run's workflows it is; `None` for the
    /// program's own workflow.
    pub(crate) parent: Option<(String, WorkflowRef)>,
    /// The outputs of its tasks, in the order in which they finished.
    pub(crate) rows: Vec<Value>,
    /// The iterations of its loops, by their names.
    pub(crate) iterations: BTreeMap<String, u32>,
    /// The tasks that have failed for good, with their errors.
    pub(crate) failures: Vec<Value>,
}

/// A workflow that another run defines.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WorkflowRef {
    /// The workflow of an element in the rendering of that run.
    Rendered(Function),
    /// The workflow that a provider requested.
    Requested {
        /// The call of the provider, by its number in the realm.
        call: u64,
        /// Its number among the requests of the call, from 0.
        number: u32,
    },
}

impl Journal {
    /// The journal of a run of the program's own workflow, before its first task.
    pub(crate) fn new(run: &str, input: Value) -> Self {
        Self {
            run: run.to_owned(),
            input,
            parent: None,
            rows: Vec::new(),
            iterations: BTreeMap::new(),
            failures: Vec::new(),
        }
    }
}

/// A journal that the run and its workflow share.
pub(crate) type SharedJournal = Arc<Mutex<Journal>>;

impl Journal {
    /// The outputs of a task in the current iterations of the loops around it, in the order in which they
    /// were stored. A name with a scope is exact.
    pub(crate) fn rows_of<'a>(&'a self, task: &'a str) -> impl Iterator<Item = &'a Value> {
        self.rows.iter().filter(move |row| {
            let node = row["node"].as_str().unwrap_or_default();
            node == task || (scope_of(node).0 == task && self.is_current(node))
        })
    }

    /// Whether a key of a task is of the current iterations of the outer loops.
    pub(crate) fn is_current(&self, node: &str) -> bool {
        is_within(node, &self.iterations)
    }
}

/// Whether the scope in a name is of these iterations.
fn is_within(name: &str, iterations: &BTreeMap<String, u32>) -> bool {
    let current = |name: &str| iterations.get(name).copied().unwrap_or_default();
    scope_of(name).1.into_iter().all(|(outer, iteration)| current(outer) == iteration)
}

/// The parts of a name in nested loops: the plain name, and the outer loops with their iterations.
fn scope_of(name: &str) -> (&str, Vec<(&str, u32)>) {
    let mut parts = name.split("@@");
    let plain = parts.next().unwrap_or(name);
    let outer = parts.filter_map(|part| {
        let (outer, iteration) = part.rsplit_once('=')?;
        Some((outer, iteration.parse().ok()?))
    });
    (plain, outer.collect())
}

/// The current iterations of loops by their plain names, from the states of all loops, of which each
/// iteration of an outer loop has its own.
pub(crate) fn current_iterations<'a>(
    loops: impl IntoIterator<Item = (&'a String, u32)>,
) -> BTreeMap<String, u32> {
    let mut all: Vec<(&String, u32)> = loops.into_iter().collect();
    all.sort_by_key(|(name, _)| name.matches("@@").count());
    let mut current = BTreeMap::new();
    for (name, iteration) in all {
        if is_within(name, &current) {
            current.insert(scope_of(name).0.to_owned(), iteration);
        }
    }
    current
}

/// The input of a child workflow: an object as it is, an empty one if none is given, and any other value
/// as `value` of an object.
pub(crate) fn child_input(input: Value) -> Value {
    match input {
        Value::Null => json!({}),
        Value::Object(_) => input,
        value => json!({ "value": value }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_other_rounds_are_not_found() {
        let mut journal = Journal::new("r", json!({}));
        for (node, value) in [("i@@outer=0", 1), ("i@@outer=1", 2), ("j", 3)] {
            journal
                .rows
                .push(json!({ "table": "t", "node": node, "iteration": 0, "value": value }));
        }
        let found = |journal: &Journal, task: &str| {
            journal.rows_of(task).map(|row| row["value"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(found(&journal, "i"), [json!(1)]);
        journal.iterations.insert("outer".to_owned(), 1);
        assert_eq!(found(&journal, "i"), [json!(2)]);
        assert_eq!(found(&journal, "i@@outer=0"), [json!(1)]);
        assert_eq!(found(&journal, "j"), [json!(3)]);
        assert_eq!(found(&journal, "k"), Vec::<Value>::new());
    }

    #[test]
    fn an_inner_loop_begins_again_with_each_round_of_the_outer_one() {
        let name = |name: &str| name.to_owned();
        let all = [(name("inner@@outer=0"), 4), (name("outer"), 1)];
        let current = |all: &[(String, u32)]| {
            current_iterations(all.iter().map(|(name, iteration)| (name, *iteration)))
        };
        assert_eq!(current(&all), BTreeMap::from([(name("outer"), 1)]));
        let more = [all[0].clone(), all[1].clone(), (name("inner@@outer=1"), 2)];
        assert_eq!(current(&more), BTreeMap::from([(name("outer"), 1), (name("inner"), 2)]));
    }
}
