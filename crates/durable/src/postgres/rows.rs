//! Conversions between rows and records.

use crate::{Error, Failure, Json, Result, Row, Status, WorkflowId, WorkflowInfo};

/// The columns of [`info`], in its order.
pub(super) const INFO: &str = "workflow_uuid, name, status, inputs, output, error, \
    authenticated_user, queue_name, deduplication_id, priority, executor_id, \
    application_version, recovery_attempts, parent_workflow_id, created_at, updated_at, \
    started_at_epoch_ms, completed_at, workflow_deadline_epoch_ms, place";

/// Reads the columns of [`INFO`].
pub(super) fn info(row: &Row) -> Result<WorkflowInfo> {
    let text = |index| Ok::<_, Error>(row.optional_text(index)?.map(str::to_owned));
    Ok(WorkflowInfo {
        id: id(row.text(0)?)?,
        name: row.text(1)?.to_owned(),
        status: status(row.text(2)?)?,
        input: json(row.text(3)?)?,
        output: row.optional_text(4)?.map(json).transpose()?,
        failure: row.optional_text(5)?.map(failure).transpose()?,
        owner: text(6)?,
        queue: text(7)?,
        deduplication_id: text(8)?,
        priority: i32::try_from(row.integer(9)?).unwrap_or_default(),
        executor_id: text(10)?,
        application_version: row.text(11)?.to_owned(),
        recovery_attempts: row.integer(12)?,
        parent: row.optional_text(13)?.map(id).transpose()?,
        created_at: row.integer(14)?,
        updated_at: row.integer(15)?,
        started_at: row.optional_integer(16)?,
        completed_at: row.optional_integer(17)?,
        deadline: row.optional_integer(18)?,
        place: text(19)?,
    })
}

pub(super) fn id(text: &str) -> Result<WorkflowId> {
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
