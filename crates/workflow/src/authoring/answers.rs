//! The answers of the functions in `library/start.js`.

use serde::Deserialize;
use serde_json::Value;

use crate::graph::RenderUpdate;

/// The answer of `render`.
#[derive(Debug, Deserialize)]
pub(crate) struct RenderAnswer {
    /// The rendering, if it was requested.
    pub(crate) tree: Option<RenderUpdate>,
    /// The tables that it depends on.
    pub(crate) read: Vec<String>,
    /// The schemas that no earlier answer contained.
    pub(crate) schemas: Vec<Value>,
}

/// The answer of `origin`: where a workflow was created.
#[derive(Debug, Deserialize)]
pub(crate) struct OriginAnswer {
    /// The module that created it while the module was evaluated.
    pub(crate) place: Option<ModuleLocation>,
    /// The element that has this workflow.
    pub(crate) node: Option<String>,
}

/// The place of a workflow in a program.
#[derive(Debug, Deserialize)]
pub(crate) struct ModuleLocation {
    /// The module.
    pub(crate) module: String,
    /// The index of the workflow among those that the module created.
    pub(crate) number: u32,
}

/// The answer of `open`.
#[derive(Debug, Deserialize)]
pub(crate) struct OpenAnswer {
    /// The index of the schema of its input.
    pub(crate) input: Option<usize>,
    /// The table that holds its result.
    pub(crate) output: Option<String>,
    /// All schemas that are known so far.
    pub(crate) schemas: Vec<Value>,
}
