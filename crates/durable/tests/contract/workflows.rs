//! Starting, joining, listing and ending workflows.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stockade_durable::{Engine, Error, Failure, Filter, Record, StartOptions, Status, StepOptions};

use crate::mortal::Death;
use crate::world::{Counter, World, id, insert, named, result, start, until};

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    item: String,
    count: u32,
}

#[tokio::test]
async fn a_workflow_returns_its_value() {
    let world = World::new().await;
    let engine = world.engine().workflow("order", |context, order: Order| async move {
        assert_eq!(context.owner(), Some("ann"));
        let count = order.count;
        let price = context.step("price", |_| async move { Ok(7 * count) }).await?;
        Ok(format!("{}: {price}", order.item))
    });
    let engine = engine.launch().await.unwrap();
    let order = Order { item: "nail".to_owned(), count: 3 };
    let options = StartOptions { owner: Some("ann".to_owned()), ..named("order-1") };
    let handle = engine.start("order", &order, options).await.unwrap();
    assert!(handle.was_created());
    assert_eq!(result::<String>(&handle).await.unwrap(), "nail: 21");
    assert_eq!(handle.get_status().await.unwrap(), Status::Success);

    let info = engine.info(handle.workflow_id()).await.unwrap().unwrap();
    assert_eq!(info.output.unwrap(), "nail: 21");
    assert_eq!((info.recovery_attempts, info.owner.as_deref()), (1, Some("ann")));
    assert!(info.created_at <= info.completed_at.unwrap());
    let steps = engine.store().steps(handle.workflow_id()).await.unwrap();
    assert_eq!(steps.len(), 1);
    assert_eq!((steps[0].function_id, steps[0].name.as_str()), (0, "price"));
}

#[tokio::test]
async fn a_failure_is_recorded_and_given_to_all_who_ask() {
    let world = World::new().await;
    let engine = world.engine().workflow("fails", |_, (): ()| async move {
        let failure = Failure::new("no_luck", "not today").with_details(serde_json::json!([1]));
        Err::<(), _>(failure)
    });
    let engine = engine.launch().await.unwrap();
    let handle = start(&engine, "fails", &(), "f").await;
    for handle in [handle, engine.handle(&id("f"))] {
        let Err(Error::Failed(failure)) = result::<()>(&handle).await else { panic!("it fails") };
        assert_eq!(failure.code, "no_luck");
        assert_eq!(failure.details, serde_json::json!([1]));
    }
    assert_eq!(engine.info(&id("f")).await.unwrap().unwrap().status, Status::Error);
}

#[tokio::test]
async fn a_known_id_joins_and_another_input_conflicts() {
    let world = World::new().await;
    let runs = Counter::default();
    let counter = runs.clone();
    let engine = world
        .engine()
        .workflow("w", move |_, input: Vec<u32>| {
            counter.add();
            async move { Ok(input.len()) }
        })
        .workflow("v", |_, _: Vec<u32>| async move { Ok(0) })
        .launch()
        .await
        .unwrap();
    let first = start(&engine, "w", &[1, 2], "same").await;
    assert_eq!(result::<usize>(&first).await.unwrap(), 2);
    let second = start(&engine, "w", &[1, 2], "same").await;
    assert!(!second.was_created());
    assert_eq!(result::<usize>(&second).await.unwrap(), 2);
    assert_eq!(runs.get(), 1);
    for (name, input) in [("w", [1, 3]), ("v", [1, 2])] {
        let error = engine.start(name, &input, named("same")).await.unwrap_err();
        assert!(matches!(error, Error::Conflict { .. }), "{error}");
    }
    for name in ["unknown", ""] {
        let error = engine.start(name, &(), StartOptions::default()).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
}

#[tokio::test]
async fn panics_become_failures() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("outside", |_, (): ()| async move {
            if true {
                panic!("over");
            }
            Ok(())
        })
        .workflow("inside", |context, (): ()| async move {
            let step = context.step::<(), _, _>("s", |_| async { panic!("board") }).await;
            Ok(step.unwrap_err().message)
        })
        .launch()
        .await
        .unwrap();
    let outside = start(&engine, "outside", &(), "a").await;
    let Err(Error::Failed(failure)) = result::<()>(&outside).await else { panic!("it fails") };
    assert_eq!((failure.code.as_str(), failure.message.as_str()), ("panic", "over"));
    let inside = start(&engine, "inside", &(), "b").await;
    assert_eq!(result::<String>(&inside).await.unwrap(), "board");
}

