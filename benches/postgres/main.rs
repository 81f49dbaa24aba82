//! What a durable step costs on PostgreSQL, beside the library of DBOS on the same server, and beside plain
//! transactions. `cargo xtask bench durable --postgres` builds and starts it.
//!
//! The contenders take turns, so that whatever else the machine does hits them alike. `stockade`, `peer` and
//! `floor` are the contenders; `costs` measures what a server of a cluster costs the database, which `cargo xtask
//! simulate` multiplies.

mod costs;
#[path = "../../tests/programs/crash-cluster/database.rs"]
mod database;
mod floor;
mod peer;
mod stockade;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;
use stockade_measure::{Goal, Report, Series, Unit};

use database::Database;
use floor::Floor;
use peer::Peer;
use stockade::Stockade;

/// What went wrong, for people.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What ratios are taken to.
const PEER: &str = "DBOS 0.5";
/// Rounds that are run and not counted.
const WARM_UP: u64 = 3;
/// How many steps one workflow makes in a round.
const STEPS: u64 = 40;
/// How many workflows run side by side, and the steps of each in a round.
const SIDE_BY_SIDE: u64 = 64;
const STEPS_EACH: u64 = 10;
/// How many workflows without steps run in a round, one after the other.
const EMPTY: u64 = 20;
/// How many connections the peer and the floor use: twice as many slow both down on two processors.
const CONNECTIONS: u32 = 16;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [rounds, json] = words.as_slice() else {
        eprintln!("usage: bench-postgres ROUNDS JSON-FILE-OR-EMPTY");
        return ExitCode::from(2);
    };
    let file = Some(Path::new(json)).filter(|_| !json.is_empty());
    match run(rounds.parse().unwrap_or(20), file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench durable --postgres: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(rounds: u64, file: Option<&Path>) -> Result<(), Failure> {
    let directory = tempfile::Builder::new().prefix("stockade-bench-").tempdir()?;
    let Some(database) = Database::create(&directory.path().join("database"))? else {
        return Err("there is no PostgreSQL server: apt-get install postgresql".into());
    };
    let url = database.url(database.port);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (one, many, empty) = runtime.block_on(measure(rounds, &url))?;
    let costs = runtime.block_on(costs::measure(&database, &url))?;
    let report = |what, series| Report { what, unit: Unit::PerSecond, base: PEER, series };
    let one = report("steps of one workflow", one);
    let many = report("steps of 64 workflows side by side", many);
    let empty = report("workflows without steps, one after the other", empty);
    for report in [&one, &many, &empty] {
        println!("{}", report.table());
    }
    println!("{}", costs::table(&costs));
    if let Some(file) = file {
        let more = json!({
            "rounds": rounds,
            "sideBySide": many.rows(),
            "empty": empty.rows(),
            "costs": costs,
        });
        one.write(file, "durable-postgres", &more)?;
    }
    Ok(())
}

type Contenders = Vec<Series>;

/// The series of one workflow at a time, of several side by side, and of workflows without steps.
async fn measure(rounds: u64, url: &str) -> Result<(Contenders, Contenders, Contenders), Failure> {
    let floor = Floor::open(url, CONNECTIONS).await?;
    let peer = Peer::launch(url, CONNECTIONS).await?;
    let stockade = Stockade::launch(url, "bench").await?;
    let goal = Goal::RatioAtLeast(1.0);
    let contenders = || {
        vec![
            Series::new(PEER),
            Series::new("Stockade").with_goal(goal),
            Series::new("plain transactions"),
        ]
    };
    let (mut one, mut many, mut empty) = (contenders(), contenders(), contenders());
    empty.truncate(2);
    for round in 0..WARM_UP + rounds {
        let add = |series: &mut Series, rate: f64| {
            if round >= WARM_UP {
                series.push(rate);
            }
        };
        add(&mut one[0], timed(STEPS, peer.steps(1, STEPS)).await?);
        add(&mut one[1], timed(STEPS, stockade.steps(1, STEPS)).await?);
        add(&mut one[2], timed(STEPS, floor.inserts(1, STEPS)).await?);
        let all = SIDE_BY_SIDE * STEPS_EACH;
        add(&mut many[0], timed(all, peer.steps(SIDE_BY_SIDE, STEPS_EACH)).await?);
        add(&mut many[1], timed(all, stockade.steps(SIDE_BY_SIDE, STEPS_EACH)).await?);
        add(&mut many[2], timed(all, floor.inserts(SIDE_BY_SIDE, STEPS_EACH)).await?);
        add(&mut empty[0], timed(EMPTY, one_by_one(|| peer.steps(1, 0))).await?);
        add(&mut empty[1], timed(EMPTY, one_by_one(|| stockade.steps(1, 0))).await?);
    }
    stockade.end().await?;
    peer.end().await;
    Ok((one, many, empty))
}

async fn one_by_one<F: Future<Output = Result<(), Failure>>>(
    work: impl Fn() -> F,
) -> Result<(), Failure> {
    for _ in 0..EMPTY {
        work().await?;
    }
    Ok(())
}

/// How many a second are done.
#[expect(clippy::cast_precision_loss, reason = "counts are small")]
async fn timed(
    count: u64,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<f64, Failure> {
    let begun = Instant::now();
    work.await?;
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}
