//! Queues: limits, order, deduplication, delays, and what happens to them when executors die.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stockade_durable::{Builder, Engine, Error, Queue, StartOptions, Status, WorkflowId};
use tokio::sync::Semaphore;

use crate::mortal::Death;
use crate::world::{FAST, World, id, named, result, start, until};

const QUEUE: &str = "fireflow-sandbox";

fn limits(concurrency: Option<u32>, worker_concurrency: Option<u32>) -> Queue {
    Queue { name: QUEUE, concurrency, worker_concurrency, rate_limit: None }
}

fn queued(name: &str) -> StartOptions {
    StartOptions { queue: Some(QUEUE), ..named(name) }
}

/// The workflows that started and those that run.
#[derive(Debug, Default)]
struct Watch {
    started: Mutex<Vec<String>>,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    now: usize,
    most: usize,
}

/// A workflow that records that it runs, and waits for a permit.
fn watched(builder: Builder, watch: &Arc<Watch>, gate: &Arc<Semaphore>) -> Builder {
    let (watch, gate) = (Arc::clone(watch), Arc::clone(gate));
    builder.workflow("w", move |context, (): ()| {
        let (watch, gate) = (Arc::clone(&watch), Arc::clone(&gate));
        async move {
            watch.started.lock().unwrap().push(context.id().to_string());
            {
                let mut running = watch.running.lock().unwrap();
                running.now += 1;
                running.most = running.most.max(running.now);
            }
            let wait = context.step("wait", |_| async {
                gate.acquire().await.unwrap().forget();
                Ok(())
            });
            wait.await?;
            watch.running.lock().unwrap().now -= 1;
            Ok(())
        }
    })
}

async fn enqueue(engine: &Engine, count: usize) -> Vec<WorkflowId> {
    let mut ids = Vec::new();
    for number in 0..count {
        let handle = engine.start("w", &(), queued(&format!("{number:02}"))).await.unwrap();
        ids.push(handle.workflow_id().clone());
    }
    ids
}

async fn running(world: &World) -> usize {
    let filter = stockade_durable::Filter { status: Some(Status::Pending), ..Default::default() };
    world.store.list(filter).await.unwrap().len()
}

#[tokio::test]
async fn no_more_run_than_the_limits_allow() {
    let world = World::new().await;
    let (watch, gate) = (Arc::new(Watch::default()), Arc::new(Semaphore::new(0)));
    let build = |name| {
        let builder = world.other_engine(name).queue(limits(Some(5), Some(3)));
        watched(builder, &watch, &gate).launch()
    };
    let one = build("one").await.unwrap();
    let ids = enqueue(&one, 20).await;
    until(async || one.running() == 3).await;
    let two = build("two").await.unwrap();
    until(async || two.running() == 2).await;
    assert_eq!(running(&world).await, 5);
    for _ in 0..20 {
        gate.add_permits(1);
        tokio::task::yield_now().await;
        assert!(one.running() <= 3 && two.running() <= 3);
    }
    for id in &ids {
        result::<()>(&two.handle(id)).await.unwrap();
    }
    assert_eq!(watch.running.lock().unwrap().most, 5);
    assert_eq!(watch.started.lock().unwrap().len(), 20);
}

#[tokio::test]
async fn lower_priorities_go_first_then_the_oldest() {
    let world = World::new().await;
    let (watch, gate) = (Arc::new(Watch::default()), Arc::new(Semaphore::new(0)));
    let builder = world.engine().queue(limits(Some(1), None));
    let engine = watched(builder, &watch, &gate).launch().await.unwrap();
    let mut handles = Vec::new();
    for (name, priority) in [("first", 0), ("b", 5), ("a", 1), ("c", 5), ("urgent", -1)] {
        let options = StartOptions { priority, ..queued(name) };
        handles.push(engine.start("w", &(), options).await.unwrap());
        until(async || engine.running() == 1).await;
    }
    gate.add_permits(5);
    for handle in &handles {
        result::<()>(handle).await.unwrap();
    }
    assert_eq!(*watch.started.lock().unwrap(), ["first", "urgent", "a", "b", "c"]);
}

#[tokio::test]
async fn one_deduplication_id_is_in_the_queue_once() {
    let world = World::new().await;
    let (watch, gate) = (Arc::new(Watch::default()), Arc::new(Semaphore::new(0)));
    let builder = world.engine().queue(limits(None, None));
    let engine = watched(builder, &watch, &gate).launch().await.unwrap();
    let same = |name| StartOptions { deduplication_id: Some("d".to_owned()), ..queued(name) };
    let first = engine.start("w", &(), same("a")).await.unwrap();
    let error = engine.start("w", &(), same("b")).await.unwrap_err();
    assert!(matches!(&error, Error::Deduplicated { id: holder, .. } if *holder == id("a")));
    // Starting the same workflow again creates no second one.
    assert!(!engine.start("w", &(), same("a")).await.unwrap().was_created());
    gate.add_permits(2);
    result::<()>(&first).await.unwrap();
    let second = engine.start("w", &(), same("b")).await.unwrap();
    result::<()>(&second).await.unwrap();

    let none = StartOptions { queue: None, ..same("c") };
    assert!(matches!(engine.start("w", &(), none).await, Err(Error::Invalid { .. })));
    let unknown = StartOptions { queue: Some("unknown"), ..named("c") };
    assert!(matches!(engine.start("w", &(), unknown).await, Err(Error::Invalid { .. })));
}