#[tokio::test]
async fn rows_commit_with_the_beginning_and_the_end() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("w", |context, fail: bool| async move {
            context.finish_with(vec![insert(&format!("{}: good", context.id()))]);
            context.finish_with_on_failure(vec![insert(&format!("{}: bad", context.id()))]);
            if fail { Err(Failure::new("asked", "for")) } else { Ok(()) }
        })
        .launch()
        .await
        .unwrap();
    for (name, fail) in [("a", false), ("b", true)] {
        let with = vec![insert(&format!("{name}: begun"))];
        let options = StartOptions { statements: with, ..named(name) };
        let handle = engine.start("w", &fail, options.clone()).await.unwrap();
        assert_eq!(result::<()>(&handle).await.is_err(), fail);
        // Joining it does not run the statement again, which would fail.
        assert!(!engine.start("w", &fail, options).await.unwrap().was_created());
    }
    let names: Vec<_> = world.items().await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a: begun", "a: good", "b: bad", "b: begun"]);

    // The row exists already: neither the workflow nor the row is recorded.
    let options = StartOptions { statements: vec![insert("a: begun")], ..named("c") };
    let error = engine.start("w", &false, options).await.unwrap_err();
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
    assert!(engine.info(&id("c")).await.unwrap().is_none());
}

#[tokio::test]
async fn last_statements_that_conflict_make_it_a_failure() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("w", |context, on_failure_too: bool| async move {
            context.finish_with(vec![insert("x"), insert("x")]);
            let rows =
                if on_failure_too { vec![insert("y"), insert("y")] } else { vec![insert("z")] };
            context.finish_with_on_failure(rows);
            Ok(())
        })
        .launch()
        .await
        .unwrap();
    for (name, both) in [("a", false), ("b", true)] {
        let handle = start(&engine, "w", &both, name).await;
        let Err(Error::Failed(failure)) = result::<()>(&handle).await else { panic!("it fails") };
        assert_eq!(failure.code, "conflict");
    }
    assert_eq!(world.items().await, [("z".to_owned(), 1)]);
}

#[tokio::test]
async fn lists_are_filtered_and_in_order() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("a", |_, (): ()| async move { Ok(()) })
        .workflow("b", |_, (): ()| async move { Err::<(), _>(Failure::new("b", "b")) })
        .launch()
        .await
        .unwrap();
    for number in 0..6 {
        let name = if number % 2 == 0 { "a" } else { "b" };
        let owner = Some(if number < 3 { "ann" } else { "bob" }.to_owned());
        let options = StartOptions { owner, ..named(&number.to_string()) };
        let handle = engine.start(name, &(), options).await.unwrap();
        result::<()>(&handle).await.ok();
    }
    let list = async |filter| {
        let found = engine.list(filter).await.unwrap();
        found.iter().map(|info| info.id.as_str().to_owned()).collect::<Vec<_>>().join("")
    };
    let any = Filter::default;
    assert_eq!(list(any()).await, "012345");
    assert_eq!(list(Filter { name: Some("a".to_owned()), ..any() }).await, "024");
    assert_eq!(list(Filter { status: Some(Status::Error), ..any() }).await, "135");
    let bobs = Filter { owner: Some("bob".to_owned()), limit: Some(2), ..any() };
    assert_eq!(list(bobs).await, "34");
    assert_eq!(list(Filter { queue: Some("q".to_owned()), ..any() }).await, "");
    assert_eq!(list(Filter { after: Some(i64::MAX), ..any() }).await, "");
    assert_eq!(list(Filter { before: Some(i64::MAX), ..any() }).await, "012345");
}

