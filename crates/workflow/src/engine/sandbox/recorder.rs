//! How an attempt of a sandbox records events and rows during its execution. Its run commits them in
//! order with its own changes, and acknowledges them when they are on disk.

use serde_json::{Value, json};
use stockade_durable::Statement;
use tokio::sync::{mpsc, oneshot};

use super::enclosing::Lineage;
use crate::engine::redaction::Redaction;
use crate::engine::task_error::{INTERRUPTED, TaskError};
use crate::engine::timings::Timings;
use crate::schedule::Key;

/// How many records can wait to be committed.
const MAX_PENDING: usize = 64;

/// Events and statements that are committed together.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) events: Vec<Value>,
    pub(crate) statements: Vec<Statement>,
    /// Is notified when the record is on disk.
    pub(crate) committed: oneshot::Sender<()>,
}

impl Record {
    /// The channel from the attempts of a run to the run.
    pub(crate) fn channel() -> (mpsc::Sender<Self>, mpsc::Receiver<Self>) {
        mpsc::channel(MAX_PENDING)
    }
}

/// Records the events of one attempt of one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    pub(crate) sender: mpsc::Sender<Record>,
    pub(crate) key: Key,
    pub(crate) attempt: u32,
    /// The origin of a nested sandbox.
    pub(crate) lineage: Option<Lineage>,
    /// Times to be added to the next event.
    pub(crate) timings: Timings,
    /// The values that no record of the run contains.
    pub(crate) redaction: Redaction,
}

impl Recorder {
    /// Commits events and statements together, through the run; returns when they are on disk.
    pub(crate) async fn record(
        &self,
        events: Vec<Value>,
        statements: Vec<Statement>,
    ) -> Result<(), TaskError> {
        let stopped = || TaskError::new(INTERRUPTED, "the run has stopped").retryable();
        let (committed, acknowledgement) = oneshot::channel();
        let record = Record { events, statements, committed };
        self.sender.send(record).await.map_err(|_| stopped())?;
        acknowledgement.await.map_err(|_| stopped())
    }

    /// The task of the run that the sandbox, or the outermost one that encloses it, belongs to.
    pub(crate) fn task(&self) -> &Key {
        let task = self.lineage.as_ref().and_then(|lineage| lineage.task.as_ref());
        task.unwrap_or(&self.key)
    }

    /// Creates an event of the sandbox. It takes the collected times.
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

    /// Creates a heartbeat, with the progress in percent.
    pub(crate) fn stage(&self, stage: &str, progress: u8) -> Value {
        self.stage_with(stage, progress, json!({}))
    }

    /// Creates a heartbeat with additional data.
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
