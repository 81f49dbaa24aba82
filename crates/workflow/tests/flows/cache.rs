//! Outputs of tasks that are cached for other runs: which runs can use them, and which changes cause a
//! task to be executed again.

use std::time::Duration;

use serde_json::{Value, json};
use stockade_api::{Caller, Follow, Run, RunStatus, Workflows as _};
use stockade_core::OwnerId;

use crate::world::World;

/// A workflow file with these tasks, and a schema of the table `output`.
fn flow(attributes: &str, body: &str) -> String {
    format!(
        "import {{ createSmithers }} from \"stockade\";\n\
         const schema = {{ type: \"object\" }};\n\
         const {{ Workflow, Task, Sequence, Parallel, Approval, Sandbox, smithers, outputs }} =\n\
           createSmithers({{ first: {{}}, output: schema }});\n\
         let calls = 0;\n\
         export default smithers((ctx) => (<Workflow name=\"w\"{attributes}>{body}</Workflow>));\n"
    )
}

/// A cached task, with this `cache` attribute.
fn task(cache: &str) -> String {
    format!(
        "<Task id=\"t\" output={{outputs.output}} cache={cache}>\
         {{() => ({{ n: ctx.input.n, word: \"one\" }})}}</Task>"
    )
}

/// How often the task `t` of a run was started.
async fn executions(world: &World, run: &Run) -> u32 {
    assert_eq!(run.status, RunStatus::Finished, "{run:?}");
    world.tasks(run).await.iter().find(|task| task.id == "t").unwrap().executions
}

/// How often a new run starts the task `t`.
async fn start(world: &World, source: &str, input: Value) -> u32 {
    let run = world.run(source, input).await;
    executions(world, &run).await
}

#[tokio::test]
async fn an_answer_is_taken_by_the_next_run_with_the_same_question() {
    let world = World::new().await;
    let source = flow("", &task("{true}"));
    let first = world.run(&source, json!({ "n": 1 })).await;
    assert_eq!(executions(&world, &first).await, 1);
    let second = world.run(&source, json!({ "n": 1 })).await;
    assert_eq!(executions(&world, &second).await, 0);
    assert_eq!(second.output, first.output);
    let follow = Follow { id: second.id.clone(), from: 0, wait_ms: 0, known_status: None };
    let events = world.workflows.follow(&world.caller, follow).await.unwrap().events;
    let found = |kind: &str| events.iter().find(|event| event["type"] == kind).unwrap().clone();
    assert_eq!(found("NodeCached")["cachedBy"], first.id.as_str());
    assert_eq!(found("NodeFinished")["cacheHit"], true);
    assert!(events.iter().all(|event| event["type"] != "NodeStarted"), "{events:?}");
    // Another input and any other code have other keys.
    assert_eq!(start(&world, &source, json!({ "n": 2 })).await, 1);
    let changed = source.replace("\"one\"", "\"two\"");
    assert_eq!(start(&world, &changed, json!({ "n": 1 })).await, 1);
    assert_eq!(start(&world, &source, json!({ "n": 1 })).await, 0);
}

#[tokio::test]
async fn what_an_author_says_decides() {
    let world = World::new().await;
    let by = |by: &str| flow("", &task(by));
    let twice = async |source: &str| {
        let first = start(&world, source, json!({ "n": 1 })).await;
        (first, start(&world, source, json!({ "n": 1 })).await)
    };
    assert_eq!(twice(&by("{{ key: \"a\" }}")).await, (1, 0));
    assert_eq!(twice(&by("{{ key: \"a\", version: \"2\" }}")).await, (1, 0));
    assert_eq!(twice(&by("{{ key: \"b\" }}")).await, (1, 0));
    assert_eq!(twice(&by("{{ scope: \"run\" }}")).await, (1, 1));
    assert_eq!(twice(&by("{{ scope: \"global\" }}")).await, (1, 0));
    // Only `by` affects the key, in addition to the code.
    let only = by("{{ by: (ctx) => ctx.input.n % 10 }}");
    assert_eq!(start(&world, &only, json!({ "n": 1 })).await, 1);
    assert_eq!(start(&world, &only, json!({ "n": 11 })).await, 0);
    assert_eq!(start(&world, &only, json!({ "n": 12 })).await, 1);
    // If `by` fails, the output is not cached.
    assert_eq!(twice(&by("{{ by: (ctx) => ctx.gone.x }}")).await, (1, 1));
    // The key of a constant does not depend on the rest of the file.
    let value = flow("", "<Task id=\"t\" output={outputs.output} cache>{{ n: 1 }}</Task>");
    assert_eq!(twice(&value).await, (1, 0));
    assert_eq!(twice(&(value.clone() + "// more\n")).await, (0, 0));
    let schema = value.replace("type: \"object\"", "type: \"object\", required: [\"n\"]");
    assert_eq!(twice(&schema).await, (1, 0));
}

