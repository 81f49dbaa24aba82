//! The table `sandbox_hosts`: the servers that use the database, each with the address at which the others
//! reach it. Whether one is alive is the lease of its executor.

use stockade_core::{OwnerId, Problem};
use stockade_durable::{Row, Statement, Store};

use crate::clock::now_ms;
use crate::failure::store_problem;

/// A row of `sandbox_hosts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostRow {
    pub(crate) id: String,
    /// Its URL for the other servers.
    pub(crate) address: String,
    /// Whether it holds sandboxes, so that it can be asked to create one.
    pub(crate) holds_sandboxes: bool,
    /// The version of the program.
    pub(crate) version: String,
    /// Since when its sandboxes are given up, because it does not answer.
    pub(crate) lost_at: Option<i64>,
}

const COLUMNS: &str = "id, address, holds_sandboxes, version, lost_at";

/// Records a server, which is there from now on.
pub(crate) fn announce(host: &HostRow) -> Statement {
    Statement::new(
        "INSERT INTO sandbox_hosts (id, address, holds_sandboxes, version, announced_at, lost_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, NULL) ON CONFLICT (id) DO UPDATE SET \
         address = excluded.address, holds_sandboxes = excluded.holds_sandboxes, \
         version = excluded.version, announced_at = excluded.announced_at, lost_at = NULL",
        vec![
            host.id.as_str().into(),
            host.address.as_str().into(),
            i64::from(host.holds_sandboxes).into(),
            host.version.as_str().into(),
            now_ms().into(),
        ],
    )
}

/// Records that a server takes no new sandboxes, because it is about to end.
pub(crate) fn withdraw(id: &str) -> Statement {
    Statement::new("UPDATE sandbox_hosts SET holds_sandboxes = 0 WHERE id = ?1", vec![id.into()])
}

/// Records that the sandboxes of a server are given up; a conflict if they were before.
pub(crate) fn give_up(id: &str) -> Statement {
    let sql = "UPDATE sandbox_hosts SET lost_at = ?2 WHERE id = ?1 AND lost_at IS NULL";
    Statement::new(sql, vec![id.into(), now_ms().into()]).expecting(1)
}

/// Changes nothing; a conflict unless the server is given up.
pub(crate) fn expect_given_up(id: &str) -> Statement {
    let sql = "UPDATE sandbox_hosts SET lost_at = lost_at WHERE id = ?1 AND lost_at IS NOT NULL";
    Statement::new(sql, vec![id.into()]).expecting(1)
}

/// All servers.
pub(crate) async fn list(store: &dyn Store) -> Result<Vec<HostRow>, Problem> {
    let sql = format!("SELECT {COLUMNS} FROM sandbox_hosts ORDER BY id");
    let rows = store.query(Statement::new(sql, vec![])).await.map_err(store_problem)?;
    rows.iter().map(read).collect()
}

/// A server.
pub(crate) async fn find(store: &dyn Store, id: &str) -> Result<Option<HostRow>, Problem> {
    let sql = format!("SELECT {COLUMNS} FROM sandbox_hosts WHERE id = ?1");
    let rows = store.query(Statement::new(sql, vec![id.into()])).await.map_err(store_problem)?;
    rows.first().map(read).transpose()
}

/// The server that holds a sandbox of an owner.
pub(crate) async fn of_sandbox(
    store: &dyn Store,
    id: &str,
    owner: &OwnerId,
) -> Result<Option<String>, Problem> {
    let sql = "SELECT host FROM sandbox_instances WHERE id = ?1 AND owner_id = ?2";
    first(store, Statement::new(sql, vec![id.into(), owner.as_str().into()])).await
}

/// The server that holds a sandbox of anyone.
pub(crate) async fn holder_of(store: &dyn Store, id: &str) -> Result<Option<String>, Problem> {
    let sql = "SELECT host FROM sandbox_instances WHERE id = ?1";
    first(store, Statement::new(sql, vec![id.into()])).await
}

/// The server that holds a snapshot of an owner: that of its sandbox.
pub(crate) async fn of_snapshot(
    store: &dyn Store,
    id: &str,
    owner: &OwnerId,
) -> Result<Option<String>, Problem> {
    let sql = "SELECT host FROM sandbox_instances WHERE id = (SELECT sandbox_id \
               FROM sandbox_snapshots WHERE id = ?1 AND owner_id = ?2)";
    first(store, Statement::new(sql, vec![id.into(), owner.as_str().into()])).await
}

async fn first(store: &dyn Store, query: Statement) -> Result<Option<String>, Problem> {
    let rows = store.query(query).await.map_err(store_problem)?;
    rows.first().map(|row| row.text(0).map(str::to_owned).map_err(store_problem)).transpose()
}

/// How many sandboxes each server has that are not terminated.
pub(crate) async fn loads(store: &dyn Store) -> Result<Vec<(String, i64)>, Problem> {
    let sql = "SELECT host, count(*) FROM sandbox_instances WHERE status <> 'terminated' \
               GROUP BY host";
    let rows = store.query(Statement::new(sql, vec![])).await.map_err(store_problem)?;
    let load = |row: &Row| {
        let host = row.text(0).map_err(store_problem)?.to_owned();
        Ok((host, row.integer(1).map_err(store_problem)?))
    };
    rows.iter().map(load).collect()
}

fn read(row: &Row) -> Result<HostRow, Problem> {
    let text = |index| row.text(index).map(str::to_owned).map_err(store_problem);
    Ok(HostRow {
        id: text(0)?,
        address: text(1)?,
        holds_sandboxes: row.boolean(2).map_err(store_problem)?,
        version: text(3)?,
        lost_at: row.optional_integer(4).map_err(store_problem)?,
    })
}
