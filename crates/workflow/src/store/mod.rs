//! All SQL of this crate, behind row types: one file for each table, and `cancel` and `run_state` for
//! changes and queries that involve several tables. Queries are async functions on a store. Changes are
//! statements, so that the engine can commit several of them together.
//!
//! Times are milliseconds since 1970, and structured values are JSON as text. Features that only SQLite
//! has (`AUTOINCREMENT`, `WITHOUT ROWID`, INTEGER for 64 bits) are used in `migrations` and nowhere
//! else.

pub(crate) mod answers;
pub(crate) mod cached_outputs;
pub(crate) mod cancel;
mod columns;
pub(crate) mod events;
pub(crate) mod loops;
pub(crate) mod programs;
pub(crate) mod run_state;
pub(crate) mod runs;
pub(crate) mod sandboxes;
pub(crate) mod tasks;
mod topics;

pub use stockade_service::MIGRATIONS;
pub(crate) use topics::{ANSWERS_TOPIC, RUNS_TOPIC};
