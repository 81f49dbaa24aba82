//! The process that is killed: it executes one run with everything that it needs, or the rest of
//! it, and then cancels another run. It dies at a write that is chosen beforehand.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};
use stockade_api::{
    Caller, Decide, RunById, RunStatus, SendSignal, TaskStatus, Up, Workflows as _,
};
use stockade_core::{Code, OwnerId};
use stockade_durable::Store;
use stockade_durable::sqlite::{Options as StoreOptions, Sqlite, Synchronous};
use stockade_runtime_native::{self as native, Native};
use stockade_service::{self as service, Home, Service};
use stockade_workflow::authoring::Processes;
use stockade_workflow::engine::{MIGRATIONS, Options, Workflows};

use crate::Failure;
use crate::flows::Kind;
use crate::mortal::{Death, Mortal};

/// The id of the run.
pub(crate) const RUN: &str = "every";
/// A run that waits, and is cancelled.
pub(crate) const CANCELLED: &str = "cancelled";
/// How long it may go without any change.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long the write at which the process dies may take.
const LAST_WRITE: Duration = Duration::from_millis(300);

/// Executes the run until it ends, or dies at the write with this number, if there is one.
pub(crate) fn work(
    kind: Kind,
    dir: &Path,
    stockade: &Path,
    death: Option<(Death, u64)>,
) -> Result<(), Failure> {
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(async {
        let done = wait_finished(kind, dir, stockade, death).await;
        if done.is_err() && death.is_some() {
            // The future of the last write may have been dropped; the write may still be running.
            tokio::time::sleep(LAST_WRITE).await;
            die();
        }
        done
    })
}

async fn wait_finished(
    kind: Kind,
    dir: &Path,
    stockade: &Path,
    death: Option<(Death, u64)>,
) -> Result<(), Failure> {
    let (flow, waits) = kind.flows();
    let file = project(dir).join("flow.tsx");
    fs::write(&file, flow)?;
    let engines = launch(kind, dir, stockade, death).await?;
    let done = tokio::time::timeout(TIMEOUT, end(&engines.workflows, &file, dir)).await;
    done.map_err(|_| "the run does not come to its end")??;
    let file = project(dir).join("waits.tsx");
    fs::write(&file, waits)?;
    tokio::time::timeout(TIMEOUT, cancel(&engines.workflows, &file)).await??;
    engines.shutdown().await;
    Ok(())
}

/// The engine of workflow runs, and the service with their sandboxes.
pub(crate) struct Engines {
    pub(crate) workflows: Workflows,
    pub(crate) service: Option<Service>,
}

impl Engines {
    pub(crate) async fn shutdown(&self) {
        self.workflows.shutdown(Duration::from_secs(1)).await;
        if let Some(service) = &self.service {
            service.shutdown(Duration::from_secs(1)).await;
        }
    }
}

/// Engines on the content of a directory.
pub(crate) async fn launch(
    kind: Kind,
    dir: &Path,
    stockade: &Path,
    death: Option<(Death, u64)>,
) -> Result<Engines, Failure> {
    // The process is killed, not the machine.
    let synchronous = Synchronous::Normal;
    let path = dir.join("workflow.db");
    let options = StoreOptions { path, synchronous, migrations: MIGRATIONS };
    let mut store: Arc<dyn Store> = Arc::new(Sqlite::open(options).await?);
    if let Some((death, writes)) = death {
        store = Arc::new(Mortal::new(store, i64::try_from(writes)?, death, die));
    }
    let service = match kind {
        Kind::Plain => None,
        Kind::Sandbox => {
            let data = data(dir)?;
            let home = Home { path: data.clone(), owner: caller()?.owner };
            let options = service::Options { home: Some(home), ..service::Options::default() };
            let native = Arc::new(native(stockade, &data)?);
            let launched = Service::launch(Arc::clone(&store), vec![native], options).await;
            Some(launched.map_err(|problem| problem.message)?)
        }
    };
    let server = stockade.with_file_name("stockade-server");
    let options = Options {
        realms: Processes::new(vec![server.clone().into(), "__realm".into()]),
        helper: vec![server.clone().into(), "__command".into()],
        image_programs: None,
        child_programs: vec![
            ("stockade".to_owned(), stockade.to_owned()),
            ("stockade-server".to_owned(), server),
        ],
        sandboxes: service.clone().map(|service| Arc::new(service) as _),
        ..Options::new("crash")
    };
    let workflows = Workflows::launch(store, options).await.map_err(|problem| problem.message)?;
    Ok(Engines { workflows, service })
}