#[tokio::test]
async fn a_delayed_one_begins_when_its_time_has_come() {
    let world = World::new().await;
    let (watch, gate) = (Arc::new(Watch::default()), Arc::new(Semaphore::new(9)));
    let builder = world.engine().queue(limits(None, None));
    let engine = watched(builder, &watch, &gate).launch().await.unwrap();
    let delay = Some(Duration::from_millis(100));
    let started = Instant::now();
    for options in [queued("in a queue"), named("in none")] {
        let handle = engine.start("w", &(), StartOptions { delay, ..options }).await.unwrap();
        assert_eq!(handle.get_status().await.unwrap(), Status::Delayed);
    }
    let far = StartOptions { delay: Some(Duration::MAX), ..named("never") };
    let never = engine.start("w", &(), far).await.unwrap();
    for name in ["in a queue", "in none"] {
        result::<()>(&engine.handle(&id(name))).await.unwrap();
    }
    // A lower bound: it never starts too early.
    assert!(started.elapsed() >= Duration::from_millis(100));
    engine.cancel(never.workflow_id()).await.unwrap();
    assert!(matches!(result::<()>(&never).await, Err(Error::Cancelled { .. })));
}

#[tokio::test]
async fn a_rate_is_kept() {
    let world = World::new().await;
    let (watch, gate) = (Arc::new(Watch::default()), Arc::new(Semaphore::new(99)));
    let period = Duration::from_millis(100);
    let queue = Queue { rate_limit: Some((2, period)), ..limits(None, None) };
    let engine = watched(world.engine().queue(queue), &watch, &gate).launch().await.unwrap();
    let started = Instant::now();
    for id in enqueue(&engine, 5).await {
        result::<()>(&engine.handle(&id)).await.unwrap();
    }
    // The fifth starts in the third period at the earliest.
    assert!(started.elapsed() >= period * 2);
}

#[tokio::test]
async fn what_a_dead_executor_ran_goes_back_into_its_queue() {
    let world = World::new().await;
    let (watch, shut) = (Arc::new(Watch::default()), Arc::new(Semaphore::new(0)));
    let mortal = world.mortal(100, Death::Before);
    let builder = Engine::builder(mortal.clone()).executor_id("dead".to_owned()).heartbeat(FAST);
    let builder = builder.queue(limits(Some(2), None));
    let dead = watched(builder, &watch, &shut).launch().await.unwrap();
    let ids = enqueue(&dead, 4).await;
    until(async || dead.running() == 2).await;
    mortal.kill();

    let open = Arc::new(Semaphore::new(4));
    let builder = world.engine().heartbeat(FAST).queue(limits(Some(2), None));
    let engine = watched(builder, &watch, &open).launch().await.unwrap();
    for id in ids {
        result::<()>(&engine.handle(&id)).await.unwrap();
    }
    let attempts =
        async |name| world.store.info(&id(name)).await.unwrap().unwrap().recovery_attempts;
    assert_eq!((attempts("00").await, attempts("03").await), (2, 1));
}

#[tokio::test]
async fn cancelling_makes_room() {
    let world = World::new().await;
    let (watch, gate) = (Arc::new(Watch::default()), Arc::new(Semaphore::new(0)));
    let builder = world.engine().grace(FAST).queue(limits(Some(1), None));
    let engine = watched(builder, &watch, &gate).launch().await.unwrap();
    enqueue(&engine, 3).await;
    until(async || engine.running() == 1).await;
    for name in ["01", "00"] {
        engine.cancel(&id(name)).await.unwrap();
    }
    until(async || watch.started.lock().unwrap().len() == 2).await;
    // The cancelled one may still take a permit while it is being dropped.
    gate.add_permits(9);
    result::<()>(&engine.handle(&id("02"))).await.unwrap();
    assert_eq!(*watch.started.lock().unwrap(), ["00", "02"]);
    // Resumed, it waits in its queue again.
    engine.resume(&id("01")).await.unwrap();
    result::<()>(&engine.handle(&id("01"))).await.unwrap();
}

#[tokio::test]
async fn workflows_without_a_queue_do_not_wait_for_one() {
    let world = World::new().await;
    let (watch, gate) = (Arc::new(Watch::default()), Arc::new(Semaphore::new(0)));
    let builder = world.engine().queue(limits(Some(1), Some(1)));
    let engine = watched(builder, &watch, &gate).launch().await.unwrap();
    enqueue(&engine, 2).await;
    until(async || engine.running() == 1).await;
    start(&engine, "w", &(), "inline").await;
    assert_eq!(engine.running(), 2);
}
