//! Which tries of providers this process looks after. What a process that was killed had begun is
//! cleaned up when its run goes on; a run that is cancelled waits for that, for nobody would do it
//! afterwards.

use std::collections::HashSet;

use tokio::sync::watch;

/// Who looks after what, for those who wait for that to change.
#[derive(Debug, Default)]
pub(crate) struct Attended(watch::Sender<State>);

#[derive(Debug, Default)]
struct State {
    /// Tries, by their names.
    tries: HashSet<String>,
    /// The runs that are being cancelled.
    cancelling: HashSet<String>,
}

impl Attended {
    /// This process cleans up behind a try from now on, whatever becomes of it.
    pub(crate) fn attend(&self, name: &str) {
        self.0.send_if_modified(|state| state.tries.insert(name.to_owned()));
    }

    /// There is nothing more to clean up behind a try.
    pub(crate) fn forget(&self, name: &str) {
        self.0.send_if_modified(|state| state.tries.remove(name));
    }

    /// Whether this process cleans up behind a try.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.borrow().tries.contains(name)
    }

    /// Tells of each change from now on.
    pub(crate) fn changes(&self) -> Changes {
        Changes(self.0.subscribe())
    }

    /// A run is about to be cancelled, until this is dropped.
    pub(crate) fn cancelling(&self, run: &str) -> Cancelling<'_> {
        self.0.send_if_modified(|state| state.cancelling.insert(run.to_owned()));
        Cancelling { attended: self, run: run.to_owned() }
    }

    /// Waits while a run, or the one that it is below, is about to be cancelled.
    pub(crate) async fn not_cancelled(&self, run: &str) {
        let root = run.split(":child:").next().unwrap_or(run);
        let mut changes = self.0.subscribe();
        // It lives as long as this is borrowed.
        let _ = changes.wait_for(|state| !state.cancelling.contains(root)).await;
    }
}

/// What has changed of who looks after what.
#[derive(Debug)]
pub(crate) struct Changes(watch::Receiver<State>);

impl Changes {
    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        let _ = self.0.changed().await;
    }
}

/// A run that is about to be cancelled.
#[derive(Debug)]
pub(crate) struct Cancelling<'a> {
    attended: &'a Attended,
    run: String,
}

impl Drop for Cancelling<'_> {
    fn drop(&mut self) {
        self.attended.0.send_if_modified(|state| state.cancelling.remove(&self.run));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_is_about_to_be_cancelled_is_waited_for() {
        let attended = Attended::default();
        attended.not_cancelled("r").await;
        let cancelling = attended.cancelling("r");
        let ends = async {
            tokio::task::yield_now().await;
            attended.attend("r-1");
            drop(cancelling);
        };
        let waits = async {
            attended.not_cancelled("r:child:1").await;
            assert!(attended.has("r-1"), "it did not wait");
        };
        tokio::join!(waits, ends);
        attended.not_cancelled("other").await;
        attended.forget("r-1");
        assert!(!attended.has("r-1"));
    }
}
