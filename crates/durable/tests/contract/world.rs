//! The store under test, engines on it, and a store that dies when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use stockade_durable::sqlite::{Options, Sqlite, Synchronous};
use stockade_durable::{
    Builder, Claimed, Commit, Committed, Created, Dequeued, Engine, Error, Executor, Filter,
    Handle, Json, Message, Migration, NewWorkflow, Owned, Pending, Queue, Received, Recovery,
    Result, Row, StartOptions, Statement, StepRecord, Store, StreamPage, Wakes, WorkflowId,
    WorkflowInfo,
};

/// The longest that a test waits for what must happen.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A heartbeat for tests in which executors die: those are taken over after three.
pub(crate) const FAST: Duration = Duration::from_millis(30);

/// The application's own table in these tests.
const MIGRATIONS: &[Migration] = &[Migration {
    number: 1,
    name: "items",
    sql: "CREATE TABLE items (name TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT;",
}];

/// An empty store of its own.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    _directory: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("durable.db");
        let options = Options { path, synchronous: Synchronous::Full, migrations: MIGRATIONS };
        let store = Sqlite::open(options).await.unwrap();
        Self { store: Arc::new(store), _directory: directory }
    }

    /// An engine of the executor `one`.
    pub(crate) fn engine(&self) -> Builder {
        Engine::builder(Arc::clone(&self.store)).executor_id("one".to_owned())
    }

    /// An engine of another executor on the same store.
    pub(crate) fn other_engine(&self, id: &str) -> Builder {
        Engine::builder(Arc::clone(&self.store)).executor_id(id.to_owned())
    }

    /// The same store, which dies after so many writes.
    pub(crate) fn mortal(&self, writes: i64, death: Death) -> Arc<Mortal> {
        let inner = Arc::clone(&self.store);
        Arc::new(Mortal { inner, left: AtomicI64::new(writes), death })
    }

    /// How often each row of the application is there, by name.
    pub(crate) async fn items(&self) -> Vec<(String, i64)> {
        let query = Statement::new("SELECT name, version FROM items ORDER BY name", vec![]);
        let rows = self.store.query(query).await.unwrap();
        rows.iter().map(|row| (row.text(0).unwrap().to_owned(), row.integer(1).unwrap())).collect()
    }
}

/// A statement that adds a row of the application.
pub(crate) fn insert(name: &str) -> Statement {
    Statement::new("INSERT INTO items VALUES (?1, 1)", vec![name.into()])
}

/// A statement that changes a row from one version to the next, and conflicts otherwise.
pub(crate) fn bump(name: &str, from: i64) -> Statement {
    let sql = "UPDATE items SET version = version + 1 WHERE name = ?1 AND version = ?2";
    Statement::new(sql, vec![name.into(), from.into()]).expecting(1)
}

pub(crate) fn id(text: &str) -> WorkflowId {
    WorkflowId::new(text).unwrap()
}

/// Options that give an id.
pub(crate) fn named(text: &str) -> StartOptions {
    StartOptions { id: Some(id(text)), ..StartOptions::default() }
}

/// Starts a workflow under an id.
pub(crate) async fn start<I: Serialize + Sync>(
    engine: &Engine,
    name: &str,
    input: &I,
    workflow: &str,
) -> Handle {
    engine.start(name, input, named(workflow)).await.unwrap()
}

/// What a handle gives, which must come.
pub(crate) async fn result<O: serde::de::DeserializeOwned>(handle: &Handle) -> Result<O> {
    soon(handle.get_result()).await
}

/// Waits for what must happen.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, work).await.expect("it must happen soon")
}

