//! Sandboxes in sandboxes (Smithers, "Nested sandboxes"). No sandbox can be made inside one: a child
//! that comes to a `<Sandbox>` writes what it asks for and waits (`within`), the host reads that as it
//! reads everything from inside (`asked`), gives no more than the sandbox around has (`grant`), makes
//! the inner one beside it on what the workspace of the outer holds at that moment (`inner`, `fork`), and
//! hands back what came of it (`given`). The changes are made in the outer workspace, by the child, and nowhere else.

pub(crate) mod asked;
mod changed;
mod fork;
mod given;
pub(crate) mod grant;
mod inner;
mod outer;
mod within;

use serde::Serialize;

use crate::schedule::Key;

pub(crate) use asked::Which;
pub(crate) use grant::Grant;
pub(crate) use inner::Carried;
pub(super) use outer::Next;
pub(crate) use outer::Within;

/// Where a sandbox is from that is in another.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lineage {
    /// The run that all of it is done for.
    pub(crate) root_run_id: String,
    /// The sandbox around it.
    pub(crate) parent_sandbox_id: String,
    /// How many are around it.
    pub(crate) depth: u32,
    /// The task of the run that the outermost of them is.
    #[serde(skip)]
    pub(crate) task: Option<Key>,
}

impl Lineage {
    /// The name of the try that the sandbox around is of, and how many are around.
    pub(crate) fn parent(&self) -> (&str, u32) {
        let id = self.parent_sandbox_id.as_str();
        (id.strip_prefix("run-").unwrap_or(id), self.depth)
    }
}

/// What is around a sandbox that is in another.
#[derive(Debug, Clone)]
pub(crate) struct Around {
    pub(crate) grant: Grant,
    pub(crate) lineage: Lineage,
}
