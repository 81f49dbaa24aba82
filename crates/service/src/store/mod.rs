//! The records of the service: every SQL statement of this room, behind one file for each table.
//!
//! What changes rows is given back as a [`stockade_durable::Statement`], to be committed together with
//! the record of a workflow; what reads them takes the store. Nothing here decides anything.
//!
//! `migrations` holds the tables, `sqlite` the few pieces of SQL that another database would write in
//! another way.

pub(crate) mod events;
pub(crate) mod identity;
mod migrations;
pub(crate) mod sandboxes;
pub(crate) mod snapshots;
mod sqlite;

pub use migrations::MIGRATIONS;

/// A value as it is stored: JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}
