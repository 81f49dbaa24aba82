//! Runs that continue from a step of another run.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use stockade_api::{
    Decide, Fork, ForkOrigin, Problem, Remote, Run, RunById, RunStatus, Workflows as _,
};
use stockade_core::Code;

use crate::agents::{FakeSandboxes, FakeTransport};
use crate::world::World;

/// A workflow with these elements. `agent` is a command.
fn flow(body: &str) -> String {
    format!(
        "import {{ createSmithers }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, Task, Sequence, Loop, Approval, smithers, outputs }} = createSmithers({{ a: {{}}, b: {{}}, output: {{}} }});\n\
         const agent = {{ command: [\"agent\"] }};\n\
         export default smithers((ctx) => (<Workflow name=\"w\">{body}</Workflow>));\n"
    )
}

impl World {
    async fn fork(&self, run: &Run, task: &str, iteration: Option<u32>) -> Result<Run, Problem> {
        let (source, task) = (run.id.clone(), task.to_owned());
        let (run_id, directory, secrets) = (None, None, BTreeMap::new());
        let fork = Fork { source, task, iteration, run_id, directory, secrets, server: None };
        self.workflows.fork(&self.caller, fork).await
    }

    async fn origin(&self, run: &Run) -> ForkOrigin {
        let by_id = RunById { id: run.id.clone() };
        let found = self.workflows.inspect(&self.caller, by_id).await.unwrap();
        found.forked_from.unwrap()
    }
}

#[tokio::test]
async fn a_fork_starts_at_its_step_with_the_files_of_then() {
    let data = tempfile::tempdir().unwrap();
    let fake = FakeSandboxes::with_changes(|_, _| (0, "{\"n\": 1}".to_owned()), false);
    let world = World::with_options(|options| {
        options.sandboxes = Some(Arc::new(Remote(FakeTransport(fake))));
        options.data = Some(data.path().to_owned());
    })
    .await;
    let source = flow(
        "<Task id=\"one\" output={outputs.a}>{() => ({ at: Math.random() })}</Task>\
         <Task id=\"first\" output={outputs.b} agent={agent}>Say it</Task>\
         <Approval id=\"ok\" output={outputs.b} request={{ title: \"Go?\" }} />\
         <Task id=\"second\" output={outputs.b} agent={agent}>Say it again</Task>\
         <Task id=\"end\" output={outputs.output}>{() => ({ at: ctx.output(outputs.a).at })}</Task>",
    );
    world.write("project/package.json", "{}");
    world.write("project/a.txt", "one");
    let file = world.write("project/flow.tsx", &source);
    let run = world.up(&file, json!({})).await.unwrap();
    assert_eq!(world.settled(&run.id).await.status, RunStatus::Waiting);
    world.write("project/a.txt", "two");
    world.write("project/new.txt", "new");
    let decide = Decide {
        id: run.id.clone(),
        task: "ok".to_owned(),
        approved: true,
        note: None,
        only: Vec::new(),
        allow_executed: false,
    };
    world.workflows.decide(&world.caller, decide).await.unwrap();
    let run = world.ended(&run.id).await;
    assert_eq!(run.status, RunStatus::Finished, "{run:?}");
    world.write("project/a.txt", "three");
    // The program of the run counts, not that of the file now.
    world.write("project/flow.tsx", "no workflow");
    let before = (world.events(&run).await, world.event_kinds(&run).await);

    let second = world.fork(&run, "second", None).await.unwrap();
    let ended = world.ended(&second.id).await;
    assert_eq!((&ended.output, ended.status), (&run.output, RunStatus::Finished), "{ended:?}");
    let executed = |kinds: Vec<Value>| -> Vec<String> {
        let of = |event: Value| event["nodeId"].as_str().map(str::to_owned);
        let mut ids: Vec<String> = kinds.into_iter().filter_map(of).collect();
        ids.dedup();
        ids
    };
    assert_eq!(executed(world.events(&second).await), ["second", "end"]);
    let origin = world.origin(&second).await;
    assert_eq!(
        (origin.run.as_str(), origin.task.as_str(), origin.tasks),
        (run.id.as_str(), "second", 3)
    );
    let directory = origin.directory.unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).ok();
    assert_eq!((read("a.txt"), read("new.txt")), (Some("two".to_owned()), Some("new".to_owned())));
    assert_eq!(read("flow.tsx"), Some(source.clone()));

    let first = world.fork(&run, "first", None).await.unwrap();
    assert_eq!(world.settled(&first.id).await.status, RunStatus::Waiting);
    let directory = world.origin(&first).await.directory.unwrap();
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).ok();
    assert_eq!((read("a.txt"), read("new.txt")), (Some("one".to_owned()), None));
    assert_eq!((world.events(&run).await, world.event_kinds(&run).await), before);
    let project = std::fs::read_to_string(world.path().join("project/a.txt")).unwrap();
    assert_eq!(project, "three");

    let unknown = world.fork(&run, "third", None).await.unwrap_err();
    assert_eq!(unknown.code, Code::NotFound, "{unknown:?}");
    assert!(unknown.cause.unwrap().contains("first#0"));
}

