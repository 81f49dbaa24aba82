//! The process that is killed: it does one run of each kind of element, and whatever the run asks
//! for, or what is left of it. It dies at a write that is chosen beforehand.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;
use stockade_api::{
    Caller, Decide, RunById, RunStatus, SendSignal, TaskStatus, Up, Workflows as _,
};
use stockade_core::{Code, OwnerId};
use stockade_durable::Store;
use stockade_durable::sqlite::{Options as StoreOptions, Sqlite, Synchronous};
use stockade_workflow::authoring::Processes;
use stockade_workflow::engine::{MIGRATIONS, Options, Workflows};

use crate::Failure;
use crate::mortal::{Death, Mortal};

/// The run.
pub(crate) const RUN: &str = "every";
/// A run that waits, and is cancelled.
pub(crate) const CANCELLED: &str = "cancelled";
/// How long nothing may happen in it.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the write may take at which the process dies.
const LAST_WRITE: Duration = Duration::from_millis(300);

/// What is run: each kind of work that waits, is known, is computed, is kept, and is below.
const FLOW: &str = r#"
import { createSmithers } from "stockade";
const { Workflow, Task, Parallel, Loop, Timer, Approval, WaitForEvent, Subflow, smithers, outputs } =
  createSmithers({ part: {}, other: {}, output: {} });
const child = smithers((ctx) => (
  <Workflow name="below">
    <Task id="below-1" output="part">{() => ({ n: 1 })}</Task>
    <Approval id="below-ok" output="other" />
    <Task id="below-2" output="output">{() => ({ n: ctx.outputs("part").length })}</Task>
  </Workflow>
));
export default smithers((ctx) => (
  <Workflow name="every">
    <Task id="known" output={outputs.part}>{{ n: 0 }}</Task>
    <Task id="made" output={outputs.part}>{() => ({ n: 1 })}</Task>
    <Task id="kept" output={outputs.part} cache={{ by: 1 }}>{() => ({ n: 2 })}</Task>
    <Parallel>
      {[3, 4, 5].map((n) => (
        <Task id={`par-${n}`} output={outputs.part}>{() => ({ n })}</Task>
      ))}
    </Parallel>
    <Approval id="ok" output={outputs.other} />
    <Loop id="again" until={ctx.iterationCount(outputs.other, "round") >= 2} maxIterations={9}>
      <Task id="round" output={outputs.other}>{() => ({ n: ctx.iteration })}</Task>
    </Loop>
    <WaitForEvent id="word" event="word" output={outputs.other} />
    <Timer id="rest" duration="5ms" />
    <Subflow id="sub" workflow={child} input={{}} output={outputs.other} />
    <Task id="end" output={outputs.output}>
      {() => ({ parts: ctx.outputs(outputs.part).length, others: ctx.outputs(outputs.other).length })}
    </Task>
  </Workflow>
));
"#;

/// What is cancelled.
const WAITS: &str = r#"
import { createSmithers } from "stockade";
const { Workflow, Approval, smithers } = createSmithers({ output: {} });
export default smithers(() => <Workflow name="waits"><Approval id="ok" output="output" /></Workflow>);
"#;

/// Does the run to its end, and dies at the write of that number, where one is given.
pub(crate) fn work(
    place: &Path,
    stockade: &Path,
    death: Option<(Death, u64)>,
) -> Result<(), Failure> {
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(async {
        let done = done(place, stockade, death).await;
        if done.is_err() && death.is_some() {
            // Whoever waited for the last write may have given it up; it may still be under way.
            tokio::time::sleep(LAST_WRITE).await;
            die();
        }
        done
    })
}

