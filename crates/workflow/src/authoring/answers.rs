//! What the functions of `library/start.js` answer.

use serde::Deserialize;
use serde_json::Value;

use crate::graph::Update;

/// The answer of `render`.
#[derive(Debug, Deserialize)]
pub(crate) struct RenderAnswer {
    /// The rendering, if it was requested.
    pub(crate) tree: Option<Update>,
    /// The tables that it depends on.
    pub(crate) read: Vec<String>,
    /// The schemas that no answer had before.
    pub(crate) schemas: Vec<Value>,
}

/// The answer of `origin`: where a workflow is from.
#[derive(Debug, Deserialize)]
pub(crate) struct OriginAnswer {
    /// The module that made it while it was evaluated.
    pub(crate) place: Option<ModulePlace>,
    /// The element whose workflow it is.
    pub(crate) node: Option<String>,
}

/// The place of a workflow in a program.
#[derive(Debug, Deserialize)]
pub(crate) struct ModulePlace {
    /// The module.
    pub(crate) module: String,
    /// Its number among the workflows that the module made.
    pub(crate) number: u32,
}

/// The answer of `open`.
#[derive(Debug, Deserialize)]
pub(crate) struct OpenAnswer {
    /// The number of the schema of its input.
    pub(crate) input: Option<usize>,
    /// The table that holds its result.
    pub(crate) output: Option<String>,
    /// All schemas that are known so far.
    pub(crate) schemas: Vec<Value>,
}
