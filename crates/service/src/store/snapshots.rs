//! The table `sandbox_snapshots`: one row for each snapshot that a user requested. Its size is
//! known once its files are stored; until then no sandbox can start from it.

use stockade_api::Snapshot;
use stockade_core::{Code, OwnerId, Problem, SandboxId, SnapshotId};
use stockade_durable::{Row, Statement, Store, Value};

use crate::clock::timestamp;
use crate::failure::store_problem;

/// The columns, in the order in which [`read`] reads them.
const COLUMNS: &str = "id, sandbox_id, created_at, size_bytes, name";

/// A snapshot to take.
#[derive(Debug)]
pub(crate) struct NewSnapshot<'a> {
    pub(crate) id: &'a SnapshotId,
    pub(crate) owner: &'a OwnerId,
    pub(crate) sandbox: &'a SandboxId,
    /// Milliseconds since 1970.
    pub(crate) created_at: i64,
    pub(crate) name: Option<&'a str>,
}

/// Adds a row, if its owner has fewer than `quota`; a conflict otherwise.
pub(crate) fn insert(new: &NewSnapshot<'_>, quota: u32) -> Statement {
    Statement::new(
        "INSERT INTO sandbox_snapshots (id, owner_id, sandbox_id, created_at, name) SELECT ?1, ?2, \
         ?3, ?4, ?6 WHERE (SELECT count(*) FROM sandbox_snapshots WHERE owner_id = ?2) < ?5",
        vec![
            new.id.as_str().into(),
            new.owner.as_str().into(),
            new.sandbox.as_str().into(),
            new.created_at.into(),
            i64::from(quota).into(),
            new.name.map_or(Value::Null, Into::into),
        ],
    )
    .expecting(1)
}

/// Records the size, which completes the snapshot.
pub(crate) fn set_size(id: &SnapshotId, size_bytes: u64) -> Statement {
    let size = i64::try_from(size_bytes).unwrap_or(i64::MAX);
    Statement::new(
        "UPDATE sandbox_snapshots SET size_bytes = ?2 WHERE id = ?1",
        vec![id.as_str().into(), size.into()],
    )
}

/// Removes an owner's row.
pub(crate) fn remove(id: &SnapshotId, owner: &OwnerId) -> Statement {
    Statement::new(
        "DELETE FROM sandbox_snapshots WHERE id = ?1 AND owner_id = ?2",
        vec![id.as_str().into(), owner.as_str().into()],
    )
}

/// An owner's snapshots, the newest first.
pub(crate) async fn list(store: &dyn Store, owner: &OwnerId) -> Result<Vec<Snapshot>, Problem> {
    let condition = "owner_id = ?1 AND size_bytes IS NOT NULL ORDER BY created_at DESC, id DESC";
    select(store, condition, vec![owner.as_str().into()]).await
}

/// The owner's snapshot with that id.
pub(crate) async fn find(
    store: &dyn Store,
    owner: &OwnerId,
    id: &str,
) -> Result<Option<Snapshot>, Problem> {
    let condition = "id = ?1 AND owner_id = ?2 AND size_bytes IS NOT NULL";
    let found = select(store, condition, vec![id.into(), owner.as_str().into()]).await?;
    Ok(found.into_iter().next())
}

/// Whether an id is taken, also by a snapshot that is not complete, and whether by this owner.
pub(crate) async fn id_status(
    store: &dyn Store,
    owner: &OwnerId,
    id: &SnapshotId,
) -> Result<IdStatus, Problem> {
    let sql = "SELECT owner_id FROM sandbox_snapshots WHERE id = ?1";
    let rows =
        store.query(Statement::new(sql, vec![id.as_str().into()])).await.map_err(store_problem)?;
    let Some(row) = rows.first() else { return Ok(IdStatus::Free) };
    let is_own = row.text(0).map_err(store_problem)? == owner.as_str();
    Ok(if is_own { IdStatus::UsedByOwner } else { IdStatus::UsedByOther })
}

/// The owner of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdStatus {
    Free,
    UsedByOwner,
    UsedByOther,
}

async fn select(
    store: &dyn Store,
    condition: &str,
    parameters: Vec<Value>,
) -> Result<Vec<Snapshot>, Problem> {
    let sql = format!("SELECT {COLUMNS} FROM sandbox_snapshots WHERE {condition}");
    let rows = store.query(Statement::new(sql, parameters)).await;
    rows.map_err(store_problem)?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Snapshot, Problem> {
    let damaged = |_| Problem::new(Code::DatabaseInvalid, "a snapshot's record cannot be read");
    let size = row.optional_integer(3).map_err(store_problem)?.unwrap_or(0);
    Ok(Snapshot {
        id: SnapshotId::new(row.text(0).map_err(store_problem)?).map_err(damaged)?,
        sandbox_id: SandboxId::new(row.text(1).map_err(store_problem)?).map_err(damaged)?,
        created_at: timestamp(row.integer(2).map_err(store_problem)?),
        size_bytes: u64::try_from(size).unwrap_or(0),
        name: row.optional_text(4).map_err(store_problem)?.map(str::to_owned),
    })
}
