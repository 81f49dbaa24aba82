//! The table `sandbox_events`: the events of sandboxes, in the order in which they were recorded.

use serde_json::json;
use stockade_api::RecordedEvent;
use stockade_core::event::{EventId, Kind};
use stockade_core::network::DeniedConnection;
use stockade_core::{Code, ExecutionId, OwnerId, Problem, SandboxId};
use stockade_durable::{Row, Statement, Store, Value};

use crate::clock::timestamp;
use crate::failure::store_problem;

/// Wakes the followers of the events.
pub(crate) const TOPIC: &str = "sandbox-events";

/// An event to record.
#[derive(Debug)]
pub(crate) struct NewEvent<'a> {
    /// The same event has the same id, so it is recorded once.
    pub(crate) id: EventId,
    pub(crate) kind: Kind,
    pub(crate) sandbox: &'a SandboxId,
    pub(crate) owner: &'a OwnerId,
    pub(crate) execution: Option<&'a ExecutionId>,
    /// Milliseconds since 1970.
    pub(crate) at: i64,
    /// JSON.
    pub(crate) data: String,
}

impl NewEvent<'_> {
    fn parameters(self) -> Vec<Value> {
        vec![
            self.id.as_str().into(),
            self.kind.as_str().into(),
            self.sandbox.as_str().into(),
            self.owner.as_str().into(),
            self.execution.map(|id| id.as_str().to_owned()).into(),
            self.at.into(),
            self.data.into(),
        ]
    }
}

/// Records an event, unless it is recorded.
pub(crate) fn insert(new: NewEvent<'_>) -> Statement {
    Statement::new(
        "INSERT INTO sandbox_events (id, type, sandbox_id, owner_id, execution_id, at, data) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO NOTHING",
        new.parameters(),
    )
    .waking(TOPIC)
}

/// Records an event, unless it is recorded, or its sandbox has the maximal number of events of its
/// kind.
pub(crate) fn insert_up_to(new: NewEvent<'_>, most: usize) -> Statement {
    let mut parameters = new.parameters();
    parameters.push(limit(most));
    Statement::new(
        "INSERT INTO sandbox_events (id, type, sandbox_id, owner_id, execution_id, at, data) \
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE (SELECT count(*) FROM sandbox_events \
         WHERE sandbox_id = ?3 AND type = ?2) < ?8 ON CONFLICT (id) DO NOTHING",
        parameters,
    )
    .waking(TOPIC)
}

/// At most this many events of an owner's sandboxes, or of one of them, after a number.
pub(crate) async fn page(
    store: &dyn Store,
    owner: &OwnerId,
    sandbox: Option<&SandboxId>,
    after: i64,
    most: usize,
) -> Result<Vec<RecordedEvent>, Problem> {
    let mut parameters: Vec<Value> = vec![owner.as_str().into(), after.into(), limit(most)];
    let mut sql = "SELECT seq, id, type, sandbox_id, owner_id, execution_id, at, data \
        FROM sandbox_events WHERE owner_id = ?1 AND seq > ?2"
        .to_owned();
    if let Some(id) = sandbox {
        parameters.push(id.as_str().into());
        sql.push_str(" AND sandbox_id = ?4");
    }
    sql.push_str(" ORDER BY seq LIMIT ?3");
    let rows = store.query(Statement::new(sql, parameters)).await.map_err(store_problem)?;
    rows.iter().map(read).collect()
}

/// The recorded denied connections of a sandbox, at most this many, in the order in which they were
/// received. Unreadable ones are left out.
pub(crate) async fn denied_connections(
    store: &dyn Store,
    id: &SandboxId,
    most: usize,
) -> Result<Vec<DeniedConnection>, Problem> {
    let select = Statement::new(
        "SELECT data FROM sandbox_events WHERE sandbox_id = ?1 AND type = ?2 ORDER BY seq LIMIT ?3",
        vec![id.as_str().into(), Kind::NetworkRefused.as_str().into(), limit(most)],
    );
    let rows = store.query(select).await.map_err(store_problem)?;
    let refused = |row: &Row| serde_json::from_str(row.text(0).ok()?).ok();
    Ok(rows.iter().filter_map(refused).collect())
}

fn limit(most: usize) -> Value {
    i64::try_from(most).unwrap_or(i64::MAX).into()
}

fn read(row: &Row) -> Result<RecordedEvent, Problem> {
    let damaged = |error: &dyn std::fmt::Display| {
        Problem::new(Code::DatabaseInvalid, "an event's record cannot be read")
            .because(error.to_string())
    };
    let text = |index| row.text(index).map_err(store_problem);
    let data: serde_json::Value = serde_json::from_str(text(7)?).map_err(|e| damaged(&e))?;
    serde_json::from_value(json!({
        "seq": row.integer(0).map_err(store_problem)?,
        "id": text(1)?,
        "type": text(2)?,
        "sandboxId": text(3)?,
        "ownerId": text(4)?,
        "executionId": row.optional_text(5).map_err(store_problem)?,
        "at": timestamp(row.integer(6).map_err(store_problem)?),
        "data": data,
    }))
    .map_err(|error| damaged(&error))
}
