//! The tables of the engine, as numbered migrations with a text for each kind of database; the names
//! are those of DBOS. A released migration is never changed.

use crate::Migration;

/// The engine's own migrations.
pub(crate) const ENGINE: &[Migration] = &[
    Migration {
        number: 1,
        name: "engine",
        sql: include_str!("sqlite/0001_engine.sql"),
        postgres: include_str!("postgres/0001_engine.sql"),
    },
    Migration {
        number: 2,
        name: "places of workflows",
        sql: include_str!("sqlite/0002_places.sql"),
        postgres: include_str!("postgres/0002_places.sql"),
    },
];

/// The tables in which applied migrations are recorded: those of the engine and those of the
/// application.
pub(crate) const ENGINE_TABLE: &str = "durable_migrations";
pub(crate) const APPLICATION_TABLE: &str = "application_migrations";
