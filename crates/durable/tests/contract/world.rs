//! The store under test, and engines on it. `place` has the store of one kind of
//! database.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::Serialize;
use stockade_durable::{
    Builder, Engine, Handle, Migration, Result, StartOptions, Statement, Store, WorkflowId,
};

use crate::mortal::{Death, Mortal};
use crate::place::Place;

/// The longest time that a test waits for an expected event.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A heartbeat for tests in which executors die: they are taken over after three missed ones.
pub(crate) const FAST: Duration = Duration::from_millis(30);

/// The application's own table in these tests.
pub(crate) const MIGRATIONS: &[Migration] = &[Migration {
    number: 1,
    name: "items",
    sql: "CREATE TABLE items (name TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT;",
    postgres: "CREATE TABLE items (name TEXT PRIMARY KEY, version BIGINT NOT NULL);",
}];

/// A separate, empty store.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    /// Where the store is.
    pub(crate) place: Place,
}

impl World {
    pub(crate) async fn new() -> Self {
        let place = Place::new();
        Self { store: place.open().await, place }
    }

    /// Closes the store, and opens it again.
    pub(crate) async fn reopen(&mut self) {
        self.store.close().await.unwrap();
        self.store = self.place.open().await;
    }

    /// An engine of the executor `one`.
    pub(crate) fn engine(&self) -> Builder {
        Engine::builder(Arc::clone(&self.store)).executor_id("one".to_owned())
    }

    /// An engine of another executor on the same store.
    pub(crate) fn other_engine(&self, id: &str) -> Builder {
        Engine::builder(Arc::clone(&self.store)).executor_id(id.to_owned())
    }

    /// The same store, which dies after so many writes.
    pub(crate) fn mortal(&self, writes: i64, death: Death) -> Arc<Mortal> {
        Arc::new(Mortal::new(Arc::clone(&self.store), writes, death, || {}))
    }

    /// The count of each row of the application, by name.
    pub(crate) async fn items(&self) -> Vec<(String, i64)> {
        let query = Statement::new("SELECT name, version FROM items ORDER BY name", vec![]);
        let rows = self.store.query(query).await.unwrap();
        rows.iter().map(|row| (row.text(0).unwrap().to_owned(), row.integer(1).unwrap())).collect()
    }
}

/// A statement that adds a row of the application.
pub(crate) fn insert(name: &str) -> Statement {
    Statement::new("INSERT INTO items VALUES (?1, 1)", vec![name.into()])
}

/// A statement that changes a row from one version to the next; else it conflicts.
pub(crate) fn bump(name: &str, from: i64) -> Statement {
    let sql = "UPDATE items SET version = version + 1 WHERE name = ?1 AND version = ?2";
    Statement::new(sql, vec![name.into(), from.into()]).expecting(1)
}

pub(crate) fn id(text: &str) -> WorkflowId {
    WorkflowId::new(text).unwrap()
}

/// Options with an id.
pub(crate) fn named(text: &str) -> StartOptions {
    StartOptions { id: Some(id(text)), ..StartOptions::default() }
}

/// Starts a workflow under an id.
pub(crate) async fn start<I: Serialize + Sync>(
    engine: &Engine,
    name: &str,
    input: &I,
    workflow: &str,
) -> Handle {
    engine.start(name, input, named(workflow)).await.unwrap()
}

/// The result of a handle, which must come soon.
pub(crate) async fn result<O: serde::de::DeserializeOwned>(handle: &Handle) -> Result<O> {
    soon(handle.get_result()).await
}

/// Waits for an expected result, with a time limit.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, work).await.expect("it must happen soon")
}

/// Waits until a condition is true.
pub(crate) async fn until<Fut: Future<Output = bool>>(mut is_so: impl FnMut() -> Fut) {
    soon(async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Counts executions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counter(Arc<AtomicU32>);

impl Counter {
    pub(crate) fn add(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}
