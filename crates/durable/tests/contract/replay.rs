//! The engine is killed at every write: recorded steps do not run again, unrecorded ones do, and
//! the result is always the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use stockade_durable::{
    Builder, Context, Engine, Error, Failure, Record, StartOptions, StepOptions,
};

use crate::mortal::Death;
use crate::world::{World, id, insert, named, result, start};

/// One line of a program that a workflow runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Line {
    Step,
    Late,
    Volatile,
    Fails,
    Row,
    Sleep,
    Event,
    Write,
    Tell,
    Child(Vec<Self>),
}

/// How often each step ran, by its key.
type Effects = Arc<Mutex<BTreeMap<String, u32>>>;

async fn run(context: Context, program: Vec<Line>, effects: Effects) -> Result<u64, Failure> {
    let effect = |key: String| {
        let mut effects = effects.lock().unwrap();
        *effects.entry(key).or_default() += 1;
    };
    let mut sum = 0;
    let late = StepOptions { record: Record::WithNext, ..StepOptions::default() };
    for (place, line) in (1_u64..).zip(program) {
        let value = async |step: stockade_durable::Step| {
            effect(step.key);
            Ok::<_, Failure>(place)
        };
        match line {
            Line::Step => sum += context.step("step", &value).await?,
            Line::Late => sum += context.step_with("late", late, value).await?,
            Line::Volatile => sum += context.volatile("volatile", |_| async { Ok(place) }).await?,
            Line::Fails => {
                let failed = context.step::<u64, _, _>("fails", |step| {
                    effect(step.key);
                    async { Err(Failure::new("fails", "always")) }
                });
                sum += failed.await.unwrap_err().message.len() as u64;
            }
            Line::Row => {
                let row = format!("{}:{place}", context.id());
                let add = context.transact("row", StepOptions::default(), |step| {
                    effect(step.key);
                    let row = insert(&row);
                    async { Ok((1, vec![row])) }
                });
                sum += add.await?;
            }
            Line::Sleep => context.sleep(Duration::from_millis(1)).await?,
            Line::Event => context.set_event("place", &place).await?,
            Line::Write => context.write_stream("places", &place).await?,
            Line::Tell => {
                let own = context.id().clone();
                context.send(&own, "self", &place).await?;
                sum += context.recv::<u64>("self", Duration::ZERO).await?.unwrap_or(1 << 40);
            }
            Line::Child(lines) => {
                let child = context.child("program", &lines, StartOptions::default()).await?;
                sum += child.get_result::<u64>().await?;
            }
        }
    }
    context.finish_with(vec![insert(&format!("{}: end", context.id()))]);
    Ok(sum)
}

fn with_program(builder: Builder, effects: &Effects) -> Builder {
    let effects = Arc::clone(effects);
    builder.grace(Duration::ZERO).workflow("program", move |context, program| {
        // A child is the same kind of workflow: boxed, since the recursion has no fixed depth.
        Box::pin(run(context, program, Arc::clone(&effects)))
    })
}

/// The result of a run, apart from how often steps were started.
#[derive(Debug, PartialEq)]
struct FinalState {
    sum: u64,
    steps: Vec<String>,
    rows: Vec<(String, i64)>,
    stream: Vec<u64>,
}

async fn final_state(world: &World, engine: &Engine) -> FinalState {
    let handle = engine.handle(&id("p"));
    let sum = result::<u64>(&handle).await.unwrap();
    let steps = world.store.steps(&id("p")).await.unwrap();
    let steps = steps.iter().map(|step| format!("{}: {:?}", step.name, step.child)).collect();
    let mut stream = Vec::new();
    let mut reader = engine.read_stream(&id("p"), "places", 0);
    while let Some((_, value)) = reader.next().await.unwrap() {
        stream.push(value.as_u64().unwrap());
    }
    FinalState { sum, steps, rows: world.items().await, stream }
}

