//! What is kept of runs, and the statements that change it. Times are milliseconds since 1970; what
//! is structured is JSON.

use serde_json::Value as Json;
use stockade_api::{RunStatus, TaskStatus};
use stockade_durable::{Statement, Value};

use super::waits::Question;
use crate::schedule::{Key, Turn};

/// Wakes whoever watches runs.
pub(crate) const TOPIC: &str = "workflows";

/// Wakes runs that wait for an answer.
pub(crate) const ANSWERS: &str = "workflow answers";

/// A task as it is kept.
#[derive(Debug, Clone)]
pub(crate) struct TaskRow {
    pub(crate) kind: String,
    pub(crate) label: String,
    pub(crate) status: TaskStatus,
    /// Tries that were begun and have ended, or are under way; a crash is no end of one.
    pub(crate) attempts: u32,
    /// How often its work was begun.
    pub(crate) executions: u32,
    /// Which task of the run began first, second and so on.
    pub(crate) place: u32,
    pub(crate) table: Option<String>,
    pub(crate) output: Option<Json>,
    pub(crate) error: Option<Json>,
    pub(crate) meta: Json,
    /// The bundle of what it changed in its project.
    pub(crate) bundle: Option<String>,
    pub(crate) wake_at: Option<i64>,
    pub(crate) started_at: i64,
    pub(crate) finished_at: Option<i64>,
}

impl TaskRow {
    /// Whether it waits for a sandbox that only the host can make, or for what a child does.
    pub(crate) fn waits_for_host(&self) -> bool {
        self.status == TaskStatus::WaitingEvent && self.kind == "sandbox"
    }
}

fn json(value: &Json) -> Value {
    Value::Text(value.to_string())
}

/// Keeps a task as it is now.
pub(crate) fn keep_task(run: &str, key: &Key, task: &TaskRow) -> Statement {
    let sql = "INSERT INTO run_tasks (run_id, node_id, iteration, kind, label, status, \
               attempts, executions, place, output_table, output, error, meta, wake_at, \
               started_at, finished_at, bundle) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, \
               ?17) \
               ON CONFLICT (run_id, node_id, iteration) DO UPDATE SET kind = excluded.kind, \
               label = excluded.label, status = excluded.status, attempts = excluded.attempts, \
               executions = excluded.executions, output_table = excluded.output_table, \
               output = excluded.output, error = excluded.error, meta = excluded.meta, \
               wake_at = excluded.wake_at, finished_at = excluded.finished_at, \
               bundle = excluded.bundle";
    let parameters = vec![
        run.into(),
        key.node.as_str().into(),
        key.iteration.into(),
        task.kind.as_str().into(),
        task.label.as_str().into(),
        task.status.as_str().into(),
        task.attempts.into(),
        task.executions.into(),
        task.place.into(),
        task.table.clone().into(),
        task.output.as_ref().map(json).unwrap_or(Value::Null),
        task.error.as_ref().map(json).unwrap_or(Value::Null),
        json(&task.meta),
        task.wake_at.into(),
        task.started_at.into(),
        task.finished_at.into(),
        task.bundle.clone().into(),
    ];
    Statement::new(sql, parameters)
}

/// Keeps where a loop is.
pub(crate) fn keep_turn(run: &str, name: &str, turn: Turn) -> Statement {
    let sql = "INSERT INTO run_loops VALUES (?1, ?2, ?3, ?4) \
               ON CONFLICT (run_id, loop_id) DO UPDATE SET iteration = excluded.iteration, \
               has_ended = excluded.has_ended";
    let parameters = vec![run.into(), name.into(), turn.iteration.into(), turn.has_ended.into()];
    Statement::new(sql, parameters)
}

/// Adds an event.
pub(crate) fn add_event(run: &str, seq: i64, at: i64, event: &Json) -> Statement {
    let sql = "INSERT INTO run_events VALUES (?1, ?2, ?3, ?4)";
    Statement::new(sql, vec![run.into(), seq.into(), at.into(), json(event)]).touching(TOPIC)
}

/// Keeps a signal. With the name that its sender has for it, a conflict where it is kept already.
pub(crate) fn keep_signal(
    (run, name): (&str, &str),
    correlation: Option<String>,
    payload: &Json,
    sent_as: Option<&str>,
    at: i64,
) -> Vec<Statement> {
    let sql = "INSERT INTO run_answers (run_id, kind, name, correlation, payload, at) \
               VALUES (?1, 'signal', ?2, ?3, ?4, ?5)";
    let parameters = vec![run.into(), name.into(), correlation.into(), json(payload), at.into()];
    let keep = Statement::new(sql, parameters).touching(ANSWERS);
    sent_as.map(|sent_as| keep_sent(run, sent_as, at)).into_iter().chain([keep]).collect()
}

