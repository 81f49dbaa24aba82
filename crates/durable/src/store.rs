//! What a backend must guarantee. The engine has no state that is not in the store; the contract
//! suite tests the rules of each operation.

use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    Abandonment, ClaimedWorkflow, Commit, CommitResult, CreateOutcome, Executor, Filter, Json,
    Lease, Message, NewWorkflow, OwnedWorkflow, Queue, QueueBatch, ReceivedMessage, Recovery,
    Result, Row, Statement, StepRecord, StreamPage, Wakes, WorkflowId, WorkflowInfo,
};

/// A submitted operation.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// A store of workflows. Each write is one transaction that is on disk when the call returns; after
/// it, the store wakes all that wait for the changes.
#[async_trait]
pub trait Store: Send + Sync + Debug {
    /// The waiters of this store.
    fn wakes(&self) -> &Wakes;

    /// Whether other processes write to it, which do not wake the waiters of this one for each change.
    fn is_shared(&self) -> bool {
        false
    }

    // Executors.

    /// Starts a new incarnation of an executor, which ends the leases of earlier ones; returns the
    /// incarnation.
    async fn register(&self, executor_id: &str, application_version: &str) -> Result<i64>;
    /// Renews the lease; false when a later incarnation has it.
    async fn heartbeat(&self, executor: &Executor) -> Result<bool>;
    /// Releases the lease, so that others can take over immediately. The workflows that it still
    /// owned did not cause this and lose no attempt.
    async fn release(&self, executor: &Executor) -> Result<()>;
    /// Takes over the workflows of dead executors, but none of another [place](Executor::place): those without a queue are claimed and returned,
    /// the others go back into their queues, and those taken over too often are parked.
    async fn recover(&self, recovery: Recovery) -> Result<Vec<ClaimedWorkflow>>;
    /// The lease of an executor; `None` if there is no such executor.
    async fn lease(&self, executor_id: &str) -> Result<Option<Lease>>;
    /// The executors of which nothing was heard for so long: neither a renewal of the lease nor its release.
    async fn silent(&self, silence: Duration) -> Result<Vec<String>>;
    /// Ends the workflows of a place with a failure, if its executor has been silent for long enough, and
    /// ends the lease of that executor; `None` if it is alive.
    async fn abandon(&self, abandonment: Abandonment) -> Result<Option<Vec<WorkflowId>>>;
    /// The workflows that are PENDING under this incarnation.
    async fn owned(&self, executor: &Executor) -> Result<Vec<OwnedWorkflow>>;

    // Workflows.

    /// Records a workflow together with its statements, unless one with its id
    /// [exists](crate::NewWorkflow).
    async fn create(&self, workflow: NewWorkflow) -> Result<CreateOutcome>;
    /// Commits for a workflow, or fails with [`crate::Error::LeaseLost`]. The call itself submits
    /// it, not the first poll of the future: commits of one workflow are made in the order of the
    /// calls.
    fn commit(&self, commit: Commit) -> BoxFuture<CommitResult>;
    /// The stored state of a workflow.
    async fn info(&self, id: &WorkflowId) -> Result<Option<WorkflowInfo>>;
    /// The workflows that match a filter, the oldest first.
    async fn list(&self, filter: Filter) -> Result<Vec<WorkflowInfo>>;
    /// The recorded steps of a workflow, in order.
    async fn steps(&self, id: &WorkflowId) -> Result<Vec<StepRecord>>;
    /// Cancels a workflow and its descendants that have not ended; returns those that it cancelled.
    async fn cancel(&self, id: &WorkflowId, timed_out: bool) -> Result<Vec<WorkflowId>>;
    /// Puts a cancelled or parked workflow and its cancelled descendants into their queues, or into
    /// `queue` where they had none.
    async fn resume(&self, id: &WorkflowId, queue: &str) -> Result<()>;
    /// Removes workflows that ended longer ago than this, with all their records, except those
    /// whose parent has not ended; returns their number.
    async fn collect(&self, older_than: Duration) -> Result<u64>;

    // Queues.

    /// Records the limits of a queue, and replaces earlier ones.
    async fn declare_queue(&self, queue: Queue) -> Result<()>;
    /// Claims the workflows that the limits of these queues allow.
    async fn dequeue(&self, executor: &Executor, queues: &[String]) -> Result<QueueBatch>;

    // Streams, events, messages.

    /// Rows of a stream from an offset on, at most `limit`; fewer, but at least one, where they are
    /// large.
    async fn stream(
        &self,
        id: &WorkflowId,
        key: &str,
        from_offset: u64,
        limit: u32,
    ) -> Result<StreamPage>;
    /// The value of an event.
    async fn event(&self, id: &WorkflowId, key: &str) -> Result<Option<Json>>;
    /// Sends a message; [`crate::Error::NotFound`] when the destination does not exist.
    async fn send(&self, message: Message) -> Result<()>;
    /// The oldest unreceived message on a topic.
    async fn message(&self, id: &WorkflowId, topic: &str) -> Result<Option<ReceivedMessage>>;

    // The application's rows.

    /// Reads rows of the application.
    async fn query(&self, statement: Statement) -> Result<Vec<Row>>;
    /// Changes rows of the application in one transaction.
    async fn execute(&self, statements: Vec<Statement>) -> Result<()>;

    /// Completes submitted writes, then refuses all others and closes the database.
    async fn close(&self) -> Result<()>;
}
