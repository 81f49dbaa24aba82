//! Steps: recorded, replayed, retried, and committed together with rows.

use std::time::Duration;

use stockade_durable::{
    Backoff, Error, Failure, Record, StartOptions, Statement, StepOptions, StepOutcome,
};

use crate::mortal::Death;
use crate::world::{Counter, World, bump, id, insert, result, soon, start};

fn tries(retries: u32) -> StepOptions {
    let backoff = Backoff { initial: Duration::from_millis(1), ..Backoff::default() };
    StepOptions { retries, backoff, ..StepOptions::default() }
}

#[tokio::test]
async fn only_retryable_failures_are_tried_again() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("w", |context, (retryable, enough): (bool, bool)| async move {
            let count = Counter::default();
            let done = context.step_with("s", tries(if enough { 2 } else { 1 }), |step| {
                let attempt = count.add();
                assert_eq!((step.attempt, step.key.ends_with(":0")), (attempt, true));
                async move {
                    match attempt {
                        3 => Ok(attempt),
                        _ if retryable => Err(Failure::new("again", "later").retryable()),
                        _ => Err(Failure::new("never", "no")),
                    }
                }
            });
            let done = done.await;
            Ok((done.map_err(|failure| failure.code), count.get()))
        })
        .launch()
        .await
        .unwrap();
    let run = async |input: (bool, bool)| {
        let handle = engine.start("w", &input, StartOptions::default()).await.unwrap();
        result::<(Result<u32, String>, u32)>(&handle).await.unwrap()
    };
    assert_eq!(run((true, true)).await, (Ok(3), 3));
    assert_eq!(run((true, false)).await, (Err("again".to_owned()), 2));
    assert_eq!(run((false, true)).await, (Err("never".to_owned()), 1));
}

#[tokio::test]
async fn a_slow_step_is_timed_out_and_its_token_cancelled() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("w", |context, (): ()| async move {
            let (sender, hears) = tokio::sync::oneshot::channel();
            let mut sender = Some(sender);
            let timeout = Some(Duration::from_millis(20));
            let options = StepOptions { timeout, ..StepOptions::default() };
            let step = context.step_with::<(), _, _>("slow", options, |step| {
                let sender = sender.take();
                async move {
                    tokio::spawn(async move {
                        step.token.cancelled().await;
                        sender.map(|told| told.send(()))
                    });
                    std::future::pending().await
                }
            });
            let failure = step.await.unwrap_err();
            soon(hears).await.unwrap();
            Ok((failure.code, failure.retryable))
        })
        .launch()
        .await
        .unwrap();
    let handle = start(&engine, "w", &(), "w").await;
    let failed = result::<(String, bool)>(&handle).await.unwrap();
    assert_eq!(failed, ("step_timed_out".to_owned(), true));
}

#[tokio::test]
async fn a_step_and_its_rows_commit_together_or_not_at_all() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("w", |context, version: i64| async move {
            context
                .transact("add", StepOptions::default(), |_| async { Ok(((), vec![insert("a")])) })
                .await?;
            let options = StepOptions::default();
            let bumped = context.transact("bump", options, |_| async move {
                Ok((version + 1, vec![insert("b"), bump("a", version)]))
            });
            bumped.await
        })
        .launch()
        .await
        .unwrap();
    let handle = start(&engine, "w", &9, "w").await;
    let Err(Error::Failed(failure)) = result::<i64>(&handle).await else { panic!("conflict") };
    assert_eq!((failure.code.as_str(), failure.retryable), ("conflict", true));
    assert_eq!(world.items().await, [("a".to_owned(), 1)]);
    let steps = engine.store().steps(&id("w")).await.unwrap();
    assert!(matches!(steps[0].outcome, StepOutcome::Output(_)));
    assert!(matches!(&steps[1].outcome, StepOutcome::Failure(failed) if *failed == failure));
}

