//! Which commands a request has killed, for those that pass on their output: the client that requested it may wait for the end
//! before it reads the output.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use stockade_core::ExecId;
use tokio::sync::watch;

/// The commands whose output is passed on.
#[derive(Debug, Default)]
pub(crate) struct KillNotices(Mutex<HashMap<ExecId, Weak<watch::Sender<bool>>>>);

/// What tells whether one command was killed.
#[derive(Debug)]
pub(crate) struct KillNotice(Arc<watch::Sender<bool>>);

impl KillNotices {
    /// Watches a command, as long as the result exists.
    pub(crate) fn watch(&self, exec: &ExecId) -> KillNotice {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, notice| notice.strong_count() > 0);
        let notice = Arc::new(watch::Sender::new(false));
        known.insert(exec.clone(), Arc::downgrade(&notice));
        KillNotice(notice)
    }

    /// Records that a command was killed.
    pub(crate) fn give(&self, exec: &ExecId) {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notice) = known.get(exec).and_then(Weak::upgrade) {
            notice.send_replace(true);
        }
    }
}

impl KillNotice {
    /// Waits until the command was killed, and for this time from then or from now on.
    pub(crate) async fn passed(&self, time: Duration) {
        // Its sender exists as long as this value.
        let _ = self.0.subscribe().wait_for(|was_killed| *was_killed).await;
        tokio::time::sleep(time).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_kill_is_noticed_before_and_while_it_is_waited_for() {
        let (notices, exec) = (KillNotices::default(), ExecId::new("x-1").unwrap());
        notices.give(&exec);
        let notice = notices.watch(&exec);
        let second = Duration::from_secs(1);
        assert!(tokio::time::timeout(10 * second, notice.passed(second)).await.is_err());
        notices.give(&ExecId::new("x-2").unwrap());
        let (passed, ()) =
            tokio::join!(tokio::time::timeout(10 * second, notice.passed(second)), async {
                notices.give(&exec);
            });
        passed.unwrap();
        notice.passed(second).await;
    }
}