async fn done(place: &Path, stockade: &Path, death: Option<(Death, u64)>) -> Result<(), Failure> {
    let file = place.join("flow.tsx");
    fs::write(&file, FLOW)?;
    let workflows = launch(place, stockade, death).await?;
    let done = tokio::time::timeout(PATIENCE, end(&workflows, &file)).await;
    done.map_err(|_| "the run does not come to its end")??;
    tokio::time::timeout(PATIENCE, cancel(&workflows, place)).await??;
    workflows.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// An engine on what is in a directory.
pub(crate) async fn launch(
    place: &Path,
    stockade: &Path,
    death: Option<(Death, u64)>,
) -> Result<Workflows, Failure> {
    // A process is killed, not the machine.
    let synchronous = Synchronous::Normal;
    let path = place.join("workflow.db");
    let options = StoreOptions { path, synchronous, migrations: MIGRATIONS };
    let mut store: Arc<dyn Store> = Arc::new(Sqlite::open(options).await?);
    if let Some((death, writes)) = death {
        store = Arc::new(Mortal::new(store, i64::try_from(writes)?, death, die));
    }
    let options = Options {
        executor_id: "crash".to_owned(),
        realms: Processes::new(vec![stockade.into(), "__realm".into()]),
        helper: vec![stockade.into(), "__command".into()],
        sandboxes: None,
        inside: None,
        agents: None,
        providers: None,
        built: Vec::new(),
    };
    Ok(Workflows::launch(store, options).await.map_err(|problem| problem.message)?)
}

fn die() {
    // Nothing else of it is to happen; that it cannot be killed is seen by its end.
    let _ = kill_process(getpid(), Signal::KILL);
    std::thread::sleep(PATIENCE);
}

/// Who asks.
pub(crate) fn caller() -> Result<Caller, Failure> {
    Ok(Caller::new(OwnerId::new("uid:0")?))
}

/// Starts the run, unless it is there, and gives it what it waits for, until it has ended.
async fn end(workflows: &Workflows, file: &Path) -> Result<(), Failure> {
    let caller = caller()?;
    let by_id = || RunById { id: RUN.to_owned() };
    started(workflows, RUN, file).await?;
    let mut changes = workflows.changes();
    loop {
        changes.mark_unchanged();
        let found = workflows.inspect(&caller, by_id()).await.map_err(|problem| problem.message)?;
        match found.run.status {
            RunStatus::Finished => return Ok(()),
            RunStatus::Failed | RunStatus::Cancelled => {
                return Err(format!("the run is not finished: {:?}", found.run).into());
            }
            RunStatus::Running | RunStatus::Waiting => {}
        }
        for task in ["ok", "below-ok"] {
            let task = task.to_owned();
            let decide = Decide {
                id: RUN.to_owned(),
                task,
                approved: true,
                note: None,
                only: Default::default(),
                allow_executed: Default::default(),
            };
            // It is not come to yet, or is decided already.
            let _ = workflows.decide(&caller, decide).await;
        }
        if found.tasks.iter().any(|task| task.status == TaskStatus::WaitingEvent) {
            let (id, name) = (RUN.to_owned(), "word".to_owned());
            let signal = SendSignal { id, name, correlation: None, payload: json!({ "n": 1 }) };
            let _ = workflows.signal(&caller, signal).await;
        }
        changes.changed().await?;
    }
}

/// Cancels the other run. What an earlier process left of that is put right when the engine starts.
async fn cancel(workflows: &Workflows, place: &Path) -> Result<(), Failure> {
    let caller = caller()?;
    let by_id = || RunById { id: CANCELLED.to_owned() };
    let file = place.join("waits.tsx");
    fs::write(&file, WAITS)?;
    started(workflows, CANCELLED, &file).await?;
    let mut changes = workflows.changes();
    loop {
        changes.mark_unchanged();
        let run = workflows.run(&caller, by_id()).await.map_err(|problem| problem.message)?;
        match run.status {
            RunStatus::Cancelled => return Ok(()),
            RunStatus::Waiting => {
                workflows.cancel_run(&caller, by_id()).await.map_err(|problem| problem.message)?;
            }
            // What was cancelled does not go on; nobody would hear of its end.
            _ => drop(tokio::time::timeout(PATIENCE / 4, changes.changed()).await?),
        }
    }
}

/// Starts a run unless it is there.
async fn started(workflows: &Workflows, id: &str, file: &Path) -> Result<(), Failure> {
    let caller = caller()?;
    match workflows.run(&caller, RunById { id: id.to_owned() }).await {
        Err(problem) if problem.code == Code::NotFound => {
            let up = Up {
                file: file.to_owned(),
                input: json!({}),
                run_id: Some(id.to_owned()),
                environment: BTreeMap::new(),
                max_concurrency: None,
            };
            workflows.up(&caller, up).await.map_err(|problem| problem.message)?;
        }
        found => drop(found.map_err(|problem| problem.message)?),
    }
    Ok(())
}
