//! How a workflow is stopped in this process, and the waits that end with it.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

use crate::{Error, Result, WorkflowId};

/// Why a workflow stops in this process before it has returned. None of these is a failure of the
/// workflow, so none is recorded as one.
#[derive(Debug, Clone)]
pub(super) enum Interrupt {
    /// It was cancelled, which is recorded already.
    Cancelled { timed_out: bool },
    /// Another execution has its lease.
    LeaseLost,
    /// The engine shuts down; the workflow continues when it is taken over.
    ShuttingDown,
    /// The store failed; the workflow continues when it is taken over.
    Storage(Error),
    /// It has returned, but something that it started still uses its context.
    Returned,
}

impl Interrupt {
    /// The error that waiters of the workflow receive.
    pub(super) fn error(&self, id: &WorkflowId) -> Error {
        let id = id.clone();
        match self {
            Self::Cancelled { timed_out } => Error::Cancelled { id, timed_out: *timed_out },
            Self::LeaseLost => Error::LeaseLost { id, status: None },
            Self::ShuttingDown => Error::ShuttingDown,
            Self::Storage(Error::StorageFull) => Error::StorageFull,
            Self::Storage(error) => Error::Interrupted { id, why: error.to_string() },
            Self::Returned => Error::Interrupted { id, why: "it has returned".to_owned() },
        }
    }
}

/// The stop signal of a running workflow. The first reason counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop {
    token: CancellationToken,
    reason: Arc<OnceLock<Interrupt>>,
}

impl Stop {
    pub(super) fn because(&self, reason: Interrupt) {
        self.reason.set(reason).ok();
        self.token.cancel();
    }

    pub(super) fn reason(&self) -> Option<&Interrupt> {
        self.reason.get()
    }

    pub(super) fn token(&self) -> &CancellationToken {
        &self.token
    }
}

/// The waits of one run of a workflow.
#[derive(Debug, Clone)]
pub(super) struct Waits {
    id: WorkflowId,
    stop: Stop,
    /// Cancelled when the engine shuts down.
    closing: CancellationToken,
}

impl Waits {
    pub(super) fn new(id: WorkflowId, stop: Stop, closing: CancellationToken) -> Self {
        Self { id, stop, closing }
    }

    /// Waits, unless the workflow must stop. A wait may be long, so it also ends when the engine
    /// shuts down: the next run continues to wait.
    pub(super) async fn interruptible<T>(&self, wait: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            () = self.stop.token().cancelled() => Err(self.interruption()),
            value = wait => Ok(value),
            () = self.closing.cancelled() => {
                self.stop.because(Interrupt::ShuttingDown);
                Err(self.interruption())
            }
        }
    }

    /// The error of a workflow that must stop.
    pub(super) fn interruption(&self) -> Error {
        self.stop.reason().unwrap_or(&Interrupt::Returned).error(&self.id)
    }
}
