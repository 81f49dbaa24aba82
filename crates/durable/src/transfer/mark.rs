//! A mark in a database, with a random name: the command that knows the name has copied what is there. It is
//! a view, so that the tables stay those of every store.

use super::tables::quoted;
use crate::{Error, Result, Statement, Store};

const PREFIX: &str = "copy_";
const SQLITE: &str = "SELECT 1 FROM sqlite_master WHERE type = 'view' AND name = ?1";
const POSTGRES: &str = "SELECT 1 FROM information_schema.views \
    WHERE table_schema = current_schema() AND table_name = ?1";

/// Marks a store.
///
/// # Errors
/// [`Error::Invalid`] if the mark has other characters than letters and digits, or is too long for a name.
pub async fn mark(store: &dyn Store, mark: &str) -> Result<()> {
    let sql = format!("CREATE VIEW {} AS SELECT 1 AS copied", name(mark)?);
    store.execute(vec![Statement::new(sql, Vec::new())]).await
}

/// Whether a store has a mark.
///
/// # Errors
/// As [`mark`].
pub async fn is_marked(store: &dyn Store, mark: &str) -> Result<bool> {
    name(mark)?;
    let parameters = vec![format!("{PREFIX}{mark}").as_str().into()];
    let statement = Statement::new(SQLITE, parameters).on_postgres(POSTGRES);
    Ok(!store.query(statement).await?.is_empty())
}

/// Removes a mark, which the store may not have.
///
/// # Errors
/// As [`mark`].
pub async fn remove_mark(store: &dyn Store, mark: &str) -> Result<()> {
    let sql = format!("DROP VIEW IF EXISTS {}", name(mark)?);
    store.execute(vec![Statement::new(sql, Vec::new())]).await
}

/// The name of the view.
fn name(mark: &str) -> Result<String> {
    let is_name = (1..=40).contains(&mark.len()) && mark.bytes().all(|b| b.is_ascii_alphanumeric());
    if !is_name {
        return Err(Error::invalid(format!("`{mark}` is no mark")));
    }
    Ok(quoted(&format!("{PREFIX}{mark}")))
}
