//! The database of a test: a SQLite file, or with `STOCKADE_TEST_DATABASE=postgres` a database of a
//! PostgreSQL server that stands for it.

use std::path::PathBuf;
use std::sync::Arc;

use stockade_durable::postgres::{self, Postgres};
use stockade_durable::sqlite::{self, Sqlite, Synchronous};
use stockade_durable::{Migration, Result, Store};
use stockade_test_support::postgres_instead_of;

/// Opens the database, which nobody else may use.
pub(crate) async fn open(
    path: PathBuf,
    migrations: &'static [Migration],
) -> Result<Arc<dyn Store>> {
    if let Some(url) = postgres_instead_of(&path) {
        let options = postgres::Options {
            url,
            schema: "stockade".to_owned(),
            certificate_authorities: Vec::new(),
            migrations,
            exclusive: true,
        };
        return Ok(Arc::new(Postgres::open(options).await?));
    }
    // No test simulates a power failure.
    let options = sqlite::Options { path, synchronous: Synchronous::Normal, migrations };
    Ok(Arc::new(Sqlite::open(options).await?))
}
