//! Statements that cancel a run together with its tasks and its child runs.

use stockade_durable::Statement;

use super::tasks;
use super::topics::RUNS_TOPIC;

/// Cancels the descendants of a run, and their tasks.
pub(crate) fn cancel_descendants(run: &str, at: i64) -> [Statement; 2] {
    let is_below = |column: &str| format!("substr({column}, 1, length(?1) + 7) = ?1 || ':child:'");
    let tasks = format!(
        "UPDATE run_tasks SET status = 'cancelled', finished_at = ?2 \
         WHERE finished_at IS NULL AND {}",
        is_below("run_id")
    );
    let runs = format!(
        "UPDATE runs SET status = 'cancelled', updated_at = ?2, finished_at = ?2 \
         WHERE finished_at IS NULL AND {}",
        is_below("id")
    );
    let parameters = || vec![run.into(), at.into()];
    [Statement::new(tasks, parameters()), Statement::new(runs, parameters()).notifying(RUNS_TOPIC)]
}

/// Cancels a run with its tasks and all its descendants, unless it has ended.
pub(crate) fn cancel_tree(run: &str, at: i64) -> [Statement; 4] {
    let [tasks_below, runs_below] = cancel_descendants(run, at);
    let sql = "UPDATE runs SET status = 'cancelled', updated_at = ?2, finished_at = ?2 \
               WHERE id = ?1 AND finished_at IS NULL";
    let itself = Statement::new(sql, vec![run.into(), at.into()]).notifying(RUNS_TOPIC);
    [tasks_below, runs_below, tasks::cancel(run, at), itself]
}