#[tokio::test]
async fn an_answer_gets_too_old() {
    let world = World::new().await;
    let brief = flow("", &task("{{ ttlMs: 1 }}"));
    assert_eq!(start(&world, &brief, json!({})).await, 1);
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(start(&world, &brief, json!({})).await, 1);
    // The reader of the cache limits the lifetime too.
    let long = flow("", &task("{{ by: 1, ttlMs: 3_600_000 }}"));
    assert_eq!(start(&world, &long, json!({})).await, 1);
    assert_eq!(start(&world, &long, json!({})).await, 0);
}

#[tokio::test]
async fn owners_and_failures_are_kept_apart() {
    let mut world = World::new().await;
    let source = flow("", &task("{true}"));
    assert_eq!(start(&world, &source, json!({})).await, 1);
    let own = world.caller.clone();
    world.caller = Caller::new(OwnerId::new("uid:1").unwrap());
    assert_eq!(start(&world, &source, json!({})).await, 1);
    assert_eq!(start(&world, &source, json!({})).await, 0);
    world.caller = own;
    let failing = flow(
        "",
        "<Task id=\"t\" output=\"output\" cache={{ by: 1 }} retries={1} retryPolicy={{ initialDelayMs: 1 }}>\
         {() => { calls += 1; if (calls < 2) throw new Error(\"no\"); return { calls }; }}</Task>",
    );
    assert_eq!(start(&world, &failing, json!({})).await, 2);
    assert_eq!(start(&world, &failing, json!({})).await, 0);
    let never = failing.replace("calls < 2", "true");
    for _ in 0..2 {
        let run = world.run(&never, json!({})).await;
        assert_eq!(run.status, RunStatus::Failed);
        assert_eq!(world.tasks(&run).await[0].executions, 2);
    }
}

#[tokio::test]
async fn runs_at_once_keep_one_answer() {
    let world = World::new().await;
    let file = world.write("flow.tsx", &flow("", &task("{true}")));
    let ups = (0..4).map(|_| world.up(&file, json!({ "n": 1 })));
    for run in futures_util::future::join_all(ups).await {
        let run = world.settled(&run.unwrap().id).await;
        assert_eq!(run.output, Some(json!({ "n": 1, "word": "one" })), "{run:?}");
    }
    assert_eq!(start(&world, &flow("", &task("{true}")), json!({ "n": 1 })).await, 0);
}

#[tokio::test]
async fn a_workflow_can_keep_all_of_its_tasks() {
    let world = World::new().await;
    let body = "<Parallel>\
         <Task id=\"t\" output={outputs.first}>{() => ({ n: 1 })}</Task>\
         <Task id=\"u\" output={outputs.first} cache={false}>{() => ({ n: 2 })}</Task>\
         </Parallel>\
         <Task id=\"v\" output={outputs.output}>{() => ({ all: ctx.outputs(outputs.first).length })}</Task>";
    let source = flow(" cache", body);
    assert_eq!(start(&world, &source, json!({})).await, 1);
    let run = world.run(&source, json!({})).await;
    assert_eq!(run.output, Some(json!({ "all": 2 })), "{run:?}");
    let tasks = world.tasks(&run).await;
    let told: Vec<_> = tasks.iter().map(|task| (task.id.as_str(), task.executions)).collect();
    assert!(told.contains(&("t", 0)) && told.contains(&("u", 1)) && told.contains(&("v", 0)));
}

#[tokio::test]
async fn what_is_no_policy_is_told() {
    let world = World::new().await;
    for (cache, told) in [
        ("{{ ttl: 5 }}", "`cache` has no `ttl` — did you mean `ttlMs`?"),
        ("{{ ttlMs: -1 }}", "`cache.ttlMs` must be a number of milliseconds above 0, not -1"),
        ("{{ scope: \"all\" }}", "`cache.scope` must be \"run\", \"workflow\" or \"global\""),
        ("{7}", "`cache` must be true, false or an object"),
    ] {
        let file = world.write("flow.tsx", &flow("", &task(cache)));
        let refused = world.up(&file, json!({})).await.unwrap_err();
        let cause = refused.cause.unwrap();
        assert!(cause.contains(told), "{cause}");
    }
    let file = world.write("flow.tsx", &flow("", "<Approval id=\"ok\" cache />"));
    let refused = world.up(&file, json!({})).await.unwrap_err();
    assert!(refused.cause.unwrap().contains("<Approval> has a `cache`, but waits"));
}
