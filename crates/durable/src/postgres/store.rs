//! The operations of [`Store`]: writes go to the writing connection, reads to the pool.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Postgres, commit, executors, messages, queues, statements, streams, workflows};
use crate::sync::millis;
use crate::{
    Abandonment, BoxFuture, ClaimedWorkflow, Commit, CommitResult, CreateOutcome, Executor, Filter,
    Json, Lease, Message, NewWorkflow, OwnedWorkflow, Queue, QueueBatch, ReceivedMessage, Recovery,
    Result, Row, Statement, StepRecord, Store, StreamPage, Wakes, WorkflowId, WorkflowInfo,
};

/// How many workflows are removed in one transaction, so that other writes can run in between.
const COLLECTED_AT_ONCE: u32 = 500;

impl Postgres {
    /// A write with arguments that each of its runs can use.
    fn write_with<A, T, F>(
        &self,
        arguments: A,
        work: impl Fn(super::Transaction, Arc<A>) -> F + Send + 'static,
    ) -> BoxFuture<T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let arguments = Arc::new(arguments);
        self.write(move |transaction| work(transaction, Arc::clone(&arguments)))
    }
}

#[async_trait]
impl Store for Postgres {
    fn is_shared(&self) -> bool {
        true
    }

    fn wakes(&self) -> &Wakes {
        &self.wakes
    }

    async fn register(&self, executor_id: &str, application_version: &str) -> Result<i64> {
        let arguments = (executor_id.to_owned(), application_version.to_owned());
        let work = |transaction, arguments: Arc<(String, String)>| async move {
            executors::register(&transaction, &arguments.0, &arguments.1).await
        };
        self.write_with(arguments, work).await
    }

    async fn heartbeat(&self, executor: &Executor) -> Result<bool> {
        let work = |transaction, executor: Arc<Executor>| async move {
            executors::heartbeat(&transaction, &executor).await
        };
        self.write_with(executor.clone(), work).await
    }

    async fn release(&self, executor: &Executor) -> Result<()> {
        let work = |transaction, executor: Arc<Executor>| async move {
            executors::release(&transaction, &executor).await
        };
        self.write_with(executor.clone(), work).await
    }

    async fn recover(&self, recovery: Recovery) -> Result<Vec<ClaimedWorkflow>> {
        let work = |transaction, recovery: Arc<Recovery>| async move {
            executors::recover(&transaction, &recovery).await
        };
        self.write_with(recovery, work).await
    }

    async fn lease(&self, executor_id: &str) -> Result<Option<Lease>> {
        executors::lease(&self.readers, executor_id).await
    }

    async fn silent(&self, silence: Duration) -> Result<Vec<String>> {
        executors::silent(&self.readers, millis(silence)).await
    }

    async fn abandon(&self, abandonment: Abandonment) -> Result<Option<Vec<WorkflowId>>> {
        let work = |transaction, abandonment: Arc<Abandonment>| async move {
            executors::abandon(&transaction, &abandonment).await
        };
        self.write_with(abandonment, work).await
    }

    async fn owned(&self, executor: &Executor) -> Result<Vec<OwnedWorkflow>> {
        executors::owned(&self.readers, executor).await
    }

    async fn create(&self, workflow: NewWorkflow) -> Result<CreateOutcome> {
        let work = |transaction, workflow: Arc<NewWorkflow>| async move {
            workflows::create(&transaction, &workflow).await
        };
        self.write_with(workflow, work).await
    }

    fn commit(&self, commit: Commit) -> BoxFuture<CommitResult> {
        let work = |transaction, commit: Arc<Commit>| async move {
            commit::commit(&transaction, &commit).await
        };
        let work = self.write_with(commit, work);
        Box::pin(async move { work.await? })
    }

    async fn info(&self, id: &WorkflowId) -> Result<Option<WorkflowInfo>> {
        workflows::info(&self.readers, id).await
    }

    async fn list(&self, filter: Filter) -> Result<Vec<WorkflowInfo>> {
        workflows::list(&self.readers, &filter).await
    }

    async fn steps(&self, id: &WorkflowId) -> Result<Vec<StepRecord>> {
        workflows::steps(&self.readers, id).await
    }

    async fn cancel(&self, id: &WorkflowId, timed_out: bool) -> Result<Vec<WorkflowId>> {
        let work = move |transaction, id: Arc<WorkflowId>| async move {
            workflows::cancel(&transaction, &id, timed_out).await
        };
        self.write_with(id.clone(), work).await
    }

    async fn resume(&self, id: &WorkflowId, queue: &str) -> Result<()> {
        let work = |transaction, arguments: Arc<(WorkflowId, String)>| async move {
            workflows::resume(&transaction, &arguments.0, &arguments.1).await
        };
        self.write_with((id.clone(), queue.to_owned()), work).await
    }

    async fn collect(&self, older_than: Duration) -> Result<u64> {
        // By the clock of the server: one of this machine that was set forward would remove the leases of others.
        let older_than = millis(older_than);
        let mut total = 0;
        loop {
            let removed = self.write(move |transaction| async move {
                workflows::collect(&transaction, older_than, COLLECTED_AT_ONCE).await
            });
            let removed = removed.await?;
            total += removed;
            if removed < u64::from(COLLECTED_AT_ONCE) {
                break;
            }
        }
        let work =
            move |transaction| async move { executors::collect(&transaction, older_than).await };
        self.write(work).await?;
        Ok(total)
    }

    async fn declare_queue(&self, queue: Queue) -> Result<()> {
        let work = |transaction, queue: Arc<Queue>| async move {
            queues::declare(&transaction, &queue).await
        };
        self.write_with(queue, work).await
    }

    async fn dequeue(&self, executor: &Executor, queues: &[String]) -> Result<QueueBatch> {
        let work = |transaction, arguments: Arc<(Executor, Vec<String>)>| async move {
            queues::dequeue(&transaction, &arguments.0, &arguments.1).await
        };
        self.write_with((executor.clone(), queues.to_owned()), work).await
    }

    async fn stream(
        &self,
        id: &WorkflowId,
        key: &str,
        from_offset: u64,
        limit: u32,
    ) -> Result<StreamPage> {
        streams::page(&self.readers, id, key, from_offset, limit).await
    }

    async fn event(&self, id: &WorkflowId, key: &str) -> Result<Option<Json>> {
        streams::event(&self.readers, id, key).await
    }

    async fn send(&self, message: Message) -> Result<()> {
        let work = |transaction, message: Arc<Message>| async move {
            messages::send(&transaction, &message).await
        };
        self.write_with(message, work).await
    }

    async fn message(&self, id: &WorkflowId, topic: &str) -> Result<Option<ReceivedMessage>> {
        messages::oldest(&self.readers, id, topic).await
    }

    async fn query(&self, statement: Statement) -> Result<Vec<Row>> {
        self.readers.query(statement.postgres_sql(), statement.parameters()).await
    }

    async fn execute(&self, statements: Vec<Statement>) -> Result<()> {
        let work = |transaction, statements: Arc<Vec<Statement>>| async move {
            statements::execute(&transaction, &statements).await
        };
        self.write_with(statements, work).await
    }

    async fn close(&self) -> Result<()> {
        self.closed.cancel();
        self.readers.close();
        self.writer.close().await;
        Ok(())
    }
}
