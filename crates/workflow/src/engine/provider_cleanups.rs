//! The provider attempts that this process cleans up. After a crash, the process that continues a run
//! cleans up what the killed process had started. A cancelled run does not continue, so its
//! cancellation waits for that cleanup.

use std::collections::HashSet;

use tokio::sync::watch;

/// The attempts that this process cleans up, and the runs that are being cancelled.
#[derive(Debug, Default)]
pub(crate) struct ProviderCleanups(watch::Sender<State>);

#[derive(Debug, Default)]
struct State {
    /// Attempts, by their names.
    attempts: HashSet<String>,
    /// The runs that are being cancelled.
    cancelling: HashSet<String>,
}

impl ProviderCleanups {
    /// Records that this process will clean up an attempt, no matter how the attempt ends.
    pub(crate) fn claim(&self, name: &str) {
        self.0.send_if_modified(|state| state.attempts.insert(name.to_owned()));
    }

    /// Records that an attempt is cleaned up.
    pub(crate) fn release(&self, name: &str) {
        self.0.send_if_modified(|state| state.attempts.remove(name));
    }

    /// Whether this process will clean up an attempt.
    pub(crate) fn has_claimed(&self, name: &str) -> bool {
        self.0.borrow().attempts.contains(name)
    }

    /// Subscribes to changes.
    pub(crate) fn changes(&self) -> Changes {
        Changes(self.0.subscribe())
    }

    /// Marks a run as being cancelled, until the guard is dropped.
    pub(crate) fn start_cancel(&self, run: &str) -> CancelGuard<'_> {
        self.0.send_if_modified(|state| state.cancelling.insert(run.to_owned()));
        CancelGuard { cleanups: self, run: run.to_owned() }
    }

    /// Waits while a run, or its root run, is being cancelled.
    pub(crate) async fn wait_for_cancel(&self, run: &str) {
        let root = run.split(":child:").next().unwrap_or(run);
        let mut changes = self.0.subscribe();
        // The sender lives as long as this is borrowed.
        let _ = changes.wait_for(|state| !state.cancelling.contains(root)).await;
    }
}

/// Changes of [`ProviderCleanups`].
#[derive(Debug)]
pub(crate) struct Changes(watch::Receiver<State>);

impl Changes {
    /// Waits for the next change.
    pub(crate) async fn next(&mut self) {
        let _ = self.0.changed().await;
    }
}

/// The run is being cancelled while this guard lives.
#[derive(Debug)]
pub(crate) struct CancelGuard<'a> {
    cleanups: &'a ProviderCleanups,
    run: String,
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        self.cleanups.0.send_if_modified(|state| state.cancelling.remove(&self.run));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_try_waits_while_its_run_is_being_cancelled() {
        let cleanups = ProviderCleanups::default();
        cleanups.wait_for_cancel("r").await;
        let cancelling = cleanups.start_cancel("r");
        let ends = async {
            tokio::task::yield_now().await;
            cleanups.claim("r-1");
            drop(cancelling);
        };
        let waits = async {
            cleanups.wait_for_cancel("r:child:1").await;
            assert!(cleanups.has_claimed("r-1"), "it did not wait");
        };
        tokio::join!(waits, ends);
        cleanups.wait_for_cancel("other").await;
        cleanups.release("r-1");
        assert!(!cleanups.has_claimed("r-1"));
    }
}
