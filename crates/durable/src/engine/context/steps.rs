//! Steps: executed, recorded, and replayed from the record.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::Context;
use crate::sync::{catch_panic, lock, now_ms};
use crate::{Failure, Records, Result, Statement, StepOutcome, StepRecord, WorkflowId};

/// One attempt of a step.
#[derive(Debug, Clone)]
pub struct Step {
    /// `workflow_id:function_id`: the same in each attempt and each run of this step, and in no
    /// other step. A step with external effects passes it on as the idempotency key, so that a
    /// second attempt finds the effect of the first.
    pub key: String,
    /// The position of the step in its workflow, from 0.
    pub function_id: u32,
    /// The number of the attempt in this run, from 1.
    pub attempt: u32,
    /// Cancelled when the step must stop.
    pub token: CancellationToken,
}

/// When a step's record is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Record {
    /// Before the workflow continues.
    #[default]
    Now,
    /// Together with the next commit of the workflow, which saves one: for steps without external
    /// effects, since a crash before that commit runs them again.
    WithNext,
    /// Like the variant above, but if that commit is the success of the workflow, the step's value
    /// is left out. For the step whose value the workflow returns, so that it is not stored twice.
    WithOutcome,
}

/// The pauses between the attempts of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause; each later one is twice as long.
    pub initial: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_millis(100), longest: Duration::from_secs(10) }
    }
}

/// How a step is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepOptions {
    /// How often it is retried after a [retryable](Failure::retryable) failure.
    pub retries: u32,
    /// The pauses between attempts.
    pub backoff: Backoff,
    /// How long each attempt may take.
    pub timeout: Option<Duration>,
    /// When its record is committed.
    pub record: Record,
}

impl Context {
    /// Runs a step and records its value or failure; a later run gets the record. A panic in it is
    /// a failure. The step may run again when the process ends before the record is on disk.
    pub fn step<T, F, Fut>(
        &self,
        name: impl Into<Cow<'static, str>>,
        f: F,
    ) -> impl Future<Output = Result<T, Failure>> + Send
    where
        T: Serialize + DeserializeOwned + Send,
        F: FnMut(Step) -> Fut + Send,
        Fut: Future<Output = Result<T, Failure>> + Send,
    {
        self.step_with(name, StepOptions::default(), f)
    }

    /// Like [`Self::step`], with options.
    pub fn step_with<T, F, Fut>(
        &self,
        name: impl Into<Cow<'static, str>>,
        options: StepOptions,
        mut f: F,
    ) -> impl Future<Output = Result<T, Failure>> + Send
    where
        T: Serialize + DeserializeOwned + Send,
        F: FnMut(Step) -> Fut + Send,
        Fut: Future<Output = Result<T, Failure>> + Send,
    {
        let (function_id, name) = (self.next_function(), name.into());
        async move {
            if let Some(record) = self.recorded(function_id, &name)? {
                return replay(record);
            }
            let started_at = now_ms();
            let result = self.retry(function_id, options, &mut f).await;
            let result = result.and_then(|value| Ok((serde_json::to_string(&value)?, value)));
            let (outcome, result) = match result {
                Ok((text, value)) => (StepOutcome::Output(text), Ok(value)),
                Err(failure) => (self.own_failure(failure.clone())?, Err(failure)),
            };
            let record = self.record(function_id, &name, outcome, started_at);
            self.store_record(record, options.record).await?;
            result
        }
    }

    /// Runs a step whose record is committed together with the statements that it returns: both or
    /// neither. A conflict or a refusal of the statements by the store is the step's failure; a
    /// conflict is retryable.
    pub fn transact<T, F, Fut>(
        &self,
        name: impl Into<Cow<'static, str>>,
        options: StepOptions,
        mut f: F,
    ) -> impl Future<Output = Result<T, Failure>> + Send
    where
        T: Serialize + DeserializeOwned + Send,
        F: FnMut(Step) -> Fut + Send,
        Fut: Future<Output = Result<(T, Vec<Statement>), Failure>> + Send,
    {
        let (function_id, name) = (self.next_function(), name.into());
        async move {
            if let Some(record) = self.recorded(function_id, &name)? {
                return replay(record);
            }
            let started_at = now_ms();
            let (name, context) = (name.as_ref(), self);
            let result = self
                .retry(function_id, options, &mut |step| {
                    let work = f(step);
                    async move {
                        let (value, statements) = work.await?;
                        let output = StepOutcome::Output(serde_json::to_string(&value)?);
                        let record = context.record(function_id, name, output, started_at);
                        let records = Records { steps: vec![record], ..Records::default() };
                        context.commit(records, statements, None).await?;
                        Ok(value)
                    }
                })
                .await;
            if let Err(failure) = &result {
                let outcome = self.own_failure(failure.clone())?;
                let record = self.record(function_id, name, outcome, started_at);
                self.store_record(record, Record::Now).await?;
            }
            result
        }
    }