/// Waits until something is so.
pub(crate) async fn until<Fut: Future<Output = bool>>(mut is_so: impl FnMut() -> Fut) {
    soon(async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Counts how often something was done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counter(Arc<AtomicU32>);

impl Counter {
    pub(crate) fn add(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// What becomes of the write at which the store dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// It is not done.
    Before,
    /// It is done, and nobody hears of it.
    After,
}

/// A store that dies after some writes, as a process does that is killed: nothing that it is
/// told later happens.
#[derive(Debug)]
pub(crate) struct Mortal {
    inner: Arc<dyn Store>,
    left: AtomicI64,
    death: Death,
}

impl Mortal {
    /// Dies now.
    pub(crate) fn kill(&self) {
        self.left.store(i64::MIN / 2, Ordering::SeqCst);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    fn write<T: Send + 'static>(&self, work: impl FnOnce() -> Pending<T> + Send) -> Pending<T> {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        match (left, self.death) {
            (1.., _) => work(),
            (0, Death::After) => {
                let work = work();
                Box::pin(async move {
                    work.await.ok();
                    Err(Error::Closed)
                })
            }
            _ => Box::pin(async { Err(Error::Closed) }),
        }
    }

    /// Reads of a dead store fail too.
    fn alive(&self) -> Result<&Arc<dyn Store>> {
        if self.is_dead() { Err(Error::Closed) } else { Ok(&self.inner) }
    }
}

/// A write that is handed on with owned arguments.
macro_rules! write {
    ($self:ident, $store:ident => $call:expr) => {{
        let $store = Arc::clone(&$self.inner);
        $self.write(move || Box::pin(async move { $call.await })).await
    }};
}

#[async_trait]
impl Store for Mortal {
    fn wakes(&self) -> &Wakes {
        self.inner.wakes()
    }

    async fn register(&self, executor_id: &str, version: &str) -> Result<i64> {
        self.alive()?.register(executor_id, version).await
    }

    async fn heartbeat(&self, executor: &Executor) -> Result<bool> {
        self.alive()?.heartbeat(executor).await
    }

    async fn release(&self, executor: &Executor) -> Result<()> {
        self.alive()?.release(executor).await
    }

    async fn recover(&self, recovery: Recovery) -> Result<Vec<Claimed>> {
        self.alive()?.recover(recovery).await
    }

    async fn owned(&self, executor: &Executor) -> Result<Vec<Owned>> {
        self.alive()?.owned(executor).await
    }

    async fn create(&self, workflow: NewWorkflow) -> Result<Created> {
        write!(self, store => store.create(workflow))
    }

    fn commit(&self, commit: Commit) -> Pending<Committed> {
        self.write(|| self.inner.commit(commit))
    }

    async fn info(&self, id: &WorkflowId) -> Result<Option<WorkflowInfo>> {
        self.alive()?.info(id).await
    }

    async fn list(&self, filter: Filter) -> Result<Vec<WorkflowInfo>> {
        self.alive()?.list(filter).await
    }

    async fn steps(&self, id: &WorkflowId) -> Result<Vec<StepRecord>> {
        self.alive()?.steps(id).await
    }

    async fn cancel(&self, id: &WorkflowId, timed_out: bool) -> Result<Vec<WorkflowId>> {
        let id = id.clone();
        write!(self, store => store.cancel(&id, timed_out))
    }

    async fn resume(&self, id: &WorkflowId, queue: &str) -> Result<()> {
        let (id, queue) = (id.clone(), queue.to_owned());
        write!(self, store => store.resume(&id, &queue))
    }

    async fn collect(&self, older_than: Duration) -> Result<u64> {
        self.alive()?.collect(older_than).await
    }

    async fn declare_queue(&self, queue: Queue) -> Result<()> {
        self.alive()?.declare_queue(queue).await
    }

    async fn dequeue(&self, executor: &Executor, queues: &[String]) -> Result<Dequeued> {
        self.alive()?.dequeue(executor, queues).await
    }

    async fn stream(
        &self,
        id: &WorkflowId,
        key: &str,
        from_offset: u64,
        limit: u32,
    ) -> Result<StreamPage> {
        self.alive()?.stream(id, key, from_offset, limit).await
    }

    async fn event(&self, id: &WorkflowId, key: &str) -> Result<Option<Json>> {
        self.alive()?.event(id, key).await
    }

    async fn send(&self, message: Message) -> Result<()> {
        write!(self, store => store.send(message))
    }

    async fn message(&self, id: &WorkflowId, topic: &str) -> Result<Option<Received>> {
        self.alive()?.message(id, topic).await
    }

    async fn query(&self, statement: Statement) -> Result<Vec<Row>> {
        self.alive()?.query(statement).await
    }

    async fn execute(&self, statements: Vec<Statement>) -> Result<()> {
        write!(self, store => store.execute(statements))
    }

    async fn close(&self) -> Result<()> {
        self.kill();
        Ok(())
    }
}
