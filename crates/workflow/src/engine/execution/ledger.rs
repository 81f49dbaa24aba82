//! The changes that an execution commits: statements and events in order, and the acknowledgements that
//! follow.

use std::collections::HashSet;

use serde_json::Value;
use stockade_durable::{Context, Failure, Statement};
use tokio::sync::oneshot;

use crate::engine::clock::now_ms;
use crate::engine::redaction::Redaction;
use crate::engine::sandbox::Record;
use crate::schedule::Key;
use crate::store::{answers, events};

/// How many statements are collected before they are committed.
const MAX_STATEMENTS: usize = 512;

/// The changes that are not committed yet.
pub(super) struct Ledger {
    run: String,
    /// The number of the next event.
    next_event: i64,
    statements: Vec<Statement>,
    /// Are notified when the statements are on disk.
    acknowledgements: Vec<oneshot::Sender<()>>,
    /// The answers that were used, until their use is on disk.
    used_answers: HashSet<i64>,
    /// The values that no event contains.
    pub(super) redaction: Redaction,
}

impl Ledger {
    pub(super) fn new(run: &str, next_event: i64, redaction: Redaction) -> Self {
        Self {
            run: run.to_owned(),
            next_event,
            statements: Vec::new(),
            acknowledgements: Vec::new(),
            used_answers: HashSet::new(),
            redaction,
        }
    }

    /// The number of the next event.
    pub(super) const fn next_event(&self) -> i64 {
        self.next_event
    }

    pub(super) fn push(&mut self, statement: Statement) {
        self.statements.push(statement);
    }

    pub(super) fn extend(&mut self, statements: impl IntoIterator<Item = Statement>) {
        self.statements.extend(statements);
    }

    /// Adds an event, with the run id and the time, and without the values that are redacted.
    pub(super) fn event(&mut self, mut event: Value) {
        self.redaction.event(&mut event);
        let at = now_ms();
        event["runId"] = self.run.as_str().into();
        event["timestampMs"] = at.into();
        self.statements.push(events::insert(&self.run, self.next_event, at, &event));
        self.next_event += 1;
    }

    /// Adds the record of an attempt of a sandbox.
    pub(super) fn record(&mut self, record: Record) {
        for event in record.events {
            self.event(event);
        }
        self.statements.extend(record.statements);
        self.acknowledgements.push(record.committed);
    }

    /// Records the task that uses an answer.
    pub(super) fn use_answer(&mut self, seq: i64, key: &Key) {
        self.used_answers.insert(seq);
        self.statements.push(answers::mark_used(seq, key));
    }

    /// Removes an answer that does not fit.
    pub(super) fn drop_answer(&mut self, seq: i64) {
        self.used_answers.insert(seq);
        self.statements.push(answers::remove(seq));
    }

    pub(super) fn is_used(&self, seq: i64) -> bool {
        self.used_answers.contains(&seq)
    }

    pub(super) fn is_full(&self) -> bool {
        self.statements.len() >= MAX_STATEMENTS
    }

    /// Commits all changes.
    pub(super) async fn commit(&mut self, context: &Context) -> Result<(), Failure> {
        if self.statements.is_empty() && self.acknowledgements.is_empty() {
            return Ok(());
        }
        context.write(std::mem::take(&mut self.statements)).await?;
        self.used_answers.clear();
        for committed in self.acknowledgements.drain(..) {
            // The attempt may have been dropped.
            let _ = committed.send(());
        }
        Ok(())
    }

    /// The statements that remain, to be committed with the end of the run.
    pub(super) fn into_statements(self) -> Vec<Statement> {
        self.statements
    }
}
