//! Converts values that are not column types of a database to columns and back.

use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use stockade_durable::{Error, Row, Value};

pub(super) type Result<T> = std::result::Result<T, Error>;

/// JSON as a column value.
pub(super) fn json(value: &Json) -> Value {
    Value::Text(value.to_string())
}

/// JSON or null.
pub(super) fn optional_json(value: Option<&Json>) -> Value {
    value.map_or(Value::Null, json)
}

/// The JSON of a column.
pub(super) fn read_json<T: DeserializeOwned>(row: &Row, column: usize) -> Result<T> {
    Ok(serde_json::from_str(row.text(column)?)?)
}

/// The JSON of a column; null is `None`.
pub(super) fn read_optional_json<T: DeserializeOwned>(
    row: &Row,
    column: usize,
) -> Result<Option<T>> {
    Ok(row.optional_text(column)?.map(serde_json::from_str).transpose()?)
}

/// The text of a column; null is `None`.
pub(super) fn read_optional_text(row: &Row, column: usize) -> Result<Option<String>> {
    Ok(row.optional_text(column)?.map(str::to_owned))
}

/// A number that was written from a `u32`.
pub(super) fn read_count(row: &Row, column: usize) -> Result<u32> {
    Ok(u32::try_from(row.integer(column)?).unwrap_or(u32::MAX))
}

/// The error for a word that is not a variant of an enum.
pub(super) fn unknown_value(what: &str, value: &str) -> Error {
    Error::Json { message: format!("{value:?} is not a {what}") }
}
