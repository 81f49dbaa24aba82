//! Who may run a workflow: leases, take-overs, and executions that do not know that they lost their
//! lease.

use std::sync::Arc;
use std::time::Duration;

use stockade_durable::{Builder, Context, Engine, Error, Failure, Status};
use tokio::sync::Semaphore;

use crate::mortal::Death;
use crate::world::{Counter, FAST, World, id, insert, result, soon, start, until};

/// A workflow of two steps with a gate between; the executions of each step are counted.
fn gated(builder: Builder, gate: &Arc<Semaphore>, done: &Counter) -> Builder {
    let (gate, done) = (Arc::clone(gate), done.clone());
    builder.workflow("w", move |context: Context, (): ()| {
        let (gate, done) = (Arc::clone(&gate), done.clone());
        async move {
            context.step("first", |_| async { Ok(done.add()) }).await?;
            gate.acquire().await.map_err(|_| Failure::new("gate", "closed"))?.forget();
            context.finish_with(vec![insert("end")]);
            context.step("second", |_| async { Ok(done.add()) }).await
        }
    })
}

/// An engine whose store died when the workflow had reached its gate, which stays closed there.
async fn dead_engine(world: &World, done: &Counter) -> Engine {
    let gate = &Arc::new(Semaphore::new(0));
    let mortal = world.mortal(100, Death::Before);
    let engine = Engine::builder(mortal.clone()).executor_id("one".to_owned()).heartbeat(FAST);
    let engine = gated(engine, gate, done).launch().await.unwrap();
    start(&engine, "w", &(), "w").await;
    until(async || world.store.steps(&id("w")).await.unwrap().len() == 1).await;
    mortal.kill();
    engine
}

#[tokio::test]
async fn a_restart_goes_on_behind_the_recorded_steps() {
    let world = World::new().await;
    let (gate, done) = (Arc::new(Semaphore::new(0)), Counter::default());
    let _dead = dead_engine(&world, &done).await;
    // The same executor again: its old lease is invalid, however fresh it is.
    let engine = gated(world.engine(), &gate, &done).launch().await.unwrap();
    gate.add_permits(1);
    assert_eq!(result::<u32>(&engine.handle(&id("w"))).await.unwrap(), 2);
    let info = engine.info(&id("w")).await.unwrap().unwrap();
    assert_eq!((info.status, info.recovery_attempts), (Status::Success, 2));
}

#[tokio::test]
async fn another_executor_takes_over_when_the_lease_is_silent() {
    let world = World::new().await;
    let (gate, done) = (Arc::new(Semaphore::new(0)), Counter::default());
    let _dead = dead_engine(&world, &done).await;
    let engine = world.other_engine("two").heartbeat(FAST);
    let engine = gated(engine, &gate, &done).launch().await.unwrap();
    until(async || engine.running() == 1).await;
    gate.add_permits(1);
    assert_eq!(result::<u32>(&engine.handle(&id("w"))).await.unwrap(), 2);
    let info = engine.info(&id("w")).await.unwrap().unwrap();
    assert_eq!(info.executor_id.as_deref(), Some("two"));
}

#[tokio::test]
async fn a_live_executor_keeps_what_it_has() {
    let world = World::new().await;
    let (gate, done) = (Arc::new(Semaphore::new(0)), Counter::default());
    let engine = gated(world.engine().heartbeat(FAST), &gate, &done).launch().await.unwrap();
    let handle = start(&engine, "w", &(), "w").await;
    let other = world.other_engine("two").heartbeat(FAST);
    let other = gated(other, &gate, &done).launch().await.unwrap();
    tokio::time::sleep(FAST * 10).await;
    assert_eq!(other.running(), 0);
    gate.add_permits(1);
    assert_eq!(result::<u32>(&handle).await.unwrap(), 2);
}

