//! Which tries of providers this process looks after. What a process that was killed had begun is
//! cleaned up when its run goes on; a run that is cancelled waits for that, for nobody would do it
//! afterwards.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::engine::author::lock;

/// The tries, by their names, and the runs that are being cancelled.
#[derive(Debug, Default)]
pub(crate) struct Attended {
    tries: Mutex<HashSet<String>>,
    cancelling: Mutex<HashSet<String>>,
}

impl Attended {
    /// This process cleans up behind a try from now on, whatever becomes of it.
    pub(crate) fn attend(&self, name: &str) {
        lock(&self.tries).insert(name.to_owned());
    }

    /// There is nothing more to clean up behind a try.
    pub(crate) fn forget(&self, name: &str) {
        lock(&self.tries).remove(name);
    }

    /// Whether this process cleans up behind a try.
    pub(crate) fn has(&self, name: &str) -> bool {
        lock(&self.tries).contains(name)
    }

    /// A run is about to be cancelled, until this is dropped.
    pub(crate) fn cancelling(&self, run: &str) -> Cancelling<'_> {
        lock(&self.cancelling).insert(run.to_owned());
        Cancelling { attended: self, run: run.to_owned() }
    }

    /// Whether a run, or the one that it is below, is about to be cancelled.
    pub(crate) fn is_cancelled(&self, run: &str) -> bool {
        let root = run.split(":child:").next().unwrap_or(run);
        lock(&self.cancelling).contains(root)
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
        lock(&self.attended.cancelling).remove(&self.run);
    }
}
