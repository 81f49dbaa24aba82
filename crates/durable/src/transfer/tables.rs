//! The tables of a store, as the database itself describes them: a table that a new migration adds is
//! copied without a change here.

use crate::schema::{APPLICATION_TABLE, ENGINE_TABLE};
use crate::{Error, Result, Statement, Store};

/// The table whose rows have an order that no column of SQLite shows: the order in which they were
/// created. On PostgreSQL this column has it.
const AGED: (&str, &str) = ("workflow_status", "number");

/// The columns of all tables, with their places in the primary key, from 1; 0 for the others.
const SQLITE: &str = "SELECT tables.name, columns.name, columns.pk \
    FROM sqlite_master AS tables JOIN pragma_table_info(tables.name) AS columns \
    WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite_%' \
    ORDER BY tables.name, columns.name";
/// The same for the schema of the connection.
const POSTGRES: &str = r#"SELECT (columns.table_name::text) COLLATE "C" AS table_name,
        (columns.column_name::text) COLLATE "C" AS column_name,
        COALESCE(keys.ordinal_position::bigint, 0)
    FROM information_schema.tables AS tables
    JOIN information_schema.columns AS columns
        ON columns.table_schema = tables.table_schema AND columns.table_name = tables.table_name
    LEFT JOIN information_schema.table_constraints AS constraints
        ON constraints.table_schema = tables.table_schema
        AND constraints.table_name = tables.table_name
        AND constraints.constraint_type = 'PRIMARY KEY'
    LEFT JOIN information_schema.key_column_usage AS keys
        ON keys.constraint_schema = constraints.constraint_schema
        AND keys.constraint_name = constraints.constraint_name
        AND keys.table_name = columns.table_name AND keys.column_name = columns.column_name
    WHERE tables.table_schema = current_schema() AND tables.table_type = 'BASE TABLE'
    ORDER BY 1, 2"#;

/// One table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) name: String,
    /// Its columns, sorted by their names.
    pub(super) columns: Vec<String>,
    /// The columns of its primary key, as places in `columns`.
    pub(super) key: Vec<usize>,
}

/// In which order rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// That of the primary key.
    Key,
    /// That in which they were created, where the store tells rows of the same age apart by it.
    Age,
}

impl Table {
    pub(super) fn quoted(&self) -> String {
        quoted(&self.name)
    }

    /// The column of the order of creation, on SQLite and on PostgreSQL.
    pub(super) fn age(&self, order: Order) -> Option<[String; 2]> {
        let is_aged = order == Order::Age && self.name == AGED.0;
        is_aged.then(|| ["rowid".to_owned(), quoted(AGED.1)])
    }
}

/// A name as SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The tables of a store, sorted by their names.
pub(super) async fn read(store: &dyn Store) -> Result<Vec<Table>> {
    let rows = store.query(Statement::new(SQLITE, Vec::new()).on_postgres(POSTGRES)).await?;
    let mut tables: Vec<(Table, Vec<(i64, usize)>)> = Vec::new();
    for row in &rows {
        let (name, column, place) = (row.text(0)?, row.text(1)?, row.integer(2)?);
        if [ENGINE_TABLE, APPLICATION_TABLE].contains(&name) || (name, column) == AGED {
            continue;
        }
        if tables.last().is_none_or(|(last, _)| last.name != name) {
            let table = Table { name: name.to_owned(), columns: Vec::new(), key: Vec::new() };
            tables.push((table, Vec::new()));
        }
        let Some((table, key)) = tables.last_mut() else { continue };
        if place > 0 {
            key.push((place, table.columns.len()));
        }
        table.columns.push(column.to_owned());
    }
    let finish = |(mut table, mut key): (Table, Vec<(i64, usize)>)| {
        key.sort_unstable();
        table.key = key.into_iter().map(|(_, column)| column).collect();
        if table.key.is_empty() {
            return Err(Error::invalid(format!("the table `{}` has no primary key", table.name)));
        }
        Ok(table)
    };
    tables.into_iter().map(finish).collect()
}
