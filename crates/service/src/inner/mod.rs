//! What operations share: the store, the runtimes, and the state of this process.
//!
//! `guard` is the owner check of operations that use a sandbox, `egress` what they do about its
//! network.

mod egress;
mod guard;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use stockade_api::Result;
use stockade_core::{Code, Operation, OwnerId, Problem, SandboxId};
use stockade_durable::{Context, Failure, Store, WorkflowId};
use stockade_runtime::{Error, Runtime, SandboxPath};
use tokio::sync::{OwnedMutexGuard, watch};

use crate::activity::Activity;
use crate::egress::Egress;
use crate::failure::{of_runtime, to_failure};
use crate::handoff::Handoffs;
use crate::locks::Locks;
use crate::options::Options;
use crate::owned::Owned;
use crate::paths;
use crate::row::SERVICE_LABEL;
use crate::store::sandboxes::SandboxRow;
use crate::terminations::Terminations;
use crate::tools::{ResolvePath, Tools};
use crate::wakers::Wakers;

/// What operations share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runtimes: BTreeMap<&'static str, Arc<dyn Runtime>>,
    /// The runtime of a sandbox that asks for none.
    pub(crate) default_runtime: &'static str,
    pub(crate) options: Options,
    /// One driver for each sandbox: a change of its state holds its lock.
    pub(crate) locks: Locks<SandboxId>,
    pub(crate) terminations: Terminations,
    /// One operation at a time under each idempotency key.
    pub(crate) names: Locks<WorkflowId>,
    /// The id of this service, which its sandboxes carry as a label in a runtime.
    pub(crate) id: String,
    pub(crate) activity: Activity,
    pub(crate) handoffs: Handoffs,
    pub(crate) wakers: Wakers,
    pub(crate) tools: Tools,
    pub(crate) egress: Egress,
    /// Becomes true when the service ends.
    pub(crate) stop: watch::Sender<bool>,
}

impl Inner {
    /// Becomes true when the service ends.
    pub(crate) fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// The runtime that holds a sandbox.
    pub(crate) fn runtime(&self, name: &str) -> Result<&Arc<dyn Runtime>> {
        self.runtimes.get(name).ok_or_else(|| {
            Problem::new(Code::Unsupported, format!("the runtime `{name}` is not configured here"))
        })
    }

    /// Waits until nobody else changes a sandbox's state.
    pub(crate) async fn drive(&self, id: &SandboxId) -> Result<OwnedMutexGuard<()>> {
        // Its holder makes a few calls to a runtime at most.
        let deadline = self.options.deadline.saturating_mul(4);
        tokio::time::timeout(deadline, self.locks.lock(id)).await.map_err(|_| {
            let message = format!("another change of the sandbox {id} is still in progress");
            Problem::new(Code::Unreachable, message)
        })
    }

    /// What a runtime answers to a change, if it does in time.
    pub(crate) async fn within<T>(
        &self,
        answer: impl Future<Output = std::result::Result<T, Error>>,
    ) -> std::result::Result<T, Error> {
        let late = || Error::Deadline("change a sandbox");
        tokio::time::timeout(self.options.deadline, answer).await.map_err(|_| late())?
    }

    /// The first of three phases, inside a workflow: made again each time the workflow runs, and
    /// never answered from its record.
    pub(crate) async fn acl(
        &self,
        context: &Context,
        owner: &OwnerId,
        id: &SandboxId,
        operation: Operation,
    ) -> std::result::Result<Owned, Failure> {
        context
            .volatile("acl", async |_| {
                let owned = Owned::check(&*self.store, owner, id).await;
                owned.and_then(|owned| owned.admitting(operation)).map_err(to_failure)
            })
            .await
    }

    /// Gives back what a runtime holds for a sandbox. What cannot be given back now is found by
    /// the reaper.
    pub(crate) async fn free(&self, row: &SandboxRow) -> std::result::Result<(), Problem> {
        let runtime = self.runtime(&row.runtime)?;
        match self.clear(&**runtime, &row.id).await {
            // What has the same id and is not ours is nothing of it.
            Ok(()) | Err(Error::Conflict(_)) => {}
            Err(error) => return Err(of_runtime(&error)),
        }
        if let Some(files) = &row.files {
            let removed = self.within(runtime.remove_snapshot(files)).await;
            removed.map_err(|error| of_runtime(&error))?;
        }
        Ok(())
    }

    /// Removes what a runtime holds under an id, if it is ours.
    pub(crate) async fn clear(
        &self,
        runtime: &dyn Runtime,
        id: &SandboxId,
    ) -> std::result::Result<(), Error> {
        self.egress.leave(id).await;
        match self.within(runtime.inspect(id)).await {
            Ok(status) if status.labels.get(SERVICE_LABEL) != Some(&self.id) => {
                Err(Error::Conflict(format!("the sandbox {id}")))
            }
            Ok(_) | Err(Error::NoSandbox(_)) => self.within(runtime.cleanup(id)).await,
            Err(error) => Err(error),
        }
    }

    /// The runtime of that name, also by the names that the seeds have for it.
    pub(crate) fn selected(&self, name: &str) -> Result<&'static str> {
        // Seed 000's default word names unprivileged namespaces without a daemon.
        let name = if name == "bubblewrap" { "native" } else { name };
        self.runtimes.keys().find(|known| **known == name).copied().ok_or_else(|| {
            let known = self.runtimes.keys().copied().collect::<Vec<_>>().join(", ");
            Problem::new(Code::Unsupported, format!("the runtime {name:?} is not available here"))
                .remedied_by(format!("use one of: {known}"))
        })
    }

    /// Makes a sandbox's watcher look at its record now.
    pub(crate) fn wake(&self, id: &SandboxId) {
        self.wakers.of(id).wake();
    }

    /// Makes it ask the runtime for the sandbox now as well.
    pub(crate) fn suspect(&self, id: &SandboxId) {
        self.wakers.of(id).suspect();
    }
}

#[async_trait]
impl ResolvePath for Inner {
    async fn resolve(
        &self,
        owner: &OwnerId,
        sandbox: &SandboxId,
        path: &SandboxPath,
    ) -> Result<SandboxPath> {
        let used = self.used(owner, sandbox).await?;
        let runtime = &**self.runtime(&used.runtime)?;
        paths::resolve(runtime, &used.id, path, true).await
    }
}
