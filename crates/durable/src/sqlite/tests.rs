//! The file itself: which files are refused unchanged, who may open it, and the effects of a full
//! disk.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::rows::storage_error;
use super::{Options, Sqlite, Synchronous};
use crate::{
    Context, Engine, Error, Migration, Result, StartOptions, Statement, Store as _, WorkflowId,
};

const FIRST: Migration = Migration {
    number: 1,
    name: "notes",
    sql: "CREATE TABLE notes (text TEXT NOT NULL) STRICT",
    postgres: "",
};
const SECOND: Migration = Migration {
    number: 2,
    name: "more",
    sql: "CREATE TABLE more (text TEXT NOT NULL) STRICT",
    postgres: "",
};

async fn open(path: &Path, migrations: &'static [Migration]) -> Result<Sqlite> {
    let path = path.to_owned();
    Sqlite::open(Options { path, synchronous: Synchronous::Full, migrations }).await
}

fn add(text: &str) -> Statement {
    Statement::new("INSERT INTO notes VALUES (?1)", vec![text.into()])
}

async fn notes(store: &Sqlite) -> usize {
    store.query(Statement::new("SELECT text FROM notes", vec![])).await.unwrap().len()
}

fn scene() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("durable.db");
    (directory, path)
}

#[tokio::test]
async fn what_was_committed_is_there_again() {
    let (_directory, path) = scene();
    let store = open(&path, &[FIRST]).await.unwrap();
    store.execute(vec![add("a"), add("b")]).await.unwrap();
    drop(store);
    // Other users must not read workflows.
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // A later version of the application adds a migration.
    let store = open(&path, &[FIRST, SECOND]).await.unwrap();
    assert_eq!(notes(&store).await, 2);
    store.close().await.unwrap();
    assert!(matches!(store.execute(vec![add("c")]).await, Err(Error::Closed)));
    let query = Statement::new("SELECT 1", vec![]);
    assert!(matches!(store.query(query).await, Err(Error::Closed)));
    // An earlier version does not know it.
    let newer = open(&path, &[FIRST]).await.unwrap_err();
    assert!(matches!(newer, Error::NewerDatabase { found: 2, known: 1, .. }), "{newer}");
    assert!(newer.to_string().contains("use that version"), "{newer}");
}

#[tokio::test]
async fn one_process_has_the_database() {
    let (_directory, path) = scene();
    let store = open(&path, &[]).await.unwrap();
    let error = open(&path, &[]).await.unwrap_err();
    let own = std::process::id();
    assert!(matches!(error, Error::Locked { holder: Some(pid), .. } if pid == own), "{error}");
    drop(store);
    open(&path, &[]).await.unwrap();
}

