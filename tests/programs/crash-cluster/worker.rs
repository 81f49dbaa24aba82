//! A process of the cluster: it takes over the workflows of dead ones, works on the common queue, and starts
//! workflows until it is killed. Each workflow adds one to a counter that all have in common.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stockade_durable::postgres::{Options, Postgres};
use stockade_durable::{
    Context, Engine, Filter, Migration, Queue, StartOptions, Statement, Status, Step, StepOptions,
    Store, WorkflowId,
};

use crate::Failure;
use crate::clocks::Watch;
use crate::database::SCHEMA;
use crate::log::{Line, Log, now};

/// How many workflows a process starts concurrently.
pub(crate) const LOAD: u64 = 8;
/// While more workflows than this run in it, it starts no new ones.
const MAX_RUNNING: u64 = 32;
/// How often a process renews its lease.
const HEARTBEAT: Duration = Duration::from_millis(300);
/// After which silence the others take over.
pub(crate) const LEASE: Duration = Duration::from_millis(900);
/// How many workflows of the queue run at a time, and how many of them in one process.
pub(crate) const LIMITS: (u32, u32) = (6, 3);
/// How old the records of ended workflows are that are removed: older than any clock is set back, and newer
/// than some are set forward.
const KEPT: Duration = Duration::from_secs(6 * 3600);
/// How often they are removed.
const COLLECT: Duration = Duration::from_millis(400);
/// How long a process tries to reach the database when it starts.
const PATIENCE: Duration = Duration::from_secs(60);

const QUEUE: &str = "shared";
/// How long some operations wait in the queue, at least.
const DELAY: Duration = Duration::from_millis(400);

/// The counter, what each workflow made of it, and what each workflow did, once.
const MIGRATIONS: &[Migration] = &[Migration {
    number: 1,
    name: "counter",
    sql: "",
    postgres: "CREATE TABLE counter (value BIGINT NOT NULL); INSERT INTO counter VALUES (0); \
        CREATE TABLE history (workflow TEXT PRIMARY KEY, value BIGINT NOT NULL UNIQUE, \
        run BIGINT NOT NULL); CREATE TABLE deeds (deed TEXT PRIMARY KEY);",
}];

/// The result of a workflow here.
type Result<T> = std::result::Result<T, stockade_durable::Failure>;

/// Works until it is killed, or with no load until all workflows have ended.
pub(crate) fn run(
    dir: &Path,
    url: &str,
    name: &str,
    load: u64,
) -> std::result::Result<(), Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let log = Arc::new(Log::open(dir)?);
        let store = open(url).await?;
        let engine = launch(Arc::clone(&store), name, &log).await?;
        for _ in 0..load {
            tokio::spawn(start(engine.clone(), Arc::clone(&store), Arc::clone(&log)));
        }
        if load > 0 {
            tokio::spawn(look_at_clock(Arc::clone(&log)));
            tokio::spawn(collect(Arc::clone(&store)));
            engine.wait_until_ended().await;
            return Err("another process has this name".into());
        }
        while has_unfinished(&engine).await? {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        engine.shutdown(Duration::from_secs(10)).await?;
        Ok(())
    })
}

