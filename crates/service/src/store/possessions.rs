//! The tables `sandbox_possessions`, which server has a volume, a workspace or a bundle of an owner, and
//! `sandbox_removals`, which of these a server has to remove when it is back.

use stockade_core::{OwnerId, Problem};
use stockade_durable::{Row, Statement, Store, Value};

use crate::failure::store_problem;
use crate::possession::{Kind, Possession};

/// Records that a server has something; no effect if another one has it under this name.
pub(crate) fn add(owner: &OwnerId, kind: Kind, name: &str, host: &str) -> Statement {
    let sql = "INSERT INTO sandbox_possessions (owner_id, kind, name, host) VALUES (?1, ?2, ?3, ?4) \
               ON CONFLICT DO NOTHING";
    Statement::new(sql, parameters(owner, kind, name, host))
}

/// Records that a server has something no more.
pub(crate) fn remove(owner: &OwnerId, kind: Kind, name: &str, host: &str) -> Statement {
    let sql = "DELETE FROM sandbox_possessions WHERE owner_id = ?1 AND kind = ?2 AND name = ?3 \
               AND host = ?4";
    Statement::new(sql, parameters(owner, kind, name, host))
}

/// Records what a server has to remove when it is back.
pub(crate) fn add_removal(owner: &OwnerId, kind: Kind, name: &str, host: &str) -> Statement {
    let sql = "INSERT INTO sandbox_removals (owner_id, kind, name, host) VALUES (?1, ?2, ?3, ?4) \
               ON CONFLICT DO NOTHING";
    Statement::new(sql, parameters(owner, kind, name, host))
}

/// Records that a server has removed it.
pub(crate) fn end_removal(owner: &OwnerId, kind: Kind, name: &str, host: &str) -> Statement {
    let sql = "DELETE FROM sandbox_removals WHERE owner_id = ?1 AND kind = ?2 AND name = ?3 \
               AND host = ?4";
    Statement::new(sql, parameters(owner, kind, name, host))
}

fn parameters(owner: &OwnerId, kind: Kind, name: &str, host: &str) -> Vec<Value> {
    vec![owner.as_str().into(), kind.as_str().into(), name.into(), host.into()]
}

/// The server that has something.
pub(crate) async fn host_of(
    store: &dyn Store,
    owner: &OwnerId,
    kind: Kind,
    name: &str,
) -> Result<Option<String>, Problem> {
    let sql =
        "SELECT host FROM sandbox_possessions WHERE owner_id = ?1 AND kind = ?2 AND name = ?3";
    let query = Statement::new(sql, vec![owner.as_str().into(), kind.as_str().into(), name.into()]);
    let rows = store.query(query).await.map_err(store_problem)?;
    rows.first().map(|row| text(row, 0)).transpose()
}

/// What an owner has of a kind whose names start with a prefix, with the server of each.
pub(crate) async fn with_prefix(
    store: &dyn Store,
    owner: &OwnerId,
    kind: Kind,
    prefix: &str,
) -> Result<Vec<(String, String)>, Problem> {
    let sql = "SELECT name, host FROM sandbox_possessions WHERE owner_id = ?1 AND kind = ?2 \
               AND substr(name, 1, length(?3)) = ?3 ORDER BY name";
    let query =
        Statement::new(sql, vec![owner.as_str().into(), kind.as_str().into(), prefix.into()]);
    let rows = store.query(query).await.map_err(store_problem)?;
    rows.iter().map(|row| Ok((text(row, 0)?, text(row, 1)?))).collect()
}

/// What a server has of an owner.
pub(crate) async fn names_at(
    store: &dyn Store,
    owner: &OwnerId,
    kind: Kind,
    host: &str,
) -> Result<Vec<String>, Problem> {
    let sql =
        "SELECT name FROM sandbox_possessions WHERE host = ?1 AND owner_id = ?2 AND kind = ?3";
    let query = Statement::new(sql, vec![host.into(), owner.as_str().into(), kind.as_str().into()]);
    let rows = store.query(query).await.map_err(store_problem)?;
    rows.iter().map(|row| text(row, 0)).collect()
}

/// What a server has to remove.
pub(crate) async fn removals(store: &dyn Store, host: &str) -> Result<Vec<Possession>, Problem> {
    let sql = "SELECT owner_id, kind, name FROM sandbox_removals WHERE host = ?1";
    let rows = store.query(Statement::new(sql, vec![host.into()])).await.map_err(store_problem)?;
    let read = |row: &Row| {
        let (owner, kind) = (OwnerId::new(text(row, 0)?).ok(), Kind::parse(&text(row, 1)?));
        // A later version may know other kinds.
        let known = owner.zip(kind);
        known.map(|(owner, kind)| Ok(Possession { owner, kind, name: text(row, 2)? })).transpose()
    };
    rows.iter().filter_map(|row| read(row).transpose()).collect()
}

/// The servers that have something of an owner.
pub(crate) async fn hosts_with(
    store: &dyn Store,
    owner: &OwnerId,
    kind: Kind,
) -> Result<Vec<String>, Problem> {
    let sql = "SELECT DISTINCT host FROM sandbox_possessions WHERE owner_id = ?1 AND kind = ?2 \
               ORDER BY host";
    let query = Statement::new(sql, vec![owner.as_str().into(), kind.as_str().into()]);
    let rows = store.query(query).await.map_err(store_problem)?;
    rows.iter().map(|row| text(row, 0)).collect()
}

fn text(row: &Row, column: usize) -> Result<String, Problem> {
    row.text(column).map(str::to_owned).map_err(store_problem)
}
