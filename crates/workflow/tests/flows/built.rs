//! Workflows in Rust: the same graph as that of a file, the same rows, the same rules.

use std::collections::BTreeMap;
use std::process::Command as Process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use stockade_api::{
    CommandLine, Decide, Remote, ResumeRun, Run, RunStatus, TaskStatus, Workflows as _,
};
use stockade_core::Code;
use stockade_workflow::authoring::Processes;
use stockade_workflow::engine::{StartRun, preview, preview_rust};
use stockade_workflow::graph::{
    Approval, Command, Function, Graph, Node, Prompt, Retry, Task, Work,
};
use stockade_workflow::rust_workflow::{Call, RustWorkflow};

use crate::agents::{FakeSandboxes, FakeTransport};
use crate::world::{World, program};

/// A world whose engine has these workflows, and sandboxes whose commands answer with their input.
async fn world(built: Vec<RustWorkflow>) -> World {
    let fake = FakeSandboxes::new(|_, read| {
        (0, format!("Here:\n```json\n{{\"said\": \"{read}\"}}\n```\n"))
    });
    World::with_options(|options| {
        options.sandboxes = Some(Arc::new(Remote(FakeTransport(fake))));
        options.rust_workflows = built;
    })
    .await
}

impl World {
    async fn start(&self, name: &str, input: Value) -> Run {
        let begin = StartRun { input, project: self.path().to_owned(), ..StartRun::default() };
        self.workflows.start_run(&self.caller, name, begin).await.unwrap()
    }

    async fn approve(&self, run: &Run, task: &str) {
        let (id, task) = (run.id.clone(), task.to_owned());
        let decide = Decide {
            id,
            task,
            approved: true,
            note: None,
            only: Vec::new(),
            allow_executed: false,
        };
        self.workflows.decide(&self.caller, decide).await.unwrap();
    }
}

const TSX: &str = r#"
import { createSmithers, Subflow } from "stockade";
const { Workflow, Task, Parallel, Loop, Approval, Timer, WaitForEvent, smithers, outputs } =
  createSmithers({ part: {}, decision: {}, output: { type: "object", required: ["sum"] } });
const inner = smithers((ctx) => (
  <Workflow name="inner"><Task id="twice" output="output">{() => ({ sum: ctx.input.n * 2 })}</Task></Workflow>
));
export default smithers((ctx) => (
  <Workflow name="same">
    <Task id="known" output={outputs.part} label="Known" meta={{ of: "us" }}>{{ n: 1 }}</Task>
    <Parallel maxConcurrency={2}>
      {[2, 3, 4].map((n) => <Task id={`part-${n}`} output={outputs.part} retries={1} timeoutMs={60000}>{() => ({ n })}</Task>)}
    </Parallel>
    <Loop id="again" until={ctx.iterationCount(outputs.part, "round") >= 2} maxIterations={4}>
      <Task id="round" output={outputs.part}>{() => ({ n: ctx.iteration })}</Task>
    </Loop>
    <Task id="asked" output={outputs.part} agent={{ command: ["agent"] }}>Say it</Task>
    <Approval id="ok" output={outputs.decision} request={{ title: "Go?" }} />
    <Timer id="rest" duration="10ms" />
    <Task id="bad" output={outputs.part} noRetry continueOnFail>{() => { throw new Error("no"); }}</Task>
    <Subflow id="sub" workflow={inner} input={{ n: 4 }} output={outputs.part} />
    {ctx.outputs(outputs.decision).length > 0 && (
      <Task id="sum" output={outputs.output} needs={{ first: "known" }}>
        {({ first }) => ({ sum: ctx.outputs(outputs.part).length + first.n })}
      </Task>
    )}
  </Workflow>
));
"#;

