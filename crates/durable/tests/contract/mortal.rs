//! A store that dies at a chosen write. The harness that kills processes uses it as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use stockade_durable::{
    Abandonment, BoxFuture, ClaimedWorkflow, Commit, CommitResult, CreateOutcome, Error, Executor,
    Filter, Json, Lease, Message, NewWorkflow, OwnedWorkflow, Queue, QueueBatch, ReceivedMessage,
    Recovery, Result, Row, Statement, StepRecord, Store, StreamPage, Wakes, WorkflowId,
    WorkflowInfo,
};

/// The effect of the write at which the store dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// It is not made.
    Before,
    /// It is made, but its result is lost.
    After,
}

/// A store that dies after some writes, like a killed process: later calls have no effect.
#[derive(Debug)]
pub(crate) struct Mortal {
    inner: Arc<dyn Store>,
    writes_left: AtomicI64,
    death: Death,
    last_words: fn(),
}

impl Mortal {
    /// Lets so many writes through, calls `last_words` at the next one, and is dead from then on.
    pub(crate) fn new(inner: Arc<dyn Store>, writes: i64, death: Death, last_words: fn()) -> Self {
        Self { inner, writes_left: AtomicI64::new(writes), death, last_words }
    }

    /// Dies now.
    pub(crate) fn kill(&self) {
        self.writes_left.store(i64::MIN / 2, Ordering::SeqCst);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.writes_left.load(Ordering::SeqCst) < 0
    }

    fn write<T: Send + 'static>(&self, work: impl FnOnce() -> BoxFuture<T> + Send) -> BoxFuture<T> {
        let writes_left = self.writes_left.fetch_sub(1, Ordering::SeqCst);
        match (writes_left, self.death) {
            (1.., _) => work(),
            (0, Death::After) => {
                let (work, last_words) = (work(), self.last_words);
                Box::pin(async move {
                    work.await.ok();
                    last_words();
                    Err(Error::Closed)
                })
            }
            (0, Death::Before) => {
                (self.last_words)();
                Box::pin(async { Err(Error::Closed) })
            }
            _ => Box::pin(async { Err(Error::Closed) }),
        }
    }

    /// Reads of a dead store fail too.
    fn alive(&self) -> Result<&Arc<dyn Store>> {
        if self.is_dead() { Err(Error::Closed) } else { Ok(&self.inner) }
    }
}

/// Forwards a write with owned arguments.
macro_rules! write {
    ($self:ident, $store:ident => $call:expr) => {{
        let $store = Arc::clone(&$self.inner);
        $self.write(move || Box::pin(async move { $call.await })).await
    }};
}

#[async_trait]
impl Store for Mortal {
    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn wakes(&self) -> &Wakes {
        self.inner.wakes()
    }

    async fn register(&self, executor_id: &str, version: &str) -> Result<i64> {
        self.alive()?.register(executor_id, version).await
    }

    async fn heartbeat(&self, executor: &Executor) -> Result<bool> {
        self.alive()?.heartbeat(executor).await
    }

    async fn release(&self, executor: &Executor) -> Result<()> {
        self.alive()?.release(executor).await
    }

    async fn recover(&self, recovery: Recovery) -> Result<Vec<ClaimedWorkflow>> {
        self.alive()?.recover(recovery).await
    }

    async fn lease(&self, executor_id: &str) -> Result<Option<Lease>> {
        self.alive()?.lease(executor_id).await
    }

    async fn silent(&self, silence: Duration) -> Result<Vec<String>> {
        self.alive()?.silent(silence).await
    }

    async fn abandon(&self, abandonment: Abandonment) -> Result<Option<Vec<WorkflowId>>> {
        self.alive()?.abandon(abandonment).await
    }

    async fn owned(&self, executor: &Executor) -> Result<Vec<OwnedWorkflow>> {
        self.alive()?.owned(executor).await
    }

    async fn create(&self, workflow: NewWorkflow) -> Result<CreateOutcome> {
        write!(self, store => store.create(workflow))
    }

    fn commit(&self, commit: Commit) -> BoxFuture<CommitResult> {
        self.write(|| self.inner.commit(commit))
    }

    async fn info(&self, id: &WorkflowId) -> Result<Option<WorkflowInfo>> {
        self.alive()?.info(id).await
    }

    async fn list(&self, filter: Filter) -> Result<Vec<WorkflowInfo>> {
        self.alive()?.list(filter).await
    }

    async fn steps(&self, id: &WorkflowId) -> Result<Vec<StepRecord>> {
        self.alive()?.steps(id).await
    }

    async fn cancel(&self, id: &WorkflowId, timed_out: bool) -> Result<Vec<WorkflowId>> {
        let id = id.clone();
        write!(self, store => store.cancel(&id, timed_out))
    }

    async fn resume(&self, id: &WorkflowId, queue: &str) -> Result<()> {
        let (id, queue) = (id.clone(), queue.to_owned());
        write!(self, store => store.resume(&id, &queue))
    }

    async fn collect(&self, older_than: Duration) -> Result<u64> {
        self.alive()?.collect(older_than).await
    }

    async fn declare_queue(&self, queue: Queue) -> Result<()> {
        self.alive()?.declare_queue(queue).await
    }

    async fn dequeue(&self, executor: &Executor, queues: &[String]) -> Result<QueueBatch> {
        self.alive()?.dequeue(executor, queues).await
    }

    async fn stream(
        &self,
        id: &WorkflowId,
        key: &str,
        from_offset: u64,
        limit: u32,
    ) -> Result<StreamPage> {
        self.alive()?.stream(id, key, from_offset, limit).await
    }

    async fn event(&self, id: &WorkflowId, key: &str) -> Result<Option<Json>> {
        self.alive()?.event(id, key).await
    }

    async fn send(&self, message: Message) -> Result<()> {
        write!(self, store => store.send(message))
    }

    async fn message(&self, id: &WorkflowId, topic: &str) -> Result<Option<ReceivedMessage>> {
        self.alive()?.message(id, topic).await
    }

    async fn query(&self, statement: Statement) -> Result<Vec<Row>> {
        self.alive()?.query(statement).await
    }

    async fn execute(&self, statements: Vec<Statement>) -> Result<()> {
        write!(self, store => store.execute(statements))
    }

    async fn close(&self) -> Result<()> {
        self.kill();
        Ok(())
    }
}
