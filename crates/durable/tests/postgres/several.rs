//! Several processes on one schema: what one commits wakes the others, no workflow leaves a queue
//! twice, and the schema can be had alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stockade_durable::postgres::Postgres;
use stockade_durable::{Channel, Context, Engine, Error, Queue, StartOptions, Store, WorkflowId};

use crate::world::{Counter, FAST, World, id, insert, named, result, soon, start, until};

#[tokio::test]
async fn a_commit_of_another_process_wakes_at_once() {
    let world = World::new().await;
    let other = world.second_store().await;
    let mut rows = other.wakes().subscribe(Channel::Topic("items"));
    let workflow = other.wakes().subscribe(Channel::Workflow(id("w")));
    world.store.execute(vec![insert("one").notifying("items")]).await.unwrap();
    soon(rows.changed()).await.unwrap();
    rows.mark_unchanged();
    // What only few would wait for notifies nobody: the costs grow with the number of processes.
    world.store.execute(vec![insert("two").waking("items")]).await.unwrap();
    let engine = world.engine().workflow("w", |_: Context, (): ()| async { Ok(7) });
    let engine = engine.launch().await.unwrap();
    start(&engine, "w", &(), "w").await;
    world.store.execute(vec![insert("three").notifying("others")]).await.unwrap();
    let mut others = other.wakes().subscribe(Channel::Topic("others"));
    world.store.execute(vec![insert("four").notifying("others")]).await.unwrap();
    soon(others.changed()).await.unwrap();
    assert!(!workflow.has_changed().unwrap() && !rows.has_changed().unwrap());
    // A handle in another process gets the result when it is there.
    let reader = Engine::builder(other).executor_id("two".to_owned()).launch().await.unwrap();
    assert_eq!(result::<u32>(&reader.handle(&id("w"))).await.unwrap(), 7);
}

#[tokio::test]
async fn more_changes_than_a_notification_holds_wake_all() {
    let world = World::new().await;
    let other = world.second_store().await;
    let mut waiter = other.wakes().subscribe(Channel::Topic("unrelated"));
    // Longer than a payload.
    const LONG: &str = include_str!("../contract/workflows.rs");
    world.store.execute(vec![insert("one").notifying(LONG)]).await.unwrap();
    soon(waiter.changed()).await.unwrap();
}

#[tokio::test]
async fn each_workflow_leaves_a_queue_once() {
    const WORKFLOWS: u32 = 60;
    let world = World::new().await;
    let done = Counter::default();
    let mut engines = Vec::new();
    for name in ["one", "two", "three"] {
        let store = world.second_store().await;
        let done = done.clone();
        let queue = Queue {
            name: "shared",
            concurrency: Some(8),
            worker_concurrency: Some(4),
            rate_limit: None,
        };
        let engine = Engine::builder(store).executor_id(name.to_owned()).queue(queue);
        let engine = engine.workflow("w", move |context: Context, (): ()| {
            let done = done.clone();
            async move {
                context.step("once", |_| async { Ok(done.add()) }).await?;
                tokio::time::sleep(Duration::from_millis(5)).await;
                Ok(())
            }
        });
        engines.push(engine.launch().await.unwrap());
    }
    let mut ids = BTreeSet::new();
    for number in 0..WORKFLOWS {
        let id = WorkflowId::new(format!("w{number}")).unwrap();
        let options =
            StartOptions { id: Some(id.clone()), queue: Some("shared"), ..StartOptions::default() };
        engines[0].start("w", &(), options).await.unwrap();
        ids.insert(id);
    }
    for id in &ids {
        result::<()>(&engines[0].handle(id)).await.unwrap();
        assert_eq!(world.store.info(id).await.unwrap().unwrap().recovery_attempts, 1);
    }
    assert_eq!(done.get(), WORKFLOWS);
}

#[tokio::test]
async fn two_processes_that_start_a_workflow_start_one() {
    let world = World::new().await;
    let other = world.second_store().await;
    let done = Counter::default();
    let build = |store: Arc<dyn Store>, name: &str| {
        let done = done.clone();
        Engine::builder(store).executor_id(name.to_owned()).workflow("w", move |_, (): ()| {
            let done = done.clone();
            async move { Ok(done.add()) }
        })
    };
    let first = build(Arc::clone(&world.store), "one").launch().await.unwrap();
    let second = build(other, "two").launch().await.unwrap();
    for number in 0..20 {
        let name = format!("w{number}");
        let (one, two) =
            tokio::join!(first.start("w", &(), named(&name)), second.start("w", &(), named(&name)));
        let (one, two) = (one.unwrap(), two.unwrap());
        assert_eq!(result::<u32>(&one).await.unwrap(), result::<u32>(&two).await.unwrap());
        assert_eq!(done.get(), number + 1);
    }
}

#[tokio::test]
async fn a_dead_process_is_taken_over_by_another() {
    let world = World::new().await;
    let done = Counter::default();
    let build = |store: Arc<dyn Store>, name: &str, waits: bool| {
        let done = done.clone();
        let engine = Engine::builder(store).executor_id(name.to_owned()).heartbeat(FAST);
        engine.workflow("w", move |context: Context, (): ()| {
            let done = done.clone();
            async move {
                context.step("first", |_| async { Ok(done.add()) }).await?;
                if waits {
                    std::future::pending::<()>().await;
                }
                context.step("second", |_| async { Ok(done.add()) }).await
            }
        })
    };
    let dying = world.second_store().await;
    let first = build(Arc::clone(&dying), "one", true).launch().await.unwrap();
    start(&first, "w", &(), "w").await;
    until(async || world.store.steps(&id("w")).await.unwrap().len() == 1).await;
    // Closed under the engine, as when its process is killed: no heartbeat is written any more.
    dying.close().await.unwrap();
    let second = build(Arc::clone(&world.store), "two", false).launch().await.unwrap();
    assert_eq!(result::<u32>(&second.handle(&id("w"))).await.unwrap(), 2);
}

#[tokio::test]
async fn a_schema_in_use_alone_is_refused_to_others() {
    let world = World::new().await;
    let mut options = world.options();
    options.exclusive = true;
    // Others share it.
    let refused = Postgres::open(options.clone()).await.unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    world.store.close().await.unwrap();
    let first = Postgres::open(options.clone()).await.unwrap();
    let refused = Postgres::open(options.clone()).await.unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    drop(first);
    Postgres::open(options).await.unwrap();
}
