//! Where a workflow of a program is created, and the portable program that creates it elsewhere.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::code::ScriptCode;
use super::loaded_realm::LoadedRealm;
use crate::authoring::{Error, ModuleLocation, OriginAnswer, WorkflowOrigin, pack};
use crate::engine::user_code::calls::CALL_LIMIT;
use crate::graph::{Fault, Function};
use crate::journal::WorkflowRef;
use crate::sync::lock;

/// One of the workflows that a run knows.
#[derive(Debug, Clone, Copy)]
enum Selector<'a> {
    /// The workflow of the run itself.
    Run,
    /// The workflow of an element.
    Node(&'a str),
    /// The workflow with this number in the rendering.
    Function(Function),
}

impl ScriptCode {
    /// A program that exports the workflow of an element in the rendering of a run, such as a
    /// `<Sandbox>`: a map from names to files, which contain no other path. It has the modules that the
    /// workflow needs, as they were when the run started, and nothing of the environment.
    pub(crate) async fn child_program(
        &self,
        run: &str,
        node: &str,
    ) -> Result<BTreeMap<String, Vec<u8>>, Error> {
        let mut live = self.live.lock().await;
        let live = self.load_if_needed(&mut live).await?;
        if self.ensure_open(live, run).await? || !live.read.contains_key(run) {
            self.render_again(live, run).await?;
        }
        let origin = self.origin(live, run, Selector::Node(node)).await?;
        Ok(pack(&self.sources, &origin))
    }

    /// Where a workflow was created.
    async fn origin(
        &self,
        live: &LoadedRealm,
        run: &str,
        of: Selector<'_>,
    ) -> Result<WorkflowOrigin, Error> {
        let argument = match of {
            Selector::Run => json!({ "run": run, "node": null, "workflow": null }),
            Selector::Node(node) => json!({ "run": run, "node": node, "workflow": null }),
            Selector::Function(number) => json!({ "run": run, "node": null, "workflow": number }),
        };
        let found: OriginAnswer =
            live.realm.call_with_timeout("say", CALL_LIMIT, "origin", argument).await?;
        if let Some(ModuleLocation { module, number }) = found.place {
            return Ok(WorkflowOrigin::FromModule { module, number });
        }
        let journal = self.journal(run)?;
        if let Some(node) = found.node {
            let by = Box::new(Box::pin(self.origin(live, run, Selector::Run)).await?);
            let tables = live.read.get(run).map_or(&[][..], Vec::as_slice);
            let is_read = |row: &&Value| tables.iter().any(|table| row["table"] == **table);
            let journal = lock(&journal);
            let rows: Vec<&Value> = journal.rows.iter().filter(is_read).collect();
            let state = json!({
                "runId": run, "input": journal.input, "iterations": journal.iterations,
                "rows": rows, "tables": tables,
            });
            return Ok(WorkflowOrigin::Rendered { by, node, state });
        }
        let parent_run = lock(&journal).parent.clone();
        match parent_run {
            None => Ok(WorkflowOrigin::Entry),
            Some((parent, WorkflowRef::Rendered(number))) => {
                Box::pin(self.origin(live, &parent, Selector::Function(number))).await
            }
            Some((_, WorkflowRef::Requested { .. })) => {
                let message = "a workflow that was created for a provider during the rendering of another one cannot be moved into a sandbox: create it in a module";
                Err(Error::Faults(vec![Fault { place: None, message: message.to_owned() }]))
            }
        }
    }
}
