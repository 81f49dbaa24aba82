//! Cancelling, timeouts, and resuming afterwards.

use std::time::Duration;

use stockade_durable::{Context, Error, Failure, StartOptions, Status};

use crate::world::{Counter, World, id, insert, named, result, soon, start, until};

/// A step that ends only by its token.
async fn endless(context: Context) -> Result<(), Failure> {
    context
        .step("endless", |step| async move {
            step.token.cancelled().await;
            Err(Failure::new("told", "to stop"))
        })
        .await
}

#[tokio::test]
async fn cancelling_reaches_the_running_step_and_all_below() {
    let world = World::new().await;
    let engine = world
        .engine()
        .grace(Duration::from_secs(600))
        .workflow("parent", |context, (): ()| async move {
            let child = context.child("child", &(), StartOptions::default()).await?;
            Ok(child.get_result::<()>().await?)
        })
        .workflow("child", |context, (): ()| endless(context))
        .launch()
        .await
        .unwrap();
    let parent = start(&engine, "parent", &(), "p").await;
    until(async || engine.info(&id("p-0")).await.unwrap().is_some()).await;
    engine.cancel(&id("p")).await.unwrap();
    for handle in [parent, engine.handle(&id("p-0"))] {
        let error = result::<()>(&handle).await.unwrap_err();
        assert!(matches!(error, Error::Cancelled { timed_out: false, .. }), "{error}");
        assert_eq!(handle.get_status().await.unwrap(), Status::Cancelled);
    }
    until(async || engine.running() == 0).await;
    // The failure that the token caused is not recorded as the step's.
    assert!(world.store.steps(&id("p-0")).await.unwrap().is_empty());
    // Again, and an unknown one.
    engine.cancel(&id("p")).await.unwrap();
    assert!(matches!(engine.cancel(&id("x")).await, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn one_that_does_not_listen_is_dropped() {
    struct Dropped(Option<tokio::sync::oneshot::Sender<()>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.take().unwrap().send(()).unwrap();
        }
    }
    let world = World::new().await;
    let (sender, dropped) = tokio::sync::oneshot::channel();
    let sender = std::sync::Mutex::new(Some(Dropped(Some(sender))));
    let engine = world
        .engine()
        .grace(Duration::from_millis(10))
        .workflow("deaf", move |_, (): ()| {
            let held = sender.lock().unwrap().take();
            async move {
                std::future::pending::<()>().await;
                drop(held);
                Ok(())
            }
        })
        .launch()
        .await
        .unwrap();
    start(&engine, "deaf", &(), "d").await;
    engine.cancel(&id("d")).await.unwrap();
    soon(dropped).await.unwrap();
}

#[tokio::test]
async fn a_cancelled_workflow_writes_nothing_more() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("swallows", |context, (): ()| async move {
            endless(context.clone()).await.ok();
            context.finish_with(vec![insert("end")]);
            let failure = context.step("later", |_| async { Ok(()) }).await.unwrap_err();
            assert_eq!(failure.code, "cancelled");
            Ok(())
        })
        .launch()
        .await
        .unwrap();
    let handle = start(&engine, "swallows", &(), "s").await;
    engine.cancel(&id("s")).await.unwrap();
    let error = result::<()>(&handle).await.unwrap_err();
    assert!(matches!(error, Error::Cancelled { .. }), "{error}");
    assert!(world.items().await.is_empty());
    assert!(world.store.steps(&id("s")).await.unwrap().is_empty());
}

#[tokio::test]
async fn one_that_runs_out_of_time_is_cancelled() {
    let world = World::new().await;
    let engine =
        world.engine().workflow("endless", |context, (): ()| endless(context)).launch().await;
    let engine = engine.unwrap();
    let timeout = Some(Duration::from_millis(30));
    let options = StartOptions { timeout, ..named("t") };
    let handle = engine.start("endless", &(), options).await.unwrap();
    let error = result::<()>(&handle).await.unwrap_err();
    assert!(matches!(error, Error::Cancelled { timed_out: true, .. }), "{error}");
    assert!(engine.info(&id("t")).await.unwrap().unwrap().deadline.is_some());
}

#[tokio::test]
async fn a_cancelled_workflow_goes_on_behind_its_steps() {
    let world = World::new().await;
    let (first, runs) = (Counter::default(), Counter::default());
    let counters = (first.clone(), runs.clone());
    let engine = world
        .engine()
        .workflow("parent", |context, (): ()| async move {
            let child = context.child("child", &(), StartOptions::default()).await?;
            Ok(child.get_result::<u32>().await?)
        })
        .workflow("child", move |context, (): ()| {
            let (first, runs) = counters.clone();
            async move {
                context.step("first", |_| async { Ok(first.add()) }).await?;
                if runs.add() == 1 {
                    endless(context.clone()).await?;
                }
                context.step("second", |_| async { Ok(7) }).await
            }
        })
        .launch()
        .await
        .unwrap();
    let handle = start(&engine, "parent", &(), "p").await;
    until(async || runs.get() == 1).await;
    engine.cancel(&id("p")).await.unwrap();
    assert!(matches!(result::<u32>(&handle).await, Err(Error::Cancelled { .. })));
    until(async || engine.running() == 0).await;
    engine.resume(&id("p")).await.unwrap();
    assert_eq!(result::<u32>(&engine.handle(&id("p"))).await.unwrap(), 7);
    assert_eq!((first.get(), runs.get()), (1, 2));
    // A successful workflow is unchanged.
    engine.resume(&id("p")).await.unwrap();
    assert_eq!(handle.get_status().await.unwrap(), Status::Success);
}
