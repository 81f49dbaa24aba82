//! Workflows that belong to a place: only its executors run them, and they end without being run when
//! the place is given up.

use std::time::Duration;

use stockade_durable::{Builder, Context, Failure, Queue, StartOptions, Status};

use crate::mortal::Death;
use crate::world::{Counter, FAST, World, id, insert, result, soon, start, until};

/// Workflows that count their runs, and wait for ever if their input says so.
fn counting(builder: Builder, place: &str, runs: &Counter) -> Builder {
    let mut builder = builder.executor_id(place.to_owned()).place(place.to_owned()).heartbeat(FAST);
    for name in ["work", "watch"] {
        let runs = runs.clone();
        builder = builder.workflow(name, move |context: Context, waits: bool| {
            let runs = runs.clone();
            async move {
                let run = context.step("first", |_| async { Ok(runs.add()) }).await?;
                if waits && context.run_number() == 1 {
                    context.wait(std::future::pending::<()>()).await?;
                }
                Ok(run)
            }
        });
    }
    let queue =
        Queue { name: "queue", concurrency: None, worker_concurrency: None, rate_limit: None };
    builder.queue(queue)
}

fn queued(name: &str) -> StartOptions {
    StartOptions { id: Some(id(name)), queue: Some("queue"), ..StartOptions::default() }
}

fn failure() -> Failure {
    Failure::new("gone", "its place is gone")
}

const LONG: Duration = Duration::from_hours(1);

#[tokio::test]
async fn only_executors_of_the_place_run_its_workflows() {
    let world = World::new().await;
    let runs = Counter::default();
    let mortal = world.mortal(100, Death::Before);
    let builder = stockade_durable::Engine::builder(mortal.clone());
    let dying = counting(builder, "a", &runs).works_on(Vec::new()).launch().await.unwrap();
    start(&dying, "work", &true, "running").await;
    dying.start("work", &false, queued("waiting")).await.unwrap();
    until(async || runs.get() == 1).await;
    mortal.kill();
    let other = counting(world.engine(), "b", &runs).launch().await.unwrap();
    tokio::time::sleep(FAST * 10).await;
    assert_eq!((other.running(), runs.get()), (0, 1));
    assert_eq!(other.info(&id("waiting")).await.unwrap().unwrap().status, Status::Enqueued);
    // The place is back: what it had recorded stays, and what waited runs.
    let again = counting(world.engine(), "a", &runs).launch().await.unwrap();
    assert_eq!(result::<u32>(&again.handle(&id("running"))).await.unwrap(), 1);
    assert_eq!(result::<u32>(&again.handle(&id("waiting"))).await.unwrap(), 2);
}

#[tokio::test]
async fn workflows_of_a_silent_place_end_without_being_run() {
    let world = World::new().await;
    let runs = Counter::default();
    let paused = counting(world.engine(), "a", &runs).works_on(Vec::new()).launch().await.unwrap();
    start(&paused, "work", &true, "running").await;
    start(&paused, "watch", &true, "watching").await;
    paused.start("work", &false, queued("waiting")).await.unwrap();
    until(async || runs.get() == 2).await;
    let other = counting(world.engine(), "b", &runs).launch().await.unwrap();
    let abandon = async |silence, rows| {
        other.abandon("a", silence, &["watch"], failure(), rows).await.unwrap()
    };
    assert_eq!(abandon(LONG, vec![insert("early")]).await, None);
    assert!(world.items().await.is_empty());
    let mut ended = abandon(Duration::ZERO, vec![insert("end")]).await.unwrap();
    ended.sort();
    assert_eq!(ended, [id("running"), id("waiting")]);
    assert_eq!(world.items().await, [("end".to_owned(), 1)]);
    for name in ["running", "waiting"] {
        let info = other.info(&id(name)).await.unwrap().unwrap();
        assert_eq!((info.status, info.failure), (Status::Error, Some(failure())));
    }
    assert_eq!(other.info(&id("watching")).await.unwrap().unwrap().status, Status::Pending);
    // The executor of the place was alive: it notices that its lease has ended, and stops.
    soon(paused.wait_until_ended()).await;
    assert_eq!((other.running(), runs.get()), (0, 2));
    // Nobody gives up the place once it is back.
    let again = counting(world.engine(), "a", &runs).launch().await.unwrap();
    assert_eq!(result::<u32>(&again.handle(&id("watching"))).await.unwrap(), 2);
    assert_eq!(abandon(LONG, Vec::new()).await, None);
}

#[tokio::test]
async fn a_place_that_was_left_in_order_is_not_silent_yet() {
    let world = World::new().await;
    let runs = Counter::default();
    let left = counting(world.engine(), "a", &runs).launch().await.unwrap();
    let lease = async || world.store.lease("a").await.unwrap().unwrap();
    assert!(!lease().await.is_released && lease().await.silent_ms < 60_000);
    left.shutdown(Duration::from_secs(1)).await.unwrap();
    assert!(lease().await.is_released && lease().await.silent_ms < 60_000);
    assert_eq!(world.store.silent(Duration::ZERO).await.unwrap(), ["a"]);
    assert_eq!(world.store.silent(LONG).await.unwrap(), Vec::<String>::new());
    assert_eq!(world.store.lease("other").await.unwrap(), None);
    let other = counting(world.engine(), "b", &runs).launch().await.unwrap();
    let abandoned = other.abandon("a", LONG, &[], failure(), Vec::new()).await.unwrap();
    assert_eq!(abandoned, None);
    let abandoned = other.abandon("a", Duration::ZERO, &[], failure(), Vec::new()).await.unwrap();
    assert_eq!(abandoned, Some(Vec::new()));
}

#[tokio::test]
async fn an_engine_takes_from_chosen_queues_only() {
    let world = World::new().await;
    let runs = Counter::default();
    let front = counting(world.engine(), "a", &runs).works_on(Vec::new()).launch().await.unwrap();
    front.start("work", &false, queued("w")).await.unwrap();
    tokio::time::sleep(FAST * 5).await;
    assert_eq!(front.info(&id("w")).await.unwrap().unwrap().status, Status::Enqueued);
}
