//! The data of a run that its workflow can query: its input, and the outputs so far.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::graph::Function;

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
        }
    }
}

/// A journal that the run and its workflow share.
pub(crate) type SharedJournal = Arc<Mutex<Journal>>;

/// The input of a child workflow: an empty object if none is given.
pub(crate) fn child_input(input: Value) -> Value {
    if input.is_null() { json!({}) } else { input }
}