/// Runs a program with a store that dies at each of `deaths` writes in turn, then to its end.
async fn survive(program: &[Line], deaths: &[(i64, Death)]) -> (FinalState, Effects) {
    let world = World::new().await;
    let effects = Effects::default();
    for (writes, death) in deaths {
        let mortal = world.mortal(*writes, *death);
        let builder = Engine::builder(mortal.clone()).executor_id("one".to_owned());
        let launched = with_program(builder, &effects).launch().await;
        if matches!(launched, Err(Error::Closed)) && mortal.is_dead() {
            // The workflow that was taken over reached its next write before the launch was
            // complete.
            continue;
        }
        let engine = launched.unwrap();
        let Ok(handle) = engine.start("program", program, named("p")).await else { continue };
        match result::<u64>(&handle).await {
            Ok(_) => assert!(!mortal.is_dead()),
            Err(error) => assert!(
                matches!(
                    error,
                    Error::Interrupted { .. } | Error::Closed | Error::LeaseLost { .. }
                ) || matches!(&error, Error::Failed(failure) if failure.code == "closed"),
                "{error:?}"
            ),
        }
        mortal.kill();
    }
    let engine = with_program(world.engine(), &effects).launch().await.unwrap();
    start(&engine, "program", &program, "p").await;
    (final_state(&world, &engine).await, effects)
}

fn line() -> impl Strategy<Value = Line> {
    let leaf = prop_oneof![
        4 => Just(Line::Step),
        2 => Just(Line::Late),
        1 => Just(Line::Volatile),
        1 => Just(Line::Fails),
        2 => Just(Line::Row),
        1 => Just(Line::Sleep),
        1 => Just(Line::Event),
        2 => Just(Line::Write),
        1 => Just(Line::Tell),
    ];
    leaf.prop_recursive(2, 12, 4, |inner| {
        proptest::collection::vec(inner, 0..4).prop_map(Line::Child)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn deaths_change_nothing_of_what_is_left(
        program in proptest::collection::vec(line(), 1..8),
        deaths in proptest::collection::vec((0_i64..8, any::<bool>()), 0..5),
    ) {
        let death = |after| if after { Death::After } else { Death::Before };
        let deaths: Vec<_> = deaths.into_iter().map(|(at, after)| (at, death(after))).collect();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let (undisturbed, once) = survive(&program, &[]).await;
            let (survived, effects) = survive(&program, &deaths).await;
            assert_eq!(undisturbed, survived);
            assert!(once.lock().unwrap().values().all(|count| *count == 1));
            assert!(effects.lock().unwrap().values().all(|count| *count as usize <= deaths.len() + 1));
        });
    }
}

#[tokio::test]
async fn each_write_of_a_workflow_may_be_the_last() {
    let program = [
        Line::Step,
        Line::Row,
        Line::Late,
        Line::Write,
        Line::Child(vec![Line::Step, Line::Row]),
        Line::Tell,
        Line::Sleep,
        Line::Fails,
    ];
    let (undisturbed, _) = survive(&program, &[]).await;
    for writes in 0..16 {
        for death in [Death::Before, Death::After] {
            let (survived, effects) = survive(&program, &[(writes, death)]).await;
            assert_eq!(undisturbed, survived, "{writes} {death:?}");
            if death == Death::After {
                continue;
            }
            // One death: at most the step at which it happened runs twice, and one whose record was
            // carried with it.
            let again = effects.lock().unwrap().values().filter(|count| **count > 1).count();
            assert!(again <= 2, "{writes} {death:?} {effects:?}");
        }
    }
}

#[tokio::test]
async fn what_was_recorded_runs_no_more() {
    let program = vec![Line::Step; 6];
    for writes in 1..7 {
        // The record is on disk, but its confirmation was lost.
        let (_, effects) = survive(&program, &[(writes, Death::After)]).await;
        assert!(effects.lock().unwrap().values().all(|count| *count == 1), "{effects:?}");
    }
}

#[tokio::test]
async fn a_workflow_that_does_something_else_fails() {
    let world = World::new().await;
    let mortal = world.mortal(2, Death::Before);
    let builder = Engine::builder(mortal).executor_id("one".to_owned());
    let step = |name: &'static str| {
        move |context: Context, (): ()| async move {
            context.step(name, |_| async { Ok(()) }).await?;
            context.step("b", |_| async { Ok(()) }).await
        }
    };
    let engine = builder.workflow("w", step("a")).launch().await.unwrap();
    let handle = start(&engine, "w", &(), "w").await;
    result::<()>(&handle).await.unwrap_err();
    let engine = world.engine().workflow("w", step("c")).launch().await.unwrap();
    let error = result::<()>(&engine.handle(&id("w"))).await.unwrap_err();
    assert!(matches!(&error, Error::Failed(f) if f.code == "unexpected_step"), "{error}");
}
