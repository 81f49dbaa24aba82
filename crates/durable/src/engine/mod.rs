//! The engine: starts, finds, cancels, resumes and lists workflows.
//!
//! `builder` configures one, `run` drives one workflow, `supervisor` renews the lease, takes over
//! the workflows of dead executors and empties the queues, `handle` and `reader` wait for results.

mod builder;
mod context;
mod handle;
mod options;
mod poll;
mod reader;
mod run;
mod shutdown;
mod stop;
mod supervisor;

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::sync::{lock, millis};
use crate::{
    Abandonment, Channel, ClaimedWorkflow, CreateOutcome, Error, Executor, Failure, Filter, Json,
    Message, NewWorkflow, Result, Statement, Store, WorkflowId, WorkflowInfo,
};

pub use builder::Builder;
pub use context::{Backoff, Context, Record, Step, StepOptions, StreamWriter};
pub use handle::Handle;
pub use options::StartOptions;
use poll::Poll;
pub use reader::StreamReader;
use stop::{Interrupt, Stop};

/// The queue of workflows that wait but have no queue of their own: delayed or resumed ones. It has
/// no limits.
const INTERNAL_QUEUE: &str = "_dbos_internal_queue";

/// A registered workflow function; its input and output are JSON text.
type Function = Arc<
    dyn Fn(Context, String) -> Pin<Box<dyn Future<Output = Result<String, Failure>> + Send>>
        + Send
        + Sync,
>;

/// The result of a workflow that ended in this process.
type SharedOutcome = Option<Arc<Result<String, Failure>>>;

/// Executes workflows on a store. Clones are the same engine. When the last one is dropped and no
/// workflow runs, the engine stops as if it was killed.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    executor: Executor,
    workflows: HashMap<&'static str, Function>,
    queues: Vec<String>,
    /// Those of the queues that this engine takes workflows from.
    taken: Vec<String>,
    settings: Settings,
    running: Mutex<HashMap<WorkflowId, Running>>,
    /// The number of entries in `running`.
    count: watch::Sender<usize>,
    /// Workflows that stopped in this process before their end, with the reason.
    stopped: Mutex<HashMap<WorkflowId, Error>>,
    /// Cancelled when the engine shuts down: it accepts no new work, and long waits end.
    closing: CancellationToken,
    /// Cancelled when the lease is no longer renewed.
    ended: CancellationToken,
}

#[derive(Debug, Clone)]
struct Settings {
    heartbeat: Duration,
    max_recovery_attempts: u32,
    grace: Duration,
}

/// A workflow that runs in this process.
struct Running {
    epoch: i64,
    stop: Stop,
    outcome: watch::Receiver<SharedOutcome>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("executor", &self.inner.executor).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.closing.cancel();
        self.ended.cancel();
    }
}

impl Engine {
    /// Starts to configure an engine.
    pub fn builder(store: Arc<dyn Store>) -> Builder {
        Builder::new(store)
    }

    /// Starts a workflow, or joins the one with the given id: that one must have the same name and
    /// input, else this is an [`Error::Conflict`]. The workflow is on disk when this returns.
    pub async fn start<I: Serialize + Sync + ?Sized>(
        &self,
        name: &str,
        input: &I,
        options: StartOptions,
    ) -> Result<Handle> {
        if self.inner.closing.is_cancelled() {
            return Err(Error::ShuttingDown);
        }
        let new = self.prepare(name, serde_json::to_string(input)?, options, None)?;
        let engine = self.clone();
        // A separate task: a recorded workflow also runs when the caller stops waiting.
        let started = tokio::spawn(async move {
            let created = engine.inner.store.create(new.clone()).await?;
            Ok(engine.start_recorded(&new, created))
        });
        started.await.map_err(|_| Error::Closed)?
    }

