//! The handle of a workflow: its id, its status, and the wait for its result.

use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::poll::Poll;
use super::stop::Waits;
use super::{Engine, SharedOutcome};
use crate::{Channel, Error, Result, Status, WorkflowId, WorkflowInfo};

/// A reference to one workflow.
#[derive(Debug, Clone)]
pub struct Handle {
    engine: Engine,
    id: WorkflowId,
    /// Its result, where it runs in this process.
    outcome: Option<watch::Receiver<SharedOutcome>>,
    created: bool,
    /// The waits of the workflow that waits for this one, where one does.
    waiter: Option<Waits>,
}

impl Handle {
    pub(super) fn new(
        engine: Engine,
        id: WorkflowId,
        outcome: Option<watch::Receiver<SharedOutcome>>,
    ) -> Self {
        Self { engine, id, outcome, created: false, waiter: None }
    }

    pub(super) fn newly_created(self) -> Self {
        Self { created: true, ..self }
    }

    /// The same handle, whose waits end when the waiting workflow must stop.
    pub(super) fn waited_on_by(self, waiter: Waits) -> Self {
        Self { waiter: Some(waiter), ..self }
    }

    /// The id of the workflow.
    pub fn workflow_id(&self) -> &WorkflowId {
        &self.id
    }

    /// Whether the call that returned this handle recorded the workflow, rather than joining it.
    pub fn was_created(&self) -> bool {
        self.created
    }

    /// The status of the workflow.
    pub async fn get_status(&self) -> Result<Status> {
        Ok(self.info().await?.status)
    }

    /// Waits until the workflow has ended. Returns its result, or fails with [`Error::Failed`],
    /// [`Error::Cancelled`] or [`Error::AttemptsExceeded`]. [`Error::Interrupted`],
    /// [`Error::StorageFull`] and [`Error::ShuttingDown`] mean that it stopped in this process and
    /// continues later.
    pub async fn get_result<O: DeserializeOwned>(&self) -> Result<O> {
        let text = match &self.waiter {
            Some(waiter) => waiter.interruptible(self.wait()).await??,
            None => self.wait().await?,
        };
        Ok(serde_json::from_str(&text)?)
    }

    async fn wait(&self) -> Result<String> {
        if let Some(mut outcome) = self.outcome.clone() {
            let ended = outcome.wait_for(Option::is_some).await.ok().and_then(|done| done.clone());
            if let Some(result) = ended {
                return (*result).clone().map_err(Error::Failed);
            }
            // It stopped in this process without an end: the store decides.
        }
        let mut changes = self.engine.store().wakes().subscribe(Channel::Workflow(self.id.clone()));
        let mut poll = Poll::default();
        loop {
            changes.mark_unchanged();
            let info = self.info().await?;
            if let Some(output) = output(&info)? {
                return Ok(output);
            }
            if let Some(error) = self.engine.stopped(&self.id) {
                return Err(error);
            }
            let is_elsewhere = self.engine.is_elsewhere(&self.id, info.place.as_deref());
            poll.changed(&mut changes, is_elsewhere).await?;
        }
    }

    async fn info(&self) -> Result<WorkflowInfo> {
        let info = self.engine.info(&self.id).await?;
        info.ok_or_else(|| Error::NotFound { id: self.id.clone() })
    }
}

/// The result of a workflow; `None` while it has not ended.
fn output(info: &WorkflowInfo) -> Result<Option<String>> {
    match info.status {
        Status::Success => {
            let output =
                info.output.as_ref().map_or_else(|| "null".to_owned(), ToString::to_string);
            Ok(Some(output))
        }
        status if status.is_terminal() => Err(end_error(info)),
        _ => Ok(None),
    }
}

/// The error of a workflow that ended without returning.
pub(super) fn end_error(info: &WorkflowInfo) -> Error {
    let id = info.id.clone();
    let failure = info.failure.clone();
    match info.status {
        Status::Cancelled => {
            let timed_out = failure.is_some_and(|failure| failure.code == "timed_out");
            Error::Cancelled { id, timed_out }
        }
        Status::MaxRecoveryAttemptsExceeded => Error::AttemptsExceeded { id },
        _ => failure.map_or_else(|| Error::NotFound { id }, Error::Failed),
    }
}
