//! Values of the application as parameters and columns, and the form of parameters in SQL.

use std::error::Error as StdError;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::{Error, Result, Row, Value};

impl Value {
    /// The type that is sent to the server; without one, the server derives it from the statement.
    pub(super) fn postgres_type(&self) -> Type {
        match self {
            Self::Null => Type::UNKNOWN,
            Self::Integer(_) => Type::INT8,
            Self::Real(_) => Type::FLOAT8,
            Self::Text(_) => Type::TEXT,
            Self::Blob(_) => Type::BYTEA,
        }
    }
}

impl ToSql for Value {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Integer(number) => number.to_sql(kind, out),
            Self::Real(number) => number.to_sql(kind, out),
            Self::Text(text) => text.to_sql(kind, out),
            Self::Blob(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A column of any type that a row of the application can have.
struct Column(Value);

impl<'a> FromSql<'a> for Column {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(match *kind {
            Type::BOOL => Value::Integer(bool::from_sql(kind, raw)?.into()),
            Type::INT2 => Value::Integer(i16::from_sql(kind, raw)?.into()),
            Type::INT4 => Value::Integer(i32::from_sql(kind, raw)?.into()),
            Type::INT8 => Value::Integer(i64::from_sql(kind, raw)?),
            Type::FLOAT4 => Value::Real(f32::from_sql(kind, raw)?.into()),
            Type::FLOAT8 => Value::Real(f64::from_sql(kind, raw)?),
            Type::BYTEA => Value::Blob(Vec::from_sql(kind, raw)?),
            _ => Value::Text(String::from_sql(kind, raw)?),
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(Value::Null))
    }

    fn accepts(kind: &Type) -> bool {
        matches!(
            *kind,
            Type::BOOL
                | Type::INT2
                | Type::INT4
                | Type::INT8
                | Type::FLOAT4
                | Type::FLOAT8
                | Type::BYTEA
                | Type::TEXT
                | Type::VARCHAR
                | Type::NAME
                | Type::UNKNOWN
        )
    }
}

/// Reads a row.
pub(super) fn row(found: &tokio_postgres::Row) -> Result<Row> {
    let column = |index| {
        let value: std::result::Result<Column, _> = found.try_get(index);
        value.map(|column| column.0).map_err(|error| Error::invalid(error.to_string()))
    };
    Ok(Row::new((0..found.len()).map(column).collect::<Result<_>>()?))
}

/// Replaces `?1` by `$1`, except within quotes.
pub(super) fn numbered(sql: &str) -> String {
    let mut text = String::with_capacity(sql.len());
    let mut quote = None;
    let mut characters = sql.chars().peekable();
    while let Some(character) = characters.next() {
        match quote {
            Some(open) if open == character => quote = None,
            None if matches!(character, '\'' | '"') => quote = Some(character),
            _ => {}
        }
        let is_parameter = quote.is_none()
            && character == '?'
            && characters.peek().is_some_and(char::is_ascii_digit);
        text.push(if is_parameter { '$' } else { character });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered_outside_of_quotes() {
        let sql = "SELECT '?1', \"?2\", ?1 FROM t WHERE a = ?12 AND b = '\"' || ?2";
        let expected = "SELECT '?1', \"?2\", $1 FROM t WHERE a = $12 AND b = '\"' || $2";
        assert_eq!(numbered(sql), expected);
    }
}
