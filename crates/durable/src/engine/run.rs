//! Drives one workflow from its claim to its recorded end, or until it must stop.

use std::sync::Arc;

use tokio::sync::watch;

use super::context::Context;
use super::stop::{Interrupt, Stop};
use super::{Engine, Running, SharedOutcome};
use crate::sync::{catch_panic, lock, sleep_until_ms};
use crate::{Channel, ClaimedWorkflow, Failure, WorkflowId};

impl Engine {
    /// Runs a claimed workflow in a separate task; the receiver gets its end.
    pub(super) fn spawn(&self, claimed: ClaimedWorkflow) -> watch::Receiver<SharedOutcome> {
        let stop = Stop::default();
        let (outcome_sender, receiver) = watch::channel(None);
        let (epoch, outcome) = (claimed.epoch, receiver.clone());
        let running = Running { epoch, stop: stop.clone(), outcome: receiver };
        self.count(|all| drop(all.insert(claimed.id.clone(), running)));
        lock(&self.inner.stopped).remove(&claimed.id);
        tokio::spawn(self.clone().drive(claimed, stop, outcome_sender));
        outcome
    }

    async fn drive(
        self,
        claimed: ClaimedWorkflow,
        stop: Stop,
        outcome_sender: watch::Sender<SharedOutcome>,
    ) {
        let (id, epoch) = (claimed.id.clone(), claimed.epoch);
        if let Some(result) = self.run(claimed, &stop).await {
            outcome_sender.send_replace(Some(Arc::new(result)));
        } else if let Some(error @ (Interrupt::Storage(_) | Interrupt::ShuttingDown)) =
            stop.reason()
        {
            if matches!(error, Interrupt::Storage(_)) {
                tracing::warn!(workflow = %id, error = %error.error(&id), "stopped");
            }
            lock(&self.inner.stopped).insert(id.clone(), error.error(&id));
            self.inner.store.wakes().wake(&Channel::Workflow(id.clone()));
        }
        stop.because(Interrupt::Returned);
        self.count(|all| {
            // A later run of the same workflow may have replaced the entry.
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

    /// The recorded result of the workflow; `None` when it stopped before.
    async fn run(&self, claimed: ClaimedWorkflow, stop: &Stop) -> Option<Result<String, Failure>> {
        let ClaimedWorkflow { id, input, deadline, .. } = claimed.clone();
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
        let mut work = std::pin::pin!(catch_panic(|| function(context.clone(), input)));
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
        let ended = match (result, stop.reason()) {
            (Some(result), None) => context.finish(result).await,
            _ => None,
        };
        context.release_guards();
        ended
    }
}
