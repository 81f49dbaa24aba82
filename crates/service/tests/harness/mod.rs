//! A service on a runtime in memory and a store in a temporary directory. The service has a
//! separate async runtime, so that it can be killed: its work is dropped at any point, while the
//! runtime with its sandboxes keeps running.
#![allow(
    dead_code,
    unused_imports,
    clippy::allow_attributes,
    reason = "each test binary uses a part of it"
)]

mod bundle;
pub(crate) mod database;
mod gate;

use std::sync::Arc;
use std::time::Duration;

use stockade_api::{
    Caller, CommandLine, CreateSandbox, Execute, FileContent, GetSandbox, OperationId,
    OperationInfo, ReadEvents, ReadFile, RecordedEvent, Result, Sandbox, Sandboxes as _, WriteFile,
};
use stockade_core::event::Kind;
use stockade_core::{OwnerId, SandboxId, State};
use stockade_durable::{Statement, Store};
use stockade_runtime::fake::Fake;
use stockade_service::{MIGRATIONS, Options, Service};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinHandle;

pub(crate) use bundle::bundle;
use gate::GatedRuntime;
pub(crate) use gate::{Gate, Side};

/// How long a test waits for an expected event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A service with its runtime and store.
pub(crate) struct Harness {
    pub(crate) service: Service,
    pub(crate) fake: Fake,
    pub(crate) gate: Gate,
    pub(crate) directory: TempDir,
    store: Arc<dyn Store>,
    options: Options,
    process: Option<tokio::runtime::Runtime>,
}

/// A caller.
pub(crate) fn caller(owner: &str) -> Caller {
    Caller::new(OwnerId::new(owner).unwrap())
}

/// A command from its words.
pub(crate) fn program(id: &SandboxId, words: &[&str]) -> Execute {
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    Execute::new(id.clone(), CommandLine::Program(words))
}

impl Harness {
    /// An empty service.
    pub(crate) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    /// A service with options.
    pub(crate) async fn with(options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (fake, gate) = (Fake::new(), Gate::default());
        let (process, store, service) = launch(&directory, &fake, &gate, &options).await;
        Self { service, fake, gate, directory, store, options, process: Some(process) }
    }

    /// A service with a short watch interval.
    pub(crate) async fn watchful() -> Self {
        let watch_interval = Duration::from_millis(20);
        Self::with(Options { watch_interval, ..Options::default() }).await
    }

    /// The number of calls to the runtime, without those that the reaper and watchers may make at
    /// any time.
    pub(crate) fn runtime_calls(&self) -> usize {
        let own =
            ["list", "snapshots", "inspect", "usage"].map(|operation| self.fake.calls(operation));
        self.fake.all_calls() - own.iter().sum::<usize>()
    }

