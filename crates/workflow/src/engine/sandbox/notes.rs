//! What a sandbox has to tell its run while it is executed: events and rows. The run keeps them in
//! order with its own, and says when they are on disk.

use serde_json::{Value, json};
use stockade_durable::Statement;
use tokio::sync::{mpsc, oneshot};

use super::nested::Lineage;
use crate::engine::timings::Timings;
use crate::engine::trouble::{INTERRUPTED, Trouble};
use crate::schedule::Key;

/// How many may wait to be kept.
const WAITING: usize = 64;

/// Something to be kept.
#[derive(Debug)]
pub(crate) struct Note {
    /// What happened, in order.
    pub(crate) events: Vec<Value>,
    /// What changes with it.
    pub(crate) statements: Vec<Statement>,
    /// Told once it is on disk.
    pub(crate) kept: oneshot::Sender<()>,
}

/// Where a run hears of its sandboxes.
pub(crate) fn channel() -> (mpsc::Sender<Note>, mpsc::Receiver<Note>) {
    mpsc::channel(WAITING)
}

/// The way to the run, for one try of one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Notes {
    pub(crate) sender: mpsc::Sender<Note>,
    pub(crate) key: Key,
    pub(crate) attempt: u32,
    /// Where it is from, where it is in another sandbox.
    pub(crate) lineage: Option<Lineage>,
    /// How long it took what the next event tells of.
    pub(crate) timings: Timings,
}

impl Notes {
    /// Keeps events and rows together; returns when they are on disk.
    pub(crate) async fn keep(
        &self,
        events: Vec<Value>,
        statements: Vec<Statement>,
    ) -> Result<(), Trouble> {
        let gone = || Trouble::new(INTERRUPTED, "the run has stopped").retryable();
        let (kept, heard) = oneshot::channel();
        let note = Note { events, statements, kept };
        self.sender.send(note).await.map_err(|_| gone())?;
        heard.await.map_err(|_| gone())
    }

    /// The task of the run that the sandbox is, or that is around it.
    pub(crate) fn task(&self) -> &Key {
        let task = self.lineage.as_ref().and_then(|lineage| lineage.task.as_ref());
        task.unwrap_or(&self.key)
    }

    /// An event of the sandbox.
    pub(crate) fn event(&self, kind: &str, more: Value) -> Value {
        let mut event = json!({
            "type": kind, "sandboxId": self.key.node, "nodeId": self.task().node,
            "iteration": self.key.iteration, "attempt": self.attempt,
        });
        let lineage = self.lineage.as_ref().map(|lineage| json!(lineage)).unwrap_or_default();
        for more in [lineage, more] {
            if let (Some(event), Value::Object(more)) = (event.as_object_mut(), more) {
                event.extend(more);
            }
        }
        if let Some(times) = self.timings.take() {
            event["transportMs"] = times;
        }
        event
    }

    /// A sign of life, with how far it has come in percent.
    pub(crate) fn stage(&self, stage: &str, progress: u8) -> Value {
        self.stage_with(stage, progress, json!({}))
    }

    /// The same, with more to tell.
    pub(crate) fn stage_with(&self, stage: &str, progress: u8, more: Value) -> Value {
        let mut data = json!({ "sandboxId": self.key.node, "stage": stage, "progress": progress });
        if let (Some(data), Value::Object(more)) = (data.as_object_mut(), more) {
            data.extend(more);
        }
        let task = self.task();
        json!({
            "type": "TaskHeartbeat", "nodeId": task.node, "iteration": task.iteration,
            "attempt": self.attempt, "data": data,
        })
    }
}
