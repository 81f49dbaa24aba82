//! Removal of workflows that ended long ago.

use std::time::Duration;

use stockade_durable::{Error, StartOptions};

use crate::world::{SOON, World, id, result, start, until};

#[tokio::test]
async fn only_what_ended_long_ago_and_nobody_needs_is_removed() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("leaf", |context, (): ()| async move {
            context.write_stream("s", &1).await?;
            context.set_event("e", &1).await?;
            Ok(7)
        })
        .workflow("parent", |context, (): ()| async move {
            let child = context.child("leaf", &(), StartOptions::default()).await?;
            child.get_result::<u32>().await?;
            context.recv::<()>("go", SOON).await
        })
        .launch()
        .await
        .unwrap();
    let leaf = start(&engine, "leaf", &(), "l").await;
    let parent = start(&engine, "parent", &(), "p").await;
    result::<u32>(&leaf).await.unwrap();
    until(async || engine.handle(&id("p-0")).get_result::<u32>().await.is_ok()).await;

    assert_eq!(engine.collect(Duration::from_secs(3600)).await.unwrap(), 0);
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(engine.collect(Duration::ZERO).await.unwrap(), 1);
    assert!(engine.info(&id("l")).await.unwrap().is_none());
    assert!(world.store.steps(&id("l")).await.unwrap().is_empty());
    assert_eq!(world.store.event(&id("l"), "e").await.unwrap(), None);
    let gone = engine.read_stream(&id("l"), "s", 0).next().await.unwrap_err();
    assert!(matches!(gone, Error::NotFound { .. }), "{gone}");

    engine.send(&id("p"), "go", &(), None).await.unwrap();
    result::<Option<()>>(&parent).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(engine.collect(Duration::ZERO).await.unwrap(), 2);
    // Its id is free again.
    assert!(start(&engine, "leaf", &(), "l").await.was_created());
}
