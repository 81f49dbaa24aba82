//! A SQLite file for a test.

use std::sync::Arc;

use stockade_durable::Store;
use stockade_durable::sqlite::{Options, Sqlite, Synchronous};

use crate::world::MIGRATIONS;

/// Where a store is.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        let path = self.0.path().join("durable.db");
        // No test simulates a power failure.
        let options = Options { path, synchronous: Synchronous::Normal, migrations: MIGRATIONS };
        Arc::new(Sqlite::open(options).await.unwrap())
    }
}
