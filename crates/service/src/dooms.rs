//! Which sandboxes somebody wants to end at this moment: what is done to them meanwhile makes way,
//! however long a runtime takes for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use stockade_core::{Code, Problem, SandboxId};
use tokio::sync::watch;

/// The sandboxes that are to end, and those whose changes would have to make way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dooms(Arc<Mutex<HashMap<SandboxId, watch::Sender<u32>>>>);

/// Somebody's wish that a sandbox ends; dropped when it has, or when it could not be ended.
#[derive(Debug)]
pub(crate) struct Doom {
    dooms: Dooms,
    id: SandboxId,
}

impl Dooms {
    /// From here on whatever changes the sandbox makes way.
    pub(crate) fn begin(&self, id: &SandboxId) -> Doom {
        self.with(id, |wishes| wishes.send_modify(|wishes| *wishes += 1));
        Doom { dooms: self.clone(), id: id.clone() }
    }

    /// Does something to a sandbox unless it is to end before that is done.
    pub(crate) async fn unless<T>(
        &self,
        id: &SandboxId,
        work: impl Future<Output = T>,
    ) -> Result<T, Problem> {
        let mut wishes = self.with(id, |wishes| wishes.subscribe());
        let done = tokio::select! {
            done = work => Ok(done),
            // It is never closed while this listens.
            _ = wishes.wait_for(|wishes| *wishes > 0) => {
                let message = format!("the sandbox {id} is terminated");
                Err(Problem::new(Code::SandboxTerminated, message).because("it was killed meanwhile"))
            }
        };
        drop(wishes);
        self.tidy(id);
        done
    }

    fn with<T>(&self, id: &SandboxId, act: impl FnOnce(&watch::Sender<u32>) -> T) -> T {
        let mut dooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        act(dooms.entry(id.clone()).or_default())
    }

    /// Forgets a sandbox that nobody wants to end and nothing is done to.
    fn tidy(&self, id: &SandboxId) {
        let mut dooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if dooms.get(id).is_some_and(|wishes| *wishes.borrow() == 0 && wishes.is_closed()) {
            dooms.remove(id);
        }
    }
}

impl Drop for Doom {
    fn drop(&mut self) {
        self.dooms.with(&self.id, |wishes| wishes.send_modify(|wishes| *wishes -= 1));
        self.dooms.tidy(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_to_end_is_not_waited_for() {
        let (dooms, id) = (Dooms::default(), SandboxId::new("a").unwrap());
        assert_eq!(dooms.unless(&id, async { 7 }).await, Ok(7));
        let hanging = tokio::spawn({
            let (dooms, id) = (dooms.clone(), id.clone());
            async move { dooms.unless(&id, std::future::pending::<()>()).await }
        });
        tokio::task::yield_now().await;
        let doom = dooms.begin(&id);
        assert_eq!(hanging.await.unwrap().unwrap_err().code, Code::SandboxTerminated);
        assert!(dooms.unless(&id, std::future::pending::<()>()).await.is_err());
        drop(doom);
        assert_eq!(dooms.unless(&id, async {}).await, Ok(()));
        assert!(dooms.0.lock().unwrap().is_empty(), "nothing is kept of it");
    }
}
