//! Workflow files are loaded, rendered and executed, on a real store and with real realms.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod agents;
mod built;
mod cache;
mod child;
#[path = "../../../service/tests/harness/database.rs"]
mod database;
mod elements;
mod files;
mod forks;
mod invalid_files;
mod old_database;
mod providers;
mod published;
mod questions;
mod surface;
mod world;
mod zod;
