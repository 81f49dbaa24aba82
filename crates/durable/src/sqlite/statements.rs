//! The application's own statements.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};

use super::rows::storage_error;
use crate::{Channel, Result, Row, Statement, Value};

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Real(number) => ValueRef::Real(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Runs statements in the current transaction.
pub(super) fn execute(
    connection: &Connection,
    wakes: &mut Vec<Channel>,
    statements: &[Statement],
) -> Result<()> {
    for statement in statements {
        let mut prepared = connection.prepare_cached(statement.sql()).map_err(storage_error)?;
        let changed = prepared.execute(params_from_iter(statement.parameters()));
        let changed = changed.map_err(storage_error)? as u64;
        if statement.expected_rows().is_some_and(|expected| expected != changed) {
            return Err(statement.conflict(changed));
        }
        wakes.extend(statement.topics().iter().map(|topic| Channel::Topic(topic)));
    }
    Ok(())
}

/// Runs a query.
pub(super) fn query(connection: &Connection, statement: &Statement) -> Result<Vec<Row>> {
    let mut prepared = connection.prepare_cached(statement.sql()).map_err(storage_error)?;
    let columns = prepared.column_count();
    let mut rows =
        prepared.query(params_from_iter(statement.parameters())).map_err(storage_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(storage_error)? {
        let values =
            (0..columns).map(|index| Ok(value(row.get_ref(index).map_err(storage_error)?)));
        found.push(Row::new(values.collect::<Result<_>>()?));
    }
    Ok(found)
}

fn value(column: ValueRef<'_>) -> Value {
    match column {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_owned()),
    }
}