#[tokio::test]
async fn a_zombie_writes_nothing_and_adopts_the_result() {
    let world = World::new().await;
    let (gate, done) = (Arc::new(Semaphore::new(0)), Counter::default());
    // It sends no further heartbeat in this test, but it can write.
    let zombie = world.engine().heartbeat(Duration::from_secs(3600));
    let zombie = gated(zombie, &gate, &done).launch().await.unwrap();
    let waits = start(&zombie, "w", &(), "w").await;
    until(async || done.get() == 1).await;

    let open = Arc::new(Semaphore::new(1));
    let engine = world.other_engine("two").heartbeat(Duration::from_millis(1));
    let engine = gated(engine, &open, &done).launch().await.unwrap();
    assert_eq!(result::<u32>(&engine.handle(&id("w"))).await.unwrap(), 2);

    gate.add_permits(1);
    assert_eq!(result::<u32>(&waits).await.unwrap(), 2);
    until(async || zombie.running() == 0).await;
    // The zombie's second step ran, as is allowed, but its record was rejected.
    let steps = world.store.steps(&id("w")).await.unwrap();
    assert_eq!(steps.len(), 2);
    assert_eq!(world.items().await, [("end".to_owned(), 1)]);
}

#[tokio::test]
async fn an_executor_whose_name_is_taken_stops() {
    let world = World::new().await;
    let (gate, done) = (Arc::new(Semaphore::new(0)), Counter::default());
    let first = gated(world.engine().heartbeat(FAST), &gate, &done);
    let first = first.grace(FAST).launch().await.unwrap();
    start(&first, "w", &(), "w").await;
    let second = gated(world.engine().heartbeat(FAST), &gate, &done).launch().await.unwrap();
    until(async || first.running() == 0).await;
    let error = soon(first.start("w", &(), Default::default())).await.unwrap_err();
    assert!(matches!(error, Error::ShuttingDown), "{error}");
    gate.add_permits(1);
    result::<u32>(&second.handle(&id("w"))).await.unwrap();
}

#[tokio::test]
async fn one_that_kills_its_executor_each_time_is_parked() {
    let world = World::new().await;
    let runs = Counter::default();
    let build = |world: &World| {
        let runs = runs.clone();
        world.engine().max_recovery_attempts(2).grace(FAST).workflow("bomb", move |_, (): ()| {
            runs.add();
            async { std::future::pending::<Result<(), _>>().await }
        })
    };
    let mut engines = vec![build(&world).launch().await.unwrap()];
    start(&engines[0], "bomb", &(), "b").await;
    for _ in 0..3 {
        // A new incarnation: for the store, the earlier one died.
        engines.push(build(&world).launch().await.unwrap());
    }
    let last = engines.last().unwrap();
    let error = result::<()>(&last.handle(&id("b"))).await.unwrap_err();
    assert!(matches!(error, Error::AttemptsExceeded { .. }), "{error}");
    until(async || runs.get() == 3).await;
    last.resume(&id("b")).await.unwrap();
    until(async || runs.get() == 4).await;
}

#[tokio::test]
async fn orderly_ends_and_recorded_steps_cost_no_attempt() {
    let world = World::new().await;
    let build = |world: &World| {
        world.engine().max_recovery_attempts(1).workflow("long", |context, (): ()| async move {
            for _ in 0..context.run_number() {
                context.step("s", |_| async { Ok(()) }).await?;
            }
            if context.run_number() == 8 {
                return Ok(());
            }
            std::future::pending().await
        })
    };
    let mut engines = Vec::new();
    for run in 1..=8 {
        let engine = build(&world).grace(FAST).launch().await.unwrap();
        if run == 1 {
            start(&engine, "long", &(), "l").await;
        }
        until(async || world.store.steps(&id("l")).await.unwrap().len() == run).await;
        if run % 2 == 0 {
            engine.shutdown(Duration::ZERO).await.unwrap();
        }
        engines.push(engine);
    }
    let info = world.store.info(&id("l")).await.unwrap().unwrap();
    assert_eq!(info.recovery_attempts, 8);
}

#[tokio::test]
async fn only_the_same_version_and_known_workflows_are_taken_over() {
    let world = World::new().await;
    let (gate, done) = (Arc::new(Semaphore::new(0)), Counter::default());
    let _dead = dead_engine(&world, &done).await;
    let other = world.engine().application_version("2".to_owned());
    let other = gated(other, &gate, &done).launch().await.unwrap();
    assert_eq!(other.running(), 0);
    let empty = world.engine().launch().await.unwrap();
    assert_eq!(empty.running(), 0);
    let right = gated(world.engine(), &gate, &done).launch().await.unwrap();
    assert_eq!(right.running(), 1);
}
