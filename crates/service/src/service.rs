//! [`Service`]: the engine, the runtimes and what is shared between operations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stockade_api::{Caller, Result};
use stockade_core::{Code, Operation, OwnerId, Problem, SandboxId};
use stockade_durable::{Context, Engine, Failure, Queue, Store};
use stockade_runtime::Runtime;
use tokio::sync::watch;

use crate::activity::Activity;
use crate::failure::{of_runtime, of_store, to_failure};
use crate::guard::Owned;
use crate::locks::Locks;
use crate::operations;
use crate::options::Options;
use crate::pending::Pending;
use crate::reaper;
use crate::row::SandboxRow;
use crate::tools::Tools;
use crate::watcher;

/// The queue of seed 002.
pub(crate) const QUEUE: &str = "fireflow-sandbox";

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
    pub(crate) locks: Locks,
    pub(crate) activity: Activity,
    pub(crate) pending: Pending,
    pub(crate) wakers: watcher::Wakers,
    pub(crate) tools: Tools,
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
        let inner = Arc::new(Inner {
            store: store.clone(),
            runtimes: runtimes.into_iter().map(|runtime| (runtime.name(), runtime)).collect(),
            locks: Locks::default(),
            activity: Activity::default(),
            pending: Pending::default(),
            wakers: watcher::Wakers::default(),
            tools: Tools::built_in(),
            stop: watch::Sender::new(false),
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
            .application_version(env!("CARGO_PKG_VERSION").to_owned())
            .queue(queue);
        let builder = operations::register(builder, &inner);
        let builder = watcher::register(builder, &inner);
        let engine = builder.launch().await.map_err(of_store)?;
        let service = Self { engine, inner };
        reaper::sweep(&service).await;
        reaper::spawn(&service);
        Ok(service)
    }

    /// How many sandboxes there are that are not terminated.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn live(&self) -> Result<u64> {
        let sql = "SELECT count(*) FROM sandbox_instances WHERE status <> 'terminated'";
        let rows = self.inner.store.query(stockade_durable::Statement::new(sql, vec![])).await;
        let rows = rows.map_err(of_store)?;
        let count = rows.first().map_or(Ok(0), |row| row.integer(0)).map_err(of_store)?;
        Ok(u64::try_from(count).unwrap_or(0))
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
        Owned::check(&*self.inner.store, &caller.owner, id).await?.admitting(operation)
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
        runtime.cleanup(&row.id).await.map_err(|error| of_runtime(&error))?;
        let files = row.stopped_files()?;
        runtime.remove_snapshot(&files).await.map_err(|error| of_runtime(&error))
    }

    /// The runtime of that name, also by the names that the seeds have for it.
    pub(crate) fn selected(&self, name: &str) -> Result<&'static str> {
        // Seed 000's default word names unprivileged namespaces without a daemon.
        let name = if name == "bubblewrap" { "native" } else { name };
        self.runtimes.keys().find(|known| **known == name).copied().ok_or_else(|| {
            let known = self.runtimes.keys().copied().collect::<Vec<_>>().join(", ");
            Problem::new(Code::Unsupported, format!("the runtime {name:?} is not to be had here"))
                .remedied_by(format!("use one of: {known}"))
        })
    }
}
