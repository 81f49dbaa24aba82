//! A service on a runtime in memory and a store in a temporary directory.
#![allow(dead_code, clippy::allow_attributes, reason = "each test binary uses a part of it")]

use std::sync::Arc;

use stockade_api::Caller;
use stockade_core::OwnerId;
use stockade_durable::Store;
use stockade_durable::sqlite::{self, Sqlite, Synchronous};
use stockade_runtime::fake::Fake;
use stockade_service::{MIGRATIONS, Options, Service};
use tempfile::TempDir;

/// A service with what is behind it.
pub(crate) struct Harness {
    pub(crate) service: Service,
    pub(crate) fake: Fake,
    pub(crate) directory: TempDir,
}

/// Somebody.
pub(crate) fn caller(owner: &str) -> Caller {
    Caller::new(OwnerId::new(owner).unwrap())
}

impl Harness {
    /// A service with nothing in it.
    pub(crate) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    /// A service that is configured.
    pub(crate) async fn with(options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let fake = Fake::new();
        let service = launch(&directory, &fake, options).await;
        Self { service, fake, directory }
    }

    /// How often the runtime was asked anything.
    pub(crate) fn runtime_calls(&self) -> usize {
        self.fake.all_calls()
    }
}

async fn launch(directory: &TempDir, fake: &Fake, options: Options) -> Service {
    let path = directory.path().join("stockade.db");
    let store = sqlite::Options { path, synchronous: Synchronous::Full, migrations: MIGRATIONS };
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(store).await.unwrap());
    Service::launch(store, vec![Arc::new(fake.clone())], options).await.unwrap()
}
