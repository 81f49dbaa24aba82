//! This program opens a database that an earlier program wrote, without changing it.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use stockade_api::{
    ById, Caller, Empty, ListSandboxes, OperationId, OperationStatus, ReadEvents, Sandboxes as _,
};
use stockade_core::event::Kind;
use stockade_core::{Code, OwnerId, SandboxId, State};
use stockade_durable::Store;
use stockade_durable::sqlite::{self, Sqlite, Synchronous};
use stockade_runtime::Runtime;
use stockade_runtime::fake::Fake;
use stockade_service::{MIGRATIONS, Options, Service};

const EARLIER: &str = include_str!("../../../tests/database/0007.sql");

/// How many migrations were applied to that database.
const APPLIED: usize = 7;

async fn open(path: &Path) -> Arc<dyn Store> {
    let (path, synchronous) = (path.to_owned(), Synchronous::Normal);
    let options = sqlite::Options { path, synchronous, migrations: MIGRATIONS };
    Arc::new(Sqlite::open(options).await.unwrap())
}

/// Every table and index with the SQL text that created it.
fn schema(path: &Path) -> BTreeMap<String, Option<String>> {
    let connection = Connection::open(path).unwrap();
    let mut statement = connection.prepare("SELECT name, sql FROM sqlite_master").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// The recorded migrations, with the time at which each was applied.
fn applied(path: &Path) -> Vec<(u32, String, i64)> {
    let connection = Connection::open(path).unwrap();
    let sql = "SELECT number, name, applied_at FROM application_migrations ORDER BY number";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[tokio::test]
async fn a_database_of_an_earlier_program_has_the_tables_of_a_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let (earlier, new) = (directory.path().join("earlier.db"), directory.path().join("new.db"));
    Connection::open(&earlier).unwrap().execute_batch(EARLIER).unwrap();
    let before = applied(&earlier);
    assert_eq!(before.len(), APPLIED);
    for path in [&earlier, &new] {
        open(path).await.close().await.unwrap();
    }
    assert_eq!(applied(&earlier)[..APPLIED], before, "what was applied is not applied again");
    assert_eq!(schema(&earlier), schema(&new));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_goes_on_with_what_an_earlier_program_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stockade.db");
    Connection::open(&path).unwrap().execute_batch(EARLIER).unwrap();
    let runtimes: Vec<Arc<dyn Runtime>> = vec![Arc::new(Fake::new())];
    let service = Service::launch(open(&path).await, runtimes, Options::default()).await.unwrap();
    let owner = Caller::new(OwnerId::new("uid:0").unwrap());

    let all = ListSandboxes { states: State::ALL.to_vec(), ..ListSandboxes::default() };
    let listed = service.list(&owner, all).await.unwrap().sandboxes;
    let states: BTreeMap<_, _> = listed.iter().map(|it| (it.id.as_str(), it.state)).collect();
    let expected = [
        ("ended", State::Terminated),
        ("halted", State::Stopped),
        ("held", State::Running),
        ("policy", State::Running),
        ("resting", State::Paused),
    ];
    assert_eq!(states, BTreeMap::from(expected));
    let held = listed.iter().find(|it| it.id.as_str() == "held").unwrap();
    assert_eq!(held.access_rules.len(), 2);
    assert_eq!(held.metadata["team"], "red");
    let red = BTreeMap::from([("team".to_owned(), "red".to_owned())]);
    let red = ListSandboxes { metadata: red, ..ListSandboxes::default() };
    assert_eq!(service.list(&owner, red).await.unwrap().sandboxes.len(), 1);

    let request = ReadEvents { after: 0, sandbox_id: None, follow: false };
    let mut events = service.read_events(&owner, request).await.unwrap();
    let mut kinds = Vec::new();
    while let Some(event) = events.next().await {
        kinds.push(event.unwrap().payload.kind());
    }
    assert_eq!(kinds.iter().filter(|kind| **kind == Kind::SandboxCreated).count(), 5);
    assert_eq!(kinds.iter().filter(|kind| **kind == Kind::CommandCompleted).count(), 2);

    let snapshots = service.snapshots(&owner, Empty {}).await.unwrap();
    assert_eq!(snapshots.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["first"]);

    // A completed operation is answered from its record.
    let done = OperationId(held.workflow_id.clone().unwrap());
    let done = service.operation(&owner, done).await.unwrap();
    assert_eq!((done.name.as_str(), done.status), ("sandbox.create", OperationStatus::Succeeded));

    // The runtime of these sandboxes is not available here.
    let resumed = service.resume(&owner, ById { id: SandboxId::new("resting").unwrap() }).await;
    assert_eq!(resumed.unwrap_err().code, Code::Unsupported);
    service.shutdown(Duration::from_secs(5)).await;
}
