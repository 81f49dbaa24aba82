//! What is kept of a task for other runs, as its author says it.

use std::time::Duration;

use serde_json::Value;

/// What is kept of a task for other runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Cache {
    /// Which other runs of the same owner may have it.
    pub scope: Scope,
    /// What its author calls it: `key` and `version`.
    pub name: Value,
    /// What it depends on, besides what is done.
    pub depends: Depends,
    /// How long it is good for.
    pub lifetime: Option<Duration>,
}

/// Which runs may have what was kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scope {
    /// The same run.
    Run,
    /// Those of the same workflow of the same file.
    #[default]
    Workflow,
    /// All.
    Global,
}

/// What the answer of a task depends on, besides what is done.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Depends {
    /// On all that its run was given, and all that the run has done.
    #[default]
    Everything,
    /// On this alone: its author's `by`.
    Only(Value),
    /// On what its author could not say, because of this.
    Unknown(String),
}

impl Default for Cache {
    fn default() -> Self {
        let (scope, depends) = (Scope::default(), Depends::default());
        Self { scope, name: Value::Null, depends, lifetime: None }
    }
}
