//! The loops of an engine: one renews the lease and takes over the workflows of dead executors, one
//! empties the queues. They have no strong reference to the engine while they wait, so that they do
//! not keep it alive.

use std::collections::HashSet;
use std::sync::Weak;
use std::time::Duration;

use super::stop::Interrupt;
use super::{Engine, Inner};
use crate::sync::{lock, millis, until_ms};
use crate::{Channel, OwnedWorkflow, Recovery, Result};

/// An executor that has missed this many heartbeats is dead.
const SILENT_HEARTBEATS: u32 = 3;

/// How long the queue loop pauses after the store failed.
const REST: Duration = Duration::from_secs(1);

/// The longest time that the queue loop waits for a wake-up.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

pub(super) fn start(engine: &Engine) {
    tokio::spawn(heartbeat_loop(std::sync::Arc::downgrade(&engine.inner)));
    tokio::spawn(dequeue_loop(std::sync::Arc::downgrade(&engine.inner)));
}

async fn heartbeat_loop(inner: Weak<Inner>) {
    let mut idle_before = HashSet::new();
    loop {
        let Some((ended, heartbeat)) =
            inner.upgrade().map(|inner| (inner.ended.clone(), inner.settings.heartbeat))
        else {
            return;
        };
        tokio::select! {
            () = ended.cancelled() => return,
            () = tokio::time::sleep(heartbeat) => {}
        }
        let Some(inner) = inner.upgrade() else { return };
        let engine = Engine { inner };
        if let Err(error) = engine.heartbeat(&mut idle_before).await {
            // The next heartbeat retries; a caller that needs the store gets the error itself.
            tracing::warn!(%error, "the lease was not renewed");
        }
    }
}

async fn dequeue_loop(inner: Weak<Inner>) {
    let Some((closing, mut changes, mut slots)) = inner.upgrade().map(|inner| {
        let wakes = inner.store.wakes();
        (inner.closing.clone(), wakes.subscribe(Channel::Queues), wakes.subscribe(Channel::Slots))
    }) else {
        return;
    };
    loop {
        changes.mark_unchanged();
        slots.mark_unchanged();
        let Wait { longest, for_slot } = {
            let Some(inner) = inner.upgrade() else { return };
            if closing.is_cancelled() {
                return;
            }
            Engine { inner }.take_from_queues().await
        };
        tokio::select! {
            () = closing.cancelled() => return,
            changed = changes.changed() => if changed.is_err() { return },
            // Who has no workflow that waits for it does not look.
            changed = slots.changed(), if for_slot => if changed.is_err() { return },
            () = tokio::time::sleep(longest) => {}
        }
    }
}

/// What the queue loop waits for.
struct Wait {
    longest: Duration,
    /// Whether an end in another process makes place for a workflow that waits.
    for_slot: bool,
}

impl Engine {
    /// Renews the lease, and makes the running workflows match the store.
    async fn heartbeat(&self, idle_before: &mut HashSet<OwnedWorkflow>) -> Result<()> {
        if !self.store().heartbeat(&self.inner.executor).await? {
            tracing::warn!(executor = self.inner.executor.id, "another process took this lease");
            self.inner.closing.cancel();
            self.inner.ended.cancel();
            for running in lock(&self.inner.running).values() {
                running.stop.because(Interrupt::LeaseLost);
            }
            return Ok(());
        }
        let owned = self.store().owned(&self.inner.executor).await?;
        self.stop_lost(&owned).await?;
        // Claimed at two heartbeats in a row but not running: a run that ended because the store
        // failed, or a claim whose reply was lost.
        let (strays, idle): (Vec<OwnedWorkflow>, Vec<OwnedWorkflow>) = {
            let running = lock(&self.inner.running);
            let idle = owned.into_iter().filter(|owned| !running.contains_key(&owned.id));
            idle.partition(|owned| idle_before.contains(owned))
        };
        *idle_before = idle.into_iter().collect();
        if !self.inner.closing.is_cancelled() {
            self.recover(strays).await?;
        }
        Ok(())
    }

    /// Stops workflows that other processes cancelled or took over.
    async fn stop_lost(&self, owned: &[OwnedWorkflow]) -> Result<()> {
        let owned: HashSet<_> = owned.iter().map(|owned| (&owned.id, owned.epoch)).collect();
        let lost: Vec<_> = lock(&self.inner.running)
            .iter()
            .filter(|(id, running)| !owned.contains(&(*id, running.epoch)))
            .map(|(id, running)| (id.clone(), running.epoch, running.stop.clone()))
            .collect();
        for (id, epoch, stop) in lost {
            // It may have been started, or have ended, since the list was read.
            let claim_holds = self.info(&id).await?.is_some_and(|info| {
                !info.status.is_terminal()
                    && info.recovery_attempts == epoch
                    && info.executor_id.as_deref() == Some(&self.inner.executor.id)
            });
            if !claim_holds {
                stop.because(Interrupt::LeaseLost);
            }
        }
        Ok(())
    }

    /// Takes over the workflows of dead executors, and this executor's own strays.
    pub(super) async fn recover(&self, strays: Vec<OwnedWorkflow>) -> Result<()> {
        let mut recovery = Recovery {
            executor: self.inner.executor.clone(),
            silence_ms: millis(self.inner.settings.heartbeat.saturating_mul(SILENT_HEARTBEATS)),
            max_attempts: self.inner.settings.max_recovery_attempts,
            strays,
        };
        // Each call takes a bounded number.
        loop {
            let claimed = self.store().recover(recovery.clone()).await?;
            if claimed.is_empty() {
                return Ok(());
            }
            recovery.strays.clear();
            for claimed in claimed {
                tracing::info!(workflow = %claimed.id, run = claimed.epoch, "took over");
                self.spawn(claimed);
            }
        }
    }

    /// Runs the workflows that the queues release; returns how to wait for more.
    async fn take_from_queues(&self) -> Wait {
        loop {
            match self.store().dequeue(&self.inner.executor, &self.inner.taken).await {
                Ok(dequeued) if dequeued.workflows.is_empty() => {
                    let longest = dequeued.next_at.map_or(LONGEST_WAIT, until_ms);
                    let for_slot = dequeued.waits_for_slot;
                    return Wait { longest: longest.min(LONGEST_WAIT), for_slot };
                }
                Ok(dequeued) => {
                    for next in dequeued.workflows {
                        self.spawn(next);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the queues could not be read");
                    return Wait { longest: REST, for_slot: false };
                }
            }
        }
    }
}