    /// The record of a workflow that is to be started.
    pub(crate) fn prepare(
        &self,
        name: &str,
        input: String,
        options: StartOptions,
        parent: Option<WorkflowId>,
    ) -> Result<NewWorkflow> {
        if !self.inner.workflows.contains_key(name) {
            return Err(Error::invalid(format!("no workflow {name:?} is registered")));
        }
        if let Some(queue) = options.queue {
            if !self.inner.queues.iter().any(|known| known == queue) {
                return Err(Error::invalid(format!("there is no queue {queue:?}")));
            }
        } else if options.deduplication_id.is_some() {
            return Err(Error::invalid("a deduplication id needs a queue"));
        }
        let executor = &self.inner.executor;
        let delayed = options.delay.map(|_| INTERNAL_QUEUE);
        let queue = options.queue.or(delayed);
        Ok(NewWorkflow {
            id: options.id.unwrap_or_else(WorkflowId::unique),
            name: name.to_owned(),
            input,
            owner: options.owner,
            executor: queue.is_none().then(|| (executor.id.clone(), executor.incarnation)),
            application_version: executor.application_version.clone(),
            place: executor.place.clone(),
            queue: queue.map(str::to_owned),
            deduplication_id: options.deduplication_id,
            priority: options.priority,
            delay_ms: options.delay.map(millis),
            timeout_ms: options.timeout.map(millis),
            parent,
            statements: options.statements,
        })
    }

    /// Runs a workflow that was recorded, or returns a handle to an existing one.
    pub(crate) fn start_recorded(&self, new: &NewWorkflow, created: CreateOutcome) -> Handle {
        let id = new.id.clone();
        match created {
            CreateOutcome::New { deadline } if new.executor.is_some() => {
                let outcome = self.spawn(ClaimedWorkflow {
                    id: id.clone(),
                    name: new.name.clone(),
                    input: new.input.clone(),
                    owner: new.owner.clone(),
                    epoch: 1,
                    deadline,
                });
                Handle::new(self.clone(), id, Some(outcome)).newly_created()
            }
            CreateOutcome::New { .. } => self.handle(&id).newly_created(),
            CreateOutcome::Existing => self.handle(&id),
        }
    }

    /// The handle of a workflow; the workflow need not exist.
    pub fn handle(&self, id: &WorkflowId) -> Handle {
        let running = lock(&self.inner.running);
        let outcome = running.get(id).map(|running| running.outcome.clone());
        Handle::new(self.clone(), id.clone(), outcome)
    }

    /// The stored state of a workflow.
    pub async fn info(&self, id: &WorkflowId) -> Result<Option<WorkflowInfo>> {
        self.inner.store.info(id).await
    }

    /// The workflows that match a filter, the oldest first.
    pub async fn list(&self, filter: Filter) -> Result<Vec<WorkflowInfo>> {
        self.inner.store.list(filter).await
    }

    /// Cancels a workflow and its descendants; those that run in this process are notified through
    /// their tokens, then dropped. A workflow that has ended is unchanged.
    pub async fn cancel(&self, id: &WorkflowId) -> Result<()> {
        self.cancel_because(id, false).await
    }

    async fn cancel_because(&self, id: &WorkflowId, timed_out: bool) -> Result<()> {
        let cancelled = self.inner.store.cancel(id, timed_out).await?;
        let running = lock(&self.inner.running);
        for id in &cancelled {
            if let Some(running) = running.get(id) {
                running.stop.because(Interrupt::Cancelled { timed_out });
            }
        }
        Ok(())
    }

    /// Continues a cancelled or given-up workflow after its recorded steps, and its cancelled
    /// descendants. A workflow in any other status is unchanged.
    pub async fn resume(&self, id: &WorkflowId) -> Result<()> {
        self.inner.store.resume(id, INTERNAL_QUEUE).await
    }

    /// Reads a stream of a workflow, beginning at an offset.
    pub fn read_stream(&self, id: &WorkflowId, key: &str, from_offset: u64) -> StreamReader {
        StreamReader::new(self.clone(), id.clone(), key.to_owned(), from_offset)
    }