/// Keeps a decision. A conflict where it is kept already, where there is one about the same question
/// that nobody has taken yet, and where a task asks that question no more.
pub(crate) fn keep_decision(
    (run, name): (&str, &str),
    question: Option<&Question>,
    decision: &Json,
    sent_as: Option<&str>,
    at: i64,
) -> Vec<Statement> {
    let (text, is_of_task) = match question {
        Some(Question::OfTask(text)) => (Some(text.clone()), true),
        Some(Question::OfChild(text)) => (Some(text.clone()), false),
        None => (None, false),
    };
    let sql = "INSERT INTO run_answers (run_id, kind, name, correlation, payload, at) \
               SELECT ?1, 'approval', ?2, ?3, ?4, ?5 WHERE NOT EXISTS \
               (SELECT 1 FROM run_answers WHERE run_id = ?1 AND kind = 'approval' AND name = ?2 \
                AND correlation IS ?3 AND used_by IS NULL) AND (NOT ?6 OR EXISTS \
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
    let keep = Statement::new(sql, parameters).expecting(1).touching(ANSWERS);
    sent_as.map(|sent_as| keep_sent(run, sent_as, at)).into_iter().chain([keep]).collect()
}

/// Keeps the name that a sender has for what it sends, as an answer that nobody takes.
fn keep_sent(run: &str, sent_as: &str, at: i64) -> Statement {
    let sql = "INSERT INTO run_answers (run_id, kind, name, payload, at, used_by) \
               SELECT ?1, 'sent', ?2, 'null', ?3, 'nobody' WHERE NOT EXISTS \
               (SELECT 1 FROM run_answers WHERE run_id = ?1 AND kind = 'sent' AND name = ?2)";
    Statement::new(sql, vec![run.into(), sent_as.into(), at.into()]).expecting(1)
}

/// Remembers that an answer was used.
pub(crate) fn use_answer(seq: i64, by: &Key) -> Statement {
    let sql = "UPDATE run_answers SET used_by = ?2 WHERE seq = ?1 AND used_by IS NULL";
    Statement::new(sql, vec![seq.into(), by.to_string().into()]).expecting(1)
}

/// Gives a run the name of its workflow.
pub(crate) fn name_run(run: &str, name: &str) -> Statement {
    let sql = "UPDATE runs SET name = ?2 WHERE id = ?1 AND name <> ?2";
    Statement::new(sql, vec![run.into(), name.into()]).touching(TOPIC)
}

/// Changes where a run is, unless it has ended.
pub(crate) fn move_run(run: &str, status: RunStatus, at: i64) -> Statement {
    let sql = "UPDATE runs SET status = ?2, updated_at = ?3 \
               WHERE id = ?1 AND finished_at IS NULL";
    Statement::new(sql, vec![run.into(), status.as_str().into(), at.into()]).touching(TOPIC)
}

/// Ends a run.
pub(crate) fn end_run(
    run: &str,
    status: RunStatus,
    at: i64,
    output: Option<&Json>,
    error: Option<&Json>,
) -> Statement {
    let sql = "UPDATE runs SET status = ?2, updated_at = ?3, finished_at = ?3, \
               output = ?4, error = ?5 WHERE id = ?1";
    let parameters = vec![
        run.into(),
        status.as_str().into(),
        at.into(),
        output.map(json).unwrap_or(Value::Null),
        error.map(json).unwrap_or(Value::Null),
    ];
    Statement::new(sql, parameters).touching(TOPIC)
}

/// Lets what a run has not finished begin again, and forgets what was decided about its tries.
pub(crate) fn reset_tasks(run: &str) -> [Statement; 2] {
    let decided = "UPDATE run_answers SET used_by = 'nobody' \
                   WHERE run_id = ?1 AND kind = 'approval' AND used_by IS NULL";
    let sql = "UPDATE run_tasks SET status = 'retrying', attempts = 0, wake_at = 0, \
               error = NULL, finished_at = NULL \
               WHERE run_id = ?1 AND status NOT IN ('finished', 'skipped')";
    [sql, decided].map(|sql| Statement::new(sql, vec![run.into()]))
}

/// Ends the runs below one that was cancelled, with what they were about.
pub(crate) fn cancel_below(run: &str, at: i64) -> [Statement; 2] {
    let below = "substr(run_id, 1, length(?1) + 7) = ?1 || ':child:'";
    let tasks = format!(
        "UPDATE run_tasks SET status = 'cancelled', finished_at = ?2 \
         WHERE finished_at IS NULL AND {below}"
    );
    let runs = format!(
        "UPDATE runs SET status = 'cancelled', updated_at = ?2, finished_at = ?2 \
         WHERE finished_at IS NULL AND {}",
        below.replace("run_id", "id")
    );
    let parameters = || vec![run.into(), at.into()];
    [Statement::new(tasks, parameters()), Statement::new(runs, parameters()).touching(TOPIC)]
}

/// Ends a run that was given up, with all below it, unless it has ended.
pub(crate) fn give_up_run(run: &str, at: i64) -> [Statement; 4] {
    let [tasks_below, below] = cancel_below(run, at);
    let sql = "UPDATE runs SET status = 'cancelled', updated_at = ?2, finished_at = ?2 \
               WHERE id = ?1 AND finished_at IS NULL";
    let itself = Statement::new(sql, vec![run.into(), at.into()]).touching(TOPIC);
    [tasks_below, below, cancel_tasks(run, at), itself]
}

/// Ends what a cancelled run was about.
pub(crate) fn cancel_tasks(run: &str, at: i64) -> Statement {
    let sql = "UPDATE run_tasks SET status = 'cancelled', finished_at = ?2 \
               WHERE run_id = ?1 AND finished_at IS NULL";
    Statement::new(sql, vec![run.into(), at.into()])
}