/// The directory of the workflows, which sandboxes work on.
pub(crate) fn project(dir: &Path) -> PathBuf {
    dir.join("project")
}

/// The directory of sandboxes and bundles.
pub(crate) fn data(dir: &Path) -> Result<PathBuf, Failure> {
    let data = dir.join("data");
    if !data.exists() {
        fs::DirBuilder::new().mode(0o700).create(&data)?;
    }
    Ok(data)
}

/// The runtime of a directory.
pub(crate) fn native(stockade: &Path, data: &Path) -> Result<Native, Failure> {
    let keeper = vec![stockade.into(), "__keeper".into()];
    Ok(Native::open(native::Options { data: data.to_owned(), keeper, pool: 0 })?)
}

fn die() {
    // Nothing else of this process may run; a failed kill is visible in how the process ends.
    let _ = kill_process(getpid(), Signal::KILL);
    std::thread::sleep(TIMEOUT);
}

/// The caller.
pub(crate) fn caller() -> Result<Caller, Failure> {
    Ok(Caller::new(OwnerId::new("uid:0")?))
}

/// Starts the run, unless it exists, and answers what it waits for, until it has ended.
async fn end(workflows: &Workflows, file: &Path, dir: &Path) -> Result<(), Failure> {
    let caller = caller()?;
    let by_id = || RunById { id: RUN.to_owned() };
    started(workflows, RUN, file, &json!({ "count": dir.join("count") })).await?;
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
        for task in ["ok", "below-ok", "edit"] {
            let task = task.to_owned();
            let decide = Decide {
                id: RUN.to_owned(),
                task,
                approved: true,
                note: None,
                only: Default::default(),
                allow_executed: Default::default(),
            };
            // The run has not reached it yet, or it is already decided.
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

/// Cancels the other run, once all its tasks have started. When the engine starts, it completes
/// what an earlier process left of that.
async fn cancel(workflows: &Workflows, file: &Path) -> Result<(), Failure> {
    let caller = caller()?;
    let by_id = || RunById { id: CANCELLED.to_owned() };
    started(workflows, CANCELLED, file, &json!({})).await?;
    let mut changes = workflows.changes();
    loop {
        changes.mark_unchanged();
        let found = workflows.inspect(&caller, by_id()).await.map_err(|problem| problem.message)?;
        let has_begun = !found.tasks.is_empty()
            && found.sandboxes.iter().all(|sandbox| sandbox.shipped_at.is_some());
        match found.run.status {
            RunStatus::Cancelled => return Ok(()),
            RunStatus::Running | RunStatus::Waiting if has_begun => {
                workflows.cancel_run(&caller, by_id()).await.map_err(|problem| problem.message)?;
            }
            // A cancelled run does not continue, so no change would report its end.
            _ => drop(tokio::time::timeout(TIMEOUT / 4, changes.changed()).await?),
        }
    }
}

/// Starts a run unless it exists.
async fn started(
    workflows: &Workflows,
    id: &str,
    file: &Path,
    input: &Value,
) -> Result<(), Failure> {
    let caller = caller()?;
    match workflows.run(&caller, RunById { id: id.to_owned() }).await {
        Err(problem) if problem.code == Code::NotFound => {
            let up = Up {
                file: file.to_owned(),
                input: input.clone(),
                run_id: Some(id.to_owned()),
                environment: BTreeMap::new(),
                max_concurrency: None,
                secrets: BTreeMap::new(),
                server: None,
            };
            workflows.up(&caller, up).await.map_err(|problem| problem.message)?;
        }
        found => drop(found.map_err(|problem| problem.message)?),
    }
    Ok(())
}
