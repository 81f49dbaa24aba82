//! A workflow in Rust: two checks at once, a decision, and what follows from it. It is kept in a
//! directory and waits for the decision without any process:
//!
//! ```text
//! cargo run -p stockade-workflow --example release -- /tmp/release
//! cargo run -p stockade-workflow --example release -- /tmp/release approve
//! ```
//!
//! Killed at any moment, the same command goes on with the run; checks that have ended are not done
//! again. Options with `sandboxes` would give it agents and commands, as in `Task::command`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks here")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use stockade_api::{Caller, Decide, Run, RunById, RunStatus, Workflows as _};
use stockade_core::{Code, OwnerId, Problem};
use stockade_durable::sqlite::{Options as StoreOptions, Sqlite, Synchronous};
use stockade_workflow::engine::{MIGRATIONS, Options, StartRun, Workflows};
use stockade_workflow::graph::{Approval, Function, Graph, Node, Task};
use stockade_workflow::rust_workflow::{Call, Context, Error, RustWorkflow};

/// Stockade's libraries declare no allocator, so a program may choose its own.
#[global_allocator]
static ALLOCATOR: std::alloc::System = std::alloc::System;

/// The run: there is one in a directory.
const RUN: &str = "release";

/// The workflow: its graph, and the closures that do its tasks.
fn release() -> RustWorkflow {
    RustWorkflow::new("release", graph)
        .with_input(json!({ "type": "object", "required": ["version"] }))
        .with_output("release")
        .with_function("check", check)
        .with_function("publish", publish)
}

/// What is to be done. It is asked for again when a table changes that it looked into.
fn graph(context: &Context) -> Graph {
    let checks = ["format", "tests"].map(|name| {
        let mut task = Task::compute(name, Function::named("check")).into_table("checks", None);
        task.meta.insert("seconds".to_owned(), json!(0.1));
        Node::from(task)
    });
    let passed = context.outputs("checks").iter().filter(|check| check["passed"] == true).count();
    let approval = Approval {
        title: Some("Publish?".to_owned()),
        summary: Some(format!("{passed} checks have passed.")),
        ..Approval::default()
    };
    Graph::new(
        "release",
        [
            Node::parallel(Some(2), checks),
            Task::approval("decision", approval).into_table("decisions", None).into(),
            Task::compute("publish", Function::named("publish"))
                .needing("decision", "decision")
                .into_table("release", None)
                .into(),
        ],
    )
}

/// A check. Both tasks share it; what tells them apart is in the task.
async fn check(call: Call) -> Result<Value, Error> {
    let seconds = call.task().meta["seconds"].as_f64().ok_or("a check says how long it takes")?;
    eprintln!("checking: {}", call.task().id);
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    Ok(json!({ "name": call.task().id, "passed": true }))
}

/// What acts outside does it under `call.key()`, which is the same after a crash.
async fn publish(call: Call) -> Result<Value, Error> {
    let decision = call.dependency("decision").ok_or("there is no decision")?;
    let checks = call.context().outputs("checks").len();
    Ok(json!({
        "version": call.context().input()["version"],
        "checks": checks,
        "by": decision["decidedBy"],
    }))
}

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (directory, approves) = match words.as_slice() {
        [directory] => (PathBuf::from(directory), false),
        [directory, "approve"] => (PathBuf::from(directory), true),
        _ => {
            eprintln!("usage: release DIRECTORY [approve]");
            return ExitCode::from(4);
        }
    };
    match release_from(&directory, approves).await {
        Ok(run) => {
            println!("{}", run.output.unwrap_or_default());
            // As `stockade up` says how a run ended.
            ExitCode::from(match run.status {
                RunStatus::Finished => 0,
                RunStatus::Cancelled => 2,
                RunStatus::Running | RunStatus::Waiting => 3,
                RunStatus::Failed => 1,
            })
        }
        Err(problem) => {
            eprintln!(
                "{}{}",
                problem.message,
                problem.cause.map(|it| format!(": {it}")).unwrap_or_default()
            );
            ExitCode::from(4)
        }
    }
}

/// Begins the run, or goes on with it, to where nothing can be done but by others.
async fn release_from(directory: &Path, approves: bool) -> Result<Run, Problem> {
    let failed = |why: String| Problem::new(Code::Io, why);
    std::fs::create_dir_all(directory).map_err(|error| failed(error.to_string()))?;
    let store = StoreOptions {
        path: directory.join("release.db"),
        synchronous: Synchronous::Full,
        migrations: MIGRATIONS,
    };
    let store = Sqlite::open(store).await.map_err(|error| failed(error.to_string()))?;
    let options = Options { rust_workflows: vec![release()], ..Options::new("release") };
    // What an earlier process left goes on from here.
    let workflows = Workflows::launch(Arc::new(store), options).await?;
    let owner = OwnerId::new("me").map_err(|error| failed(error.to_string()))?;
    let caller = Caller::new(owner);
    let by_id = || RunById { id: RUN.to_owned() };
    if workflows.run(&caller, by_id()).await.is_err() {
        let begin = StartRun {
            input: json!({ "version": "1.0" }),
            run_id: Some(RUN.to_owned()),
            project: directory.to_owned(),
            max_concurrency: None,
        };
        workflows.start_run(&caller, "release", begin).await?;
    }
    if approves {
        let (id, task) = (RUN.to_owned(), "decision".to_owned());
        let decide = Decide {
            approved: true,
            note: None,
            only: Vec::new(),
            allow_executed: false,
            id,
            task,
        };
        workflows.decide(&caller, decide).await?;
    }
    let mut changes = workflows.changes();
    let run = loop {
        changes.mark_unchanged();
        let run = workflows.run(&caller, by_id()).await?;
        let waits = run.status == RunStatus::Waiting && !approves;
        if run.status.is_terminal() || waits {
            break run;
        }
        changes.changed().await.map_err(|error| failed(error.to_string()))?;
    };
    workflows.shutdown(Duration::from_secs(5)).await;
    Ok(run)
}
