//! Durable workflows: TSX becomes a graph of tasks, the engine executes the tasks that are ready, and
//! stores their results, so that a finished task is never executed again. The elements and the names in
//! files are those of Smithers.
//!
//! Reading order: `graph` (the model of a workflow), `authoring` (how a file becomes a graph), `rust_workflow`
//! (workflows in Rust), `schedule` (which tasks are next), `store` (all rows and SQL), `engine`
//! (executes runs).

pub mod authoring;
pub mod engine;
pub mod graph;
mod journal;
pub mod rust_workflow;
pub mod schedule;
mod store;
mod sync;
