//! The table `run_answers`: decisions and signals that runs have received, until a task uses them.

use serde_json::Value as Json;
use stockade_durable::{Row, Statement, Store};

use super::columns::{Result, json, read_json, read_optional_text};
use super::topics::ANSWERS_TOPIC;
use crate::schedule::Key;

/// A decision or a signal that no task has used yet.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) seq: i64,
    /// `approval` or `signal`.
    pub(crate) kind: String,
    pub(crate) name: String,
    /// The correlation id of a signal, or the question that a decision is about.
    pub(crate) correlation: Option<String>,
    pub(crate) payload: Json,
}

impl Answer {
    /// Whether it is a decision about this question with this name.
    pub(crate) fn decides(&self, name: &str, question: &str) -> bool {
        self.kind == "approval"
            && self.name == name
            && self.correlation.as_deref() == Some(question)
    }
}

/// The question that a decision is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    /// A question of a task itself. It is open as long as the task waits.
    Task(String),
    /// A question of the child in the task's sandbox.
    Child(String),
}

/// The answers to a run that no task has used, the oldest first.
pub(crate) async fn list_unused(store: &dyn Store, run: &str) -> Result<Vec<Answer>> {
    let sql = "SELECT seq, kind, name, correlation, payload FROM run_answers \
               WHERE run_id = ?1 AND used_by IS NULL ORDER BY seq";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let answer = |row: &Row| {
        Ok(Answer {
            seq: row.integer(0)?,
            kind: row.text(1)?.to_owned(),
            name: row.text(2)?.to_owned(),
            correlation: read_optional_text(row, 3)?,
            payload: read_json(row, 4)?,
        })
    };
    rows.iter().map(answer).collect()
}

/// Whether an answer with this idempotency key was inserted for a run.
pub(crate) async fn was_sent(store: &dyn Store, run: &str, key: &str) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM run_answers WHERE run_id = ?1 AND kind = 'sent' \
               AND name = ?2)";
    let rows = store.query(Statement::new(sql, vec![run.into(), key.into()])).await?;
    rows.first().map_or(Ok(false), |row| row.boolean(0))
}

/// Inserts a signal. A conflict if a signal with the same idempotency key was inserted before.
pub(crate) fn insert_signal(
    (run, name): (&str, &str),
    correlation: Option<String>,
    payload: &Json,
    idempotency_key: Option<&str>,
    at: i64,
) -> Vec<Statement> {
    let sql = "INSERT INTO run_answers (run_id, kind, name, correlation, payload, at) \
               VALUES (?1, 'signal', ?2, ?3, ?4, ?5)";
    let parameters = vec![run.into(), name.into(), correlation.into(), json(payload), at.into()];
    let insert = Statement::new(sql, parameters).notifying(ANSWERS_TOPIC);
    once(run, idempotency_key, at).into_iter().chain([insert]).collect()
}

/// Inserts a decision. A conflict if one with the same idempotency key was inserted before, if there is
/// an unused one about the same question, or if the task does not ask this question any more.
pub(crate) fn insert_decision(
    (run, name): (&str, &str),
    question: Option<&Question>,
    decision: &Json,
    idempotency_key: Option<&str>,
    at: i64,
) -> Vec<Statement> {
    let (text, is_of_task) = match question {
        Some(Question::Task(text)) => (Some(text.clone()), true),
        Some(Question::Child(text)) => (Some(text.clone()), false),
        None => (None, false),
    };
    let sql = "INSERT INTO run_answers (run_id, kind, name, correlation, payload, at) \
               SELECT ?1, 'approval', ?2, ?3, ?4, ?5 WHERE NOT EXISTS \
               (SELECT 1 FROM run_answers WHERE run_id = ?1 AND kind = 'approval' AND name = ?2 \
                AND correlation IS NOT DISTINCT FROM ?3 AND used_by IS NULL) \
               AND (?6 = 0 OR EXISTS \
               (SELECT 1 FROM run_tasks WHERE run_id = ?1 AND node_id = ?2 \
                AND iteration || '.' || attempts = ?3 AND status = 'waiting-approval'))";
    let parameters = vec![
        run.into(),
        name.into(),
        text.into(),
        json(decision),
        at.into(),
        i64::from(is_of_task).into(),
    ];
    let insert = Statement::new(sql, parameters).expecting(1).notifying(ANSWERS_TOPIC);
    once(run, idempotency_key, at).into_iter().chain([insert]).collect()
}

/// Inserts an idempotency key as an answer that no task uses. A conflict if it exists already.
fn once(run: &str, key: Option<&str>, at: i64) -> Option<Statement> {
    let sql = "INSERT INTO run_answers (run_id, kind, name, payload, at, used_by) \
               SELECT ?1, 'sent', ?2, 'null', ?3, 'nobody' WHERE NOT EXISTS \
               (SELECT 1 FROM run_answers WHERE run_id = ?1 AND kind = 'sent' AND name = ?2)";
    Some(Statement::new(sql, vec![run.into(), key?.into(), at.into()]).expecting(1))
}

/// Records the task that uses an answer. A conflict if the answer is used already.
pub(crate) fn mark_used(seq: i64, by: &Key) -> Statement {
    let sql = "UPDATE run_answers SET used_by = ?2 WHERE seq = ?1 AND used_by IS NULL";
    Statement::new(sql, vec![seq.into(), by.to_string().into()]).expecting(1)
}

/// Deletes an answer that does not fit its question: another one can be given.
pub(crate) fn remove(seq: i64) -> Statement {
    Statement::new("DELETE FROM run_answers WHERE seq = ?1", vec![seq.into()])
}

/// Deletes the decisions that no task has used.
pub(super) fn drop_unused_decisions(run: &str) -> Statement {
    let sql = "UPDATE run_answers SET used_by = 'nobody' \
               WHERE run_id = ?1 AND kind = 'approval' AND used_by IS NULL";
    Statement::new(sql, vec![run.into()])
}