/// Logs whenever the wall clock of this process is set.
async fn look_at_clock(log: Arc<Log>) {
    let mut watch = Watch::default();
    loop {
        if let Some(line) = watch.look()
            && log.write(&line).is_err()
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Removes old records, of which there are none in truth.
async fn collect(store: Arc<dyn Store>) {
    loop {
        // The next round tries it again.
        let _ = store.collect(KEPT).await;
        tokio::time::sleep(COLLECT).await;
    }
}

/// The database, as soon as it answers.
async fn open(url: &str) -> std::result::Result<Arc<dyn Store>, Failure> {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let options = Options {
            url: url.to_owned(),
            schema: SCHEMA.to_owned(),
            certificate_authorities: Vec::new(),
            migrations: MIGRATIONS,
            exclusive: false,
        };
        match Postgres::open(options).await {
            Ok(store) => return Ok(Arc::new(store)),
            Err(error) if tokio::time::Instant::now() > until => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn launch(
    store: Arc<dyn Store>,
    name: &str,
    log: &Arc<Log>,
) -> std::result::Result<Engine, Failure> {
    let log = Arc::clone(log);
    let builder = Engine::builder(store)
        .executor_id(name.to_owned())
        .heartbeat(HEARTBEAT)
        // The workflows do not cause these faults.
        .max_recovery_attempts(u32::MAX)
        .queue(Queue {
            name: QUEUE,
            concurrency: Some(LIMITS.0),
            worker_concurrency: Some(LIMITS.1),
            rate_limit: None,
        })
        .workflow("add", move |context, (): ()| add(context, Arc::clone(&log)));
    Ok(builder.launch().await?)
}

/// Requests one operation after another: one that starts at once, one through the queue, one that waits there. One
/// whose answer is lost stays requested.
async fn start(engine: Engine, store: Arc<dyn Store>, log: Arc<Log>) {
    let kinds = [(None, None), (Some(QUEUE), None), (Some(QUEUE), Some(DELAY))];
    for kind in kinds.into_iter().cycle() {
        while engine.running() > MAX_RUNNING {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let done = request(&engine, &store, &log, kind).await;
        if done.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn request(
    engine: &Engine,
    store: &Arc<dyn Store>,
    log: &Log,
    (queue, delay): (Option<&'static str>, Option<Duration>),
) -> std::result::Result<(), Failure> {
    let id = WorkflowId::unique();
    log.write(&Line::Requested(id.to_string(), now()))?;
    if let Some(delay) = delay {
        log.write(&Line::Delayed(id.to_string(), u64::try_from(delay.as_millis())?))?;
    }
    let options = StartOptions { id: Some(id.clone()), queue, delay, ..StartOptions::default() };
    let handle = engine.start("add", &(), options).await?;
    handle.get_result::<()>().await?;
    let sql = "SELECT value FROM history WHERE workflow = ?1";
    let rows = store.query(Statement::new(sql, vec![id.as_str().into()])).await?;
    let row = rows.first().ok_or("a workflow that has ended added nothing")?;
    log.write(&Line::Answered(id.to_string(), now(), u64::try_from(row.integer(0)?)?))
}

async fn has_unfinished(engine: &Engine) -> std::result::Result<bool, Failure> {
    for status in [Status::Pending, Status::Enqueued, Status::Delayed] {
        let filter = Filter { status: Some(status), limit: Some(1), ..Filter::default() };
        if !engine.list(filter).await?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn add(context: Context, log: Arc<Log>) -> Result<()> {
    step(&context, &log, 0).await?;
    let id = context.id().to_string();
    let add = vec![
        Statement::new("UPDATE counter SET value = value + 1", vec![]).expecting(1),
        Statement::new(
            "INSERT INTO history SELECT ?1, value, ?2 FROM counter",
            vec![
                id.as_str().into(),
                i64::try_from(context.run_number()).unwrap_or(i64::MAX).into(),
            ],
        )
        .expecting(1),
    ];
    let added = context.transact("add", StepOptions::default(), |step| {
        let (log, add, run) = (&log, add.clone(), context.run_number());
        async move {
            effect(log, &step, run)?;
            Ok(((), add))
        }
    });
    added.await?;
    note(&log, Line::Recorded(format!("{id}:1"), context.run_number()))?;
    step(&context, &log, 2).await?;
    context.finish_with(vec![Statement::new("INSERT INTO deeds VALUES (?1)", vec![id.into()])]);
    Ok(())
}

/// A step that logs a line, and another line when its record was promised.
async fn step(context: &Context, log: &Log, function_id: u32) -> Result<()> {
    let run = context.run_number();
    context.step("effect", |step| async move { effect(log, &step, run) }).await?;
    note(log, Line::Recorded(format!("{}:{function_id}", context.id()), run))
}

fn effect(log: &Log, step: &Step, run: u64) -> Result<()> {
    note(log, Line::Effect(step.key.clone(), run))
}

fn note(log: &Log, line: Line) -> Result<()> {
    log.write(&line).map_err(|error| stockade_durable::Failure::new("log", error.to_string()))
}
