//! Durable workflows: TSX becomes a graph of tasks, what can be done is done, what was done is kept
//! and never done again. The elements and the names in files are those of Smithers.
//!
//! Reading order: `graph` (what a workflow is), `authoring` (how a file becomes one), `built` (how
//! Rust does), `schedule` (what is next), `store` (all rows and SQL), `engine` (executes it).

pub mod authoring;
pub mod built;
pub mod engine;
pub mod graph;
mod journal;
pub mod schedule;
mod store;
mod sync;
