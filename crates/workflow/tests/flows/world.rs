//! A directory with a project and a database, and an engine on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use stockade_api::{
    Caller, Follow, Run, RunById, RunStatus, Sandboxes, TaskInfo, Up, Workflows as _,
};
use stockade_core::{OwnerId, Problem};
use stockade_durable::{Error, Store};
use stockade_workflow::authoring::Processes;
use stockade_workflow::engine::{MIGRATIONS, Options, Workflows};
use stockade_workflow::rust_workflow::RustWorkflow;

use crate::database;

/// The time limit for any wait, on a machine under heavy load.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A project and its engine.
pub(crate) struct World {
    directory: tempfile::TempDir,
    pub(crate) workflows: Workflows,
    pub(crate) caller: Caller,
    options: Options,
}

/// The program that runs realms: the example `realm`.
pub(crate) fn program() -> PathBuf {
    stockade_test_support::program("realm")
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with_sandboxes(None).await
    }

    /// A world whose engine has sandboxes.
    pub(crate) async fn with_sandboxes(sandboxes: Option<Arc<dyn Sandboxes>>) -> Self {
        Self::with_options(|options| options.sandboxes = sandboxes).await
    }

    /// A world whose engine has changed options.
    pub(crate) async fn with_options(change: impl FnOnce(&mut Options)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Options {
            executor_id: "test".to_owned(),
            realms: Processes::new(vec![program().into()]),
            helper: vec![program().into(), "command".into()],
            child_programs: Vec::new(),
            image_programs: None,
            sandboxes: None,
            servers: None,
            outer_sandbox: None,
            agents: Some(directory.path().join("agents.json")),
            host_paths: None,
            data: None,
            providers: Some(directory.path().join("providers.json")),
            rust_workflows: Vec::new(),
        };
        change(&mut options);
        let workflows = launch(directory.path(), options.clone()).await;
        let caller = Caller::new(OwnerId::new("uid:0").unwrap());
        Self { directory, workflows, caller, options }
    }

    /// The directory of the project.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file of the project.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) async fn up(&self, file: &Path, input: Value) -> Result<Run, Problem> {
        let up = Up {
            file: file.to_owned(),
            input,
            run_id: None,
            environment: BTreeMap::from([("GREETING".to_owned(), "hello".to_owned())]),
            max_concurrency: None,
            secrets: BTreeMap::new(),
            server: None,
        };
        self.workflows.up(&self.caller, up).await
    }

    /// Waits until a run has ended, or can continue only with an answer from outside.
    pub(crate) async fn settled(&self, id: &str) -> Run {
        let mut changes = self.workflows.changes();
        let settled = async {
            loop {
                changes.mark_unchanged();
                let run = self.workflows.run(&self.caller, by_id(id)).await.unwrap();
                if run.status != RunStatus::Running {
                    return run;
                }
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(TIMEOUT, settled).await.unwrap()
    }

    /// Waits until the tasks of a run, as the engine reports them, satisfy a condition.
    pub(crate) async fn until(&self, run: &Run, predicate: impl Fn(&[Value]) -> bool) {
        let mut changes = self.workflows.changes();
        let waits = async {
            loop {
                changes.mark_unchanged();
                if predicate(&self.event_kinds(run).await) {
                    return;
                }
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(TIMEOUT, waits).await.unwrap();
    }

    /// Waits until a run has ended.
    pub(crate) async fn ended(&self, id: &str) -> Run {
        loop {
            let run = self.settled(id).await;
            if run.status.is_terminal() {
                return run;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Starts a workflow file, and waits until it ends or needs an answer from outside.
    pub(crate) async fn run(&self, source: &str, input: Value) -> Run {
        let file = self.write("flow.tsx", source);
        let run = self.up(&file, input).await.unwrap();
        self.settled(&run.id).await
    }

    pub(crate) async fn tasks(&self, run: &Run) -> Vec<TaskInfo> {
        self.workflows.inspect(&self.caller, by_id(&run.id)).await.unwrap().tasks
    }

    /// The same project and database with a new engine, which continues the runs that the last one
    /// left.
    pub(crate) async fn restarted(self) -> Self {
        let Self { directory, workflows, caller, options } = self;
        workflows.shutdown(Duration::ZERO).await;
        drop(workflows);
        let workflows = launch(directory.path(), options.clone()).await;
        Self { directory, workflows, caller, options }
    }

    /// The same world with an engine that has other workflows in Rust.
    pub(crate) async fn with_built(mut self, built: Vec<RustWorkflow>) -> Self {
        self.options.rust_workflows = built;
        self.restarted().await
    }

    /// The events of a run.
    pub(crate) async fn events(&self, run: &Run) -> Vec<Value> {
        let follow = Follow { id: run.id.clone(), from: 0, wait_ms: 0, known_status: None };
        self.workflows.follow(&self.caller, follow).await.unwrap().events
    }

    /// The tasks of a run with their status, attempts and executions.
    pub(crate) async fn event_kinds(&self, run: &Run) -> Vec<Value> {
        let tasks = self.tasks(run).await;
        let told = |task: &TaskInfo| {
            json!([task.id, task.iteration, task.status, task.attempts, task.executions])
        };
        tasks.iter().map(told).collect()
    }
}

/// A run, by its id.
fn by_id(id: &str) -> RunById {
    RunById { id: id.to_owned() }
}

async fn launch(directory: &Path, options: Options) -> Workflows {
    let path = directory.join("test.db");
    // The last engine may still have work that holds a reference.
    let mut tries = 0..500;
    let store: Arc<dyn Store> = loop {
        match database::open(path.clone(), MIGRATIONS).await {
            Err(Error::Locked { .. }) if tries.next().is_some() => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            opened => break opened.unwrap(),
        }
    };
    Workflows::launch(store, options).await.unwrap()
}