/// The same workflow in Rust.
fn same_workflow() -> RustWorkflow {
    let part = |task: Task| task.into_table("part", Some(json!({})));
    let inner = RustWorkflow::new("inner", |_| {
        let twice = Task::compute("twice", Function::named("twice"));
        Graph::new("inner", [twice.into_table("output", None).into()])
    })
    .with_function("twice", async |call: Call| {
        let n = call.context().input()["n"].as_i64().ok_or("no number")?;
        Ok(json!({ "sum": n * 2 }))
    });
    RustWorkflow::new("same", move |context| {
        let mut known = part(Task::value("known", json!({ "n": 1 })));
        known.label = Some("Known".to_owned());
        known.meta.insert("of".to_owned(), json!("us"));
        let parts = [2, 3, 4].map(|n| {
            let mut task = part(Task::compute(&format!("part-{n}"), Function::named("part")));
            task.retry = Retry { limit: Some(1), ..Retry::DEFAULT };
            task.timeout = Some(Duration::from_secs(60));
            Node::from(task)
        });
        let rounds = context.count("part", "round");
        let round = part(Task::compute("round", Function::named("round")));
        let asked = Command::new(CommandLine::Program(vec!["agent".to_owned()]));
        let approval = Approval { title: Some("Go?".to_owned()), ..Approval::default() };
        let mut bad = part(Task::compute("bad", Function::named("bad")));
        (bad.retry, bad.continue_on_fail) = (Retry::NONE, true);
        let mut body = vec![
            known.into(),
            Node::parallel(Some(2), parts),
            Node::repeated("again", rounds >= 2, 4, [round.into()]),
            part(Task::command("asked", asked, "Say it")).into(),
            Task::approval("ok", approval).into_table("decision", Some(json!({}))).into(),
            Task::timer("rest", Duration::from_millis(10)).into(),
            bad.into(),
            part(Task::subflow("sub", "inner", json!({ "n": 4 }))).into(),
        ];
        if !context.outputs("decision").is_empty() {
            let schema = json!({ "type": "object", "required": ["sum"] });
            let sum = Task::compute("sum", Function::named("sum")).needing("first", "known");
            body.push(sum.into_table("output", Some(schema)).into());
        }
        Graph::new("same", body)
    })
    .with_workflow(inner)
    .with_function("part", async |call: Call| {
        let number = call.task().id.trim_start_matches("part-").parse::<u32>()?;
        Ok(json!({ "n": number }))
    })
    .with_function("round", async |call: Call| {
        Ok(json!({ "n": call.context().iteration("again") }))
    })
    .with_function("bad", async |_| Err("no".into()))
    .with_function("sum", async |call: Call| {
        let first =
            call.dependency("first").and_then(|first| first["n"].as_u64()).ok_or("no first")?;
        Ok(json!({ "sum": call.context().outputs("part").len() as u64 + first }))
    })
}

/// A graph without source locations, and with one number for all functions.
fn plain(graph: Graph) -> Graph {
    let nodes = graph.body.into_iter().map(plain_node).collect::<Vec<_>>();
    Graph::new(&graph.name, nodes)
}

fn plain_node(node: Node) -> Node {
    match node {
        Node::Task(task) => {
            let mut task = Task { location: None, ..(*task).clone() };
            match &mut task.work {
                Work::Compute { function, .. } => *function = Function(1),
                Work::Command { agent, .. } => agent.read = Function::NONE,
                Work::Subflow { workflow, .. } => *workflow = Function(1),
                _ => {}
            }
            task.into()
        }
        Node::Group(mut group) => {
            group.children = group.children.into_iter().map(plain_node).collect();
            Node::Group(group)
        }
        Node::Loop(mut repeated) => {
            repeated.location = None;
            repeated.children = repeated.children.into_iter().map(plain_node).collect();
            Node::Loop(repeated)
        }
    }
}

