//! Workflows that workflows start.

use stockade_durable::{Failure, Queue, StartOptions};

use crate::world::{World, id, named, result, start};

#[tokio::test]
async fn children_have_derived_ids_and_inherit_the_owner() {
    let world = World::new().await;
    let engine = world
        .engine()
        .queue(Queue {
            name: "q",
            concurrency: Some(1),
            worker_concurrency: None,
            rate_limit: None,
        })
        .workflow("parent", |context, count: u32| async move {
            context.step("before", |_| async { Ok(()) }).await?;
            let mut children = Vec::new();
            for number in 0..count {
                let queue = (number % 2 == 0).then_some("q");
                let options = StartOptions { queue, ..StartOptions::default() };
                children.push(context.child("child", &number, options).await?);
            }
            let mut sum = 0;
            for child in children {
                sum += child.get_result::<u32>().await?;
            }
            Ok(sum)
        })
        .workflow("child", |context, number: u32| async move {
            assert_eq!(context.owner(), Some("ann"));
            Ok(number)
        })
        .launch()
        .await
        .unwrap();
    let options = StartOptions { owner: Some("ann".to_owned()), ..named("p") };
    let handle = engine.start("parent", &6, options).await.unwrap();
    assert_eq!(result::<u32>(&handle).await.unwrap(), 15);
    let child = engine.info(&id("p-3")).await.unwrap().unwrap();
    assert_eq!(child.parent, Some(id("p")));
    assert_eq!(world.store.steps(&id("p")).await.unwrap()[3].child, Some(id("p-3")));
}

#[tokio::test]
async fn what_a_child_fails_with_its_parent_can_see() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("parent", |context, (): ()| async move {
            let child = context.child("child", &1, named("shared")).await?;
            let failure = Failure::from(child.get_result::<()>().await.unwrap_err());
            // Another input under the same id, and an unregistered workflow.
            let conflict = context.child("child", &2, named("shared")).await.unwrap_err();
            let unknown = context.child("unknown", &(), named("u")).await.unwrap_err();
            Ok([failure.code, conflict.code, unknown.code])
        })
        .workflow("child", |_, _: u32| async { Err::<(), _>(Failure::new("sick", "today")) })
        .launch()
        .await
        .unwrap();
    let handle = start(&engine, "parent", &(), "p").await;
    let codes = result::<[String; 3]>(&handle).await.unwrap();
    assert_eq!(codes, ["sick", "conflict", "invalid"]);
    assert_eq!(world.store.steps(&id("p")).await.unwrap().len(), 3);
}
