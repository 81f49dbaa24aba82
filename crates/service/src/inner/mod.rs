//! The shared state of operations: the store, the runtimes, and the state of this process.
//!
//! `guard` is the owner check of operations that use a sandbox, `egress` the network part of
//! operations.

mod egress;
mod guard;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use stockade_api::{PortSite, Result};
use stockade_core::{Code, Operation, OwnerId, Problem, SandboxId};
use stockade_durable::{Context, Failure, Store, WorkflowId};
use stockade_runtime::{Error, Runtime, SandboxPath};
use tokio::sync::{OwnedMutexGuard, watch};

use crate::activity::Activity;
use crate::attachments::Attachments;
use crate::downloads::Downloads;
use crate::egress::Egress;
use crate::failure::{runtime_problem, to_failure};
use crate::handoff::Handoffs;
use crate::kill_notices::KillNotices;
use crate::link_keys::LinkKeys;
use crate::locks::Locks;
use crate::options::Options;
use crate::owned_sandbox::OwnedSandbox;
use crate::paths;
use crate::possession::Possessions;
use crate::published::Published;
use crate::reserve::Reserve;
use crate::row::SERVICE_LABEL;
use crate::ssh_agents::SshAgents;
use crate::store::hosts;
use crate::store::sandboxes::SandboxRow;
use crate::sync_bases;
use crate::terminations::Terminations;
use crate::tools::{ResolvePath, Tools};
use crate::vault::Vault;
use crate::wakers::Wakers;

/// The shared state of operations.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runtimes: BTreeMap<&'static str, Arc<dyn Runtime>>,
    /// The runtime of a sandbox whose request names none.
    pub(crate) default_runtime: &'static str,
    pub(crate) options: Options,
    /// The space for operations that free more; none without a data directory.
    pub(crate) reserve: Option<Reserve>,
    /// One lock for each sandbox: a change of its state holds it.
    pub(crate) locks: Locks<SandboxId>,
    /// One lock for each owner: what has checked the owner's quota holds it.
    pub(crate) owner_locks: Locks<OwnerId>,
    /// One synchronization at a time for each sandbox.
    pub(crate) sync_locks: Locks<SandboxId>,
    /// One operation on the volumes of an owner at a time: it walks through all their files.
    pub(crate) volume_locks: Locks<OwnerId>,
    pub(crate) terminations: Terminations,
    /// One operation at a time for each idempotency key.
    pub(crate) key_locks: Locks<WorkflowId>,
    /// The id of this service. Its sandboxes have it as a label in a runtime.
    pub(crate) id: String,
    pub(crate) activity: Activity,
    pub(crate) attachments: Attachments,
    pub(crate) kill_notices: KillNotices,
    pub(crate) handoffs: Handoffs,
    pub(crate) wakers: Wakers,
    pub(crate) tools: Tools,
    pub(crate) egress: Egress,
    pub(crate) ssh_agents: SshAgents,
    pub(crate) vault: Vault,
    pub(crate) published: Published,
    pub(crate) downloads: Downloads,
    /// Where browsers reach ports; none without a listener over TCP.
    pub(crate) site: OnceLock<PortSite>,
    pub(crate) link_keys: LinkKeys,
    pub(crate) possessions: Possessions,
    /// Becomes true when the service stops.
    pub(crate) stop: watch::Sender<bool>,
    /// Changes whenever an API key is revoked.
    pub(crate) revocations: watch::Sender<()>,
}

impl Inner {
    /// Becomes true when the service stops.
    pub(crate) fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// The id of this server among those on the same database.
    pub(crate) fn host(&self) -> &str {
        &self.options.executor_id
    }

    /// Fails if another server holds a sandbox: only that one can do anything with it.
    pub(crate) fn check_here(&self, row: &SandboxRow) -> Result<()> {
        if row.host == self.host() {
            return Ok(());
        }
        let message = format!("the sandbox {} is held by another server", row.id);
        Err(Problem::new(Code::Unreachable, message)
            .because("this request is not one that a server passes on")
            .remedied_by("use the server that created the sandbox"))
    }

    /// Whether another server was given up, and has not come back since.
    pub(crate) async fn is_given_up(&self, host: &str) -> Result<bool> {
        if self.options.cluster.is_none() || host == self.host() {
            return Ok(false);
        }
        Ok(hosts::find(&*self.store, host).await?.is_some_and(|row| row.lost_at.is_some()))
    }