/// The stored state of a run and of its descendants, without names and times that always differ, and
/// its events.
async fn stored_rows(world: &World, run: &Run) -> Value {
    let tasks = world.tasks(run).await;
    let told = |task: &stockade_api::TaskInfo| {
        let mut told = serde_json::to_value(task).unwrap();
        for name in ["startedAt", "finishedAt", "wakeAt"] {
            told.as_object_mut().unwrap().remove(name);
        }
        match task.kind.as_str() {
            "timer" | "approval" => told["output"] = Value::Null,
            // The stack frames of a file have no counterpart in Rust.
            _ if task.error.is_some() => told["error"]["frames"] = json!([]),
            _ => {}
        }
        told
    };
    let events = world.events(run).await;
    let events = events
        .iter()
        .filter(|event| event["type"] != "RunStarted")
        .map(|event| json!([event["type"], event["nodeId"], event["iteration"], event["attempt"]]));
    // Tasks that run in parallel end in any order.
    let mut events: Vec<Value> = events.collect();
    events.sort_by_key(Value::to_string);
    let mut tasks: Vec<Value> = tasks.iter().map(told).collect();
    tasks.sort_by_key(Value::to_string);
    json!({ "output": run.output, "name": run.name, "tasks": tasks, "events": events })
}

#[tokio::test]
async fn a_file_and_rust_give_the_same_graph_and_the_same_rows() {
    let world = world(vec![same_workflow()]).await;
    let file = world.write("flow.tsx", TSX);
    let realms = Processes::new(vec![program().into()]);
    let written = preview(realms, &file, &json!({}), &Default::default()).await.unwrap();
    let built = preview_rust(&same_workflow(), &json!({})).await.unwrap();
    assert_eq!(plain(written), plain(built));
    let mut found = Vec::new();
    for is_file in [true, false] {
        let run = match is_file {
            true => world.up(&file, json!({})).await.unwrap(),
            false => world.start("same", json!({})).await,
        };
        assert_eq!(world.settled(&run.id).await.status, RunStatus::Waiting, "{run:?}");
        world.approve(&run, "ok").await;
        let run = world.ended(&run.id).await;
        assert_eq!(run.output, Some(json!({ "sum": 9 })), "{run:?}");
        found.push(stored_rows(&world, &run).await);
    }
    assert_eq!(found[0], found[1]);
}

#[tokio::test]
async fn a_run_goes_on_where_it_was_left() {
    static FIRST: AtomicU32 = AtomicU32::new(0);
    static SECOND: AtomicU32 = AtomicU32::new(0);
    let keys = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&keys);
    let workflow = RustWorkflow::new("left", |_| {
        let first = Task::compute("first", Function::named("first")).into_table("part", None);
        let second = Task::compute("second", Function::named("second"));
        Graph::new("left", [first.into(), second.into_table("output", None).into()])
    })
    .with_function("first", async |_| {
        FIRST.fetch_add(1, Ordering::Relaxed);
        Ok(json!({}))
    })
    .with_function("second", move |call: Call| {
        told.lock().unwrap().push(call.key().to_owned());
        async {
            if SECOND.fetch_add(1, Ordering::Relaxed) == 0 {
                std::future::pending::<()>().await;
            }
            Ok(json!({ "done": true }))
        }
    });
    let world = world(vec![workflow]).await;
    let run = world.start("left", json!({})).await;
    while SECOND.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let world = world.restarted().await;
    let run = world.ended(&run.id).await;
    assert_eq!(run.output, Some(json!({ "done": true })), "{run:?}");
    assert_eq!((FIRST.load(Ordering::Relaxed), SECOND.load(Ordering::Relaxed)), (1, 2));
    let told = world.event_kinds(&run).await;
    assert_eq!(told[1], json!(["second", 0, "finished", 1, 2]));
    let keys = keys.lock().unwrap().clone();
    assert_eq!(keys, [keys[0].clone(), keys[0].clone()]);
}

