//! The `cache` attribute of a task.

use std::time::Duration;

use serde_json::Value;

/// How the output of a task is cached for other runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Cache {
    /// Which other runs of the same owner may use the output.
    pub scope: Scope,
    /// The key that the workflow specifies: `key` and `version`.
    pub name: Value,
    /// What the output depends on, in addition to the work.
    pub depends: Depends,
    /// How long the output is valid.
    pub lifetime: Option<Duration>,
}

/// Which runs may use a cached output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scope {
    /// Only the same run.
    Run,
    /// Runs of the same workflow in the same file.
    #[default]
    Workflow,
    /// All runs.
    Global,
}

/// What the output of a task depends on, in addition to the work.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Depends {
    /// The input of the run, and all outputs of the run so far.
    #[default]
    Everything,
    /// Only this value: the `by` of the workflow.
    Only(Value),
    /// The `by` of the workflow failed to give a value, for this reason.
    Unknown(String),
}

impl Default for Cache {
    fn default() -> Self {
        let (scope, depends) = (Scope::default(), Depends::default());
        Self { scope, name: Value::Null, depends, lifetime: None }
    }
}
