//! The table `audit_starts`: the audit records of operations that have started, until they are in the
//! file of audit records. Each is committed together with the row of its operation.

use stockade_api::StartRecord;
use stockade_audit::{Actor, Decision, Entry, Phase};
use stockade_core::event::Reason;
use stockade_core::{Door, OwnerId, Problem};
use stockade_durable::{Statement, Store};

use super::json;
use super::sandboxes::SandboxRow;
use crate::failure::store_problem;

/// Stores a record, unless it is stored. The server with the id `host` moves it to its file.
pub(crate) fn insert(record: &StartRecord, host: &str) -> Statement {
    Statement::new(
        "INSERT INTO audit_starts (id, record, host) VALUES (?1, ?2, ?3) \
         ON CONFLICT (id) DO NOTHING",
        vec![record.id.as_str().into(), record.text.as_str().into(), host.into()],
    )
}

/// The records of a server after that number, the oldest first, each with its number.
pub(crate) async fn list(
    store: &dyn Store,
    host: &str,
    after: i64,
    limit: i64,
) -> Result<Vec<(i64, StartRecord)>, Problem> {
    let sql = "SELECT number, id, record FROM audit_starts WHERE number > ?1 AND host = ?3 \
               ORDER BY number LIMIT ?2";
    let rows =
        store.query(Statement::new(sql, vec![after.into(), limit.into(), host.into()])).await;
    rows.map_err(store_problem)?
        .iter()
        .map(|row| {
            let text = |index| row.text(index).map(str::to_owned).map_err(store_problem);
            let number = row.integer(0).map_err(store_problem)?;
            Ok((number, StartRecord { id: text(1)?, text: text(2)? }))
        })
        .collect()
}

/// Removes the records of a server up to that number.
pub(crate) fn remove(host: &str, up_to: i64) -> Statement {
    let sql = "DELETE FROM audit_starts WHERE number <= ?1 AND host = ?2";
    Statement::new(sql, vec![up_to.into(), host.into()])
}

/// The statement that records the login of a browser for a port of a sandbox of its owner. `site` is
/// the port's name in host names.
pub(crate) fn login(owner: &OwnerId, site: &str, host: &str) -> Statement {
    let actor = Actor {
        owner: Some(owner.clone()),
        uid: None,
        key_id: None,
        address: None,
        door: Door::Web,
        request_id: None,
    };
    let entry = Entry::new("login", actor).with("port", site);
    let entry = Entry { phase: Phase::Ended, decision: Decision::Allowed, ..entry };
    insert(&StartRecord { text: json(&entry), id: entry.id }, host)
}

/// The statement that records what the server `host` does to a sandbox without a request.
pub(crate) fn by_server(
    row: &SandboxRow,
    operation: &str,
    reason: Reason,
    host: &str,
) -> Statement {
    let actor = Actor {
        owner: Some(row.owner.clone()),
        uid: None,
        key_id: None,
        address: None,
        door: Door::Server,
        request_id: None,
    };
    let entry = Entry::new(operation, actor)
        .with("id", row.id.as_str())
        .with("because", reason.as_str())
        .with("bundle", row.bundle.as_deref());
    let entry = Entry { phase: Phase::Ended, decision: Decision::Allowed, ..entry };
    insert(&StartRecord { text: json(&entry), id: entry.id }, host)
}
