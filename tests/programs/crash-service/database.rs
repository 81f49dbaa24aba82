//! The content of the database after the last server and every sandbox have ended.

use std::path::Path;

use stockade_durable::sqlite::{Options, Sqlite, Synchronous};
use stockade_durable::{Statement, Store as _};
use stockade_workflow::engine::MIGRATIONS;

use crate::Failure;

/// Queries that must return nothing, and what a row means.
const QUERIES: &[(&str, &str)] = &[
    (
        "is damaged",
        "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'",
    ),
    (
        "is not ended",
        "SELECT name || ' ' || workflow_uuid || ' ' || status FROM workflow_status \
         WHERE (completed_at IS NULL OR status NOT IN ('SUCCESS', 'ERROR')) AND NOT EXISTS \
         (SELECT 1 FROM sandbox_instances WHERE workflow_uuid = 'sandbox-watcher:' || id \
         AND terminated_at > (SELECT max(terminated_at) FROM sandbox_instances) - 15000)",
    ),
    (
        "is recorded twice, or with a gap",
        "SELECT workflow_uuid || ' ' || key FROM streams GROUP BY workflow_uuid, key \
         HAVING count(*) <> max(\"offset\") + 1 OR min(\"offset\") <> 0",
    ),
    (
        "is a stream without an end",
        "SELECT workflow_uuid || ' ' || key FROM streams AS row WHERE \"offset\" = (SELECT \
         max(\"offset\") FROM streams WHERE workflow_uuid = row.workflow_uuid AND key = row.key) \
         AND value IS NOT NULL",
    ),
    (
        "has no stream",
        "SELECT name || ' ' || workflow_uuid FROM workflow_status AS workflow \
         WHERE name = 'sandbox.execute_stream' AND NOT EXISTS (SELECT 1 FROM streams \
         WHERE workflow_uuid = workflow.workflow_uuid)",
    ),
    (
        "succeeded and is not told",
        "SELECT name || ' ' || workflow_uuid FROM workflow_status WHERE status = 'SUCCESS' \
         AND name IN ('sandbox.execute', 'sandbox.execute_stream', 'sandbox.session') \
         AND NOT EXISTS (SELECT 1 FROM sandbox_events \
         WHERE id = workflow_uuid || ':COMMAND_COMPLETED')",
    ),
    (
        "is told and did not succeed",
        "SELECT event.id FROM sandbox_events AS event WHERE type = 'COMMAND_COMPLETED' AND NOT \
         EXISTS (SELECT 1 FROM workflow_status WHERE status = 'SUCCESS' \
         AND event.id = workflow_uuid || ':COMMAND_COMPLETED')",
    ),
    (
        "was made and has no row that ended",
        "SELECT name || ' ' || workflow_uuid FROM workflow_status AS workflow \
         WHERE name = 'sandbox.create' AND status = 'SUCCESS' AND NOT EXISTS (SELECT 1 FROM \
         sandbox_instances WHERE workflow_id = workflow.workflow_uuid AND status = 'terminated' \
         AND terminated_at IS NOT NULL)",
    ),
    (
        "is not ended",
        "SELECT id || ' ' || status FROM sandbox_instances WHERE status <> 'terminated'",
    ),
    ("is a snapshot's row", "SELECT id FROM sandbox_snapshots"),
];

/// Checks the database; returns what is wrong.
pub(crate) fn check(data: &Path) -> Result<Vec<String>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let path = data.join("stockade.db");
        let options = Options { path, synchronous: Synchronous::Full, migrations: MIGRATIONS };
        let store = Sqlite::open(options).await?;
        let mut faults = Vec::new();
        for (meaning, question) in QUERIES {
            for row in store.query(Statement::new(*question, vec![])).await? {
                faults.push(format!("{} {meaning}", row.text(0)?));
            }
        }
        Ok(faults)
    })
}
