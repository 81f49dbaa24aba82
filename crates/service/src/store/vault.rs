//! The table `secrets`: the secrets of owners, each sealed. No column has a value.

use stockade_core::{Code, OwnerId, Problem};
use stockade_durable::{Row, Statement, Store, Value};
use stockade_vault::{Kind, Label, SealedRecord};

use crate::failure::store_problem;

/// The columns, in the order in which [`read`] reads them.
const COLUMNS: &str = "id, owner_id, name, kind, version, key_id, sealed, created_at, updated_at";

/// One secret.
#[derive(Debug, Clone)]
pub(crate) struct SecretRow {
    pub(crate) label: Label,
    /// The id of the key under which it is sealed.
    pub(crate) key_id: String,
    pub(crate) sealed: SealedRecord,
    pub(crate) created_at: i64,
    pub(crate) updated_at: i64,
}

/// Adds a secret; fails if its owner has one of that name.
pub(crate) fn insert(row: &SecretRow) -> Statement {
    let SecretRow { label, key_id, sealed, created_at, updated_at } = row;
    let sql =
        format!("INSERT INTO secrets ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)");
    Statement::new(
        sql,
        vec![
            label.secret.as_str().into(),
            label.owner.as_str().into(),
            label.name.as_str().into(),
            label.kind.as_str().into(),
            version(label).into(),
            key_id.as_str().into(),
            Value::Blob(sealed.0.clone()),
            (*created_at).into(),
            (*updated_at).into(),
        ],
    )
}

/// Replaces the values of a secret; fails if it has not the version before.
pub(crate) fn rotate(row: &SecretRow) -> Statement {
    let SecretRow { label, key_id, sealed, updated_at, .. } = row;
    Statement::new(
        "UPDATE secrets SET version = ?2, key_id = ?3, sealed = ?4, updated_at = ?5 \
         WHERE id = ?1 AND version = ?2 - 1",
        vec![
            label.secret.as_str().into(),
            version(label).into(),
            key_id.as_str().into(),
            Value::Blob(sealed.0.clone()),
            (*updated_at).into(),
        ],
    )
    .expecting(1)
}

/// Replaces the sealed form of the same values, unless it has changed meanwhile.
pub(crate) fn seal_again(row: &SecretRow, sealed: &SealedRecord) -> Statement {
    Statement::new(
        "UPDATE secrets SET sealed = ?3 WHERE id = ?1 AND sealed = ?2",
        vec![
            row.label.secret.as_str().into(),
            Value::Blob(row.sealed.0.clone()),
            Value::Blob(sealed.0.clone()),
        ],
    )
}

/// Removes a secret.
pub(crate) fn remove(id: &str) -> Statement {
    Statement::new("DELETE FROM secrets WHERE id = ?1", vec![id.into()])
}

/// The secrets of an owner, by name.
pub(crate) async fn list(store: &dyn Store, owner: &OwnerId) -> Result<Vec<SecretRow>, Problem> {
    select(store, "owner_id = ?1 ORDER BY name", vec![owner.as_str().into()]).await
}

/// Whether there is no secret of any owner.
pub(crate) async fn is_empty(store: &dyn Store) -> Result<bool, Problem> {
    Ok(select(store, "1 = 1 LIMIT 1", Vec::new()).await?.is_empty())
}

/// The secret of an owner with that id or, if there is none, that name.
pub(crate) async fn find(
    store: &dyn Store,
    owner: &OwnerId,
    id_or_name: &str,
) -> Result<Option<SecretRow>, Problem> {
    let condition = "owner_id = ?1 AND (id = ?2 OR name = ?2) ORDER BY id = ?2 DESC";
    let parameters = vec![owner.as_str().into(), id_or_name.into()];
    Ok(select(store, condition, parameters).await?.into_iter().next())
}

/// The fingerprint and the answer of a request with that id, if it was made.
pub(crate) async fn request(
    store: &dyn Store,
    id: &str,
) -> Result<Option<(Vec<u8>, String)>, Problem> {
    let sql = "SELECT fingerprint, answer FROM secret_requests WHERE id = ?1";
    let rows = store.query(Statement::new(sql, vec![id.into()])).await.map_err(store_problem)?;
    let read = |row: &Row| {
        let fingerprint = row.blob(0).map_err(store_problem)?.to_vec();
        Ok((fingerprint, row.text(1).map_err(store_problem)?.to_owned()))
    };
    rows.first().map(read).transpose()
}

/// Stores the answer of a request; fails if one with that id was made.
pub(crate) fn insert_request(id: &str, fingerprint: &[u8], answer: String, now: i64) -> Statement {
    Statement::new(
        "INSERT INTO secret_requests (id, fingerprint, answer, created_at) \
         VALUES (?1, ?2, ?3, ?4)",
        vec![id.into(), Value::Blob(fingerprint.to_vec()), answer.into(), now.into()],
    )
}

/// Removes the answers from before that time.
pub(crate) fn remove_requests(before: i64) -> Statement {
    Statement::new("DELETE FROM secret_requests WHERE created_at < ?1", vec![before.into()])
}

async fn select(
    store: &dyn Store,
    condition: &str,
    parameters: Vec<Value>,
) -> Result<Vec<SecretRow>, Problem> {
    let sql = format!("SELECT {COLUMNS} FROM secrets WHERE {condition}");
    let rows = store.query(Statement::new(sql, parameters)).await;
    rows.map_err(store_problem)?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<SecretRow, Problem> {
    let damaged = || Problem::new(Code::DatabaseInvalid, "a secret's record cannot be read");
    let text = |index| row.text(index).map(str::to_owned).map_err(store_problem);
    let kind: Kind = text(3)?.parse().map_err(|_| damaged())?;
    Ok(SecretRow {
        label: Label {
            secret: text(0)?,
            version: u64::try_from(row.integer(4).map_err(store_problem)?)
                .map_err(|_| damaged())?,
            owner: OwnerId::new(text(1)?).map_err(|_| damaged())?,
            name: text(2)?,
            kind,
        },
        key_id: text(5)?,
        sealed: SealedRecord(row.blob(6).map_err(store_problem)?.to_vec()),
        created_at: row.integer(7).map_err(store_problem)?,
        updated_at: row.integer(8).map_err(store_problem)?,
    })
}

fn version(label: &Label) -> i64 {
    i64::try_from(label.version).unwrap_or(i64::MAX)
}
