//! Drives one workflow from its claim to its recorded end, or to where it must stop.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Done, Engine, Running};
use crate::sync::{catching, lock, sleep_until_ms};
use crate::{Channel, Claimed, Context, Error, Failure, WorkflowId};

/// Why a workflow stops in this process before it has returned. None of these is its own
/// failure, so none is recorded as one.
#[derive(Debug, Clone)]
pub(crate) enum Interrupt {
    /// It was cancelled, which is recorded already.
    Cancelled { timed_out: bool },
    /// Another execution has it.
    LeaseLost,
    /// The engine shuts down; it goes on when it is taken over.
    ShuttingDown,
    /// The store failed; it goes on when it is taken over.
    Storage(Error),
    /// It has returned; something that it started still uses its context.
    Returned,
}

impl Interrupt {
    /// What waiters of the workflow are told.
    pub(crate) fn error(&self, id: &WorkflowId) -> Error {
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

/// How a running workflow is told to stop. The first reason counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    token: CancellationToken,
    why: Arc<OnceLock<Interrupt>>,
}

impl Stop {
    pub(crate) fn because(&self, why: Interrupt) {
        self.why.set(why).ok();
        self.token.cancel();
    }

    pub(crate) fn why(&self) -> Option<&Interrupt> {
        self.why.get()
    }

    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }
}

impl Engine {
    /// Runs a workflow that was claimed, in a task of its own, which tells of its end.
    pub(super) fn spawn(&self, claimed: Claimed) -> watch::Receiver<Done> {
        let stop = Stop::default();
        let (done, receiver) = watch::channel(None);
        let (epoch, told) = (claimed.epoch, receiver.clone());
        let running = Running { epoch, stop: stop.clone(), done: receiver };
        self.count(|all| drop(all.insert(claimed.id.clone(), running)));
        lock(&self.inner.stopped).remove(&claimed.id);
        tokio::spawn(self.clone().drive(claimed, stop, done));
        told
    }

    async fn drive(self, claimed: Claimed, stop: Stop, done: watch::Sender<Done>) {
        let (id, epoch) = (claimed.id.clone(), claimed.epoch);
        if let Some(result) = self.run(claimed, &stop).await {
            done.send_replace(Some(Arc::new(result)));
        } else if let Some(error @ (Interrupt::Storage(_) | Interrupt::ShuttingDown)) = stop.why() {
            lock(&self.inner.stopped).insert(id.clone(), error.error(&id));
            self.inner.store.wakes().wake(&Channel::Workflow(id.clone()));
        }
        stop.because(Interrupt::Returned);
        self.count(|all| {
            // A later run of the same workflow may have taken the place.
            if all.get(&id).is_some_and(|running| running.epoch == epoch) {
                all.remove(&id);
            }
        });
    }

    fn count(&self, change: impl FnOnce(&mut std::collections::HashMap<WorkflowId, Running>)) {
        let mut running = lock(&self.inner.running);
        change(&mut running);
        self.inner.count.send_replace(running.len());
    }

    /// The recorded end of the workflow; `None` when it stopped before.
    async fn run(&self, claimed: Claimed, stop: &Stop) -> Option<Result<String, Failure>> {
        let Claimed { id, input, deadline, .. } = claimed.clone();
        // A first run has recorded nothing.
        let steps = if claimed.epoch == 1 { Ok(Vec::new()) } else { self.store().steps(&id).await };
        let steps = match steps {
            Ok(steps) => steps,
            Err(error) => {
                stop.because(Interrupt::Storage(error));
                return None;
            }
        };
        let function = Arc::clone(self.inner.workflows.get(claimed.name.as_str())?);
        let context = Context::new(self.clone(), claimed, steps, stop.clone());
        let mut work = std::pin::pin!(catching(|| function(context.clone(), input)));
        let timed_out = async {
            match deadline {
                Some(deadline) => sleep_until_ms(deadline).await,
                None => std::future::pending().await,
            }
        };
        let result = tokio::select! {
            biased;
            result = &mut work => Some(result),
            () = stop.token().cancelled() => None,
            () = timed_out => {
                if let Err(error) = self.cancel_because(&id, true).await {
                    stop.because(Interrupt::Storage(error));
                }
                None
            }
        };
        if result.is_none() {
            tokio::time::timeout(self.inner.settings.grace, work).await.ok();
        }
        let ended = match (result, stop.why()) {
            (Some(result), None) => context.finish(result).await,
            _ => None,
        };
        context.release();
        ended
    }
}
