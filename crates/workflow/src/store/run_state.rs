//! All data that a process needs to continue a run, from several tables.

use std::collections::HashMap;

use stockade_api::RunStatus;
use stockade_durable::{Statement, Store};

use super::columns::Result;
use super::runs::RunOrigin;
use super::tasks::{self, TaskRow};
use super::{answers, events, loops};
use crate::schedule::{Key, LoopState};

/// The stored state of a run.
#[derive(Debug)]
pub(crate) struct RunState {
    pub(crate) tasks: HashMap<Key, TaskRow>,
    pub(crate) loops: HashMap<String, LoopState>,
    /// The number of its next event.
    pub(crate) next_event: i64,
    pub(crate) status: RunStatus,
    pub(crate) origin: RunOrigin,
}

/// Loads the stored state of a run.
pub(crate) async fn load(store: &dyn Store, run: &str) -> Result<RunState> {
    let tasks = tasks::load(store, run).await?;
    let loops = loops::load(store, run).await?;
    let next_event = events::next_seq(store, run).await?;
    let sql = "SELECT status, file, program, environment, owner_id, generation, created_at \
               FROM runs \
               WHERE id = ?1";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let (mut status, mut origin) = (None, RunOrigin::default());
    if let Some(row) = rows.first() {
        status = RunStatus::parse(row.text(0)?);
        origin = RunOrigin {
            file: row.text(1)?.to_owned(),
            program: row.text(2)?.to_owned(),
            environment: row.text(3)?.to_owned(),
            owner: row.text(4)?.to_owned(),
            generation: row.integer(5)?,
            created_at: row.integer(6)?,
        };
    }
    let status = status.unwrap_or(RunStatus::Running);
    Ok(RunState { tasks, loops, next_event, status, origin })
}

/// Lets the unfinished tasks of a run start again, and deletes the decisions about their earlier
/// attempts that no task has used.
pub(crate) fn reset_unfinished(run: &str) -> [Statement; 2] {
    [tasks::reset_unfinished(run), answers::drop_unused_decisions(run)]
}