#[tokio::test]
async fn a_conflict_can_be_tried_again_with_what_is_there_now() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("w", |context, (): ()| async move {
            let guess = Counter::default();
            let context = &context;
            context
                .transact("bump", tries(5), |_| {
                    let guess = i64::from(guess.add()) - 1;
                    async move { Ok((guess, vec![bump("a", guess)])) }
                })
                .await
        })
        .launch()
        .await
        .unwrap();
    world.store.execute(vec![insert("a"), bump("a", 1), bump("a", 2)]).await.unwrap();
    let handle = start(&engine, "w", &(), "w").await;
    assert_eq!(result::<i64>(&handle).await.unwrap(), 3);
    assert_eq!(world.items().await, [("a".to_owned(), 4)]);
}

#[tokio::test]
async fn wrong_sql_is_the_failure_of_its_step() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("w", |context, (): ()| async move {
            let wrong = || vec![insert("kept not"), Statement::new("NO SUCH WORDS", vec![])];
            let step =
                context.transact("s", StepOptions::default(), |_| async move { Ok(((), wrong())) });
            let code = step.await.unwrap_err().code;
            context.step("goes on", |_| async { Ok(code.clone()) }).await
        })
        .launch()
        .await
        .unwrap();
    let handle = start(&engine, "w", &(), "w").await;
    assert_eq!(result::<String>(&handle).await.unwrap(), "invalid");
    assert!(world.items().await.is_empty());
}

#[tokio::test]
async fn a_record_that_may_wait_is_carried_by_the_next_commit() {
    let world = World::new().await;
    // Two writes: the start, and the one commit of four steps; the end is never written.
    let mortal = world.mortal(2, Death::Before);
    let engine = stockade_durable::Engine::builder(mortal);
    let engine = engine
        .workflow("w", |context, (): ()| async move {
            let late = StepOptions { record: Record::WithNext, ..StepOptions::default() };
            context.step_with("a", late, |_| async { Ok(1) }).await?;
            context.volatile("secret", |_| async { Ok(std::time::Instant::now()) }).await?;
            context.step_with("b", late, |_| async { Ok(2) }).await?;
            context.step("c", |_| async { Ok(3) }).await
        })
        .launch()
        .await
        .unwrap();
    let handle = start(&engine, "w", &(), "w").await;
    assert!(matches!(result::<i32>(&handle).await, Err(Error::Interrupted { .. } | Error::Closed)));
    let steps = world.store.steps(&id("w")).await.unwrap();
    let names: Vec<_> = steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["a", "secret", "b", "c"]);
}

#[tokio::test]
async fn steps_may_run_side_by_side() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("w", |context, (): ()| async move {
            let barrier = tokio::sync::Barrier::new(2);
            let meet = |_| async {
                barrier.wait().await;
                Ok(())
            };
            let (a, b) = (context.step("a", meet), context.step("b", meet));
            let (b, a) = tokio::join!(b, a);
            a.and(b)
        })
        .launch()
        .await
        .unwrap();
    let handle = start(&engine, "w", &(), "w").await;
    result::<()>(&handle).await.unwrap();
    let steps = world.store.steps(&id("w")).await.unwrap();
    assert_eq!(steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

#[tokio::test]
async fn what_the_outcome_tells_is_not_recorded_twice() {
    let world = World::new().await;
    let engine = world
        .engine()
        .workflow("w", |context, more: bool| async move {
            let options = StepOptions { record: Record::WithOutcome, ..StepOptions::default() };
            let answer = context.step_with("answer", options, async |_| Ok("told".to_owned()));
            let answer: String = answer.await?;
            if more {
                context.step("more", async |_| Ok(1)).await?;
            }
            Ok(answer)
        })
        .launch()
        .await
        .unwrap();
    for (more, expected) in [(false, "null"), (true, "\"told\"")] {
        let handle = engine.start("w", &more, StartOptions::default()).await.unwrap();
        assert_eq!(result::<String>(&handle).await.unwrap(), "told");
        let steps = world.store.steps(handle.workflow_id()).await.unwrap();
        let outcome = StepOutcome::Output(expected.to_owned());
        assert_eq!((steps[0].name.as_str(), &steps[0].outcome), ("answer", &outcome));
    }
}
