//! The program of a run, as it is stored with the run: the files of a workflow file, or the name of a
//! workflow in Rust, which each process that executes the run must have.

use serde::{Deserialize, Serialize};
use stockade_durable::Store;

use crate::authoring::{Error, Sources};
use crate::graph::{Fault, nearest};
use crate::rust_workflow::RustWorkflow;
use crate::store::programs;

/// A program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Program {
    /// A workflow in Rust.
    Rust(RustWorkflowName),
    /// A workflow file with all that it imports.
    Files(Sources),
}

/// Identifies a workflow in Rust.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RustWorkflowName {
    /// Its name.
    pub(crate) built: String,
    /// Distinguishes it from earlier workflows with the same name.
    pub(crate) version: String,
}

/// The stored program with this hash.
pub(crate) async fn stored(
    store: &dyn Store,
    hash: &str,
) -> Result<Option<Program>, stockade_durable::Error> {
    let text = programs::find(store, hash).await?;
    Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
}

impl Program {
    /// A hash that differs from that of any other program.
    pub(crate) fn hash(&self) -> String {
        match self {
            Self::Files(sources) => sources.hash(),
            Self::Rust(RustWorkflowName { built, version }) => {
                let text = format!("built\0{}\0{built}{version}", built.len());
                blake3::hash(text.as_bytes()).to_hex().to_string()
            }
        }
    }
}

impl RustWorkflowName {
    /// The name of a workflow.
    pub(crate) fn of(workflow: &RustWorkflow) -> Self {
        let (built, version) = (workflow.name().to_owned(), workflow.version().to_owned());
        Self { built, version }
    }

    /// The workflow with this name, which must have the same version.
    pub(crate) fn find_in(&self, known: &[RustWorkflow]) -> Result<RustWorkflow, Error> {
        let fault = |message| Error::Faults(vec![Fault { place: None, message }]);
        let found = find(&self.built, known).map_err(fault)?;
        if found.version() == self.version {
            return Ok(found);
        }
        let (name, started_version, now) = (&self.built, &self.version, found.version());
        Err(fault(format!(
            "workflow \"{name}\" now has version \"{now}\", but the run started with \"{started_version}\": resume it with --accept-workflow-change"
        )))
    }
}

/// The workflow in Rust with this name; an error message if there is none.
pub(crate) fn find(name: &str, known: &[RustWorkflow]) -> Result<RustWorkflow, String> {
    let found = known.iter().find(|workflow| workflow.name() == name);
    found.cloned().ok_or_else(|| {
        let hint = nearest(name, known.iter().map(RustWorkflow::name));
        let hint = hint.map(|meant| format!(" — did you mean \"{meant}\"?")).unwrap_or_default();
        format!("no workflow \"{name}\" is registered in `Options::rust_workflows`{hint}")
    })
}
