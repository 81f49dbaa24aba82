//! The statements that change rows of `run_sandboxes`.

use serde_json::Value as Json;
use stockade_durable::{Statement, Value};

use super::rows::{Pause, Review, Stage};
use crate::schedule::Key;
use crate::store::columns::json;

/// Starts an attempt, and replaces the stored state of the attempt before. `parent` is the name of the
/// attempt whose sandbox it is nested in, and the number of sandboxes that enclose it.
pub(crate) fn start(
    (run, key, attempt, name): (&str, &Key, u32, &str),
    parent: Option<(&str, u32)>,
    runtime: &str,
    config: &Json,
    base_ref: Option<&str>,
    at: i64,
) -> Statement {
    let sql = "INSERT INTO run_sandboxes (run_id, sandbox_id, iteration, attempt, runtime, \
               config_json, status, created_at_ms, heartbeat_at_ms, base_ref, name, parent, \
               depth) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'pending', ?7, ?7, ?8, ?9, ?10, ?11) \
               ON CONFLICT (run_id, sandbox_id, iteration) DO UPDATE SET \
               attempt = excluded.attempt, runtime = excluded.runtime, \
               config_json = excluded.config_json, status = 'pending', \
               created_at_ms = excluded.created_at_ms, \
               heartbeat_at_ms = excluded.heartbeat_at_ms, base_ref = excluded.base_ref, \
               name = excluded.name, parent = excluded.parent, depth = excluded.depth, \
               remote_run_id = NULL, workspace_id = NULL, container_id = NULL, \
               shipped_at_ms = NULL, completed_at_ms = NULL, bundle_path = NULL, \
               review = NULL, decision = NULL";
    let parameters = vec![
        run.into(),
        key.node.as_str().into(),
        key.iteration.into(),
        attempt.into(),
        runtime.into(),
        json(config),
        at.into(),
        base_ref.map(str::to_owned).into(),
        name.into(),
        parent.map(|(name, _)| name.to_owned()).into(),
        parent.map_or(0, |(_, depth)| depth).into(),
    ];
    Statement::new(sql, parameters)
}

fn update(run: &str, key: &Key, assignments: &str, mut values: Vec<Value>) -> Statement {
    let sql = format!(
        "UPDATE run_sandboxes SET {assignments} \
         WHERE run_id = ?1 AND sandbox_id = ?2 AND iteration = ?3"
    );
    let mut parameters = vec![run.into(), key.node.as_str().into(), key.iteration.into()];
    parameters.append(&mut values);
    Statement::new(sql, parameters)
}

/// The request bundle is in the sandbox, and the work starts.
pub(crate) fn ship(run: &str, key: &Key, at: i64) -> Statement {
    let assignments = "status = 'shipped', shipped_at_ms = ?4, heartbeat_at_ms = ?4";
    update(run, key, assignments, vec![at.into()])
}

/// The child starts to wait.
pub(crate) fn wait(run: &str, key: &Key, pause: &Pause, at: i64) -> Statement {
    let assignments = "status = 'waiting', decision = ?4, heartbeat_at_ms = ?5";
    update(run, key, assignments, vec![pause_json(pause), at.into()])
}

/// The child continues, with the answers of the pause.
pub(crate) fn resume(run: &str, key: &Key, pause: &Pause, at: i64) -> Statement {
    let assignments = "status = 'shipped', decision = ?4, heartbeat_at_ms = ?5";
    update(run, key, assignments, vec![pause_json(pause), at.into()])
}

fn pause_json(pause: &Pause) -> Value {
    Value::Text(serde_json::to_string(pause).unwrap_or_default())
}

/// Records a heartbeat.
pub(crate) fn heartbeat(run: &str, key: &Key, at: i64) -> Statement {
    update(run, key, "heartbeat_at_ms = ?4", vec![at.into()])
}

/// The result has been copied to the host, to this path.
pub(crate) fn receive(
    run: &str,
    key: &Key,
    path: &str,
    [remote_run, workspace, container]: [Option<&str>; 3],
    at: i64,
) -> Statement {
    let assignments = "bundle_path = ?4, remote_run_id = ?5, workspace_id = ?6, \
                       container_id = ?7, heartbeat_at_ms = ?8";
    let text = |text: Option<&str>| Value::from(text.map(str::to_owned));
    let values = vec![path.into(), text(remote_run), text(workspace), text(container), at.into()];
    update(run, key, assignments, values)
}

/// The changes wait for a decision. If they need none, the same commit stores the decision.
pub(crate) fn request_review(run: &str, key: &Key, review: &Review) -> Statement {
    let text = serde_json::to_string(review).unwrap_or_default();
    let assignments = "status = 'review', review = ?4, decision = NULL";
    update(run, key, assignments, vec![Value::Text(text)])
}

/// Stores a decision about the changes.
pub(crate) fn decide(run: &str, key: &Key, decision: &Json) -> Statement {
    update(run, key, "decision = ?4", vec![json(decision)])
}

/// The attempt has ended.
pub(crate) fn end(run: &str, key: &Key, stage: Stage, at: i64) -> Statement {
    let values = vec![stage.as_str().into(), at.into()];
    update(run, key, "status = ?4, completed_at_ms = ?5", values)
}