    /// Runs a future in the service's process.
    pub(crate) fn spawn<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        work: impl FnOnce(Service) -> F,
    ) -> JoinHandle<T> {
        self.process.as_ref().unwrap().spawn(work(self.service.clone()))
    }

    /// Runs a future in the service's process, and waits for its end.
    pub(crate) async fn run<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        work: impl FnOnce(Service) -> F,
    ) -> T {
        self.spawn(work).await.unwrap()
    }

    /// Requests an operation by its name, with the caller's idempotency key unless that is empty.
    pub(crate) async fn call(
        &self,
        owner: &'static str,
        key: &'static str,
        operation: &'static str,
        request: serde_json::Value,
    ) -> Result<serde_json::Value> {
        let request = serde_json::to_vec(&request).unwrap();
        let caller = match key {
            "" => caller(owner),
            key => caller(owner).with_key(key),
        };
        let response = self.run(move |service| async move {
            stockade_api::dispatch(&service, &caller, operation, &request).await
        });
        response.await
    }

    /// Kills the service, and launches another one.
    pub(crate) async fn kill(&mut self) {
        self.stop().await;
        self.start().await;
    }

    /// Kills the service, and drops the calls that the gate held.
    pub(crate) async fn stop(&mut self) {
        let process = self.process.take().unwrap();
        tokio::task::spawn_blocking(move || process.shutdown_timeout(PATIENCE)).await.unwrap();
        self.gate.open();
        self.store.close().await.unwrap();
    }

    /// Launches a service in place of the last one.
    pub(crate) async fn start(&mut self) {
        let Self { directory, fake, gate, options, .. } = self;
        let (process, store, service) = launch(directory, fake, gate, options).await;
        (self.process, self.store, self.service) = (Some(process), store, service);
    }

    /// Creates a sandbox of `u1` with the defaults.
    pub(crate) async fn sandbox(&self) -> SandboxId {
        self.create(CreateSandbox::default()).await.unwrap().id
    }

    /// Creates a sandbox of `u1`.
    pub(crate) async fn create(&self, request: CreateSandbox) -> Result<Sandbox> {
        self.run(|service| async move { service.create(&caller("u1"), request).await }).await
    }

    /// Starts a command of `u1` whose output is recorded.
    pub(crate) async fn stream(&self, execute: Execute) -> OperationId {
        let started =
            self.run(|service| async move { service.execute_stream(&caller("u1"), execute).await });
        started.await.unwrap().workflow_id
    }

    /// Waits for the end of an operation of `u1`.
    pub(crate) async fn result(&self, id: &OperationId) -> OperationInfo {
        let id = id.clone();
        let waited =
            self.run(|service| async move { service.wait_operation(&caller("u1"), id).await });
        tokio::time::timeout(PATIENCE, waited).await.unwrap().unwrap()
    }

    /// The status of a sandbox of `u1`.
    pub(crate) async fn status(&self, id: &SandboxId) -> Sandbox {
        let request = GetSandbox { id: id.clone(), metrics: true };
        self.service.get_status(&caller("u1"), request).await.unwrap()
    }

    /// Waits until a sandbox of `u1` is in a state.
    pub(crate) async fn until(&self, id: &SandboxId, state: State) -> Sandbox {
        self.eventually(async || Some(self.status(id).await).filter(|now| now.state == state)).await
    }

    /// Waits until `query` returns a value.
    pub(crate) async fn eventually<T>(&self, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
        let seen = async {
            loop {
                if let Some(answer) = condition().await {
                    break answer;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.unwrap()
    }

    /// The events of `u1`, in order.
    pub(crate) async fn events(&self) -> Vec<RecordedEvent> {
        let read = self.run(|service| async move {
            service.read_events(&caller("u1"), ReadEvents::default()).await
        });
        let mut items = read.await.unwrap();
        let mut events = Vec::new();
        while let Some(event) = items.next().await {
            events.push(event.unwrap());
        }
        events
    }

    /// The kinds of the events of `u1`, in order, without copies of files.
    pub(crate) async fn kinds(&self) -> Vec<Kind> {
        let kinds = self.events().await.into_iter().map(|event| event.payload.kind());
        kinds.filter(|kind| *kind != Kind::FilesCopied).collect()
    }

    /// How many sandboxes the runtime holds.
    pub(crate) async fn sandbox_count(&self) -> usize {
        use stockade_runtime::Runtime as _;
        self.fake.list(&std::collections::BTreeMap::new()).await.unwrap().len()
    }

    /// Writes a file of `u1`.
    pub(crate) async fn write(&self, id: &SandboxId, path: &str, text: &str) -> Result<u64> {
        let (id, path, text) = (id.clone(), path.to_owned(), text.to_owned());
        self.run(|service| async move { write(&service, &id, &path, &text).await }).await
    }

    /// Reads a file of `u1`.
    pub(crate) async fn read(&self, id: &SandboxId, path: &str) -> Result<String> {
        let request =
            ReadFile { sandbox_id: id.clone(), path: path.into(), offset: 0, length: None };
        let read = async |service: Service| service.read_file(&caller("u1"), request).await;
        let mut content = read(self.service.clone()).await?;
        let mut text = String::new();
        content.0.read_to_string(&mut text).await.unwrap();
        Ok(text)
    }

    /// Changes the database directly, without the service.
    pub(crate) async fn tamper(&self, sql: &'static str) {
        self.store.execute(vec![Statement::new(sql, vec![])]).await.unwrap();
    }

    /// Limits the database to its current number of pages, as if the disk were full; or removes the
    /// limit.
    pub(crate) async fn fill_disk(&self, is_full: bool) {
        let pages = if is_full { "1" } else { "1000000000" };
        let sql = format!("PRAGMA max_page_count = {pages}");
        // The statement returns a row, which is not needed.
        let _ = self.store.execute(vec![Statement::new(sql, vec![])]).await;
    }

    /// Lets the database grow by at most this many pages.
    pub(crate) async fn spare_pages(&self, pages: i64) {
        let rows = self.store.query(Statement::new("PRAGMA page_count", vec![])).await.unwrap();
        let most = rows[0].integer(0).unwrap() + pages;
        let _ = self
            .store
            .execute(vec![Statement::new(format!("PRAGMA max_page_count = {most}"), vec![])])
            .await;
    }

    /// The rows of a query, the first column as text.
    pub(crate) async fn texts(&self, sql: &'static str) -> Vec<String> {
        let rows = self.store.query(Statement::new(sql, vec![])).await.unwrap();
        rows.iter()
            .map(|row| row.optional_text(0).unwrap().unwrap_or_default().to_owned())
            .collect()
    }

    /// Whether a text occurs anywhere in the files of the database.
    pub(crate) fn database_holds(&self, text: &str) -> bool {
        let files = std::fs::read_dir(self.directory.path()).unwrap();
        files.into_iter().any(|file| {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            bytes.windows(text.len()).any(|window| window == text.as_bytes())
        })
    }
}

/// Writes a file of `u1`.
pub(crate) async fn write(
    service: &Service,
    id: &SandboxId,
    path: &str,
    text: &str,
) -> Result<u64> {
    let request =
        WriteFile { sandbox_id: id.clone(), path: path.into(), mode: None, uid: None, gid: None };
    let content = FileContent(Box::pin(std::io::Cursor::new(text.as_bytes().to_vec())));
    Ok(service.write_file(&caller("u1"), request, content).await?.size_bytes)
}

impl Drop for Harness {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.shutdown_background();
        }
    }
}

async fn launch(
    directory: &TempDir,
    fake: &Fake,
    gate: &Gate,
    options: &Options,
) -> (tokio::runtime::Runtime, Arc<dyn Store>, Service) {
    let mut process = tokio::runtime::Builder::new_multi_thread();
    let process = process.worker_threads(2).enable_all().build().unwrap();
    let place = directory.path().join("stockade.db");
    let gated = Arc::new(GatedRuntime::new(fake.clone(), gate.clone()));
    let options = options.clone();
    let launched = process.spawn(async move {
        let store = database::open(place, MIGRATIONS).await.unwrap();
        let service = Service::launch(store.clone(), vec![gated], options).await.unwrap();
        (store, service)
    });
    let (store, service) = launched.await.unwrap();
    (process, store, service)
}