    /// Runs a step whose value must not be recorded, such as a secret: only the fact that it ran is
    /// recorded, with the next commit. Each run of the workflow runs it again.
    pub fn volatile<T, F, Fut>(
        &self,
        name: impl Into<Cow<'static, str>>,
        mut f: F,
    ) -> impl Future<Output = Result<T, Failure>> + Send
    where
        T: Send,
        F: FnMut(Step) -> Fut + Send,
        Fut: Future<Output = Result<T, Failure>> + Send,
    {
        let (function_id, name) = (self.next_function(), name.into());
        async move {
            let known = self.recorded(function_id, &name)?.is_some();
            let started_at = now_ms();
            let value = self.retry(function_id, StepOptions::default(), &mut f).await?;
            if !known {
                let outcome = StepOutcome::Output("null".to_owned());
                let record = self.record(function_id, &name, outcome, started_at);
                self.store_record(record, Record::WithNext).await?;
            }
            Ok(value)
        }
    }

    /// Repeats the step until it succeeds, fails with a failure that is not retryable, or has no
    /// attempts left.
    async fn retry<T, F, Fut>(
        &self,
        function_id: u32,
        options: StepOptions,
        f: &mut F,
    ) -> Result<T, Failure>
    where
        F: FnMut(Step) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        let mut pause = options.backoff.initial;
        let mut attempt = 1;
        loop {
            let token = self.run.stop.token().child_token();
            // Background work that the attempt started is notified of its end.
            let _over = token.clone().drop_guard();
            let step = Step { key: key(self.id(), function_id), function_id, attempt, token };
            match with_timeout(options.timeout, catch_panic(|| f(step))).await {
                Err(failure) if failure.retryable && attempt <= options.retries => {
                    self.interruptible(tokio::time::sleep(pause)).await?;
                    pause = pause.saturating_mul(2).min(options.backoff.longest);
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    /// A failure of the step itself. A failure that occurs because the workflow must stop is not
    /// recorded, so that the next run does not replay it.
    fn own_failure(&self, failure: Failure) -> Result<StepOutcome, Failure> {
        self.check()?;
        Ok(StepOutcome::Failure(failure))
    }

    /// The record of a step that has just ended.
    pub(super) fn record(
        &self,
        function_id: u32,
        name: &str,
        outcome: StepOutcome,
        started_at: i64,
    ) -> StepRecord {
        let name = name.to_owned();
        StepRecord { function_id, name, outcome, child: None, started_at, completed_at: now_ms() }
    }

    /// Commits a record, or leaves it for the next commit.
    async fn store_record(&self, record: StepRecord, when: Record) -> Result<(), Failure> {
        match when {
            Record::Now => {
                let records = Records { steps: vec![record], ..Records::default() };
                self.commit(records, Vec::new(), None).await?;
            }
            Record::WithNext => lock(&self.run.journal).pending.steps.push(record),
            Record::WithOutcome => lock(&self.run.journal).defer_to_outcome(record),
        }
        Ok(())
    }
}

fn key(id: &WorkflowId, function_id: u32) -> String {
    format!("{id}:{function_id}")
}

/// The value or failure in a record.
pub(super) fn replay<T: DeserializeOwned>(record: StepRecord) -> Result<T, Failure> {
    match record.outcome {
        StepOutcome::Output(text) => Ok(serde_json::from_str(&text)?),
        StepOutcome::Failure(failure) => Err(failure),
    }
}

async fn with_timeout<T>(
    timeout: Option<Duration>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match timeout {
        None => work.await,
        Some(timeout) => tokio::time::timeout(timeout, work).await.unwrap_or_else(|_| {
            let message = format!("the step took longer than {timeout:?}");
            Err(Failure::new("step_timed_out", message).retryable())
        }),
    }
}
