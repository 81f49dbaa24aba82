//! Waits for changes of workflows that may run in another process: their ends, streams and events wake the
//! waiters of their own process only, so that others read the store from time to time.

use std::time::Duration;

use tokio::sync::watch;

use super::Engine;
use crate::sync::lock;
use crate::{Error, Result, WorkflowId};

/// The first pause between two reads.
const FIRST: Duration = Duration::from_millis(20);
/// The longest one.
const LONGEST: Duration = Duration::from_secs(1);

/// The pauses of one waiter, which grow.
#[derive(Debug)]
pub(super) struct Poll(Duration);

impl Default for Poll {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Poll {
    /// Waits until the channel changes, or until the next read is due if the workflow is elsewhere.
    pub(super) async fn changed(
        &mut self,
        changes: &mut watch::Receiver<u64>,
        is_elsewhere: bool,
    ) -> Result<()> {
        if !is_elsewhere {
            self.0 = FIRST;
            return changes.changed().await.map_err(|_| Error::Closed);
        }
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST);
        match tokio::time::timeout(pause, changes.changed()).await {
            Ok(changed) => changed.map_err(|_| Error::Closed),
            Err(_) => Ok(()),
        }
    }
}

impl Engine {
    /// Whether another process may run a workflow, or write its rows; `place` is that of the workflow.
    pub(super) fn is_elsewhere(&self, id: &WorkflowId, place: Option<&str>) -> bool {
        let own = self.inner.executor.place.as_deref();
        self.store().is_shared()
            && (place.is_none() || place != own)
            && !lock(&self.inner.running).contains_key(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_runs_elsewhere_is_read_again_less_and_less_often() {
        let (sender, mut changes) = watch::channel(0);
        let mut poll = Poll::default();
        let started = tokio::time::Instant::now();
        for _ in 0..10 {
            poll.changed(&mut changes, true).await.unwrap();
        }
        let elapsed = started.elapsed();
        assert!(elapsed > LONGEST * 4 && elapsed < LONGEST * 6, "{elapsed:?}");
        let here = tokio::time::timeout(LONGEST * 60, poll.changed(&mut changes, false)).await;
        assert!(here.is_err());
        sender.send_replace(1);
        poll.changed(&mut changes, false).await.unwrap();
    }
}
