//! The records of the service: every SQL statement of this crate, in one file for each table.
//!
//! Functions that change rows return a [`stockade_durable::Statement`], to be committed together
//! with the record of a workflow; functions that read rows take the store. No code here decides
//! anything.
//!
//! `migrations` holds the tables, `dialects` the few pieces of SQL that are different in other
//! databases.

pub(crate) mod audit;
pub(crate) mod browser;
mod dialects;
pub(crate) mod events;
pub(crate) mod hosts;
pub(crate) mod identity;
pub(crate) mod keys;
mod migrations;
pub(crate) mod possessions;
pub(crate) mod sandboxes;
pub(crate) mod snapshots;
pub(crate) mod vault;

pub use migrations::MIGRATIONS;
pub use sandboxes::{sandboxes_in_use, stopped_sandboxes};

/// The stored form of a value: JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}
