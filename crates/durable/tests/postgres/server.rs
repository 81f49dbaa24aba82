//! A server that ends connections, restarts, or contains something else.

use std::time::Duration;

use stockade_durable::postgres::Postgres;
use stockade_durable::{Context, Error, Migration, Status};

use crate::world::{Counter, World, id, insert, result, start};

#[tokio::test]
async fn work_continues_when_the_server_ends_its_connections() {
    let world = World::new().await;
    let done = Counter::default();
    let counter = done.clone();
    let engine = world.engine().workflow("w", move |context: Context, (): ()| {
        let done = counter.clone();
        async move {
            for number in 0..40_u32 {
                context.step(format!("step {number}"), |_| async { Ok(done.add()) }).await?;
            }
            Ok(done.get())
        }
    });
    let engine = engine.launch().await.unwrap();
    let handle = start(&engine, "w", &(), "w").await;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(40)).await;
        world.cut_off();
    }
    // No step ran twice: each commit was made once, also where its answer was lost.
    assert_eq!(result::<u32>(&handle).await.unwrap(), 40);
    assert_eq!(world.store.steps(&id("w")).await.unwrap().len(), 40);
    assert_eq!(engine.info(&id("w")).await.unwrap().unwrap().status, Status::Success);
}

#[tokio::test]
async fn an_answer_that_was_lost_does_not_repeat_the_write() {
    let world = World::new().await;
    for number in 0..60 {
        let name = format!("item {number}");
        let write = world.store.execute(vec![insert(&name)]);
        let cut = async {
            tokio::time::sleep(Duration::from_micros(200 * (number % 12))).await;
            if number % 3 == 0 {
                world.cut_off();
            }
        };
        let (written, ()) = tokio::join!(write, cut);
        written.unwrap();
    }
    assert_eq!(world.items().await.len(), 60);
}

#[tokio::test]
async fn a_schema_of_another_application_or_a_later_version_is_refused() {
    const OTHER: &[Migration] = &[Migration { number: 1, name: "other", sql: "", postgres: "" }];
    let world = World::new().await;
    let mut options = world.options();
    options.migrations = OTHER;
    let refused = Postgres::open(options.clone()).await.unwrap_err();
    assert!(matches!(refused, Error::ForeignDatabase { .. }), "{refused}");
    options.migrations = &[];
    let refused = Postgres::open(options).await.unwrap_err();
    assert!(matches!(refused, Error::NewerDatabase { found: 1, known: 0, .. }), "{refused}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    let world = World::new().await;
    let mut options = world.options();
    options.url = "postgres://someone:hidden@127.0.0.1:1/d".to_owned();
    let refused = Postgres::open(options).await.unwrap_err();
    assert!(refused.to_string().contains("127.0.0.1:1/d"), "{refused}");
    assert!(!refused.to_string().contains("hidden"), "{refused}");
}

#[tokio::test]
async fn a_failed_migration_leaves_nothing() {
    const BROKEN: &[Migration] = &[
        Migration { number: 1, name: "fine", sql: "", postgres: "CREATE TABLE fine (a BIGINT)" },
        Migration {
            number: 2,
            name: "broken",
            sql: "",
            postgres: "CREATE TABEL broken (a BIGINT)",
        },
    ];
    let world = World::new().await;
    let mut options = world.options();
    options.schema = "other".to_owned();
    options.migrations = BROKEN;
    assert!(Postgres::open(options.clone()).await.is_err());
    options.migrations = &BROKEN[..1];
    Postgres::open(options).await.unwrap();
}