/// One task with an agent in Rust, which fails this many times.
fn failing_workflow(version: &str, tries: u32) -> RustWorkflow {
    let failed = AtomicU32::new(0);
    RustWorkflow::new("failing", |_| {
        let prompt = Prompt::Computed { function: Function::named("prompt"), inputs: None };
        let mut task = Task::agent("t", Function::named("agent"), prompt);
        task.retry = Retry { limit: Some(1), first: Duration::from_millis(1), ..Retry::DEFAULT };
        let schema = json!({ "type": "object", "required": ["said"] });
        Graph::new("failing", [task.into_table("output", Some(schema)).into()])
    })
    .with_version(version)
    .with_function("prompt", async |call: Call| Ok(call.context().input()["word"].clone()))
    .with_function("agent", move |call: Call| {
        let number = failed.fetch_add(1, Ordering::Relaxed);
        async move {
            assert!(number > 0 || tries == 0, "it cannot");
            match number {
                number if number >= tries => Ok(json!({ "said": call.text() })),
                1 => Err(std::io::Error::other("no more").into()),
                _ => Ok(json!({ "other": 1 })),
            }
        }
    })
}

#[tokio::test]
async fn what_fails_is_told_and_another_version_is_accepted_or_not() {
    let world = world(vec![failing_workflow("1", 9)]).await;
    let run = world.start("failing", json!({ "word": "hi" })).await;
    let run = world.ended(&run.id).await;
    let told = |kind: &'static str| {
        let (world, run) = (&world, &run);
        async move {
            let events = world.events(run).await;
            let found = events.into_iter().find(|event| event["type"] == kind).unwrap();
            found["error"]["message"].as_str().unwrap().to_owned()
        }
    };
    assert_eq!(told("NodeRetrying").await, "it panicked: it cannot");
    assert_eq!(told("NodeFailed").await, "no more");
    let world = world.with_built(vec![failing_workflow("2", 0)]).await;
    let resume = |accept_changes| ResumeRun {
        id: run.id.clone(),
        accept_changes,
        retry: false,
        secrets: BTreeMap::new(),
        server: None,
    };
    let refused = world.workflows.resume_run(&world.caller, resume(false)).await.unwrap_err();
    assert_eq!(refused.code, Code::Conflict, "{refused:?}");
    world.workflows.resume_run(&world.caller, resume(true)).await.unwrap();
    let run = world.ended(&run.id).await;
    // The prompt of an agent ends with the schema of its output.
    let said = run.output.as_ref().and_then(|output| output["said"].as_str()).unwrap_or_default();
    assert!(said.starts_with("hi\n\nEnd the answer with JSON"), "{run:?}");
}

#[tokio::test]
async fn a_run_whose_workflow_is_not_there_fails_and_can_be_resumed() {
    let waits = || {
        RustWorkflow::new("waits", |_| {
            let approval = Task::approval("ok", Approval::default()).into_table("output", None);
            Graph::new("waits", [approval.into()])
        })
    };
    let world = world(vec![waits()]).await;
    let run = world.start("waits", json!({})).await;
    assert_eq!(world.settled(&run.id).await.status, RunStatus::Waiting);
    let world = world.with_built(vec![failing_workflow("1", 0)]).await;
    let failed = world.ended(&run.id).await;
    let message = failed.error.unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("no workflow \"waits\" is registered"), "{message}");
    let world = world.with_built(vec![waits()]).await;
    let resume = ResumeRun {
        id: run.id.clone(),
        accept_changes: false,
        retry: false,
        secrets: BTreeMap::new(),
        server: None,
    };
    world.workflows.resume_run(&world.caller, resume).await.unwrap();
    assert_eq!(world.settled(&run.id).await.status, RunStatus::Waiting);
    let world = world.with_built(vec![waits().with_version("2")]).await;
    let failed = world.ended(&run.id).await;
    let message = failed.error.unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("now has version \"2\""), "{message}");
}

