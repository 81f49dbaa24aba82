//! Messages between workflows.

use std::time::Duration;

use stockade_durable::{Engine, Error};

use crate::mortal::Death;
use crate::world::{SOON, World, id, result, start, until};

#[tokio::test]
async fn messages_arrive_in_order_once_and_by_topic() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("w", |context, (): ()| async move {
            let mut got = Vec::new();
            for topic in ["a", "b", "a", "a"] {
                got.extend(context.recv::<String>(topic, SOON).await?);
            }
            let none = context.recv::<String>("a", Duration::from_millis(20)).await?;
            assert_eq!(none, None);
            Ok(got.join(" "))
        })
        .launch()
        .await
        .unwrap();
    let handle = start(&engine, "w", &(), "w").await;
    let send = async |topic, text, key| engine.send(&id("w"), topic, text, key).await.unwrap();
    send("a", "one", Some("key")).await;
    send("a", "again", Some("key")).await;
    send("a", "two", None).await;
    send("b", "other", None).await;
    send("a", "three", None).await;
    assert_eq!(result::<String>(&handle).await.unwrap(), "one other two three");
    let error = engine.send(&id("nobody"), "a", "x", None).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn a_workflow_sends_once_however_often_it_runs() {
    let world = World::new().await;
    let build = |builder: stockade_durable::Builder| {
        builder
            .workflow("receiver", |context, (): ()| async move {
                let first = context.recv::<u64>("t", SOON).await?;
                let second = context.recv::<u64>("t", Duration::from_millis(30)).await?;
                Ok((first, second))
            })
            .workflow("sender", |context, (): ()| async move {
                let nobody = context.send(&id("nobody"), "t", &1).await.unwrap_err();
                assert_eq!(nobody.code, "not_found");
                context.send(&id("r"), "t", &context.run_number()).await
            })
    };
    for writes in 1..4 {
        let mortal = world.mortal(writes, Death::After);
        let dead = build(Engine::builder(mortal.clone()).executor_id("one".to_owned()));
        let dead = dead.launch().await.unwrap();
        if writes == 1 {
            let receiver = build(world.other_engine("two")).launch().await.unwrap();
            start(&receiver, "receiver", &(), "r").await;
        }
        let handle = start(&dead, "sender", &(), "s").await;
        result::<()>(&handle).await.ok();
        mortal.kill();
    }
    let engine = build(world.engine()).launch().await.unwrap();
    result::<()>(&engine.handle(&id("s"))).await.unwrap();
    let (first, second) =
        result::<(Option<u64>, Option<u64>)>(&engine.handle(&id("r"))).await.unwrap();
    assert!(first.is_some() && second.is_none(), "{first:?} {second:?}");
}

#[tokio::test]
async fn a_message_is_not_lost_with_its_receiver() {
    let world = World::new().await;
    let build = |builder: stockade_durable::Builder| {
        builder.workflow("w", |context, (): ()| async move {
            let first = context.recv::<u32>("t", SOON).await?;
            let second = context.recv::<u32>("t", SOON).await?;
            Ok((first, second))
        })
    };
    let mortal = world.mortal(100, Death::Before);
    let dead = build(Engine::builder(mortal.clone()).executor_id("one".to_owned()));
    let dead = dead.launch().await.unwrap();
    start(&dead, "w", &(), "w").await;
    dead.send(&id("w"), "t", &1, None).await.unwrap();
    until(async || {
        let steps = world.store.steps(&id("w")).await.unwrap();
        steps.iter().any(|step| step.name == "DBOS.recv")
    })
    .await;
    mortal.kill();
    let engine = build(world.engine()).launch().await.unwrap();
    engine.send(&id("w"), "t", &2, None).await.unwrap();
    let got = result::<(Option<u32>, Option<u32>)>(&engine.handle(&id("w"))).await.unwrap();
    assert_eq!(got, (Some(1), Some(2)));
}