#[tokio::test]
async fn a_shutdown_takes_nothing_new_and_lets_short_work_end() {
    let world = World::new().await;
    let engine = world
        .engine()
        .grace(Duration::from_millis(10))
        .workflow("short", |context, (): ()| async move {
            for _ in 0..20 {
                context.step("s", |_| async { Ok(()) }).await?;
            }
            Ok(())
        })
        .workflow("long", |context, (): ()| async move {
            context.sleep(Duration::from_secs(3600)).await
        })
        .workflow("stubborn", |_, (): ()| async move {
            std::future::pending::<()>().await;
            Ok(())
        });
    let engine = engine.launch().await.unwrap();
    let short = start(&engine, "short", &(), "short").await;
    let long = start(&engine, "long", &(), "long").await;
    let stubborn = start(&engine, "stubborn", &(), "stubborn").await;
    engine.shutdown(Duration::from_secs(2)).await.unwrap();
    assert_eq!(engine.running(), 0);
    result::<()>(&short).await.unwrap();
    for handle in [long, stubborn] {
        let error = result::<()>(&handle).await.unwrap_err();
        assert!(matches!(error, Error::ShuttingDown), "{error}");
        assert_eq!(handle.get_status().await.unwrap(), Status::Pending);
    }
    let error = engine.start("short", &(), StartOptions::default()).await.unwrap_err();
    assert!(matches!(error, Error::ShuttingDown), "{error}");
}

#[tokio::test]
async fn of_many_starts_under_one_id_one_runs() {
    let world = World::new().await;
    let runs = Counter::default();
    let counter = runs.clone();
    let engine = world
        .engine()
        .workflow("w", move |context, (): ()| {
            let run = counter.add();
            async move { context.step("s", |_| async { Ok(run) }).await }
        })
        .launch()
        .await
        .unwrap();
    let starts: Vec<_> = (0..50)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move { start(&engine, "w", &(), "same").await })
        })
        .collect();
    let mut created = 0;
    for handle in starts {
        let handle = handle.await.unwrap();
        created += u32::from(handle.was_created());
        assert_eq!(result::<u32>(&handle).await.unwrap(), 1);
    }
    assert_eq!((created, runs.get()), (1, 1));
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_runs_all_the_same() {
    let world = World::new().await;
    let engine = world.engine().workflow("w", |_, (): ()| async move { Ok(()) });
    let engine = engine.launch().await.unwrap();
    let start = engine.start("w", &(), named("w"));
    // Polled once, so that it is submitted, then dropped.
    tokio::select! {
        biased;
        _ = start => {}
        () = std::future::ready(()) => {}
    }
    until(async || engine.info(&id("w")).await.unwrap().is_some()).await;
    result::<()>(&engine.handle(&id("w"))).await.unwrap();
}

#[tokio::test]
async fn a_short_workflow_costs_two_commits() {
    let world = World::new().await;
    let mortal = world.mortal(2, Death::Before);
    let engine = Engine::builder(mortal.clone())
        .workflow("w", |context, (): ()| async move {
            let late = StepOptions { record: Record::WithNext, ..StepOptions::default() };
            context.step_with("act", late, |_| async { Ok(()) }).await?;
            context.stream_writer("out").write("done").await?;
            context.finish_with(vec![insert("row")]);
            Ok(())
        })
        .launch()
        .await
        .unwrap();
    let handle = start(&engine, "w", &(), "w").await;
    result::<()>(&handle).await.unwrap();
    assert!(!mortal.is_dead());
    assert_eq!(world.store.steps(&id("w")).await.unwrap().len(), 1);
    assert_eq!(world.items().await.len(), 1);
    let page = world.store.stream(&id("w"), "out", 0, 9).await.unwrap();
    assert_eq!(page.rows, [(0, Some("done".into()))]);
}

#[tokio::test]
async fn records_are_there_when_the_store_is_opened_again() {
    let mut world = World::new().await;
    let workflow = |_, (): ()| async { Ok(7) };
    let engine = world.engine().workflow("w", workflow).launch().await.unwrap();
    let handle = start(&engine, "w", &(), "w").await;
    assert_eq!(result::<u32>(&handle).await.unwrap(), 7);
    world.store.execute(vec![insert("kept")]).await.unwrap();
    drop((handle, engine));
    world.reopen().await;
    assert_eq!(world.items().await, [("kept".to_owned(), 1)]);
    let engine = world.engine().workflow("w", workflow).launch().await.unwrap();
    assert_eq!(result::<u32>(&engine.handle(&id("w"))).await.unwrap(), 7);
}
