//! Durable timers.

use std::time::{Duration, Instant};

use stockade_durable::{Engine, Status};

use crate::mortal::Death;
use crate::world::{World, id, result, start, until};

#[tokio::test]
async fn a_crash_does_not_lengthen_a_sleep() {
    let world = World::new().await;
    let nap = Duration::from_millis(400);
    let sleeps = move |builder: stockade_durable::Builder| {
        builder.workflow("nap", move |context, (): ()| async move { context.sleep(nap).await })
    };
    let mortal = world.mortal(100, Death::Before);
    let engine = Engine::builder(mortal.clone()).executor_id("one".to_owned());
    let started = Instant::now();
    let dead = sleeps(engine).launch().await.unwrap();
    start(&dead, "nap", &(), "n").await;
    until(async || world.store.steps(&id("n")).await.unwrap().len() == 1).await;
    mortal.kill();
    let first = world.store.steps(&id("n")).await.unwrap();

    let engine = sleeps(world.engine()).launch().await.unwrap();
    assert_eq!(engine.handle(&id("n")).get_status().await.unwrap(), Status::Pending);
    result::<()>(&engine.handle(&id("n"))).await.unwrap();
    assert!(started.elapsed() >= nap);
    // The wake-up time is the one that the first run recorded.
    assert_eq!(world.store.steps(&id("n")).await.unwrap(), first);
}

#[tokio::test]
async fn a_sleep_that_is_over_ends_at_once() {
    let world = World::new().await;
    let engine = world.engine().workflow("w", |context, (): ()| async move {
        context.sleep(Duration::ZERO).await?;
        context.recv::<()>("none", Duration::ZERO).await
    });
    let engine = engine.launch().await.unwrap();
    let handle = start(&engine, "w", &(), "w").await;
    assert_eq!(result::<Option<()>>(&handle).await.unwrap(), None);
}
