//! What a workflow can do: steps, waits, streams, events, messages and children, each recorded.
//!
//! `journal` collects the records that the workflow writes, `steps` runs and replays steps;
//! `waits`, `streams`, `children` and `rows` contain the other operations.

mod children;
mod journal;
mod rows;
mod steps;
mod streams;
mod waits;

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_util::sync::CancellationToken;

use super::Engine;
use super::stop::{Stop, Waits};
use crate::sync::lock;
use crate::{Claim, ClaimedWorkflow, Failure, Result, StepRecord, WorkflowId};
use journal::Journal;

pub use steps::{Backoff, Record, Step, StepOptions};
pub use streams::StreamWriter;

/// One run of a workflow, the argument of its function. Clones refer to the same run. Steps are
/// numbered in the order of the calls, so each run must make the calls in the same order.
#[derive(Clone)]
pub struct Context {
    run: Arc<Run>,
}

struct Run {
    engine: Engine,
    claim: Claim,
    owner: Option<String>,
    deadline: Option<i64>,
    stop: Stop,
    waits: Waits,
    next_function: AtomicU32,
    /// Steps that earlier runs recorded and this one has not reached.
    recorded: Mutex<HashMap<u32, StepRecord>>,
    journal: Mutex<Journal>,
    /// Values that are kept until the end is recorded.
    guards: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("claim", &self.run.claim).finish_non_exhaustive()
    }
}

impl Context {
    pub(super) fn new(
        engine: Engine,
        claimed: ClaimedWorkflow,
        steps: Vec<StepRecord>,
        stop: Stop,
    ) -> Self {
        let executor = engine.executor().id.clone();
        let closing = engine.closing().clone();
        let run = Run {
            waits: Waits::new(claimed.id.clone(), stop.clone(), closing),
            claim: Claim { id: claimed.id, executor, epoch: claimed.epoch },
            owner: claimed.owner,
            deadline: claimed.deadline,
            stop,
            next_function: AtomicU32::new(0),
            recorded: Mutex::new(steps.into_iter().map(|step| (step.function_id, step)).collect()),
            journal: Mutex::default(),
            guards: Mutex::default(),
            engine,
        };
        Self { run: Arc::new(run) }
    }

    /// The id of the workflow.
    pub fn id(&self) -> &WorkflowId {
        &self.run.claim.id
    }

    /// The owner of the workflow.
    pub fn owner(&self) -> Option<&str> {
        self.run.owner.as_deref()
    }

    /// The engine that runs it.
    pub fn engine(&self) -> &Engine {
        &self.run.engine
    }

    /// Cancelled when the workflow must stop.
    pub fn token(&self) -> CancellationToken {
        self.run.stop.token().clone()
    }

    /// When its timeout expires.
    pub fn deadline(&self) -> Option<SystemTime> {
        let ms = u64::try_from(self.run.deadline?).unwrap_or(0);
        Some(UNIX_EPOCH + Duration::from_millis(ms))
    }

    /// The number of this run of the workflow; the first is 1.
    pub fn run_number(&self) -> u64 {
        self.run.claim.epoch.unsigned_abs()
    }

    /// Keeps a value, such as a lock, until the end of the workflow is recorded or the workflow
    /// stops in this process: the result of the function is committed after the function has
    /// returned.
    pub fn hold(&self, value: impl Send + 'static) {
        lock(&self.run.guards).push(Box::new(value));
    }

    /// Drops the values that were held.
    pub(crate) fn release_guards(&self) {
        lock(&self.run.guards).clear();
    }

    /// The number of the next step.
    fn next_function(&self) -> u32 {
        self.run.next_function.fetch_add(1, Ordering::Relaxed)
    }

    /// The record of an earlier run for a step. A record with another name is a failure: the
    /// workflow is not deterministic.
    fn recorded(&self, function_id: u32, name: &str) -> Result<Option<StepRecord>, Failure> {
        self.check()?;
        match lock(&self.run.recorded).remove(&function_id) {
            Some(step) if step.name != name => {
                let known = step.name;
                let message = format!("step {function_id} is {name:?}, and was {known:?} before");
                Err(Failure::new("unexpected_step", message))
            }
            step => Ok(step),
        }
    }

    /// Fails when the workflow must stop.
    fn check(&self) -> Result<(), Failure> {
        self.run.stop.reason().map_or(Ok(()), |why| Err(why.error(self.id()).into()))
    }

    /// Waits for a future without recording anything. Fails when the workflow must stop or the
    /// engine shuts down; the executor that takes the workflow over waits again.
    pub async fn wait<T>(&self, wait: impl Future<Output = T>) -> Result<T, Failure> {
        Ok(self.interruptible(wait).await?)
    }

    /// Waits, unless the workflow must stop. A wait may be long, so it also ends when the engine
    /// shuts down: the next run continues to wait.
    pub(crate) async fn interruptible<T>(&self, wait: impl Future<Output = T>) -> Result<T> {
        self.run.waits.interruptible(wait).await
    }
}
