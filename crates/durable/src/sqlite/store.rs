//! The operations of [`Store`]; each is submitted to a connection pool.

use std::time::Duration;

use async_trait::async_trait;

use super::{Sqlite, commit, executors, messages, queues, statements, streams, workflows};
use crate::sync::{millis, now_ms};
use crate::{
    Abandonment, BoxFuture, ClaimedWorkflow, Commit, CommitResult, CreateOutcome, Error, Executor,
    Filter, Json, Lease, Message, NewWorkflow, OwnedWorkflow, Queue, QueueBatch, ReceivedMessage,
    Recovery, Result, Row, Statement, StepRecord, Store, StreamPage, Wakes, WorkflowId,
    WorkflowInfo,
};

/// How many workflows are removed in one transaction, so that other writes can run in between.
const COLLECTED_AT_ONCE: u32 = 500;

#[async_trait]
impl Store for Sqlite {
    fn wakes(&self) -> &Wakes {
        &self.wakes
    }

    async fn register(&self, executor_id: &str, application_version: &str) -> Result<i64> {
        let (id, version) = (executor_id.to_owned(), application_version.to_owned());
        self.write(move |connection, _| executors::register(connection, &id, &version)).await
    }

    async fn heartbeat(&self, executor: &Executor) -> Result<bool> {
        let executor = executor.clone();
        self.write(move |connection, _| executors::heartbeat(connection, &executor)).await
    }

    async fn release(&self, executor: &Executor) -> Result<()> {
        let executor = executor.clone();
        self.write(move |connection, _| executors::release(connection, &executor)).await
    }

    async fn recover(&self, recovery: Recovery) -> Result<Vec<ClaimedWorkflow>> {
        self.write(move |connection, wakes| executors::recover(connection, wakes, &recovery)).await
    }

    async fn lease(&self, executor_id: &str) -> Result<Option<Lease>> {
        let id = executor_id.to_owned();
        self.read(move |connection| executors::lease(connection, &id)).await
    }

    async fn silent(&self, silence: Duration) -> Result<Vec<String>> {
        let silence_ms = millis(silence);
        self.read(move |connection| executors::silent(connection, silence_ms)).await
    }

    async fn abandon(&self, abandonment: Abandonment) -> Result<Option<Vec<WorkflowId>>> {
        self.write(move |connection, wakes| executors::abandon(connection, wakes, &abandonment))
            .await
    }

    async fn owned(&self, executor: &Executor) -> Result<Vec<OwnedWorkflow>> {
        let executor = executor.clone();
        self.read(move |connection| executors::owned(connection, &executor)).await
    }

    async fn create(&self, workflow: NewWorkflow) -> Result<CreateOutcome> {
        self.write(move |connection, wakes| workflows::create(connection, wakes, &workflow)).await
    }

    fn commit(&self, commit: Commit) -> BoxFuture<CommitResult> {
        let work = self.write(move |connection, wakes| commit::commit(connection, wakes, &commit));
        Box::pin(async move { work.await? })
    }

    async fn info(&self, id: &WorkflowId) -> Result<Option<WorkflowInfo>> {
        let id = id.clone();
        self.read(move |connection| workflows::info(connection, &id)).await
    }

    async fn list(&self, filter: Filter) -> Result<Vec<WorkflowInfo>> {
        self.read(move |connection| workflows::list(connection, &filter)).await
    }

    async fn steps(&self, id: &WorkflowId) -> Result<Vec<StepRecord>> {
        let id = id.clone();
        self.read(move |connection| workflows::steps(connection, &id)).await
    }

    async fn cancel(&self, id: &WorkflowId, timed_out: bool) -> Result<Vec<WorkflowId>> {
        let id = id.clone();
        self.write(move |connection, wakes| workflows::cancel(connection, wakes, &id, timed_out))
            .await
    }

    async fn resume(&self, id: &WorkflowId, queue: &str) -> Result<()> {
        let (id, queue) = (id.clone(), queue.to_owned());
        self.write(move |connection, wakes| workflows::resume(connection, wakes, &id, &queue)).await
    }

    async fn collect(&self, older_than: Duration) -> Result<u64> {
        let before = now_ms().saturating_sub(millis(older_than));
        let mut total = 0;
        loop {
            let work = self.write(move |connection, _| {
                workflows::collect(connection, before, COLLECTED_AT_ONCE)
            });
            let removed = work.await?;
            total += removed;
            if removed < u64::from(COLLECTED_AT_ONCE) {
                break;
            }
        }
        self.write(move |connection, _| executors::collect(connection, before)).await?;
        Ok(total)
    }

    async fn declare_queue(&self, queue: Queue) -> Result<()> {
        self.write(move |connection, wakes| queues::declare(connection, wakes, &queue)).await
    }

    async fn dequeue(&self, executor: &Executor, queues: &[String]) -> Result<QueueBatch> {
        let (executor, queues) = (executor.clone(), queues.to_owned());
        self.write(move |connection, _| queues::dequeue(connection, &executor, &queues)).await
    }

    async fn stream(
        &self,
        id: &WorkflowId,
        key: &str,
        from_offset: u64,
        limit: u32,
    ) -> Result<StreamPage> {
        let (id, key) = (id.clone(), key.to_owned());
        self.read(move |connection| streams::page(connection, &id, &key, from_offset, limit)).await
    }

    async fn event(&self, id: &WorkflowId, key: &str) -> Result<Option<Json>> {
        let (id, key) = (id.clone(), key.to_owned());
        self.read(move |connection| streams::event(connection, &id, &key)).await
    }

    async fn send(&self, message: Message) -> Result<()> {
        self.write(move |connection, wakes| messages::send(connection, wakes, &message)).await
    }

    async fn message(&self, id: &WorkflowId, topic: &str) -> Result<Option<ReceivedMessage>> {
        let (id, topic) = (id.clone(), topic.to_owned());
        self.read(move |connection| messages::oldest(connection, &id, &topic)).await
    }

    async fn query(&self, statement: Statement) -> Result<Vec<Row>> {
        self.read(move |connection| statements::query(connection, &statement)).await
    }

    async fn execute(&self, statements: Vec<Statement>) -> Result<()> {
        self.write(move |connection, wakes| statements::execute(connection, wakes, &statements))
            .await
    }

    async fn close(&self) -> Result<()> {
        let (readers, writer) = (self.readers.close(), self.writer.close());
        let close = move || {
            readers();
            // Last: the connection that closes the file last removes the file beside it (`-wal`).
            writer();
        };
        tokio::task::spawn_blocking(close).await.map_err(|_| Error::Closed)
    }
}
