//! The engine: starts runs, resumes them, reports their state, and delivers decisions and signals.
//!
//! Reading order: `operations` (the requests of callers), `start` (how a run starts), `run` (a run as a
//! durable workflow), `execution` (the execution of a run), `user_code` (the code of the user). The
//! stored state of runs is in [`store`](crate::store).

mod accept;
mod base_branch;
mod cache_key;
mod clock;
mod commands;
mod durable_run;
mod execution;
mod metrics;
mod models;
mod open_waits;
mod operations;
mod options;
mod prepare;
mod problem;
mod program;
mod project_files;
mod project_state;
mod provider_cleanups;
mod redaction;
mod run;
mod run_secrets;
mod run_servers;
mod sandbox;
mod schemas;
mod start;
mod state;
mod task_error;
mod timings;
mod tool_limits;
mod user_code;
mod workflows;

pub use commands::OuterSandbox;
pub use commands::helper::process as command_process;
pub use options::{ImagePrograms, Options};
pub use prepare::{child_program, preview, preview_rust};
pub use run_servers::Servers;
pub use start::StartRun;
pub use workflows::Workflows;

pub use crate::store::MIGRATIONS;
