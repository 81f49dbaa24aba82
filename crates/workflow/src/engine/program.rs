//! The program of a run, as it is kept with it: the files that a workflow file consists of, or the
//! name of a workflow in Rust, which whoever goes on with the run has to have.

use serde::{Deserialize, Serialize};
use stockade_durable::Store;

use crate::authoring::{Error, Sources};
use crate::built::Built;
use crate::graph::{Fault, nearest};
use crate::store::programs;

/// What a run does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Program {
    /// A workflow in Rust.
    Built(Name),
    /// A workflow file with all that it imports.
    Files(Sources),
}

/// Names a workflow in Rust.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Name {
    /// What it is called.
    pub(crate) built: String,
    /// What tells it from another that was called so before.
    pub(crate) version: String,
}

/// The program of this hash, as it is stored.
pub(crate) async fn stored(
    store: &dyn Store,
    hash: &str,
) -> Result<Option<Program>, stockade_durable::Error> {
    let text = programs::find(store, hash).await?;
    Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
}

impl Program {
    /// Names all of it: another program has another.
    pub(crate) fn hash(&self) -> String {
        match self {
            Self::Files(sources) => sources.hash(),
            Self::Built(Name { built, version }) => {
                let text = format!("built\0{}\0{built}{version}", built.len());
                blake3::hash(text.as_bytes()).to_hex().to_string()
            }
        }
    }
}

impl Name {
    /// That of a workflow.
    pub(crate) fn of(workflow: &Built) -> Self {
        let (built, version) = (workflow.name().to_owned(), workflow.version().to_owned());
        Self { built, version }
    }

    /// The workflow of that name, which must be the same that it was.
    pub(crate) fn found(&self, known: &[Built]) -> Result<Built, Error> {
        let fault = |message| Error::Faults(vec![Fault { place: None, message }]);
        let found = find(&self.built, known).map_err(fault)?;
        if found.version() == self.version {
            return Ok(found);
        }
        let (name, began, now) = (&self.built, &self.version, found.version());
        Err(fault(format!(
            "workflow \"{name}\" has version \"{now}\" now, and the run began with \"{began}\": \
             the run can be resumed with that change accepted"
        )))
    }
}

/// The workflow in Rust of a name; else what is told of it.
pub(crate) fn find(name: &str, known: &[Built]) -> Result<Built, String> {
    let found = known.iter().find(|workflow| workflow.name() == name);
    found.cloned().ok_or_else(|| {
        let hint = nearest(name, known.iter().map(Built::name));
        let hint = hint.map(|meant| format!(" — did you mean \"{meant}\"?")).unwrap_or_default();
        format!("this engine was given no workflow \"{name}\" in Rust: it is one of `Options::built`{hint}")
    })
}
