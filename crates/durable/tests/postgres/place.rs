//! A database for a test, on the server of all tests.

use std::sync::Arc;

use stockade_durable::Store;
use stockade_durable::postgres::{Options, Postgres};
use stockade_test_support::{Postgres as Server, skipped};

use crate::world::{MIGRATIONS, World};

/// Where a store is.
pub(crate) struct Place {
    server: Server,
    url: String,
}

impl Place {
    /// A new database. Without a server the test is skipped: each test is a process of its own.
    pub(crate) fn new() -> Self {
        match Server::start() {
            Ok(server) => Self { url: server.database(), server },
            Err(reason) => {
                skipped(&reason);
                std::process::exit(0);
            }
        }
    }

    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        Arc::new(Postgres::open(self.options()).await.unwrap())
    }

    fn options(&self) -> Options {
        Options {
            url: self.url.clone(),
            schema: "durable".to_owned(),
            certificate_authorities: Vec::new(),
            migrations: MIGRATIONS,
            exclusive: false,
        }
    }
}

impl World {
    pub(crate) fn options(&self) -> Options {
        self.place.options()
    }

    /// The store as another process has it.
    pub(crate) async fn second_store(&self) -> Arc<dyn Store> {
        self.place.open().await
    }

    /// Lets the server speak TLS.
    pub(crate) fn speak_tls(&self, certificate: &str, key: &str) {
        self.place.server.speak_tls(certificate, key);
    }

    /// Ends all connections to the database.
    pub(crate) fn cut_off(&self) {
        let (_, database) = self.place.url.rsplit_once('/').unwrap();
        self.place.server.cut_off(database);
    }
}