    /// Waits for an event and returns its value; `None` after the timeout, or when the workflow
    /// ended without setting it.
    pub async fn get_event(
        &self,
        id: &WorkflowId,
        key: &str,
        timeout: Duration,
    ) -> Result<Option<Json>> {
        let wait = async {
            let mut events = self.store().wakes().subscribe(Channel::Events(id.clone()));
            let mut poll = Poll::default();
            loop {
                events.mark_unchanged();
                // In this order, so that an event that was set before the end is seen.
                let info = self.inner.store.info(id).await?;
                if let Some(value) = self.inner.store.event(id, key).await? {
                    return Ok(Some(value));
                }
                if info.as_ref().is_some_and(|info| info.status.is_terminal()) {
                    return Ok(None);
                }
                let place = info.as_ref().and_then(|info| info.place.as_deref());
                poll.changed(&mut events, self.is_elsewhere(id, place)).await?;
            }
        };
        tokio::time::timeout(timeout, wait).await.unwrap_or(Ok(None))
    }

    /// Sends a message to a workflow. Of several messages with one idempotency key, only the first
    /// is delivered.
    pub async fn send<T: Serialize + Sync + ?Sized>(
        &self,
        destination: &WorkflowId,
        topic: &str,
        message: &T,
        idempotency_key: Option<&str>,
    ) -> Result<()> {
        let message = Message {
            id: idempotency_key.map_or_else(
                || uuid::Uuid::now_v7().to_string(),
                // Each destination has its own keys.
                |key| format!("{destination}::{key}"),
            ),
            destination: destination.clone(),
            topic: topic.to_owned(),
            body: serde_json::to_string(message)?,
        };
        self.inner.store.send(message).await
    }

    /// Ends this engine's kinds of workflows of another place, if the executor of that place has been silent
    /// for that long; `None` if it is alive. Those with the names in `except` stay as they are.
    pub async fn abandon(
        &self,
        place: &str,
        silence: Duration,
        except: &[&str],
        failure: Failure,
        statements: Vec<Statement>,
    ) -> Result<Option<Vec<WorkflowId>>> {
        let names = self.inner.executor.names.iter();
        let names = names.filter(|name| !except.contains(&name.as_str())).cloned().collect();
        let abandonment = Abandonment {
            place: place.to_owned(),
            silence_ms: millis(silence),
            names,
            failure,
            statements,
        };
        self.inner.store.abandon(abandonment).await
    }

    /// Waits until this engine does not run any more: it was shut down, or another process took its lease.
    pub async fn wait_until_ended(&self) {
        let ended = self.inner.ended.clone();
        ended.cancelled().await;
    }

    /// Removes workflows that ended longer ago than this, with their steps, streams, events and
    /// messages, but none whose parent has not ended. Returns their number.
    pub async fn collect(&self, older_than: Duration) -> Result<u64> {
        self.inner.store.collect(older_than).await
    }

    /// Waits until this process no longer runs a workflow, which ends it within the
    /// [grace](Builder) of a cancelled one.
    pub async fn wait_until_stopped(&self, id: &WorkflowId) {
        let mut changes = self.inner.count.subscribe();
        while lock(&self.inner.running).contains_key(id) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// The number of workflows that run or wait in this process; workflows in queues are not
    /// counted.
    pub fn running(&self) -> u64 {
        lock(&self.inner.running).len() as u64
    }

    /// A counter that changes after each commit whose statements named the topic
    /// ([`crate::Statement::notifying`]).
    pub fn subscribe(&self, topic: &'static str) -> watch::Receiver<u64> {
        self.inner.store.wakes().subscribe(Channel::Topic(topic))
    }

    /// A counter that changes when a workflow ends, or stops in this process.
    pub fn subscribe_to(&self, id: &WorkflowId) -> watch::Receiver<u64> {
        self.inner.store.wakes().subscribe(Channel::Workflow(id.clone()))
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// The executor of this engine.
    pub fn executor(&self) -> &Executor {
        &self.inner.executor
    }

    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.inner.closing
    }

    /// Why a workflow stopped in this process before its end; `None` if it did not. It continues
    /// later.
    pub fn stopped(&self, id: &WorkflowId) -> Option<Error> {
        lock(&self.inner.stopped).get(id).cloned()
    }
}
