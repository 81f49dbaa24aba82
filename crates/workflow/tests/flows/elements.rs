//! The behaviour of each element.

use serde_json::json;
use stockade_api::{Decide, Run, RunStatus, SendSignal, Workflows as _};

use crate::world::World;

/// A workflow file with this body.
fn flow(body: &str) -> String {
    format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers }} from \"smithers-orchestrator\";\n\
         const any = {{}};\n\
         const {{ Workflow, Task, Sequence, Parallel, MergeQueue, Branch, Loop, Approval, Timer, \
            WaitForEvent, Signal, Sandbox, smithers, outputs }} = createSmithers({{ a: any, b: {{}}, output: {{}} }});\n\
         export default smithers((ctx) => (<Workflow name=\"w\">{body}</Workflow>));\n"
    )
}

#[tokio::test]
async fn values_and_functions_give_what_is_kept() {
    let world = World::new().await;
    let run = world
        .run(
            &flow(
                "<Task id=\"one\" output={outputs.a}>{{ n: ctx.input.n }}</Task>\
                 <Task id=\"two\" output={outputs.b}>{async () => {\
                    await new Promise((done) => setTimeout(done, 5));\
                    return { n: ctx.output(outputs.a, { nodeId: \"one\" }).n + 1 }; }}</Task>\
                 <Task id=\"sum\" output={outputs.output} deps={{ one: outputs.a, two: outputs.b }}>\
                    {({ one, two }) => ({ sum: one.n + two.n, env: process.env.GREETING })}</Task>",
            ),
            json!({ "n": 3 }),
        )
        .await;
    assert_eq!(run.status, RunStatus::Finished, "{run:?}");
    assert_eq!(run.output, Some(json!({ "sum": 7, "env": "hello" })));
    assert_eq!(
        world.event_kinds(&run).await,
        [
            json!(["one", 0, "finished", 1, 1]),
            json!(["two", 0, "finished", 1, 1]),
            json!(["sum", 0, "finished", 1, 1])
        ]
    );
}

#[tokio::test]
async fn branches_follow_what_was_done() {
    let world = World::new().await;
    let run = world
        .run(
            &flow(
                "<Task id=\"ask\" output={outputs.a}>{() => ({ yes: ctx.input.yes })}</Task>\
                 <Branch if={ctx.outputMaybe(outputs.a)?.yes === true} \
                    then={<Task id=\"yes\" output=\"output\">{{ took: \"yes\" }}</Task>} \
                    else={<Task id=\"no\" output=\"output\">{{ took: \"no\" }}</Task>} />\
                 <Task id=\"left\" output=\"b\" skipIf>{() => { throw new Error(\"never\"); }}</Task>",
            ),
            json!({ "yes": true }),
        )
        .await;
    assert_eq!(run.output, Some(json!({ "took": "yes" })), "{run:?}");
    assert_eq!(world.event_kinds(&run).await.len(), 2);
}

#[tokio::test]
async fn loops_go_on_until_their_condition_holds() {
    let world = World::new().await;
    let run = world
        .run(
            &flow(
                "<Loop id=\"l\" until={(ctx.latest(outputs.a, \"try\")?.n ?? 0) >= 2} maxIterations={9}>\
                    <Task id=\"try\" output={outputs.a}>{() => ({ n: ctx.iteration })}</Task>\
                 </Loop>\
                 <Task id=\"end\" output=\"output\">{() => ({ all: ctx.outputs(outputs.a).map((row) => row.n) })}</Task>",
            ),
            json!({}),
        )
        .await;
    assert_eq!(run.output, Some(json!({ "all": [0, 1, 2] })), "{run:?}");
}

#[tokio::test]
async fn failures_are_tried_again_or_end_the_run() {
    let world = World::new().await;
    let flaky = "let tries = 0;\n".to_owned()
        + &flow(
            "<Task id=\"flaky\" output=\"output\" retries={5} retryPolicy={{ initialDelayMs: 1 }}>\
                {() => { tries += 1; if (tries < 3) throw new TypeError(\"not yet\"); return { tries }; }}</Task>",
        );
    let run = world.run(&flaky, json!({})).await;
    assert_eq!(run.output, Some(json!({ "tries": 3 })), "{run:?}");
    assert_eq!(world.event_kinds(&run).await, [json!(["flaky", 0, "finished", 3, 3])]);

    let run = world
        .run(
            &flow(
                "<Task id=\"may\" output=\"a\" continueOnFail>{() => { throw new Error(\"no\"); }}</Task>\n\
                 <Task id=\"bad\" output=\"a\" noRetry>{() => {\n  null.x;\n}}</Task>\n\
                 <Task id=\"never\" output=\"a\">{{ a: 1 }}</Task>",
            ),
            json!({}),
        )
        .await;
    assert_eq!(run.status, RunStatus::Failed);
    let error = run.error.clone().unwrap();
    assert_eq!((&error["task"], &error["code"]), (&json!("bad"), &json!("TASK_FAILED")));
    assert!(error["message"].as_str().unwrap().starts_with("TypeError: "), "{error}");
    assert!(error["frames"][0].as_str().unwrap().contains("flow.tsx:7:"), "{error}");
    assert_eq!(
        world.event_kinds(&run).await,
        [json!(["may", 0, "failed", 1, 1]), json!(["bad", 0, "failed", 1, 1])]
    );
}

