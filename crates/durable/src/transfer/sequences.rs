//! The numbers that a store gives to new rows: they continue after a copy, also where the rows with
//! the last numbers were removed, because a number is never given twice.

use crate::{Error, Result, Statement, Store};

/// The tables whose rows have such numbers, with the last number of each.
const SQLITE: &str = "SELECT name, seq FROM sqlite_sequence WHERE seq > 0 ORDER BY name";
/// The same; the order of creation of workflows is no number of a row, and is not copied.
const POSTGRES: &str = r#"SELECT (table_name::text) COLLATE "C", last FROM (
        SELECT table_name, pg_sequence_last_value(pg_get_serial_sequence(
            quote_ident(table_name::text), column_name::text)::regclass) AS last
        FROM information_schema.columns
        WHERE table_schema = current_schema() AND is_identity = 'YES'
            AND table_name <> 'workflow_status'
    ) AS sequences WHERE last > 0 ORDER BY 1"#;

const SET_ON_POSTGRES: &str = "SELECT setval(pg_get_serial_sequence(quote_ident(?1), \
    (SELECT column_name::text FROM information_schema.columns \
        WHERE table_schema = current_schema() AND is_identity = 'YES' AND table_name = ?1)), ?2)";

/// The tables with the last numbers that were given.
type Numbers = Vec<(String, i64)>;

/// Lets `to` continue with the numbers of `from`.
pub(super) async fn copy(from: &dyn Store, to: &dyn Store) -> Result<()> {
    let numbers = read(from).await?;
    let is_postgres = is_postgres(to).await?;
    let mut statements = Vec::new();
    for (table, last) in &numbers {
        let parameters = || vec![table.as_str().into(), (*last).into()];
        if is_postgres {
            statements.push(Statement::new(SET_ON_POSTGRES, parameters()));
            continue;
        }
        // SQLite has a row for each table that ever had one, and no constraint that says so.
        let delete = "DELETE FROM sqlite_sequence WHERE name = ?1";
        statements.push(Statement::new(delete, vec![table.as_str().into()]));
        let insert = "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)";
        statements.push(Statement::new(insert, parameters()));
    }
    to.execute(statements).await?;
    if read(to).await? == numbers {
        return Ok(());
    }
    Err(Error::Conflict { what: "the numbers of new rows differ after the copy".to_owned() })
}

async fn read(store: &dyn Store) -> Result<Numbers> {
    let rows = store.query(Statement::new(SQLITE, Vec::new()).on_postgres(POSTGRES)).await?;
    rows.iter().map(|row| Ok((row.text(0)?.to_owned(), row.integer(1)?))).collect()
}

async fn is_postgres(store: &dyn Store) -> Result<bool> {
    let rows = store.query(Statement::new("SELECT 0", Vec::new()).on_postgres("SELECT 1")).await?;
    rows.first().map_or(Ok(false), |row| row.boolean(0))
}
