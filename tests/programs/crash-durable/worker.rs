//! The process that is killed: it recovers the workflows of its predecessor, and starts workflows
//! of every kind until its input ends.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stockade_durable::sqlite::{Options, Sqlite, Synchronous};
use stockade_durable::{
    Context, Engine, Filter, Migration, Queue, StartOptions, Statement, Status, Step, StepOptions,
    Store, WorkflowId,
};

use crate::log::{Line, Log};
use crate::mortal::{Death, Mortal};
use crate::{Failure, TIMEOUT};

/// How many workflows are started concurrently under load.
pub(crate) const LOAD: u64 = 24;

/// While more workflows than this run, no new ones are started.
const MAX_RUNNING: u64 = 4 * LOAD;

const QUEUE: &str = "children";

/// The application's rows: what each workflow did, once.
const MIGRATIONS: &[Migration] = &[Migration {
    number: 1,
    name: "deeds",
    sql: "CREATE TABLE deeds (deed TEXT PRIMARY KEY) STRICT;",
    postgres: "CREATE TABLE deeds (deed TEXT PRIMARY KEY);",
}];

/// The result of a workflow here.
type Result<T> = std::result::Result<T, stockade_durable::Failure>;

/// Works until its input ends, and then until all workflows are finished.
pub(crate) fn run(
    dir: &Path,
    load: u64,
    death: Option<Death>,
    writes: u64,
) -> std::result::Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match work(dir, load, death, writes).await {
            // Another thread is about to kill this process: the write that it first waits for may
            // take a moment.
            Err(error) if death.is_some() && error.to_string().contains("closed") => {
                tokio::time::sleep(TIMEOUT).await;
                Err(error)
            }
            result => result,
        }
    })
}

async fn work(
    dir: &Path,
    load: u64,
    death: Option<Death>,
    writes: u64,
) -> std::result::Result<(), Failure> {
    let path = dir.join("durable.db");
    let options = Options { path, synchronous: Synchronous::Full, migrations: MIGRATIONS };
    let mut store: Arc<dyn Store> = Arc::new(Sqlite::open(options).await?);
    if let Some(death) = death {
        store = Arc::new(Mortal::new(store, i64::try_from(writes)?, death, die));
    }
    let log = Arc::new(Log::open(dir)?);
    let engine = launch(store, &log).await?;
    let over = input_ends();
    let mut starters = Vec::new();
    for _ in 0..load {
        starters.push(tokio::spawn(start(engine.clone(), Arc::clone(&log), Arc::clone(&over))));
    }
    for starter in starters {
        starter.await??;
    }
    while has_unfinished(&engine).await? {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    engine.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}

/// Ends this process as abruptly as a loss of power.
fn die() {
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::KILL).ok();
}

/// Becomes true at the end of the standard input.
fn input_ends() -> Arc<AtomicBool> {
    let over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&over);
    std::thread::spawn(move || {
        // Nothing is sent: reading ends, or fails, when the other end is closed.
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).ok();
        flag.store(true, Ordering::SeqCst);
    });
    over
}

/// Starts one workflow after another, at least one.
async fn start(
    engine: Engine,
    log: Arc<Log>,
    over: Arc<AtomicBool>,
) -> std::result::Result<(), Failure> {
    loop {
        // The predecessors' workflows come first: otherwise their number would grow with each kill.
        while engine.running() > MAX_RUNNING {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let id = WorkflowId::unique();
        let number = rustix::process::getpid().as_raw_nonzero().get();
        let options = StartOptions { id: Some(id.clone()), ..StartOptions::default() };
        let handle = engine.start("parent", &number, options).await?;
        log.write(&Line::Started(id.to_string()))?;
        handle.get_result::<i32>().await?;
        if over.load(Ordering::SeqCst) {
            return Ok(());
        }
    }
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

async fn launch(store: Arc<dyn Store>, log: &Arc<Log>) -> std::result::Result<Engine, Failure> {
    let (parents, children) = (Arc::clone(log), Arc::clone(log));
    let builder = Engine::builder(store)
        // The workflows do not cause these crashes.
        .max_recovery_attempts(u32::MAX)
        .queue(Queue {
            name: QUEUE,
            concurrency: Some(8),
            worker_concurrency: None,
            rate_limit: None,
        })
        .workflow("parent", move |context, input| parent(context, input, Arc::clone(&parents)))
        .workflow("child", move |context, input| child(context, input, Arc::clone(&children)));
    Ok(builder.launch().await?)
}

async fn parent(context: Context, number: i32, log: Arc<Log>) -> Result<i32> {
    step(&context, &log, 0).await?;
    let row = insert_effect(&context, "row");
    let transacted = context.transact("row", StepOptions::default(), |step| {
        let (log, row) = (&log, row.clone());
        async move {
            effect(log, &step)?;
            Ok(((), vec![row]))
        }
    });
    transacted.await?;
    log_line(&log, Line::Recorded(format!("{}:1", context.id())))?;
    let inline = context.child("child", &number, StartOptions::default()).await?;
    let queued = StartOptions { queue: Some(QUEUE), ..StartOptions::default() };
    let queued = context.child("child", &number, queued).await?;
    context.write_stream("places", "before").await?;
    context.sleep(Duration::from_millis(1)).await?;
    let sum = inline.get_result::<i32>().await? + queued.get_result::<i32>().await?;
    context.write_stream("places", "after").await?;
    step(&context, &log, 7).await?;
    context.finish_with(vec![insert_effect(&context, "end")]);
    Ok(sum)
}

async fn child(context: Context, number: i32, log: Arc<Log>) -> Result<i32> {
    step(&context, &log, 0).await?;
    step(&context, &log, 1).await?;
    context.finish_with(vec![insert_effect(&context, "end")]);
    Ok(number)
}

/// A step that logs a line, and another line when its record was promised.
async fn step(context: &Context, log: &Log, function_id: u32) -> Result<()> {
    context.step("effect", |step| async move { effect(log, &step) }).await?;
    log_line(log, Line::Recorded(format!("{}:{function_id}", context.id())))
}

fn effect(log: &Log, step: &Step) -> Result<()> {
    log_line(log, Line::Effect(step.key.clone()))
}

fn log_line(log: &Log, line: Line) -> Result<()> {
    log.write(&line).map_err(|error| stockade_durable::Failure::new("log", error.to_string()))
}

fn insert_effect(context: &Context, what: &str) -> Statement {
    let deed = format!("{} {what}", context.id());
    Statement::new("INSERT INTO deeds VALUES (?1)", vec![deed.into()])
}
