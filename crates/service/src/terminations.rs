//! Sandboxes that are being killed: every concurrent change of them is cancelled, however long a
//! runtime takes for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use stockade_core::{Code, Problem, SandboxId};
use tokio::sync::watch;

/// The running kills, and the changes that they cancel.
#[derive(Debug, Clone, Default)]
pub(crate) struct Terminations(Arc<Mutex<HashMap<SandboxId, watch::Sender<u32>>>>);

/// One running kill; dropped when it has succeeded or failed.
#[derive(Debug)]
pub(crate) struct Termination {
    terminations: Terminations,
    id: SandboxId,
}

impl Terminations {
    /// Cancels every change of the sandbox, until the returned value is dropped.
    pub(crate) fn start(&self, id: &SandboxId) -> Termination {
        self.update(id, |kills| kills.send_modify(|kills| *kills += 1));
        Termination { terminations: self.clone(), id: id.clone() }
    }

    /// Runs a change of a sandbox, unless the sandbox is killed before the change is complete.
    pub(crate) async fn run_unless_terminated<T>(
        &self,
        id: &SandboxId,
        work: impl Future<Output = T>,
    ) -> Result<T, Problem> {
        let mut kills = self.update(id, |kills| kills.subscribe());
        let done = tokio::select! {
            done = work => Ok(done),
            // The channel is never closed while this waits.
            _ = kills.wait_for(|kills| *kills > 0) => {
                let message = format!("the sandbox {id} is terminated");
                Err(Problem::new(Code::SandboxTerminated, message).because("it was killed during the operation"))
            }
        };
        drop(kills);
        self.remove_unused(id);
        done
    }

    fn update<T>(&self, id: &SandboxId, act: impl FnOnce(&watch::Sender<u32>) -> T) -> T {
        let mut terminations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        act(terminations.entry(id.clone()).or_default())
    }

    /// Removes the entry of a sandbox that is neither being killed nor changed.
    fn remove_unused(&self, id: &SandboxId) {
        let mut terminations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if terminations.get(id).is_some_and(|kills| *kills.borrow() == 0 && kills.is_closed()) {
            terminations.remove(id);
        }
    }
}

impl Drop for Termination {
    fn drop(&mut self) {
        self.terminations.update(&self.id, |kills| kills.send_modify(|kills| *kills -= 1));
        self.terminations.remove_unused(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_kill_cancels_what_is_under_way() {
        let (terminations, id) = (Terminations::default(), SandboxId::new("a").unwrap());
        assert_eq!(terminations.run_unless_terminated(&id, async { 7 }).await, Ok(7));
        let hanging = tokio::spawn({
            let (terminations, id) = (terminations.clone(), id.clone());
            async move { terminations.run_unless_terminated(&id, std::future::pending::<()>()).await }
        });
        tokio::task::yield_now().await;
        let termination = terminations.start(&id);
        assert_eq!(hanging.await.unwrap().unwrap_err().code, Code::SandboxTerminated);
        assert!(
            terminations.run_unless_terminated(&id, std::future::pending::<()>()).await.is_err()
        );
        drop(termination);
        assert_eq!(terminations.run_unless_terminated(&id, async {}).await, Ok(()));
        assert!(terminations.0.lock().unwrap().is_empty(), "nothing is kept of it");
    }
}