/// The changes of agents are decided after their run, so they are no part of the project before.
#[tokio::test]
async fn a_fork_has_no_changes_that_were_not_decided() {
    let data = tempfile::tempdir().unwrap();
    let fake = FakeSandboxes::new(|_, _| (0, "{\"n\": 1}".to_owned()));
    let world = World::with_options(|options| {
        options.sandboxes = Some(Arc::new(Remote(FakeTransport(fake))));
        options.data = Some(data.path().to_owned());
    })
    .await;
    let source = flow(
        "<Task id=\"first\" output={outputs.b} agent={agent}>Say it</Task>\
         <Task id=\"second\" output={outputs.output} agent={agent}>Say it again</Task>",
    );
    let file = world.write("project/flow.tsx", &source);
    let run = world.up(&file, json!({})).await.unwrap();
    assert_eq!(world.ended(&run.id).await.status, RunStatus::Finished);
    let refused = world.fork(&run, "second", None).await.unwrap_err();
    assert_eq!(refused.code, Code::Unsupported, "{refused:?}");
    assert!(refused.remediation.unwrap().contains("\"first\""));
    let fork = world.fork(&run, "first", None).await.unwrap();
    assert_eq!(world.ended(&fork.id).await.status, RunStatus::Finished);
}

#[tokio::test]
async fn a_fork_continues_loops_where_they_were() {
    let world = World::new().await;
    let body = "<Sequence>\
        <Loop id=\"done\" until={ctx.iterationCount(outputs.a, \"d\") >= 2} maxIterations={9}><Task id=\"d\" output={outputs.a}>{() => ({ n: 1 })}</Task></Loop>\
        <Loop id=\"outer\" until={ctx.iterationCount(outputs.a, \"o\") >= 2} maxIterations={3}><Sequence>\
          <Loop id=\"inner\" until={ctx.iterationCount(outputs.b, \"i\") >= 2} maxIterations={6}>\
            <Task id=\"i\" output={outputs.b}>{() => ({ n: (ctx.iterations.outer ?? 0) * 10 + (ctx.iterations.inner ?? 0), done: ctx.iterations.done })}</Task></Loop>\
          <Task id=\"o\" output={outputs.a}>{() => ({ n: 2 })}</Task></Sequence></Loop>\
        <Task id=\"end\" output={outputs.output}>{() => ({ list: ctx.outputs(outputs.b).map((row) => row.n), done: ctx.latest(outputs.b, \"i\").done })}</Task></Sequence>";
    let run = world.run(&flow(body), json!({})).await;
    let expected = json!({ "list": [0, 1, 10, 11], "done": 1 });
    assert_eq!(run.output, Some(expected.clone()), "{:?}", run.error);
    for (task, iteration, executions) in
        [("i@@outer=1", 1, 3), ("i@@outer=0", 1, 6), ("d", 0, 9), ("end", 0, 1)]
    {
        let fork = world.fork(&run, task, Some(iteration)).await.unwrap();
        let fork = world.ended(&fork.id).await;
        assert_eq!(fork.output, Some(expected.clone()), "{task}: {:?}", fork.error);
        let events = world.events(&fork).await;
        let started = events.iter().filter(|event| event["type"] == "NodeStarted").count();
        assert_eq!(started, executions, "{task}");
        assert_eq!(world.origin(&fork).await.directory, None);
    }
    let several = world.fork(&run, "d", None).await.unwrap_err();
    assert!(several.cause.unwrap().contains("d#0, d#1"));
}
