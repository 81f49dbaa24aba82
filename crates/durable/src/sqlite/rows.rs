//! Conversions between rows and records: the meaning of SQLite's errors, and reading of columns.

use std::path::PathBuf;

use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, ErrorCode, Row, ToSql};

use crate::{Error, Failure, Json, Result, Status, WorkflowId, WorkflowInfo};

/// Converts an error of SQLite.
#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
pub(super) fn storage_error(error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::StorageFull,
        Some(ErrorCode::ConstraintViolation) => Error::Conflict { what: error.to_string() },
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Error::CorruptDatabase { path: PathBuf::new(), detail: error.to_string() }
        }
        // The input is wrong: invalid SQL, or values that do not fit.
        Some(
            ErrorCode::Unknown
            | ErrorCode::TypeMismatch
            | ErrorCode::TooBig
            | ErrorCode::ParameterOutOfRange
            | ErrorCode::ReadOnly,
        )
        | None => Error::invalid(error.to_string()),
        _ => Error::Storage { message: error.to_string() },
    }
}

/// Adds the path of the file to an error about damage.
pub(super) fn classify_error(connection: &Connection, error: Error) -> Error {
    match error {
        Error::CorruptDatabase { path, detail } if path.as_os_str().is_empty() => {
            let path = connection.path().map(PathBuf::from).unwrap_or_default();
            Error::CorruptDatabase { path, detail }
        }
        error => error,
    }
}

/// The columns of [`info`], in its order.
pub(super) const INFO: &str = "workflow_uuid, name, status, inputs, output, error, \
    authenticated_user, queue_name, deduplication_id, priority, executor_id, \
    application_version, recovery_attempts, parent_workflow_id, created_at, updated_at, \
    started_at_epoch_ms, completed_at, workflow_deadline_epoch_ms, place";

/// Reads the columns of [`INFO`].
pub(super) fn info(row: &Row<'_>) -> Result<WorkflowInfo> {
    let column = Columns(row);
    Ok(WorkflowInfo {
        id: id(column.get(0)?)?,
        name: column.get(1)?,
        status: status(column.get(2)?)?,
        input: json(column.get(3)?)?,
        output: column.get::<Option<&str>>(4)?.map(json).transpose()?,
        failure: column.get::<Option<&str>>(5)?.map(failure).transpose()?,
        owner: column.get(6)?,
        queue: column.get(7)?,
        deduplication_id: column.get(8)?,
        priority: column.get(9)?,
        executor_id: column.get(10)?,
        application_version: column.get(11)?,
        recovery_attempts: column.get(12)?,
        parent: column.get::<Option<String>>(13)?.map(id).transpose()?,
        created_at: column.get(14)?,
        updated_at: column.get(15)?,
        started_at: column.get(16)?,
        completed_at: column.get(17)?,
        deadline: column.get(18)?,
        place: column.get(19)?,
    })
}

struct Columns<'a>(&'a Row<'a>);

impl<'a> Columns<'a> {
    fn get<T: FromColumn<'a>>(&self, index: usize) -> Result<T> {
        T::from_column(self.0, index).map_err(storage_error)
    }
}

/// A type that a column can be read as; text can be borrowed, which `Row::get` does not support.
trait FromColumn<'a>: Sized {
    fn from_column(row: &'a Row<'_>, index: usize) -> rusqlite::Result<Self>;
}

macro_rules! owned_columns {
    ($($type:ty),+) => {$(
        impl FromColumn<'_> for $type {
            fn from_column(row: &Row<'_>, index: usize) -> rusqlite::Result<Self> {
                row.get(index)
            }
        }
    )+};
}
owned_columns!(String, Option<String>, i64, Option<i64>, i32);

impl<'a> FromColumn<'a> for &'a str {
    fn from_column(row: &'a Row<'_>, index: usize) -> rusqlite::Result<Self> {
        Ok(row.get_ref(index)?.as_str()?)
    }
}

impl<'a> FromColumn<'a> for Option<&'a str> {
    fn from_column(row: &'a Row<'_>, index: usize) -> rusqlite::Result<Self> {
        Ok(row.get_ref(index)?.as_str_or_null()?)
    }
}

impl ToSql for WorkflowId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.as_str().into())
    }
}

pub(super) fn id(text: String) -> Result<WorkflowId> {
    Ok(WorkflowId::new(text)?)
}

pub(super) fn status(word: &str) -> Result<Status> {
    let unknown = || Error::Storage { message: format!("{word:?} is not a status") };
    Status::parse(word).ok_or_else(unknown)
}

pub(super) fn json(text: &str) -> Result<Json> {
    Ok(serde_json::from_str(text)?)
}

pub(super) fn failure(text: &str) -> Result<Failure> {
    Ok(serde_json::from_str(text)?)
}

pub(super) fn failure_text(failure: &Failure) -> Result<String> {
    Ok(serde_json::to_string(failure)?)
}
