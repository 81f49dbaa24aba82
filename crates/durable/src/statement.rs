//! Rows of the application: statements in portable SQL (`?1` parameters; text, whole numbers,
//! numbers and bytes as columns) that are committed together with the engine's records, and the rows
//! that they return.

use std::borrow::Cow;

use crate::{Error, Result};

/// A value of a parameter or of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// A number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// One statement of the application.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    pub(crate) sql: Cow<'static, str>,
    pub(crate) postgres: Option<Cow<'static, str>>,
    pub(crate) parameters: Vec<Value>,
    pub(crate) expected_rows: Option<u64>,
    pub(crate) topics: Vec<&'static str>,
    pub(crate) is_notified: bool,
}

impl Statement {
    /// A statement; `?1` is the first parameter.
    pub fn new(sql: impl Into<Cow<'static, str>>, parameters: Vec<Value>) -> Self {
        let sql = sql.into();
        Self {
            sql,
            postgres: None,
            parameters,
            expected_rows: None,
            topics: Vec::new(),
            is_notified: false,
        }
    }

    /// The same, with this text on PostgreSQL, for what the two databases write differently.
    #[must_use]
    pub fn on_postgres(mut self, sql: impl Into<Cow<'static, str>>) -> Self {
        self.postgres = Some(sql.into());
        self
    }

    /// The same, which must change that many rows: else its commit is rolled back and fails with
    /// [`Error::Conflict`].
    #[must_use]
    pub fn expecting(mut self, rows: u64) -> Self {
        self.expected_rows = Some(rows);
        self
    }

    /// The same, which wakes the subscribers of the topic in all processes once it is committed. That costs
    /// something for each process: it is for what few statements do.
    #[must_use]
    pub fn notifying(mut self, topic: &'static str) -> Self {
        self.topics.push(topic);
        self.is_notified = true;
        self
    }

    /// The same, which wakes the subscribers of the topic in this process once it is committed. Those of other
    /// processes read the rows from time to time.
    #[must_use]
    pub fn waking(mut self, topic: &'static str) -> Self {
        self.topics.push(topic);
        self
    }

    /// The text of the statement.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Its text on PostgreSQL.
    pub fn postgres_sql(&self) -> &str {
        self.postgres.as_deref().unwrap_or(&self.sql)
    }

    /// Its parameters.
    pub fn parameters(&self) -> &[Value] {
        &self.parameters
    }

    /// How many rows it must change, where that is set.
    pub fn expected_rows(&self) -> Option<u64> {
        self.expected_rows
    }

    /// The topics whose subscribers it wakes.
    pub fn topics(&self) -> &[&'static str] {
        &self.topics
    }

    /// Whether it wakes those of other processes, too.
    pub const fn is_notified(&self) -> bool {
        self.is_notified
    }

    /// The error for a statement that changed another number of rows than it must.
    pub fn conflict(&self, changed: u64) -> Error {
        let expected = self.expected_rows.unwrap_or_default();
        let verb = self.sql.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
        Error::Conflict { what: format!("`{verb} …` changed {changed} rows, not {expected}") }
    }
}

/// One row of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Row(Vec<Value>);

impl Row {
    /// A row with these columns.
    pub fn new(columns: Vec<Value>) -> Self {
        Self(columns)
    }

    /// The column at an index, from 0.
    pub fn get(&self, index: usize) -> Result<&Value> {
        let columns = self.0.len();
        let missing = || Error::invalid(format!("column {index} of a row of {columns}"));
        self.0.get(index).ok_or_else(missing)
    }

    /// Text; null is an error.
    pub fn text(&self, index: usize) -> Result<&str> {
        self.optional_text(index)?.ok_or_else(|| null_error(index))
    }

    /// A whole number; null is an error.
    pub fn integer(&self, index: usize) -> Result<i64> {
        self.optional_integer(index)?.ok_or_else(|| null_error(index))
    }

    /// A number; null is an error.
    pub fn real(&self, index: usize) -> Result<f64> {
        self.optional_real(index)?.ok_or_else(|| null_error(index))
    }

    /// Bytes; null is an error.
    pub fn blob(&self, index: usize) -> Result<&[u8]> {
        self.optional_blob(index)?.ok_or_else(|| null_error(index))
    }

    /// Whether the whole number is not 0.
    pub fn boolean(&self, index: usize) -> Result<bool> {
        Ok(self.integer(index)? != 0)
    }

    /// Text or null.
    pub fn optional_text(&self, index: usize) -> Result<Option<&str>> {
        match self.get(index)? {
            Value::Null => Ok(None),
            Value::Text(text) => Ok(Some(text)),
            other => Err(type_error(index, "text", other)),
        }
    }

    /// A whole number or null.
    pub fn optional_integer(&self, index: usize) -> Result<Option<i64>> {
        match self.get(index)? {
            Value::Null => Ok(None),
            Value::Integer(number) => Ok(Some(*number)),
            other => Err(type_error(index, "a whole number", other)),
        }
    }

    /// A number or null.
    pub fn optional_real(&self, index: usize) -> Result<Option<f64>> {
        match self.get(index)? {
            Value::Null => Ok(None),
            Value::Real(number) => Ok(Some(*number)),
            other => Err(type_error(index, "a number", other)),
        }
    }

    /// Bytes or null.
    pub fn optional_blob(&self, index: usize) -> Result<Option<&[u8]>> {
        match self.get(index)? {
            Value::Null => Ok(None),
            Value::Blob(bytes) => Ok(Some(bytes)),
            other => Err(type_error(index, "bytes", other)),
        }
    }
}

fn null_error(index: usize) -> Error {
    Error::invalid(format!("column {index} is null"))
}

fn type_error(index: usize, expected: &str, found: &Value) -> Error {
    let found = match found {
        Value::Null => "null",
        Value::Integer(_) => "a whole number",
        Value::Real(_) => "a number",
        Value::Text(_) => "text",
        Value::Blob(_) => "bytes",
    };
    Error::invalid(format!("column {index} is {found}, not {expected}"))
}

/// One change of the application's own schema. Migrations are applied in order when the store is
/// opened, each in its own transaction, and never change once released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Its position in the order, from 1.
    pub number: u32,
    /// Its description; must stay the same.
    pub name: &'static str,
    /// Its statements, as SQLite understands them.
    pub sql: &'static str,
    /// The same change, as PostgreSQL understands it.
    pub postgres: &'static str,
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Integer(i64::from(number))
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Integer(i64::from(truth))
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Blob(bytes)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl TryFrom<u64> for Value {
    type Error = Error;

    /// Numbers larger than a column can store are refused.
    fn try_from(number: u64) -> Result<Self> {
        let too_large = |_| Error::invalid(format!("{number} is too large for a column"));
        i64::try_from(number).map(Self::Integer).map_err(too_large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_by_type() {
        let row = Row::new(vec!["a".into(), 1_i64.into(), None::<i64>.into(), true.into()]);
        assert_eq!(row.text(0).unwrap(), "a");
        assert_eq!(row.integer(1).unwrap(), 1);
        assert_eq!(row.optional_integer(2).unwrap(), None);
        assert!(row.boolean(3).unwrap());
        for wrong in [row.text(1).unwrap_err(), row.text(2).unwrap_err(), row.text(9).unwrap_err()]
        {
            assert!(matches!(wrong, Error::Invalid { .. }), "{wrong}");
        }
        assert!(Value::try_from(u64::MAX).is_err());
    }
}
