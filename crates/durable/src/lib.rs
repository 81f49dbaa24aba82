//! Durable execution on a database: the steps of a workflow are recorded, so that after any
//! crash it continues where it stopped, and no recorded step runs again.
//!
//! The names and rules are those of DBOS (workflow status, recorded operation outputs, streams,
//! events, notifications, queues, application versions); leases with fencing are added, so that any
//! live executor takes over the work of a dead one. Steps run at least once: a step with external
//! effects passes on the idempotency key [`Step::key`].
//!
//! Does not know sandboxes and uses no other crate of the workspace.
//!
//! Reading order: `engine` (starts, finds and ends workflows; `engine::context` is what a workflow
//! can do), `store` (what a backend must guarantee), then `sqlite`, the embedded backend, and
//! `postgres`, the one that several machines can use; `transfer` copies one store into another.

mod engine;
mod error;
mod failure;
mod id;
mod records;
mod schema;
mod statement;
mod status;
mod store;
mod sync;
mod wakes;

pub mod postgres;
pub mod sqlite;
pub mod transfer;

pub use engine::{
    Backoff, Builder, Context, Engine, Handle, Record, StartOptions, Step, StepOptions,
    StreamReader, StreamWriter,
};
pub use error::{Error, Result};
pub use failure::Failure;
pub use id::{InvalidId, WorkflowId};
pub use records::{
    Abandonment, Claim, ClaimedWorkflow, Commit, CommitResult, CreateOutcome, EventRecord,
    Executor, Filter, Lease, Message, NewWorkflow, Outcome, OwnedWorkflow, Queue, QueueBatch,
    ReceivedMessage, Records, Recovery, StepOutcome, StepRecord, StreamPage, StreamRow,
    WorkflowInfo,
};
pub use statement::{Migration, Row, Statement, Value};
pub use status::Status;
pub use store::{BoxFuture, Store};
pub use wakes::{Channel, Wakes};

/// A recorded value.
pub type Json = serde_json::Value;
