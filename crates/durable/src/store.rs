//! What a backend must keep. The engine holds no state that is not here; the rules of each
//! operation are tested by the contract suite.

use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    Claimed, Commit, Committed, Created, Dequeued, Executor, Filter, Json, Message, NewWorkflow,
    Owned, Queue, Received, Recovery, Result, Row, Statement, StepRecord, StreamPage, Wakes,
    WorkflowId, WorkflowInfo,
};

/// An operation that was submitted.
pub type Pending<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// A store of workflows. Each write is one transaction that is on disk when it answers; after
/// it, the store wakes whoever waits for what changed.
#[async_trait]
pub trait Store: Send + Sync + Debug {
    /// Who waits on this store.
    fn wakes(&self) -> &Wakes;

    // Executors.

    /// Begins a new incarnation of an executor, which ends the leases of earlier ones; the
    /// incarnation.
    async fn register(&self, executor_id: &str, application_version: &str) -> Result<i64>;
    /// Renews the lease; false when a later incarnation has it.
    async fn heartbeat(&self, executor: &Executor) -> Result<bool>;
    /// Gives up the lease, so that others take over at once; what it still held was not at
    /// fault and loses no attempt.
    async fn release(&self, executor: &Executor) -> Result<()>;
    /// Takes over what dead executors held: workflows of no queue are claimed and answered, the
    /// others go back into their queues, and those taken over too often are parked.
    async fn recover(&self, recovery: Recovery) -> Result<Vec<Claimed>>;
    /// The workflows that are PENDING under this incarnation.
    async fn owned(&self, executor: &Executor) -> Result<Vec<Owned>>;

    // Workflows.

    /// Records a workflow together with its statements, unless one with its id
    /// [is known](NewWorkflow::joins).
    async fn create(&self, workflow: NewWorkflow) -> Result<Created>;
    /// Commits for a workflow, or fails with [`crate::Error::LeaseLost`]. It is submitted by the
    /// call itself, not when the answer is first awaited: commits of one workflow are made in
    /// the order of the calls.
    fn commit(&self, commit: Commit) -> Pending<Committed>;
    /// What is known of a workflow.
    async fn info(&self, id: &WorkflowId) -> Result<Option<WorkflowInfo>>;
    /// The workflows that a filter lets through, the oldest first.
    async fn list(&self, filter: Filter) -> Result<Vec<WorkflowInfo>>;
    /// The recorded steps of a workflow, in order.
    async fn steps(&self, id: &WorkflowId) -> Result<Vec<StepRecord>>;
    /// Cancels a workflow and all below it that have not ended; those that it cancelled.
    async fn cancel(&self, id: &WorkflowId, timed_out: bool) -> Result<Vec<WorkflowId>>;
    /// Puts what was cancelled or parked into its queue, or into `queue` where it had none: the
    /// workflow and what was cancelled below it.
    async fn resume(&self, id: &WorkflowId, queue: &str) -> Result<()>;
    /// Removes workflows that ended so long ago, with all that is theirs, except those whose
    /// parent has not ended; how many.
    async fn collect(&self, older_than: Duration) -> Result<u64>;

    // Queues.

    /// Records the limits of a queue, in place of earlier ones.
    async fn declare_queue(&self, queue: Queue) -> Result<()>;
    /// Claims what the limits of these queues let through.
    async fn dequeue(&self, executor: &Executor, queues: &[String]) -> Result<Dequeued>;

    // Streams, events, messages.

    /// Rows of a stream from an offset on, at most `limit`; fewer, but one at least, where they
    /// are large.
    async fn stream(
        &self,
        id: &WorkflowId,
        key: &str,
        from_offset: u64,
        limit: u32,
    ) -> Result<StreamPage>;
    /// The value of an event.
    async fn event(&self, id: &WorkflowId, key: &str) -> Result<Option<Json>>;
    /// Sends a message; [`crate::Error::NotFound`] when there is no such destination.
    async fn send(&self, message: Message) -> Result<()>;
    /// The oldest message on a topic that was not received.
    async fn message(&self, id: &WorkflowId, topic: &str) -> Result<Option<Received>>;

    // The application's rows.

    /// Reads rows of the application.
    async fn query(&self, statement: Statement) -> Result<Vec<Row>>;
    /// Changes rows of the application in one transaction.
    async fn execute(&self, statements: Vec<Statement>) -> Result<()>;

    /// Writes what was submitted, then refuses everything else and lets the database go.
    async fn close(&self) -> Result<()>;
}
