//! What a workflow can ask for of its run: its input, and what has been done so far.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::graph::Function;

/// What a workflow can ask for of its run.
#[derive(Debug)]
pub(crate) struct Journal {
    /// The run.
    pub(crate) run: String,
    /// Its input.
    pub(crate) input: Value,
    /// The run that its workflow is from, and which of its workflows it is; `None` for the workflow of
    /// the program itself.
    pub(crate) within: Option<(String, WorkflowRef)>,
    /// The outputs of its tasks, in the order in which they finished.
    pub(crate) rows: Vec<Value>,
    /// The iterations of its loops, by their names.
    pub(crate) iterations: BTreeMap<String, u32>,
}

/// A workflow of another run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WorkflowRef {
    /// An element of its rendering has it.
    Rendered(Function),
    /// A provider requested it.
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
            within: None,
            rows: Vec::new(),
            iterations: BTreeMap::new(),
        }
    }
}

/// A journal that the run and its workflow share.
pub(crate) type SharedJournal = Arc<Mutex<Journal>>;

/// The input of a child workflow: an empty object where none is given.
pub(crate) fn child_input(input: Value) -> Value {
    if input.is_null() { json!({}) } else { input }
}
