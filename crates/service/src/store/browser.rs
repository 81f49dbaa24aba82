//! The tables `browser_codes` and `browser_sessions`. Codes and sessions are stored as hashes. A code
//! that was used stays until it would have expired, with the session that it gave.

use stockade_core::{Code, OwnerId, Problem};
use stockade_durable::{Row, Statement, Store};

use crate::failure::store_problem;

/// A code or a session.
#[derive(Debug, Clone)]
pub(crate) struct BrowserRow {
    /// The port's name in host names.
    pub(crate) site: String,
    pub(crate) owner: OwnerId,
    /// A later sandbox may have the same id.
    pub(crate) sandbox_created_at: i64,
    pub(crate) expires_at: i64,
}

/// A code.
#[derive(Debug, Clone)]
pub(crate) struct CodeRow {
    pub(crate) row: BrowserRow,
    pub(crate) challenge: Option<String>,
    /// The session for which it was exchanged.
    pub(crate) session_hash: Option<String>,
}

/// Adds a code.
pub(crate) fn insert_code(hash: &str, row: &BrowserRow, challenge: Option<&str>) -> Statement {
    Statement::new(
        "INSERT INTO browser_codes (hash, site, owner_id, sandbox_created_at, challenge, \
         expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        vec![
            hash.into(),
            row.site.as_str().into(),
            row.owner.as_str().into(),
            row.sandbox_created_at.into(),
            challenge.into(),
            row.expires_at.into(),
        ],
    )
}

/// Uses a code; fails if it was used or has expired.
pub(crate) fn use_code(hash: &str, session_hash: &str, now_ms: i64) -> Statement {
    Statement::new(
        "UPDATE browser_codes SET session_hash = ?2 \
         WHERE hash = ?1 AND session_hash IS NULL AND expires_at > ?3",
        vec![hash.into(), session_hash.into(), now_ms.into()],
    )
    .expecting(1)
}

/// Adds a session.
pub(crate) fn insert_session(hash: &str, row: &BrowserRow) -> Statement {
    Statement::new(
        "INSERT INTO browser_sessions (hash, site, owner_id, sandbox_created_at, expires_at) \
         VALUES (?1, ?2, ?3, ?4, ?5)",
        vec![
            hash.into(),
            row.site.as_str().into(),
            row.owner.as_str().into(),
            row.sandbox_created_at.into(),
            row.expires_at.into(),
        ],
    )
}

/// Ends a session.
pub(crate) fn remove_session(hash: &str) -> Statement {
    Statement::new("DELETE FROM browser_sessions WHERE hash = ?1", vec![hash.into()])
}

/// Removes what has expired.
pub(crate) fn remove_expired(now_ms: i64) -> Vec<Statement> {
    // What is sent again ends the session that it gave, also some time after it has expired.
    let codes = "DELETE FROM browser_codes WHERE expires_at <= ?1 - 3600000";
    let sessions = "DELETE FROM browser_sessions WHERE expires_at <= ?1";
    [codes, sessions].map(|sql| Statement::new(sql, vec![now_ms.into()])).into()
}

/// The code with this hash, also one that was used or has expired.
pub(crate) async fn find_code(store: &dyn Store, hash: &str) -> Result<Option<CodeRow>, Problem> {
    let sql = "SELECT site, owner_id, sandbox_created_at, expires_at, challenge, session_hash \
               FROM browser_codes WHERE hash = ?1";
    let rows = store.query(Statement::new(sql, vec![hash.into()])).await.map_err(store_problem)?;
    let Some(row) = rows.first() else { return Ok(None) };
    let text = |index| row.optional_text(index).map(|text| text.map(str::to_owned));
    Ok(Some(CodeRow {
        row: read(row)?,
        challenge: text(4).map_err(store_problem)?,
        session_hash: text(5).map_err(store_problem)?,
    }))
}

/// The session with this hash, if it has not expired.
pub(crate) async fn find_session(
    store: &dyn Store,
    hash: &str,
    now_ms: i64,
) -> Result<Option<BrowserRow>, Problem> {
    let sql = "SELECT site, owner_id, sandbox_created_at, expires_at \
               FROM browser_sessions WHERE hash = ?1 AND expires_at > ?2";
    let statement = Statement::new(sql, vec![hash.into(), now_ms.into()]);
    let rows = store.query(statement).await.map_err(store_problem)?;
    rows.first().map(read).transpose()
}

fn read(row: &Row) -> Result<BrowserRow, Problem> {
    let damaged = |_| Problem::new(Code::DatabaseInvalid, "a browser's record cannot be read");
    Ok(BrowserRow {
        site: row.text(0).map_err(store_problem)?.to_owned(),
        owner: OwnerId::new(row.text(1).map_err(store_problem)?).map_err(damaged)?,
        sandbox_created_at: row.integer(2).map_err(store_problem)?,
        expires_at: row.integer(3).map_err(store_problem)?,
    })
}
