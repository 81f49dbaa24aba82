//! Streams and events: order, late readers, and how they end.

use std::time::Duration;

use stockade_durable::{Error, Failure, Json, StreamReader};

use crate::world::{Counter, SOON, World, id, named, result, soon, start};

async fn rest(reader: &mut StreamReader) -> Result<Vec<Json>, Error> {
    let mut values = Vec::new();
    while let Some((_, value)) = soon(reader.next()).await? {
        values.push(value);
    }
    Ok(values)
}

#[tokio::test]
async fn readers_see_all_in_order_whenever_they_come() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("w", |context, count: u32| async move {
            for number in 0..count {
                context.write_stream("out", &number).await?;
            }
            context.write_stream("other", "x").await?;
            context.close_stream("out").await?;
            let failure = context.write_stream("out", &0).await.unwrap_err();
            assert_eq!(failure.code, "stream_closed");
            Ok(())
        })
        .launch()
        .await
        .unwrap();
    let numbers: Vec<Json> = (0..300).map(Json::from).collect();
    let handle = start(&engine, "w", &300, "w").await;
    let mut early = engine.read_stream(&id("w"), "out", 0);
    assert_eq!(rest(&mut early).await.unwrap(), numbers);
    assert_eq!(early.next().await.unwrap(), None);
    result::<()>(&handle).await.unwrap();
    let mut late = engine.read_stream(&id("w"), "out", 290);
    assert_eq!(late.next().await.unwrap(), Some((290, Json::from(290))));
    assert_eq!(rest(&mut late).await.unwrap(), numbers[291..]);
    // Never closed: it ends with its workflow.
    assert_eq!(rest(&mut engine.read_stream(&id("w"), "other", 0)).await.unwrap(), ["x"]);
    assert!(rest(&mut engine.read_stream(&id("w"), "none", 0)).await.unwrap().is_empty());
    let unknown = engine.read_stream(&id("v"), "out", 0).next().await.unwrap_err();
    assert!(matches!(unknown, Error::NotFound { .. }), "{unknown}");
}

#[tokio::test]
async fn a_failure_ends_readers_behind_what_was_written() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("w", |context, close: bool| async move {
            context.stream_writer("out").write(&1).await?;
            if close {
                context.stream_writer("out").close().await?;
            }
            Err::<(), _>(Failure::new("broke", "down"))
        })
        .launch()
        .await
        .unwrap();
    start(&engine, "w", &false, "open").await;
    let mut reader = engine.read_stream(&id("open"), "out", 0);
    assert_eq!(soon(reader.next()).await.unwrap(), Some((0, Json::from(1))));
    let error = soon(reader.next()).await.unwrap_err();
    assert!(matches!(&error, Error::Failed(failure) if failure.code == "broke"), "{error}");

    start(&engine, "w", &true, "closed").await;
    assert_eq!(rest(&mut engine.read_stream(&id("closed"), "out", 0)).await.unwrap(), [1]);
}

#[tokio::test]
async fn a_reader_waits_for_what_comes() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("echo", |context, (): ()| async move {
            let writer = context.stream_writer("out");
            while let Some(text) = context.recv::<String>("in", SOON).await? {
                if text == "end" {
                    return Ok(());
                }
                writer.write(&text).await?;
            }
            Ok(())
        })
        .launch()
        .await
        .unwrap();
    start(&engine, "echo", &(), "w").await;
    let mut reader = engine.read_stream(&id("w"), "out", 0);
    for (offset, text) in ["a", "b", "c"].into_iter().enumerate() {
        engine.send(&id("w"), "in", text, None).await.unwrap();
        let next = soon(reader.next()).await.unwrap();
        assert_eq!(next, Some((offset as u64, Json::from(text))));
    }
    engine.send(&id("w"), "in", "end", None).await.unwrap();
    assert_eq!(soon(reader.next()).await.unwrap(), None);
}

#[tokio::test]
async fn a_writer_keeps_order_under_a_flood() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("flood", |context, count: u32| async move {
            let writer = context.stream_writer("out");
            let text = "x".repeat(1000);
            let writer = &writer;
            context
                .step("produce", |_| {
                    let text = &text;
                    async move {
                        for number in 0..count {
                            writer.write(&(number, text)).await?;
                        }
                        let huge = "x".repeat(2 << 20);
                        assert_eq!(writer.write(&huge).await.unwrap_err().code, "too_large");
                        Ok(())
                    }
                })
                .await
        })
        .launch()
        .await
        .unwrap();
    let handle = start(&engine, "flood", &2000, "w").await;
    let mut reader = engine.read_stream(&id("w"), "out", 0);
    let values = rest(&mut reader).await.unwrap();
    let numbers: Vec<_> = values.iter().map(|value| value[0].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..2000).collect::<Vec<_>>());
    result::<()>(&handle).await.unwrap();
}

#[tokio::test]
async fn events_are_waited_for_and_replaced() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("w", |context, (): ()| async move {
            context.recv::<()>("go", SOON).await?;
            context.set_event("url", "a").await?;
            context.set_event("url", "b").await?;
            context.recv::<()>("go", SOON).await?;
            Ok(())
        })
        .launch()
        .await
        .unwrap();
    let early = tokio::spawn({
        let engine = engine.clone();
        // Before the workflow exists.
        async move { engine.get_event(&id("w"), "url", SOON).await }
    });
    let none = engine.get_event(&id("w"), "url", Duration::from_millis(10)).await.unwrap();
    assert_eq!(none, None);
    let handle = engine.start("w", &(), named("w")).await.unwrap();
    engine.send(&id("w"), "go", &(), None).await.unwrap();
    let seen = soon(early).await.unwrap().unwrap().unwrap();
    assert!(seen == "a" || seen == "b", "{seen}");
    engine.send(&id("w"), "go", &(), None).await.unwrap();
    result::<()>(&handle).await.unwrap();
    assert_eq!(engine.get_event(&id("w"), "url", SOON).await.unwrap().unwrap(), "b");
    // It has ended without setting this event.
    assert_eq!(engine.get_event(&id("w"), "more", SOON).await.unwrap(), None);
}

#[tokio::test]
async fn topics_wake_those_who_watch_rows() {
    let world = World::new().await;
    let engine = world.engine().launch().await.unwrap();
    let (mut items, others) = (engine.subscribe("items"), engine.subscribe("others"));
    let seen = Counter::default();
    let add = crate::world::insert("a").notifying("items");
    engine.store().execute(vec![add.clone()]).await.unwrap();
    soon(items.changed()).await.unwrap();
    seen.add();
    // A failed commit wakes no waiter.
    engine.store().execute(vec![add]).await.unwrap_err();
    assert!(!items.has_changed().unwrap());
    assert!(!others.has_changed().unwrap());
}