#[tokio::test]
async fn what_can_never_be_done_is_refused_before_anything_is() {
    let one = |task: fn() -> Task| {
        RustWorkflow::new("one", move |_| Graph::new("one", [task().into()]))
            .with_input(json!({ "type": "object" }))
    };
    let compute = || Task::compute("t", Function::named("gone")).into_table("output", None);
    let world = world(vec![
        one(compute),
        RustWorkflow::new("twice", |_| {
            let one = || Node::from(Task::value("t", json!({})).into_table("output", None));
            Graph::new("twice", [one(), one()])
        }),
        RustWorkflow::new("nowhere", |_| {
            Graph::new("nowhere", [Task::value("t", json!(1)).into()])
        }),
        RustWorkflow::new("panics", |_| panic!("no graph")),
    ])
    .await;
    let told = async |name: &str, input: Value| {
        let begin = StartRun { input, ..StartRun::default() };
        let refused = world.workflows.start_run(&world.caller, name, begin).await.unwrap_err();
        format!("{}: {}", refused.message, refused.cause.unwrap_or_default())
    };
    for (name, input, expected) in [
        (
            "one",
            json!({}),
            "task \"t\" calls a closure that is not registered with workflow \"one\"",
        ),
        ("one", json!(1), "the input does not match the schema of one"),
        ("onee", json!({}), "did you mean \"one\"?"),
        ("twice", json!({}), "two tasks have the id \"t\""),
        ("nowhere", json!({}), "task \"t\" needs a table"),
        ("panics", json!({}), "it panicked: no graph"),
    ] {
        let told = told(name, input).await;
        assert!(told.contains(expected), "{name}: {told}");
    }
}

#[tokio::test]
async fn a_closure_has_only_its_time() {
    let workflow = RustWorkflow::new("late", |_| {
        let task = |id: &str| {
            let mut task = Task::compute(id, Function::named(id)).into_table("part", None);
            (task.retry, task.continue_on_fail) = (Retry::NONE, true);
            task
        };
        let late = Task { timeout: Some(Duration::from_millis(30)), ..task("late") };
        let silent = Task { heartbeat_timeout: Some(Duration::from_millis(30)), ..task("silent") };
        let alive = Task { heartbeat_timeout: Some(Duration::from_secs(20)), ..task("alive") };
        Graph::new("late", [Node::parallel(None, [late, silent, alive].map(Node::from))])
    })
    .with_function("late", async |_| std::future::pending().await)
    .with_function("silent", async |call: Call| {
        call.heartbeat();
        std::future::pending().await
    })
    .with_function("alive", async |call: Call| {
        call.heartbeat();
        Ok(json!({}))
    });
    let world = world(vec![workflow]).await;
    let run = world.start("late", json!({})).await;
    let run = world.ended(&run.id).await;
    let tasks = world.tasks(&run).await;
    let code = |id: &str| {
        let task = tasks.iter().find(|task| task.id == id).unwrap();
        task.error.as_ref().map(|error| error["code"].as_str().unwrap().to_owned())
    };
    assert_eq!(code("late").as_deref(), Some("TASK_TIMEOUT"));
    assert_eq!(code("silent").as_deref(), Some("TASK_HEARTBEAT_TIMEOUT"));
    assert_eq!(code("alive"), None);
    assert_eq!(run.status, RunStatus::Finished, "{run:?}");
    assert!(tasks.iter().any(|task| task.status == TaskStatus::Finished));
}

#[test]
fn the_example_waits_and_goes_on() {
    let example = stockade_test_support::program("release");
    let place = tempfile::tempdir().unwrap();
    let call = |words: &[&str]| {
        let output = Process::new(&example).arg(place.path()).args(words).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, _, told) = call(&[]);
    assert_eq!((code, told.matches("checking: ").count()), (Some(3), 2), "{told}");
    let (code, given, told) = call(&["approve"]);
    assert_eq!((code, told.as_str()), (Some(0), ""));
    let given: Value = serde_json::from_str(&given).unwrap();
    assert_eq!(given, json!({ "version": "1.0", "checks": 2, "by": "me" }));
}
