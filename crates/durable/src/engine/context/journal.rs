//! The records that a workflow writes. Records that may wait are committed with the next commit of
//! the workflow, the last of them with its outcome, so that a short workflow needs few commits.

use std::collections::HashSet;

use super::Context;
use crate::engine::stop::Interrupt;
use crate::sync::lock;
use crate::{
    Commit, CommitResult, Error, Failure, Outcome, Records, Result, Statement, Status, StepOutcome,
    StepRecord,
};

/// The records that wait for the next commit, and the statements that wait for the last.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pub(super) pending: Records,
    /// The waiting steps whose values are part of the outcome of the workflow.
    in_outcome: HashSet<u32>,
    /// The size of the waiting stream rows, in bytes.
    pub(super) stream_bytes: usize,
    /// Whether a task is going to flush them soon.
    pub(super) flush_is_due: bool,
    /// Streams that this run closed.
    pub(super) closed: HashSet<String>,
    on_success: Vec<Statement>,
    on_failure: Vec<Statement>,
}

impl Journal {
    /// Adds a record whose value is not stored twice: where the next commit is the success of the
    /// workflow, the outcome contains the value.
    pub(super) fn defer_to_outcome(&mut self, record: StepRecord) {
        self.in_outcome.insert(record.function_id);
        self.pending.steps.push(record);
    }

    /// The waiting records, for a commit with that outcome.
    fn take(&mut self, outcome: Option<&Outcome>) -> Records {
        self.stream_bytes = 0;
        let (mut carried, in_outcome) =
            (std::mem::take(&mut self.pending), std::mem::take(&mut self.in_outcome));
        if let Some(Outcome::Success(_)) = outcome {
            for step in
                carried.steps.iter_mut().filter(|step| in_outcome.contains(&step.function_id))
            {
                step.outcome = StepOutcome::Output("null".to_owned());
            }
        }
        carried
    }
}

impl Context {
    /// Adds statements that are committed together with the success of the workflow.
    pub fn finish_with(&self, statements: Vec<Statement>) {
        lock(&self.run.journal).on_success.extend(statements);
    }

    /// Adds statements that are committed together with the failure of the workflow. A cancellation
    /// does not commit them: the caller that cancels the workflow commits its end.
    pub fn finish_with_on_failure(&self, statements: Vec<Statement>) {
        lock(&self.run.journal).on_failure.extend(statements);
    }

    /// Commits all waiting records, then these records and statements. A refusal is returned to the
    /// caller; any other error stops the workflow in this process.
    pub(super) async fn commit(
        &self,
        records: Records,
        statements: Vec<Statement>,
        outcome: Option<Outcome>,
    ) -> Result<CommitResult> {
        let pending = {
            // Under the lock, so that commits are submitted in the order of the records that they
            // carry.
            let mut journal = lock(&self.run.journal);
            let carried = journal.take(outcome.as_ref());
            let claim = self.run.claim.clone();
            let commit = Commit { claim, earlier: carried, records, statements, outcome };
            self.run.engine.store().commit(commit)
        };
        let result = pending.await;
        match &result {
            Err(Error::LeaseLost { status: Some(Status::Cancelled), .. }) => {
                self.run.stop.because(Interrupt::Cancelled { timed_out: false });
            }
            Err(Error::LeaseLost { .. }) => self.run.stop.because(Interrupt::LeaseLost),
            Err(error) if !error.is_refusal() => {
                self.run.stop.because(Interrupt::Storage(error.clone()));
            }
            _ => {}
        }
        result
    }

    /// Commits the waiting records.
    pub(super) async fn flush(&self) -> Result<(), Failure> {
        if !lock(&self.run.journal).pending.is_empty() {
            self.commit(Records::default(), Vec::new(), None).await?;
        }
        Ok(())
    }

    /// Records the end of the workflow and returns it. If the success statements are refused, the
    /// end is that failure. `None` when it could not be recorded.
    pub(crate) async fn finish(
        &self,
        result: Result<String, Failure>,
    ) -> Option<Result<String, Failure>> {
        let (on_success, on_failure) = {
            let mut journal = lock(&self.run.journal);
            (std::mem::take(&mut journal.on_success), std::mem::take(&mut journal.on_failure))
        };
        let failure = match result {
            Ok(output) => match self.end(Outcome::Success(output.clone()), on_success).await? {
                Ok(()) => return Some(Ok(output)),
                Err(refused) => refused,
            },
            Err(failure) => failure,
        };
        let failed = Outcome::Failure(failure.clone());
        if let Err(refused) = self.end(failed, on_failure).await? {
            tracing::warn!(workflow = %self.id(), %refused, "its last statements were rejected");
            // The failure is recorded without the refused statements.
            self.end(Outcome::Failure(failure.clone()), Vec::new()).await?.ok()?;
        }
        Some(Err(failure))
    }

    /// `None` when the workflow must stop in this process, else whether the end was recorded.
    async fn end(
        &self,
        outcome: Outcome,
        statements: Vec<Statement>,
    ) -> Option<Result<(), Failure>> {
        match self.commit(Records::default(), statements, Some(outcome)).await {
            Ok(_) => Some(Ok(())),
            Err(error) if error.is_refusal() => Some(Err(error.into())),
            Err(_) => None,
        }
    }
}
