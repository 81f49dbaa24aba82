//! Copies all records of one store into another one, of the same or of the other kind, and says what
//! a store contains, so that both can be compared. The rows of the application are copied as those of
//! the engine are; only which migrations were applied is not copied, because each store has its own.
//!
//! Nobody may write to either store meanwhile: the caller has both to itself.
//!
//! `tables` finds the tables of a store, `rows` reads and writes their rows, `sequences` the numbers
//! that a store gives next; `mark` says who has copied what is there.

mod mark;
mod rows;
mod sequences;
mod tables;

pub use mark::{is_marked, mark, remove_mark};

use crate::{Error, Result, Statement, Store};
use tables::{Order, Table};

/// What a table contains: the same rows have the same hash in each kind of store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableContent {
    /// The table.
    pub table: String,
    /// The number of its rows.
    pub rows: u64,
    /// SHA-256 over all values of its rows in the order of the primary key, in hexadecimal digits.
    pub sha256: String,
}

/// Copies all rows of `from` into `to`, which must be empty, and compares both afterwards. Returns
/// what both contain. If that fails, `to` is empty again, as far as it can be written.
///
/// # Errors
/// [`Error::Conflict`] if `to` has rows, or the copy differs; [`Error::Invalid`] if the stores have
/// different tables, or a value that `to` cannot store.
pub async fn copy(from: &dyn Store, to: &dyn Store) -> Result<Vec<TableContent>> {
    let tables = tables::read(from).await?;
    if tables != tables::read(to).await? {
        return Err(Error::invalid("the two databases do not have the same tables"));
    }
    if let Some(filled) = first_filled(to, &tables).await? {
        let what = format!("the table `{filled}` of the database to be written has rows");
        return Err(Error::Conflict { what });
    }
    let copied = copy_tables(from, to, &tables).await;
    if copied.is_err() {
        // The first error is the one to report.
        let _ = clear_tables(to, &tables).await;
    }
    copied
}

/// What all tables of a store contain, sorted by their names.
pub async fn contents(store: &dyn Store) -> Result<Vec<TableContent>> {
    contents_of(store, &tables::read(store).await?).await
}

/// Removes all rows.
pub async fn clear(store: &dyn Store) -> Result<()> {
    clear_tables(store, &tables::read(store).await?).await
}

/// Whether a store has no row.
pub async fn is_empty(store: &dyn Store) -> Result<bool> {
    Ok(first_filled(store, &tables::read(store).await?).await?.is_none())
}

async fn copy_tables(
    from: &dyn Store,
    to: &dyn Store,
    tables: &[Table],
) -> Result<Vec<TableContent>> {
    for table in tables {
        let mut pages = rows::Pages::new(table, Order::Age);
        while let Some(page) = pages.next(from).await? {
            let inserts = page.into_iter().map(|row| rows::insert(table, row)).collect();
            to.execute(inserts).await.map_err(|error| in_table(table, error))?;
        }
    }
    sequences::copy(from, to).await?;
    let (old, new) = (contents_of(from, tables).await?, contents_of(to, tables).await?);
    match old.iter().zip(&new).find(|(old, new)| old != new) {
        None => Ok(new),
        Some((old, new)) => Err(Error::Conflict {
            what: format!(
                "the copy of the table `{}` has {} rows with the hash {}, and the original {} with {}",
                old.table, new.rows, new.sha256, old.rows, old.sha256
            ),
        }),
    }
}

async fn contents_of(store: &dyn Store, tables: &[Table]) -> Result<Vec<TableContent>> {
    let mut contents = Vec::with_capacity(tables.len());
    for table in tables {
        let mut digest = rows::Digest::default();
        let mut pages = rows::Pages::new(table, Order::Key);
        while let Some(page) = pages.next(store).await? {
            page.iter().for_each(|row| digest.add(row));
        }
        let (rows, sha256) = digest.finish();
        contents.push(TableContent { table: table.name.clone(), rows, sha256 });
    }
    Ok(contents)
}

async fn clear_tables(store: &dyn Store, tables: &[Table]) -> Result<()> {
    let delete = |table: &Table| Statement::new(format!("DELETE FROM {}", table.quoted()), vec![]);
    store.execute(tables.iter().map(delete).collect()).await
}

/// A table that has rows.
async fn first_filled(store: &dyn Store, tables: &[Table]) -> Result<Option<String>> {
    for table in tables {
        let sql = format!("SELECT 1 FROM {} LIMIT 1", table.quoted());
        if !store.query(Statement::new(sql, Vec::new())).await?.is_empty() {
            return Ok(Some(table.name.clone()));
        }
    }
    Ok(None)
}

fn in_table(table: &Table, error: Error) -> Error {
    match error {
        Error::Invalid { what } => {
            Error::Invalid { what: format!("a row of the table `{}`: {what}", table.name) }
        }
        error => error,
    }
}
