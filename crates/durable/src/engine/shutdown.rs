//! Orderly shutdown of an engine.

use std::time::Duration;

use super::Engine;
use super::stop::Interrupt;
use crate::Result;
use crate::sync::lock;

impl Engine {
    /// Accepts nothing new, waits until each workflow ends or reaches a wait, and leaves those that
    /// still run at the deadline to be taken over. Then it releases its lease. The store stays
    /// open.
    pub async fn shutdown(&self, deadline: Duration) -> Result<()> {
        self.inner.closing.cancel();
        if !self.are_gone_within(deadline).await {
            for running in lock(&self.inner.running).values() {
                running.stop.because(Interrupt::ShuttingDown);
            }
            // Each is dropped after its grace period.
            self.are_gone_within(self.inner.settings.grace + Duration::from_secs(1)).await;
        }
        self.inner.ended.cancel();
        self.store().release(&self.inner.executor).await
    }

    async fn are_gone_within(&self, time: Duration) -> bool {
        let mut count = self.inner.count.subscribe();
        tokio::time::timeout(time, count.wait_for(|count| *count == 0)).await.is_ok()
    }
}