#[tokio::test]
async fn what_is_not_ours_is_refused_untouched() {
    let (_directory, path) = scene();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE theirs (a); PRAGMA user_version = 7").unwrap();
    drop(other);
    let sqlite = std::fs::read(&path).unwrap();
    for content in [sqlite, b"not a database at all".to_vec(), vec![0; 8192]] {
        std::fs::write(&path, &content).unwrap();
        let error = open(&path, &[]).await.unwrap_err();
        assert!(matches!(error, Error::ForeignDatabase { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
}

#[tokio::test]
async fn another_application_is_refused_untouched() {
    let (_directory, path) = scene();
    drop(open(&path, &[FIRST]).await.unwrap());
    let content = std::fs::read(&path).unwrap();
    const OTHER: Migration = Migration { number: 1, name: "other", sql: "", postgres: "" };
    let error = open(&path, &[OTHER]).await.unwrap_err();
    assert!(matches!(error, Error::ForeignDatabase { .. }), "{error}");
    const GAP: Migration = Migration { number: 3, name: "gap", sql: "", postgres: "" };
    let error = open(&path, &[FIRST, GAP]).await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), content);
}

#[tokio::test]
async fn damage_is_refused_untouched() {
    let (_directory, path) = scene();
    let store = open(&path, &[FIRST]).await.unwrap();
    for _ in 0..100 {
        store.execute(vec![add(&"x".repeat(1000))]).await.unwrap();
    }
    drop(store);
    let whole = std::fs::read(&path).unwrap();
    let mut smeared = whole.clone();
    smeared[4096..40960].fill(0xa5);
    let mut last = whole.clone();
    let end = last.len();
    last[end - 30_000..end - 20_000].fill(0xa5);
    for content in [smeared, last, whole[..whole.len() / 2].to_vec()] {
        std::fs::write(&path, &content).unwrap();
        let error = open(&path, &[FIRST]).await.unwrap_err();
        assert!(
            matches!(&error, Error::CorruptDatabase { path: at, .. } if *at == path),
            "{error}"
        );
        assert!(error.to_string().contains("restore it from a backup"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(notes(&open(&path, &[FIRST]).await.unwrap()).await, 100);
}

#[tokio::test]
async fn a_creation_that_was_cut_short_begins_again() {
    let (_directory, path) = scene();
    std::fs::write(&path, b"").unwrap();
    let mut new = path.clone().into_os_string();
    new.push(".new");
    std::fs::write(&new, b"half of it").unwrap();
    drop(open(&path, &[FIRST]).await.unwrap());
    assert!(!Path::new(&new).exists());
    open(&path, &[FIRST]).await.unwrap();
    let nowhere = path.parent().unwrap().join("none/durable.db");
    assert!(matches!(open(&nowhere, &[]).await, Err(Error::File { .. })));
}

/// Limits the database to its current number of pages plus `more`.
async fn limit_pages(store: &Sqlite, more: i64) {
    let limit = store.write(move |connection, _| {
        let pages: i64 = connection
            .query_row("PRAGMA page_count", [], |row| row.get(0))
            .map_err(storage_error)?;
        let sql = format!("PRAGMA max_page_count = {}", pages + more);
        connection.query_row(&sql, [], |_| Ok(())).map_err(storage_error)
    });
    limit.await.unwrap();
}

#[tokio::test]
async fn a_full_disk_fails_what_needs_room_and_loses_nothing() {
    let (_directory, path) = scene();
    let store = open(&path, &[FIRST]).await.unwrap();
    store.execute(vec![add("before")]).await.unwrap();
    limit_pages(&store, 4).await;
    let big = "x".repeat(100_000);
    // Together: the small ones share a transaction with the big ones, and succeed.
    let writes = (0..20).map(|number| {
        let text = if number % 5 == 0 { big.clone() } else { "small".to_owned() };
        store.write(move |connection, wakes| {
            super::statements::execute(connection, wakes, &[add(&text)])
        })
    });
    let mut outcomes = Vec::new();
    for write in writes.collect::<Vec<_>>() {
        outcomes.push(write.await);
    }
    for (number, outcome) in outcomes.iter().enumerate() {
        if number % 5 == 0 {
            assert!(matches!(outcome, Err(Error::StorageFull)), "{outcome:?}");
        } else {
            outcome.as_ref().unwrap();
        }
    }
    assert_eq!(notes(&store).await, 17);
    limit_pages(&store, 1000).await;
    store.execute(vec![add(&big)]).await.unwrap();
    drop(store);
    assert_eq!(notes(&open(&path, &[FIRST]).await.unwrap()).await, 18);
}

#[tokio::test]
async fn a_workflow_goes_on_when_there_is_room_again() {
    let (_directory, path) = scene();
    let store = Arc::new(open(&path, &[FIRST]).await.unwrap());
    let engine = Engine::builder(store.clone())
        .heartbeat(Duration::from_millis(10))
        .workflow("w", |context: Context, size: usize| async move {
            context.step("small", |_| async { Ok(()) }).await?;
            let text = context.step("big", |_| async { Ok("x".repeat(size)) }).await?;
            Ok(text.len())
        })
        .launch()
        .await
        .unwrap();
    limit_pages(&store, 4).await;
    let id = WorkflowId::new("w").unwrap();
    let options = StartOptions { id: Some(id.clone()), ..StartOptions::default() };
    let handle = engine.start("w", &100_000, options).await.unwrap();
    let error = handle.get_result::<usize>().await.unwrap_err();
    assert!(matches!(error, Error::StorageFull), "{error}");
    assert_eq!(store.steps(&id).await.unwrap().len(), 1);
    limit_pages(&store, 1000).await;
    let result = async {
        loop {
            match engine.handle(&id).get_result::<usize>().await {
                Err(Error::StorageFull) => tokio::time::sleep(Duration::from_millis(5)).await,
                result => return result,
            }
        }
    };
    let result = tokio::time::timeout(Duration::from_secs(30), result).await.unwrap();
    assert_eq!(result.unwrap(), 100_000);
}

/// Like a full disk: the statements of the write fit, and its commit fails.
#[tokio::test]
async fn a_write_whose_commit_fails_is_not_told_as_done() {
    let (_directory, path) = scene();
    let store = open(&path, &[FIRST]).await.unwrap();
    let sql = "CREATE TABLE parents (id INTEGER PRIMARY KEY); CREATE TABLE children \
        (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)";
    store
        .write(move |connection, _| connection.execute_batch(sql).map_err(storage_error))
        .await
        .unwrap();
    let orphan = || Statement::new("INSERT INTO children VALUES (1)", vec![]);
    store.execute(vec![add("with it"), orphan()]).await.unwrap_err();
    assert_eq!(notes(&store).await, 0);
    // The same when others share its transaction, and their writes are not lost.
    let writes = [vec![add("kept")], vec![add("with it"), orphan()], vec![add("kept")]];
    let writes = writes.map(|statements| {
        store.write(move |connection, wakes| {
            super::statements::execute(connection, wakes, &statements)
        })
    });
    let mut failed = Vec::new();
    for write in writes {
        failed.push(write.await.is_err());
    }
    assert_eq!(failed, [false, true, false]);
    assert_eq!(notes(&store).await, 2);
}

#[tokio::test]
async fn a_refused_write_leaves_others_of_its_transaction_alone() {
    let (_directory, path) = scene();
    let store = open(&path, &[FIRST]).await.unwrap();
    let writes: Vec<_> = (0..50)
        .map(|number| {
            store.write(move |connection, wakes| {
                super::statements::execute(connection, wakes, &[add("kept or not")])?;
                if number % 2 == 0 { Err(Error::invalid("refused")) } else { Ok(()) }
            })
        })
        .collect();
    for (number, write) in writes.into_iter().enumerate() {
        assert_eq!(write.await.is_err(), number % 2 == 0);
    }
    assert_eq!(notes(&store).await, 25);
}

#[tokio::test]
async fn readers_cannot_write() {
    let (_directory, path) = scene();
    let store = open(&path, &[FIRST]).await.unwrap();
    let error = store.query(add("x")).await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
}

/// The log is checkpointed while the database is in use, including frames that a reader had kept in
/// it.
#[tokio::test]
async fn the_log_begins_again_from_its_start() {
    let (_directory, path) = scene();
    let store = open(&path, &[FIRST]).await.unwrap();
    let log_bytes = || std::fs::metadata(path.with_extension("db-wal")).unwrap().len();
    let write = async |bytes: usize| {
        for _ in 0..bytes / (64 << 10) {
            store.execute(vec![add(&"x".repeat(64 << 10))]).await.unwrap();
        }
    };
    write(16 << 20).await;
    let long = log_bytes();
    assert!(long < 6 << 20, "{long}");

    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM notes").unwrap();
    write(8 << 20).await;
    assert!(log_bytes() > long, "what is read from is not written over");
    reader.execute_batch("COMMIT").unwrap();
    let longest = log_bytes();
    write(8 << 20).await;
    assert!(log_bytes() <= longest + (1 << 20), "{longest}");
    assert_eq!(notes(&store).await, (32 << 20) / (64 << 10));
}
