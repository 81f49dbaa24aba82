//! The `cache` of a task, as the workflow has it.

use std::time::Duration;

use serde_json::Value;

/// How the output of a task is cached for other runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Cache {
    /// Which other runs of the same owner may use it.
    pub scope: Scope,
    /// Its name in the workflow: `key` and `version`.
    pub name: Value,
    /// What the output depends on, besides the work.
    pub depends: Depends,
    /// How long it is valid.
    pub lifetime: Option<Duration>,
}

/// Which runs may use a cached output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scope {
    /// The same run.
    Run,
    /// Runs of the same workflow of the same file.
    #[default]
    Workflow,
    /// All.
    Global,
}

/// What the output of a task depends on, besides the work.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Depends {
    /// The input of its run, and all that the run has done.
    #[default]
    Everything,
    /// Only this: the `by` of the workflow.
    Only(Value),
    /// The `by` of the workflow has no value, because of this.
    Unknown(String),
}

impl Default for Cache {
    fn default() -> Self {
        let (scope, depends) = (Scope::default(), Depends::default());
        Self { scope, name: Value::Null, depends, lifetime: None }
    }
}
