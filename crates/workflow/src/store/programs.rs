//! The table `run_programs`: programs by their hashes, as JSON. The engine defines their content.

use stockade_durable::{Statement, Store};

use super::columns::Result;

/// The program with this hash.
pub(crate) async fn find(store: &dyn Store, hash: &str) -> Result<Option<String>> {
    let sql = "SELECT sources FROM run_programs WHERE hash = ?1";
    let rows = store.query(Statement::new(sql, vec![hash.into()])).await?;
    rows.first().map(|row| Ok(row.text(0)?.to_owned())).transpose()
}

/// Inserts a program, unless it exists.
pub(crate) fn insert(hash: &str, program: String) -> Statement {
    let sql = "INSERT INTO run_programs VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    Statement::new(sql, vec![hash.into(), program.into()])
}
