//! [`Service`]: the engine, the runtimes and what is shared between operations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stockade_api::{Caller, Result};
use stockade_core::{Code, Operation, OwnerId, Problem, SandboxId};
use stockade_durable::{Context, Engine, Failure, Queue, Statement, Store, WorkflowId};
use stockade_runtime::{Error, Runtime};
use tokio::sync::{OwnedMutexGuard, watch};

use crate::activity::Activity;
use crate::dooms::Dooms;
use crate::egress::Egress;
use crate::failure::{of_runtime, of_store, to_failure};
use crate::guard::{Owned, Used};
use crate::locks::Locks;
use crate::operation;
use crate::operations;
use crate::options::Options;
use crate::pending::Pending;
use crate::reaper;
use crate::row::{SERVICE_LABEL, SandboxRow};
use crate::tools::Tools;
use crate::watcher;

/// FireFlow's queue.
pub(crate) const QUEUE: &str = "fireflow-sandbox";

/// The version of the workflows, not of the program: a new program goes on with what an old one
/// left, and watches the sandboxes that it made. It is raised only with a change of the steps of a
/// workflow that cannot be replayed, together with a migration that says what becomes of those
/// that wait.
const WORKFLOWS: &str = "1";

/// Does every operation. Its clones are the same service.
#[derive(Debug, Clone)]
pub struct Service {
    pub(crate) engine: Engine,
    pub(crate) inner: Arc<Inner>,
}

/// What operations share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runtimes: BTreeMap<&'static str, Arc<dyn Runtime>>,
    /// The runtime of a sandbox that asks for none.
    pub(crate) default_runtime: &'static str,
    pub(crate) options: Options,
    /// One driver for each sandbox: whoever changes its state holds its lock meanwhile.
    pub(crate) locks: Locks<SandboxId>,
    pub(crate) dooms: Dooms,
    /// One turn after another under each name of an operation.
    pub(crate) names: Locks<WorkflowId>,
    /// Which service this is: what its database is known by in a runtime.
    pub(crate) id: String,
    pub(crate) activity: Activity,
    pub(crate) pending: Pending,
    pub(crate) wakers: watcher::Wakers,
    pub(crate) tools: Tools,
    pub(crate) egress: Egress,
    stop: watch::Sender<bool>,
}

impl Service {
    /// A service on a store and the runtimes that it may use, the default one first. Goes on with
    /// what another service left.
    ///
    /// # Errors
    /// When the store cannot be used, or no runtime is given.
    pub async fn launch(
        store: Arc<dyn Store>,
        runtimes: Vec<Arc<dyn Runtime>>,
        options: Options,
    ) -> Result<Self> {
        let default = runtimes.first().map(|runtime| runtime.name());
        let default = default.ok_or_else(|| Problem::new(Code::Unsupported, "no runtime"))?;
        let stop = watch::Sender::new(false);
        let inner = Arc::new(Inner {
            store: store.clone(),
            runtimes: runtimes.into_iter().map(|runtime| (runtime.name(), runtime)).collect(),
            id: identity(&*store).await?,
            locks: Locks::default(),
            dooms: Dooms::default(),
            names: Locks::default(),
            activity: Activity::default(),
            pending: Pending::default(),
            wakers: watcher::Wakers::default(),
            tools: Tools::built_in(),
            egress: Egress::new(options.egress.clone(), &store, stop.subscribe()),
            stop,
            default_runtime: default,
            options,
        });
        let queue = Queue {
            name: QUEUE,
            concurrency: Some(inner.options.queue_concurrency),
            worker_concurrency: Some(inner.options.worker_concurrency),
            rate_limit: None,
        };
        let builder = Engine::builder(store)
            .executor_id(inner.options.executor_id.clone())
            .application_version(WORKFLOWS.to_owned())
            // A watcher records nothing while it watches, however often the server is killed.
            .max_recovery_attempts(u32::MAX)
            .queue(queue);
        let builder = operations::register(builder, &inner);
        let builder = watcher::register(builder, &inner);
        let engine = builder.launch().await.map_err(of_store)?;
        let service = Self { engine, inner };
        reaper::spawn(&service);
        Ok(service)
    }

