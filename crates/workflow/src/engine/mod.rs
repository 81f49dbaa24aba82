//! The engine: starts runs, finds them again, reports on them, and passes decisions and signals on.
//!
//! Reading order: `operations` (what callers can do), `start` (how a run begins), `run` (a run as a
//! durable workflow), `execution` (what that does), `user_code` (what the user wrote). What is stored of runs is in
//! [`store`](crate::store).

mod cache_key;
mod clock;
mod commands;
mod execution;
mod metrics;
mod open_waits;
mod operations;
mod options;
mod prepare;
mod problem;
mod program;
mod provider_cleanups;
mod run;
mod sandbox;
mod schemas;
mod start;
mod state;
mod timings;
mod tool_limits;
mod trouble;
mod user_code;
mod workflows;

pub use commands::Inside;
pub use commands::helper::process as command_process;
pub use options::Options;
pub use prepare::{child_program, preview, preview_built};
pub use start::Begin;
pub use workflows::Workflows;

pub use crate::store::MIGRATIONS;