    /// The runtime of a sandbox.
    pub(crate) fn runtime(&self, name: &str) -> Result<&Arc<dyn Runtime>> {
        self.runtimes.get(name).ok_or_else(|| {
            let message = format!(
                "the runtime `{name}`, which holds the sandbox, is not part of this server"
            );
            Problem::new(Code::Unsupported, message).remedied_by(
                "use the server with which it was created; the sandbox stays recorded meanwhile",
            )
        })
    }

    /// Waits until no other operation changes a sandbox's state.
    pub(crate) async fn lock_sandbox(&self, id: &SandboxId) -> Result<OwnedMutexGuard<()>> {
        // The holder makes at most a few calls to a runtime.
        let deadline = self.options.deadline.saturating_mul(4);
        tokio::time::timeout(deadline, self.locks.lock(id)).await.map_err(|_| {
            let message = format!("another change of the sandbox {id} is still in progress");
            Problem::new(Code::Unreachable, message)
        })
    }

    /// The runtime's result of a change, within the deadline.
    pub(crate) async fn with_deadline<T>(
        &self,
        answer: impl Future<Output = std::result::Result<T, Error>>,
    ) -> std::result::Result<T, Error> {
        let late = || Error::Deadline("change a sandbox");
        tokio::time::timeout(self.options.deadline, answer).await.map_err(|_| late())?
    }

    /// The first of three phases, inside a workflow: repeated in each execution of the workflow,
    /// and never answered from its record.
    pub(crate) async fn acl(
        &self,
        context: &Context,
        owner: &OwnerId,
        id: &SandboxId,
        operation: Operation,
    ) -> std::result::Result<OwnedSandbox, Failure> {
        context
            .volatile("acl", async |_| {
                let owned = OwnedSandbox::check(&*self.store, owner, id).await;
                let owned = owned.and_then(|owned| self.check_here(&owned).map(|()| owned));
                owned.and_then(|owned| owned.admit(operation)).map_err(to_failure)
            })
            .await
    }

    /// Releases a runtime's resources of a sandbox. The reaper finds those that cannot be released
    /// now.
    pub(crate) async fn remove_from_runtime(
        &self,
        row: &SandboxRow,
    ) -> std::result::Result<(), Problem> {
        let runtime = self.runtime(&row.runtime)?;
        match self.cleanup(&**runtime, &row.id).await {
            // A sandbox with the same id that is not ours is left alone.
            Ok(()) | Err(Error::Conflict(_)) => {}
            Err(error) => return Err(runtime_problem(&error)),
        }
        if let Some(files) = &row.files {
            let removed = self.with_deadline(runtime.remove_snapshot(files)).await;
            removed.map_err(|error| runtime_problem(&error))?;
        }
        sync_bases::forget(&self.options, &row.unique_name());
        Ok(())
    }

    /// Stops serving the network and the ssh agent of a sandbox.
    pub(crate) async fn leave(&self, id: &SandboxId) {
        self.ssh_agents.end(id);
        self.egress.leave(id).await;
    }

    /// Stops every process of a sandbox, after its ssh agent.
    pub(crate) async fn pause_processes(&self, row: &SandboxRow) -> Result<()> {
        let runtime = self.runtime(&row.runtime)?;
        self.ssh_agents.end(&row.id);
        self.with_deadline(runtime.pause(&row.id)).await.map_err(|error| runtime_problem(&error))
    }

    /// Removes a runtime's sandbox with this id, if it is ours.
    pub(crate) async fn cleanup(
        &self,
        runtime: &dyn Runtime,
        id: &SandboxId,
    ) -> std::result::Result<(), Error> {
        self.leave(id).await;
        match self.with_deadline(runtime.inspect(id)).await {
            Ok(status) if status.labels.get(SERVICE_LABEL) != Some(&self.id) => {
                Err(Error::Conflict(format!("the sandbox {id}")))
            }
            Ok(_) | Err(Error::NoSandbox(_)) => self.with_deadline(runtime.cleanup(id)).await,
            Err(error) => Err(error),
        }
    }

    /// Makes a sandbox's watcher read its record now.
    pub(crate) fn wake(&self, id: &SandboxId) {
        self.wakers.get(id).wake();
    }

    /// Makes the watcher also query the runtime about the sandbox now.
    pub(crate) fn suspect(&self, id: &SandboxId) {
        self.wakers.get(id).suspect();
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
        let used = self.use_sandbox(owner, sandbox).await?;
        let runtime = &**self.runtime(&used.runtime)?;
        paths::resolve(runtime, &used.id, path, true).await
    }
}
