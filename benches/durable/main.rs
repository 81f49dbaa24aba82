//! What a durable step costs, beside the raw commit rate of the same disk: SQLite in WAL mode
//! with `synchronous=FULL`, one insert a commit. `cargo xtask bench durable` builds and starts it.
//!
//! The contenders take turns, so that whatever else the machine does hits them alike.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks here")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::json;
use stockade_durable::sqlite::{Options, Sqlite, Synchronous};
use stockade_durable::{Context, Engine, Handle, StartOptions};
use stockade_measure::{Goal, Report, Series, Unit};

/// What went wrong, for people.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What ratios are taken to.
const RAW: &str = "raw commits, FULL";
/// Rounds that are run and not counted.
const WARM_UP: u64 = 5;
/// How many commits, steps or workflows a contender makes in a round, one after the other: few,
/// since a disk that others use is fast in one moment and slow in the next.
const COUNT: u64 = 40;
/// How many workflows run side by side, and the steps of each in a round.
const SIDE_BY_SIDE: u64 = 64;
const STEPS_EACH: u64 = 40;

/// How long the engine may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [rounds, json] = words.as_slice() else {
        eprintln!("usage: bench-durable ROUNDS JSON-FILE-OR-EMPTY");
        return ExitCode::from(2);
    };
    let file = Some(Path::new(json)).filter(|_| !json.is_empty());
    match run(rounds.parse().unwrap_or(100), file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench durable: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(rounds: u64, file: Option<&Path>) -> Result<(), Failure> {
    let place = std::env::temp_dir().join(format!("stockade-bench-{}", std::process::id()));
    std::fs::create_dir(&place)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let measured = runtime.block_on(measure(rounds, &place));
    // Left in the temporary directory, it harms nobody.
    let _ = std::fs::remove_dir_all(&place);
    let series = measured?;
    let report = Report { what: "durable steps", unit: Unit::PerSecond, base: RAW, series };
    println!("{}", report.table());
    if let Some(file) = file {
        report.write(file, "durable", &json!({ "rounds": rounds }))?;
    }
    Ok(())
}

async fn measure(rounds: u64, place: &Path) -> Result<Vec<Series>, Failure> {
    let raw = raw(&place.join("raw.db"))?;
    let full = engine(place.join("full.db"), Synchronous::Full).await?;
    let mut synced = [
        Series::new(RAW),
        Series::new("steps of one workflow, FULL").with_goal(Goal::RatioAtLeast(0.6)),
        Series::new("steps of 64 workflows, FULL").with_goal(Goal::MedianAtLeast(15_000.0)),
        Series::new("workflows of no step, FULL"),
    ];
    for round in 0..WARM_UP + rounds {
        let begun = Instant::now();
        commits(&raw)?;
        let raw = rate(COUNT, begun);
        let one = steps(&full, 1, COUNT).await?;
        let many = steps(&full, SIDE_BY_SIDE, STEPS_EACH).await?;
        let empty = empty_workflows(&full).await?;
        add(&mut synced, round, &[raw, one, many, empty]);
    }
    full.shutdown(PATIENCE).await?;
    // Behind the others: what it leaves unsynced, the next sync of anybody must wait for.
    let normal = engine(place.join("normal.db"), Synchronous::Normal).await?;
    let mut unsynced =
        ["steps of one workflow, NORMAL", "steps of 64 workflows, NORMAL"].map(Series::new);
    for round in 0..WARM_UP + rounds {
        let one = steps(&normal, 1, COUNT).await?;
        let many = steps(&normal, SIDE_BY_SIDE, STEPS_EACH).await?;
        add(&mut unsynced, round, &[one, many]);
    }
    normal.shutdown(PATIENCE).await?;
    Ok(synced.into_iter().chain(unsynced).collect())
}

fn add(all: &mut [Series], round: u64, rates: &[f64]) {
    for (series, rate) in all.iter_mut().zip(rates) {
        if round >= WARM_UP {
            series.push(*rate);
        }
    }
}

async fn empty_workflows(engine: &Engine) -> Result<f64, Failure> {
    let begun = Instant::now();
    for _ in 0..COUNT {
        start(engine, 0).await?.get_result::<u64>().await?;
    }
    Ok(rate(COUNT, begun))
}

/// The floor: a table like that of the steps, without anything else.
fn raw(path: &Path) -> Result<Connection, Failure> {
    let raw = Connection::open(path)?;
    raw.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE operation_outputs \
         (workflow_uuid TEXT, function_id INTEGER, function_name TEXT, output TEXT, \
         PRIMARY KEY (workflow_uuid, function_id)) STRICT, WITHOUT ROWID;",
    )?;
    Ok(raw)
}

fn commits(raw: &Connection) -> Result<(), Failure> {
    let id = stockade_durable::WorkflowId::unique();
    let sql = "INSERT INTO operation_outputs VALUES (?1, ?2, 'step', '1')";
    let mut insert = raw.prepare_cached(sql)?;
    for number in 0..COUNT {
        insert.execute(rusqlite::params![id.as_str(), i64::try_from(number)?])?;
    }
    Ok(())
}

async fn engine(path: PathBuf, synchronous: Synchronous) -> Result<Engine, Failure> {
    let store = Sqlite::open(Options { path, synchronous, migrations: &[] }).await?;
    let builder = Engine::builder(Arc::new(store));
    let builder = builder.workflow("steps", |context: Context, count: u64| async move {
        let mut sum = 0;
        for number in 0..count {
            sum += context.step("step", |_| async move { Ok(number) }).await?;
        }
        Ok(sum)
    });
    Ok(builder.launch().await?)
}

async fn start(engine: &Engine, steps: u64) -> Result<Handle, Failure> {
    Ok(engine.start("steps", &steps, StartOptions::default()).await?)
}

/// How many steps a second workflows make that run side by side.
async fn steps(engine: &Engine, workflows: u64, each: u64) -> Result<f64, Failure> {
    let begun = Instant::now();
    let mut handles = Vec::new();
    for _ in 0..workflows {
        let engine = engine.clone();
        handles.push(tokio::spawn(async move {
            start(&engine, each).await?.get_result::<u64>().await.map_err(Failure::from)
        }));
    }
    for handle in handles {
        handle.await??;
    }
    Ok(rate(workflows * each, begun))
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
fn rate(count: u64, begun: Instant) -> f64 {
    count as f64 / begun.elapsed().as_secs_f64()
}
