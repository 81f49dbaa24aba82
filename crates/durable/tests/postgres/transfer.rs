//! Copying a store into one of the other kind, and back.

use std::path::Path;
use std::time::Duration;

use stockade_durable::sqlite::{Options, Sqlite, Synchronous};
use stockade_durable::transfer::{self, TableContent};
use stockade_durable::{Context, Engine, Error, Filter, Statement, Store, Value};

use crate::world::{MIGRATIONS, World, bump, id, insert, named, result, start};

async fn file(directory: &Path, name: &str) -> std::sync::Arc<dyn Store> {
    let (path, synchronous) = (directory.join(name), Synchronous::Off);
    let options = Options { path, synchronous, migrations: MIGRATIONS };
    std::sync::Arc::new(Sqlite::open(options).await.unwrap())
}

/// Fills a store with workflows, of which one has not ended, and with rows of the application.
async fn fill(store: &std::sync::Arc<dyn Store>) {
    let engine = Engine::builder(std::sync::Arc::clone(store))
        .executor_id("one".to_owned())
        .workflow("adds", |context: Context, number: u32| async move {
            context.step("one", move |_| async move { Ok(number + 1) }).await
        })
        .workflow("waits", |context: Context, (): ()| async move {
            context.recv::<String>("topic", Duration::from_secs(600)).await
        });
    let engine = engine.launch().await.unwrap();
    // More than a page.
    for number in 0..250_u32 {
        let handle = start(&engine, "adds", &number, &format!("adds-{number}")).await;
        assert_eq!(result::<u32>(&handle).await.unwrap(), number + 1);
    }
    engine.start("waits", &(), named("waits")).await.unwrap();
    engine.send(&id("adds-1"), "topic", &"unread", None).await.unwrap();
    engine.shutdown(Duration::from_secs(5)).await.unwrap();
    let rows = ["", "plain", "quo\"te' ?1 $1", "\u{e9}\u{202e}\n\t", "Z", "a", "\u{1f512}"];
    store.execute(rows.iter().map(|name| insert(name)).collect()).await.unwrap();
    store.execute(vec![bump("a", 1)]).await.unwrap();
}

fn rows(contents: &[TableContent], table: &str) -> u64 {
    contents.iter().find(|content| content.table == table).unwrap().rows
}

async fn ids(store: &dyn Store) -> Vec<String> {
    let found = store.list(Filter::default()).await.unwrap();
    found.into_iter().map(|info| info.id.to_string()).collect()
}

async fn message_number(store: &dyn Store) -> i64 {
    let sql = "SELECT number FROM notifications ORDER BY number DESC LIMIT 1";
    store.query(Statement::new(sql, vec![])).await.unwrap()[0].integer(0).unwrap()
}

#[tokio::test]
async fn all_records_get_to_the_other_kind_of_store_and_back() {
    let world = World::new().await;
    let directory = tempfile::tempdir().unwrap();
    let old = file(directory.path(), "old").await;
    fill(&old).await;
    // The last number was given, and its row is gone: it is never given again.
    let last = message_number(&*old).await;
    let remove = Statement::new("DELETE FROM notifications", vec![]);
    old.execute(vec![remove.clone()]).await.unwrap();

    let copied = transfer::copy(&*old, &*world.store).await.unwrap();
    assert_eq!(copied, transfer::contents(&*old).await.unwrap());
    assert_eq!((rows(&copied, "workflow_status"), rows(&copied, "items")), (251, 7));
    assert!(rows(&copied, "operation_outputs") >= 250);
    assert!(copied.iter().all(|content| !content.table.ends_with("_migrations")), "{copied:?}");
    assert_eq!(ids(&*world.store).await, ids(&*old).await);

    let back = file(directory.path(), "back").await;
    assert_eq!(transfer::copy(&*world.store, &*back).await.unwrap(), copied);
    assert_eq!(ids(&*back).await, ids(&*old).await);
    // What waited goes on, with numbers that nothing had before.
    for store in [world.store, back] {
        let engine = Engine::builder(std::sync::Arc::clone(&store))
            .executor_id("one".to_owned())
            .workflow("waits", |context: Context, (): ()| async move {
                context.recv::<String>("topic", Duration::from_secs(600)).await
            });
        let engine = engine.launch().await.unwrap();
        engine.send(&id("adds-1"), "topic", &"new", None).await.unwrap();
        assert_eq!(message_number(&*store).await, last + 1);
        engine.send(&id("waits"), "topic", &"answer", None).await.unwrap();
        let answer: Option<String> = result(&engine.handle(&id("waits"))).await.unwrap();
        assert_eq!(answer.as_deref(), Some("answer"));
        engine.shutdown(Duration::from_secs(5)).await.unwrap();
    }
}