#[tokio::test]
async fn a_sandbox_fails_where_none_can_be_made() {
    let world = World::new().await;
    let later = "<Sandbox id=\"later\" output=\"output\" command=\"true\" />";
    let body = format!(
        "<Task id=\"first\" output={{outputs.a}}>{{{{ n: 1 }}}}</Task>\
         {{ctx.latest(outputs.a, \"first\") ? {later} : null}}"
    );
    let run = world.run(&flow(&body), json!({})).await;
    assert_eq!(run.status, RunStatus::Failed, "{run:?}");
    let error = run.error.unwrap();
    let told = (&error["task"], &error["code"]);
    assert_eq!(told, (&json!("later"), &json!("INVALID_INPUT")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("Nested <Sandbox>"), "{error}");
}

#[tokio::test]
async fn what_is_no_output_is_refused_and_not_tried_again() {
    let world = World::new().await;
    let source = "import { createSmithers } from \"stockade\";\n\
        const schema = { type: \"object\", required: [\"n\"], properties: { n: { type: \"number\" } } };\n\
        const { Workflow, Task, smithers, outputs } = createSmithers({ input: { type: \"object\", required: [\"n\"] }, r: schema });\n\
        export default smithers((ctx) => (\n  <Workflow name=\"w\">\n    <Task id=\"t\" output={outputs.r}>\n      {() => ({ n: ctx.input.n })}\n    </Task>\n  </Workflow>\n));\n";
    let run = world.run(source, json!({ "n": "text" })).await;
    let error = run.error.clone().unwrap();
    assert_eq!(error["code"], "INVALID_OUTPUT");
    assert!(error["message"].as_str().unwrap().starts_with("the output of task \"t\""), "{error}");
    assert_eq!(error["frames"], json!(["at flow.tsx:6:5"]));
    assert_eq!(world.event_kinds(&run).await, [json!(["t", 0, "failed", 1, 1])]);
    let run = world.run(source, json!({ "n": 7 })).await;
    assert_eq!(run.output, Some(json!({ "n": 7 })));
    let file = world.write("flow.tsx", source);
    let refused = world.up(&file, json!({})).await.unwrap_err();
    assert!(refused.message.contains("the input does not match"), "{refused:?}");
}

#[tokio::test]
async fn decisions_and_signals_are_waited_for() {
    let world = World::new().await;
    let run = world
        .run(
            &flow(
                "<Approval id=\"ok\" output={outputs.a} request={{ title: \"Go?\" }} />\
                 <WaitForEvent id=\"word\" event=\"word\" correlationId=\"7\" output={outputs.b} />\
                 <Timer id=\"rest\" duration=\"10ms\" />\
                 <Task id=\"end\" output={outputs.output}>{() => ({ ok: ctx.output(outputs.a).approved, word: ctx.output(outputs.b) })}</Task>",
            ),
            json!({}),
        )
        .await;
    assert_eq!(run.status, RunStatus::Waiting);
    let (workflows, caller) = (&world.workflows, &world.caller);
    let decide =
        |task: &str| Decide { note: Some("fine".to_owned()), ..decision(&run.id, task, true) };
    let refused = workflows.decide(caller, decide("of")).await.unwrap_err();
    assert!(refused.cause.unwrap().contains("ok"));
    // Signals that arrive early are stored; those for other waits remain.
    for (correlation, payload) in [("8", json!("no")), ("7", json!({ "said": "yes" }))] {
        let (id, name) = (run.id.clone(), "word".to_owned());
        let signal = SendSignal { id, name, correlation: Some(correlation.to_owned()), payload };
        workflows.signal(caller, signal).await.unwrap();
    }
    workflows.decide(caller, decide("ok")).await.unwrap();
    let run = world.ended(&run.id).await;
    assert_eq!(run.output, Some(json!({ "ok": true, "word": { "said": "yes" } })), "{run:?}");
}

#[tokio::test]
async fn a_function_that_never_ends_takes_only_its_try_with_it() {
    let world = World::new().await;
    let run = world
        .run(
            &flow(
                "<Parallel>\
                 <Task id=\"stuck\" output=\"a\" timeoutMs={300} noRetry continueOnFail>{() => { for (;;); }}</Task>\
                 <Task id=\"silent\" output=\"a\" heartbeatTimeoutMs={20} noRetry continueOnFail>{() => new Promise(() => {})}</Task>\
                 </Parallel>\
                 <Task id=\"end\" output=\"output\">{() => ({ n: 1 })}</Task>",
            ),
            json!({}),
        )
        .await;
    assert_eq!(run.output, Some(json!({ "n": 1 })), "{run:?}");
    let tasks = world.tasks(&run).await;
    let codes: Vec<_> =
        tasks.iter().filter_map(|task| task.error.as_ref()).map(|error| &error["code"]).collect();
    assert_eq!(codes, ["TASK_TIMEOUT", "TASK_HEARTBEAT_TIMEOUT"]);
}

#[tokio::test]
async fn a_workflow_in_a_workflow_is_a_run_of_its_own() {
    let world = World::new().await;
    let source = "/** @jsxImportSource stockade */\n\
        import { createSmithers, Subflow } from \"stockade\";\n\
        const child = createSmithers({ input: {}, result: {}, d: {} });\n\
        const inner = child.smithers((ctx) => (<child.Workflow name=\"inner\">\n\
          <child.Approval id=\"ok\" output={child.outputs.d} />\n\
          <child.Task id=\"twice\" output={child.outputs.result}>{() => ({ n: ctx.input.n * 2 })}</child.Task>\n\
        </child.Workflow>));\n\
        const parent = createSmithers({ output: {} });\n\
        export default parent.smithers((ctx) => (<parent.Workflow name=\"outer\">\n\
          <Subflow id=\"sub\" workflow={inner} input={{ n: ctx.input.n }} output={parent.outputs.output} />\n\
        </parent.Workflow>));\n";
    let run = world.run(source, json!({ "n": 21 })).await;
    assert_eq!(run.status, RunStatus::Waiting, "{run:?}");
    let decide = decision(&run.id, "ok", true);
    world.workflows.decide(&world.caller, decide).await.unwrap();
    let run = world.ended(&run.id).await;
    assert_eq!(run.output, Some(json!({ "n": 42 })), "{run:?}");
    let runs = world.workflows.runs(&world.caller, stockade_api::ListRuns { limit: 9 }).await;
    let names = |run: stockade_api::Run| (run.name, run.parent_id);
    let mut known: Vec<_> = runs.unwrap().into_iter().map(names).collect();
    known.sort();
    assert_eq!(known, [("inner".to_owned(), Some(run.id)), ("outer".to_owned(), None)]);
}

fn decision(run: &str, task: &str, approved: bool) -> Decide {
    let (id, task) = (run.to_owned(), task.to_owned());
    Decide { id, task, approved, note: None, only: Vec::new(), allow_executed: false }
}

#[tokio::test]
async fn a_task_can_need_a_word_before_it_is_begun() {
    let world = World::new().await;
    let source = flow(
        "<Task id=\"ask\" output={outputs.output} needsApproval retryPolicy={{ initialDelayMs: 1 }}>\
            {() => { tries += 1; if (tries < 2) throw new Error(\"no\"); return { tries }; }}</Task>",
    );
    let source = format!("let tries = 0;\n{source}");
    let run = world.run(&source, json!({})).await;
    assert_eq!(run.status, RunStatus::Waiting, "{run:?}");
    assert_eq!(world.event_kinds(&run).await, [json!(["ask", 0, "waiting-approval", 0, 0])]);
    let decide = |run: &Run, approved| Decide {
        id: run.id.clone(),
        task: "ask".to_owned(),
        approved,
        note: None,
        only: Vec::new(),
        allow_executed: false,
    };
    world.workflows.decide(&world.caller, decide(&run, true)).await.unwrap();
    let run = world.ended(&run.id).await;
    // The approval is requested once, no matter how often the task is retried.
    assert_eq!(run.output, Some(json!({ "tries": 2 })), "{run:?}");
    let run = world.run(&source, json!({})).await;
    world.workflows.decide(&world.caller, decide(&run, false)).await.unwrap();
    let run = world.ended(&run.id).await;
    assert_eq!(run.error.as_ref().unwrap()["code"], "APPROVAL_DENIED", "{run:?}");
    assert_eq!(world.event_kinds(&run).await, [json!(["ask", 0, "failed", 0, 0])]);
}

#[tokio::test]
async fn a_function_that_tells_that_it_is_alive_may_take_longer() {
    let world = World::new().await;
    let run = world
        .run(
            &flow(
                "<Task id=\"long\" output=\"a\" heartbeatTimeoutMs={2000} noRetry>\
                    {async (_, { heartbeat }) => {\
                       for (let n = 0; n < 30; n += 1) {\
                         await new Promise((done) => setTimeout(done, 100)); heartbeat(); }\
                       return {}; }}</Task>\
                 <Task id=\"silent\" output=\"output\" heartbeatTimeoutMs={200} noRetry>\
                    {async (_, { heartbeat }) => { heartbeat(); await new Promise(() => {}); }}</Task>",
            ),
            json!({}),
        )
        .await;
    let error = run.error.clone().unwrap();
    let told = (&error["task"], &error["code"]);
    assert_eq!(told, (&json!("silent"), &json!("TASK_HEARTBEAT_TIMEOUT")), "{error}");
    assert_eq!(world.tasks(&run).await[0].status, stockade_api::TaskStatus::Finished);
}
