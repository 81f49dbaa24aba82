//! The table `run_loops`.

use std::collections::HashMap;

use stockade_durable::{Statement, Store};

use super::columns::{Result, read_count};
use crate::schedule::LoopState;

/// The states of the loops of a run, by name.
pub(crate) async fn load(store: &dyn Store, run: &str) -> Result<HashMap<String, LoopState>> {
    let sql = "SELECT loop_id, iteration, has_ended FROM run_loops WHERE run_id = ?1";
    let rows = store.query(Statement::new(sql, vec![run.into()])).await?;
    let mut loops = HashMap::new();
    for row in &rows {
        let turn = LoopState { iteration: read_count(row, 1)?, has_ended: row.boolean(2)? };
        loops.insert(row.text(0)?.to_owned(), turn);
    }
    Ok(loops)
}

/// Inserts or updates a loop.
pub(crate) fn upsert(run: &str, name: &str, turn: LoopState) -> Statement {
    let sql = "INSERT INTO run_loops VALUES (?1, ?2, ?3, ?4) \
               ON CONFLICT (run_id, loop_id) DO UPDATE SET iteration = excluded.iteration, \
               has_ended = excluded.has_ended";
    let parameters = vec![run.into(), name.into(), turn.iteration.into(), turn.has_ended.into()];
    Statement::new(sql, parameters)
}