#[tokio::test]
async fn a_difference_of_one_value_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (file(directory.path(), "old").await, file(directory.path(), "new").await);
    old.execute(vec![insert("a"), insert("b")]).await.unwrap();
    let copied = transfer::copy(&*old, &*new).await.unwrap();
    new.execute(vec![bump("b", 1)]).await.unwrap();
    let changed = transfer::contents(&*new).await.unwrap();
    let different: Vec<_> = copied.iter().zip(&changed).filter(|(old, new)| old != new).collect();
    assert_eq!(different.len(), 1, "{different:?}");
    assert_eq!((different[0].1.table.as_str(), different[0].1.rows), ("items", 2));
    assert!(!transfer::is_empty(&*new).await.unwrap());
    transfer::clear(&*new).await.unwrap();
    assert!(transfer::is_empty(&*new).await.unwrap());
}

#[tokio::test]
async fn rows_are_never_overwritten_and_a_failed_copy_leaves_none() {
    let world = World::new().await;
    let directory = tempfile::tempdir().unwrap();
    let old = file(directory.path(), "old").await;
    old.execute(vec![insert("a")]).await.unwrap();
    world.store.execute(vec![insert("other")]).await.unwrap();
    let refused = transfer::copy(&*old, &*world.store).await.unwrap_err();
    assert!(matches!(&refused, Error::Conflict { what } if what.contains("items")), "{refused}");
    assert_eq!(world.items().await, [("other".to_owned(), 1)]);

    transfer::clear(&*world.store).await.unwrap();
    // PostgreSQL cannot store this character.
    let text = Value::Text("with\0zero".to_owned());
    let odd = Statement::new("INSERT INTO items VALUES (?1, 1)", vec![text]);
    old.execute(vec![odd]).await.unwrap();
    let refused = transfer::copy(&*old, &*world.store).await.unwrap_err();
    assert!(matches!(&refused, Error::Invalid { what } if what.contains("`items`")), "{refused}");
    assert!(transfer::is_empty(&*world.store).await.unwrap());
}

#[tokio::test]
async fn a_mark_is_no_table_and_goes_with_its_removal() {
    let world = World::new().await;
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (file(directory.path(), "old").await, file(directory.path(), "new").await);
    old.execute(vec![insert("a")]).await.unwrap();
    for store in [&*world.store, &*new] {
        assert!(!transfer::is_marked(store, "abc").await.unwrap());
        transfer::mark(store, "abc").await.unwrap();
        assert!(transfer::is_marked(store, "abc").await.unwrap());
        assert!(!transfer::is_marked(store, "abd").await.unwrap());
        assert!(transfer::is_empty(store).await.unwrap());
        transfer::copy(&*old, store).await.unwrap();
        transfer::remove_mark(store, "abc").await.unwrap();
        assert!(!transfer::is_marked(store, "abc").await.unwrap());
        let invalid = transfer::mark(store, "a\"; DROP TABLE items").await.unwrap_err();
        assert!(matches!(invalid, Error::Invalid { .. }), "{invalid}");
    }
}
