//! Applies and reads numbered migrations.

use rusqlite::{Connection, params};

use super::rows::storage_error;
use crate::sync::now_ms;
use crate::{Migration, Result};

/// Applies the missing migrations of a list and records each; the caller provides the transaction.
pub(super) fn migrate(
    connection: &Connection,
    table: &'static str,
    migrations: &[Migration],
) -> Result<()> {
    let create = format!(
        "CREATE TABLE IF NOT EXISTS {table} \
         (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT"
    );
    connection.execute_batch(&create).map_err(storage_error)?;
    let applied = applied(connection, table)?.len();
    for Migration { number, name, sql, .. } in migrations.iter().skip(applied) {
        connection.execute_batch(sql).map_err(storage_error)?;
        let note = format!("INSERT INTO {table} VALUES (?1, ?2, ?3)");
        connection.execute(&note, params![number, name, now_ms()]).map_err(storage_error)?;
    }
    Ok(())
}

/// The applied migrations of a list, in order; empty when the table does not exist yet.
pub(super) fn applied(connection: &Connection, table: &str) -> Result<Vec<(u32, String)>> {
    if !connection.table_exists(None, table).map_err(storage_error)? {
        return Ok(Vec::new());
    }
    let sql = format!("SELECT number, name FROM {table} ORDER BY number");
    let mut statement = connection.prepare(&sql).map_err(storage_error)?;
    let rows =
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(storage_error)?;
    rows.collect::<rusqlite::Result<_>>().map_err(storage_error)
}