    /// Looks once for what nobody asks for, as is done every minute: sandboxes, snapshots and
    /// commands of ours that no record knows are given back to their runtime.
    pub async fn sweep(&self) {
        reaper::sweep(self).await;
    }

    /// The sandboxes that are not terminated.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn live(&self) -> Result<Vec<SandboxId>> {
        reaper::live(&self.inner).await
    }

    /// The engine, to watch its workflows.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Adds a tool for `run_tool`. One of the same name is replaced, also a built-in one.
    pub fn register_tool(
        &self,
        name: &str,
        description: &str,
        handler: Arc<dyn crate::tools::Handler>,
    ) {
        self.inner.tools.register(name, description, handler);
    }

    /// Removes a tool that was added.
    ///
    /// # Errors
    /// [`Code::ToolUnknown`] when there is none of that name.
    pub fn unregister_tool(&self, name: &str) -> Result<()> {
        self.inner.tools.unregister(name)
    }

    /// Takes nothing new, gives what runs so long to end, and leaves the rest to the next one.
    pub async fn shutdown(&self, deadline: Duration) {
        self.inner.stop.send_replace(true);
        // What does not end in time is taken over by the next one.
        let _ = self.engine.shutdown(deadline).await;
    }

    /// The first of three phases, before anything is started: the sandbox, if it is the caller's
    /// and admits the operation.
    pub(crate) async fn owned(
        &self,
        caller: &Caller,
        id: &SandboxId,
        operation: Operation,
    ) -> Result<Owned> {
        let owned = Owned::check(&*self.inner.store, &caller.owner, id).await?;
        match owned.clone().admitting(operation) {
            // What was done under this name before is told again, whatever became of it since.
            Err(_) if operation::is_known(&self.engine, caller).await? => Ok(owned),
            admitted => admitted,
        }
    }

    /// The same for an operation that uses the sandbox, which counts as used meanwhile.
    pub(crate) async fn used(&self, caller: &Caller, id: &SandboxId) -> Result<Used> {
        match self.inner.used(&caller.owner, id).await {
            Err(problem)
                if matches!(problem.code, Code::InvalidState | Code::SandboxTerminated)
                    && operation::is_known(&self.engine, caller).await? =>
            {
                self.inner.begin_use(&caller.owner, id).await
            }
            used => used,
        }
    }
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
        // Whoever holds it asks a runtime a few times at most.
        let deadline = self.options.deadline.saturating_mul(4);
        tokio::time::timeout(deadline, self.locks.lock(id)).await.map_err(|_| {
            let message = format!("another change of the sandbox {id} has not come to its end");
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

    /// The runtime of that name, also by the names that Smithers uses.
    pub(crate) fn selected(&self, name: &str) -> Result<&'static str> {
        // Smithers' default names unprivileged namespaces without a daemon.
        let name = if name == "bubblewrap" { "native" } else { name };
        self.runtimes.keys().find(|known| **known == name).copied().ok_or_else(|| {
            let known = self.runtimes.keys().copied().collect::<Vec<_>>().join(", ");
            Problem::new(Code::Unsupported, format!("the runtime {name:?} is not to be had here"))
                .remedied_by(format!("use one of: {known}"))
        })
    }
}

/// The name of the service whose database this is, made up once.
async fn identity(store: &dyn Store) -> Result<String> {
    let made_up = uuid::Uuid::now_v7().simple().to_string();
    let first = "INSERT INTO sandbox_service (id) SELECT ?1 \
        WHERE NOT EXISTS (SELECT 1 FROM sandbox_service)";
    store.execute(vec![Statement::new(first, vec![made_up.into()])]).await.map_err(of_store)?;
    let select = Statement::new("SELECT id FROM sandbox_service ORDER BY id LIMIT 1", vec![]);
    let rows = store.query(select).await.map_err(of_store)?;
    let row = rows.first().ok_or_else(|| {
        Problem::new(Code::DatabaseInvalid, "the database does not know whose it is")
    })?;
    row.text(0).map(str::to_owned).map_err(of_store)
}
