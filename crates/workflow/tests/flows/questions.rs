//! Repeated questions: each answer is for one question.

use serde_json::{Value, json};
use stockade_api::{Decide, Follow, RunById, RunStatus, SendSignal, Workflows as _};
use stockade_core::Code;

use crate::world::World;

fn flow(body: &str) -> String {
    format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, Task, Sequence, Loop, Approval, WaitForEvent, Signal, smithers, outputs }} = \
            createSmithers({{ a: {{}}, output: {{}} }});\n\
         export default smithers((ctx) => (<Workflow name=\"w\">{body}</Workflow>));\n"
    )
}

const APPROVALS: &str = "<Loop id=\"l\" until={ctx.outputs.a.length >= 12} maxIterations={12}>\
    <Approval id=\"ok\" output={outputs.a} request={{ title: \"Go on?\" }} /></Loop>";

fn approval(run: &str) -> Decide {
    let (id, task) = (run.to_owned(), "ok".to_owned());
    Decide { id, task, approved: true, note: None, only: Vec::new(), allow_executed: false }
}

fn signal(run: &str, name: &str) -> SendSignal {
    let (id, name) = (run.to_owned(), name.to_owned());
    SendSignal { id, name, correlation: None, payload: json!({ "n": 1 }) }
}

/// No matter how many approvals are sent concurrently, no question is approved before it was asked.
#[tokio::test]
async fn a_decision_is_about_the_question_that_was_asked() {
    let world = World::new().await;
    let run = world.run(&flow(APPROVALS), json!({})).await;
    let decide = || world.workflows.decide(&world.caller, approval(&run.id));
    let mut decided = 0;
    while decided < 12 {
        let (one, other, third) = tokio::join!(decide(), decide(), decide());
        for said in [one, other, third] {
            match said {
                Ok(_) => decided += 1,
                // It was already decided, or there is no question at this moment.
                Err(problem) => assert_eq!(problem.code, Code::InvalidState, "{problem:?}"),
            }
        }
        world.settled(&run.id).await;
    }
    let run = world.ended(&run.id).await;
    assert_eq!(run.status, RunStatus::Finished, "{run:?}");
    let tasks = world.tasks(&run).await;
    assert_eq!(tasks.len(), 12);
    for task in tasks {
        let output = task.output.unwrap();
        let decided_at: jiff::Timestamp = output["decidedAt"].as_str().unwrap().parse().unwrap();
        assert!(decided_at.as_millisecond() >= task.started_at.as_ms(), "{output}");
    }
}

/// A follower that has read all events must learn that the run waits.
#[tokio::test]
async fn a_status_that_the_follower_does_not_know_is_news() {
    let world = World::new().await;
    let run = world.run(&flow(APPROVALS), json!({})).await;
    assert_eq!(world.settled(&run.id).await.status, RunStatus::Waiting);
    let from = i64::try_from(world.events(&run).await.len()).unwrap();
    let follow = |known_status| {
        let follow = Follow { id: run.id.clone(), from, wait_ms: 20_000, known_status };
        let deadline = std::time::Duration::from_secs(10);
        tokio::time::timeout(deadline, world.workflows.follow(&world.caller, follow))
    };
    let update = follow(Some(RunStatus::Running)).await.unwrap().unwrap();
    assert_eq!((update.run.status, update.events), (RunStatus::Waiting, Vec::new()));
}

#[tokio::test]
async fn signals_in_a_loop_are_taken_one_by_one() {
    let world = World::new().await;
    let body = "<Loop id=\"l\" until={ctx.outputs.a.length >= 3} maxIterations={5}>\
        <Signal id=\"go\" output={outputs.a} /></Loop>";
    let run = world.run(&flow(body), json!({})).await;
    for taken in 1..=3 {
        assert_eq!(world.settled(&run.id).await.status, RunStatus::Waiting);
        world.workflows.signal(&world.caller, signal(&run.id, "go")).await.unwrap();
        let are_taken =
            |told: &[Value]| told.iter().filter(|it| it[2] == "finished").count() >= taken;
        world.until(&run, are_taken).await;
    }
    assert_eq!(world.ended(&run.id).await.status, RunStatus::Finished);
}

/// Two tasks wait for the same signal, and both signals were sent before the first wait.
#[tokio::test]
async fn a_signal_is_taken_once() {
    let world = World::new().await;
    let body = "<Sequence><Approval id=\"ok\" output={outputs.a} />\
        <WaitForEvent id=\"one\" event=\"go\" output={outputs.a} />\
        <WaitForEvent id=\"two\" event=\"go\" output={outputs.a} />\
        <WaitForEvent id=\"three\" event=\"go\" output={outputs.output} /></Sequence>";
    let run = world.run(&flow(body), json!({})).await;
    for _ in 0..2 {
        world.workflows.signal(&world.caller, signal(&run.id, "go")).await.unwrap();
    }
    world.workflows.decide(&world.caller, approval(&run.id)).await.unwrap();
    let waits = |told: &[Value]| told.iter().any(|it| it[0] == "three" && it[2] == "waiting-event");
    world.until(&run, waits).await;
    assert_eq!(world.settled(&run.id).await.status, RunStatus::Waiting);
    world.workflows.signal(&world.caller, signal(&run.id, "go")).await.unwrap();
    assert_eq!(world.ended(&run.id).await.status, RunStatus::Finished);
}

#[tokio::test]
async fn what_waits_can_be_cancelled_after_any_answer() {
    let world = World::new().await;
    let run = world.run(&flow(APPROVALS), json!({})).await;
    world.workflows.decide(&world.caller, approval(&run.id)).await.unwrap();
    let cancelled =
        world.workflows.cancel_run(&world.caller, RunById { id: run.id.clone() }).await.unwrap();
    assert_eq!(cancelled.status, RunStatus::Cancelled);
}

/// The sender of an invalid signal gets an error, and the task continues to wait.
#[tokio::test]
async fn a_signal_is_what_is_waited_for() {
    let world = World::new().await;
    let schema = "{ type: \"object\", properties: { n: { type: \"number\" } }, required: [\"n\"] }";
    let source = flow("<Signal id=\"go\" output={outputs.output} />");
    let source = source.replace("output: {}", &format!("output: {schema}"));
    let run = world.run(&source, json!({})).await;
    assert_eq!(run.status, RunStatus::Waiting, "{run:?}");
    let wrong = SendSignal { payload: json!({ "n": "one" }), ..signal(&run.id, "go") };
    let refused = world.workflows.signal(&world.caller, wrong).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidInput);
    assert!(refused.cause.as_ref().unwrap().contains("/n"), "{refused:?}");
    assert_eq!(world.settled(&run.id).await.status, RunStatus::Waiting);
    world.workflows.signal(&world.caller, signal(&run.id, "go")).await.unwrap();
    let run = world.ended(&run.id).await;
    assert_eq!(run.output, Some(json!({ "n": 1 })), "{run:?}");
}
