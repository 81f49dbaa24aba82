//! The tables `api_keys`, one row for each API key with the hash of the key, and `server_secrets`,
//! the random values of this server.

use stockade_api::ApiKey;
use stockade_core::{Code, OwnerId, Problem};
use stockade_durable::{Row, Statement, Store, Value};

use crate::clock::timestamp;
use crate::failure::store_problem;

/// The columns, in the order in which [`read`] reads them.
const COLUMNS: &str = "id, name, owner_id, is_admin, created_at, expires_at, revoked_at";

/// The condition for a key that may be used at the time `?1`.
const IS_ACTIVE: &str = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?1)";

/// Adds a key. A repeated request has the same id and replaces the hash, because the first key may
/// not have reached the client; a conflict if it was revoked since.
pub(crate) fn insert(key: &ApiKey, hash: &str) -> Statement {
    let expires_at = key.expires_at.map(|at| at.as_ms());
    Statement::new(
        "INSERT INTO api_keys (id, name, owner_id, hash, is_admin, created_at, expires_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO UPDATE \
         SET hash = ?4 WHERE api_keys.revoked_at IS NULL",
        vec![
            key.id.as_str().into(),
            key.name.as_deref().into(),
            key.owner_id.as_str().into(),
            hash.into(),
            i64::from(key.admin).into(),
            key.created_at.as_ms().into(),
            expires_at.into(),
        ],
    )
    .expecting(1)
}

/// Revokes a key, unless it was revoked before.
pub(crate) fn revoke(id: &str, now_ms: i64) -> Statement {
    Statement::new(
        "UPDATE api_keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL",
        vec![id.into(), now_ms.into()],
    )
}

/// The keys, the newest first; without `all` only those that may be used.
pub(crate) async fn list(
    store: &dyn Store,
    now_ms: i64,
    all: bool,
) -> Result<Vec<ApiKey>, Problem> {
    let condition = if all { "?1 = ?1" } else { IS_ACTIVE };
    let condition = format!("{condition} ORDER BY created_at DESC, id DESC");
    select(store, &condition, vec![now_ms.into()]).await
}

/// The key with this id, in any state.
pub(crate) async fn find(store: &dyn Store, id: &str) -> Result<Option<ApiKey>, Problem> {
    Ok(select(store, "id = ?1", vec![id.into()]).await?.into_iter().next())
}

/// The key with this id, if it may be used.
pub(crate) async fn find_active(
    store: &dyn Store,
    now_ms: i64,
    id: &str,
) -> Result<Option<ApiKey>, Problem> {
    let condition = format!("{IS_ACTIVE} AND id = ?2");
    Ok(select(store, &condition, vec![now_ms.into(), id.into()]).await?.into_iter().next())
}

/// The key with this hash, if it may be used.
pub(crate) async fn find_by_hash(
    store: &dyn Store,
    now_ms: i64,
    hash: &str,
) -> Result<Option<ApiKey>, Problem> {
    let condition = format!("{IS_ACTIVE} AND hash = ?2");
    Ok(select(store, &condition, vec![now_ms.into(), hash.into()]).await?.into_iter().next())
}

/// Whether there is a key that may be used.
pub(crate) async fn has_active(store: &dyn Store, now_ms: i64) -> Result<bool, Problem> {
    Ok(!select(store, &format!("{IS_ACTIVE} LIMIT 1"), vec![now_ms.into()]).await?.is_empty())
}

/// The secret with that name. The first call stores `new`.
pub(crate) async fn secret(store: &dyn Store, name: &str, new: &str) -> Result<String, Problem> {
    let insert = "INSERT INTO server_secrets (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    let insert = Statement::new(insert, vec![name.into(), new.into()]);
    store.execute(vec![insert]).await.map_err(store_problem)?;
    let sql = "SELECT value FROM server_secrets WHERE name = ?1";
    let rows = store.query(Statement::new(sql, vec![name.into()])).await.map_err(store_problem)?;
    let row = rows.first().ok_or_else(|| {
        Problem::new(Code::DatabaseInvalid, "the database does not record the server's secret")
    })?;
    row.text(0).map(str::to_owned).map_err(store_problem)
}

async fn select(
    store: &dyn Store,
    condition: &str,
    parameters: Vec<Value>,
) -> Result<Vec<ApiKey>, Problem> {
    let sql = format!("SELECT {COLUMNS} FROM api_keys WHERE {condition}");
    let rows = store.query(Statement::new(sql, parameters)).await;
    rows.map_err(store_problem)?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<ApiKey, Problem> {
    let damaged = |_| Problem::new(Code::DatabaseInvalid, "an API key's record cannot be read");
    let time =
        |index| row.optional_integer(index).map(|ms| ms.map(timestamp)).map_err(store_problem);
    Ok(ApiKey {
        id: row.text(0).map_err(store_problem)?.to_owned(),
        name: row.optional_text(1).map_err(store_problem)?.map(str::to_owned),
        owner_id: OwnerId::new(row.text(2).map_err(store_problem)?).map_err(damaged)?,
        admin: row.integer(3).map_err(store_problem)? != 0,
        created_at: timestamp(row.integer(4).map_err(store_problem)?),
        expires_at: time(5)?,
        revoked_at: time(6)?,
    })
}
