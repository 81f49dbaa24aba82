//! What the egress process costs: the time that it adds to a request, how much it carries beside a
//! direct connection of the loopback and beside tinyproxy, its memory with many connections, and how
//! soon a new policy is in force. `cargo xtask bench egress` builds and starts it.
//!
//! The engine runs in a process of its own, as in the product. The contenders take turns.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks here")]

mod client;
mod engine;
mod far;
mod peer;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;
use stockade_measure::{Goal, Report, Series, Unit};

use client::Way;
use engine::Engine;
use far::Far;
use peer::Peer;

/// What went wrong, for people.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The name of the host whose traffic is passed on, and of the one whose requests are read.
pub(crate) const TUNNELLED: &str = "far.bench";
pub(crate) const INTERCEPTED: &str = "read.bench";

const WARM_UP: usize = 3;
/// How many exchanges of one byte make one value, and how large a body is.
const EXCHANGES: u32 = 100;
const BODY: usize = 32 << 20;
/// How many connections are open at once, how much memory they may take, and how many a new policy
/// closes.
const CONNECTIONS: usize = 5000;
const MEMORY_KIB: u64 = 150 * 1024;
const CLOSED: usize = 200;
/// How soon a new policy is to be in force, and how much may be added to a request, in milliseconds.
const CHANGE: f64 = 50.0;
const ADDED: f64 = 0.3;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let done = match words.as_slice() {
        [role, authorities] if role == engine::ROLE => engine::serve(Path::new(authorities)),
        [runs, json] => {
            let runs = runs.to_str().and_then(|runs| runs.parse().ok()).unwrap_or(30);
            measure(runs, Some(Path::new(json)).filter(|_| !json.is_empty()))
        }
        _ => {
            eprintln!("usage: bench-egress RUNS JSON-FILE-OR-EMPTY");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench egress: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The contenders of one table.
struct Table {
    direct: Series,
    tunnelled: Series,
    peer: Series,
}

impl Table {
    fn new(direct: &'static str, tunnelled: Series, peer: &'static str) -> Self {
        Self { direct: Series::new(direct), tunnelled, peer: Series::new(peer) }
    }

    fn clear(&mut self) {
        for series in [&mut self.direct, &mut self.tunnelled, &mut self.peer] {
            series.clear();
        }
    }

    fn series(self, more: Vec<Series>) -> Vec<Series> {
        let all = [self.direct, self.tunnelled, self.peer].into_iter().chain(more);
        all.filter(|series| series.count() > 0).collect()
    }
}

fn measure(runs: usize, file: Option<&Path>) -> Result<(), Failure> {
    engine::allow_descriptors()?;
    let far = Far::start()?;
    let mut engine = Engine::start(&far.authority)?;
    let peer = Peer::start();
    if peer.is_none() {
        println!("Skipped: tinyproxy: it is not installed");
    }
    let through = |port| Way::Proxy { port, name: TUNNELLED };
    let tunnel = through(engine.port);

    let mut exchange =
        Table::new("exchange, direct", Series::new("exchange, tunnel"), "exchange, tinyproxy");
    let mut request =
        Table::new("request, direct", Series::new("request, tunnel"), "request, tinyproxy");
    let carried = Series::new("MiB, tunnel").with_goal(Goal::RatioAtLeast(0.6));
    let mut content = Table::new("MiB, direct", carried, "MiB, tinyproxy");
    let mut secured = Series::new("request, TLS, direct");
    let mut read_request = Series::new("request, intercepted");
    let mut secured_content = Series::new("MiB, TLS, direct");
    let mut read_content = Series::new("MiB, intercepted").with_goal(Goal::RatioAtLeast(0.4));
    for round in 0..WARM_UP + runs {
        if round == WARM_UP {
            for table in [&mut exchange, &mut request, &mut content] {
                table.clear();
            }
            for series in [&mut secured, &mut read_request, &mut secured_content, &mut read_content]
            {
                series.clear();
            }
        }
        let mut turn = |way: &Way, which: fn(&mut Table) -> &mut Series| -> Result<(), Failure> {
            which(&mut exchange).push(client::exchange(way, far.echo, EXCHANGES)?);
            which(&mut request).push(client::request(way, far.plain, 0)?);
            let took = client::request(way, far.plain, BODY)?;
            which(&mut content).push(rate(took));
            Ok(())
        };
        turn(&Way::Direct, |table| &mut table.direct)?;
        turn(&tunnel, |table| &mut table.tunnelled)?;
        if let Some(peer) = &peer {
            turn(&Way::Proxy { port: peer.port, name: "127.0.0.1" }, |table| &mut table.peer)?;
        }
        let trusted = (&far.authority, &engine.authority);
        let read = Way::Proxy { port: engine.port, name: INTERCEPTED };
        secured.push(client::secured(&Way::Direct, far.secure, 0, trusted.0)?);
        read_request.push(client::secured(&read, far.secure, 0, trusted.1)?);
        secured_content.push(rate(client::secured(&Way::Direct, far.secure, BODY, trusted.0)?));
        read_content.push(rate(client::secured(&read, far.secure, BODY, trusted.1)?));
    }
    let added = [
        (
            "to an exchange over an open tunnel",
            exchange.tunnelled.median() - exchange.direct.median(),
        ),
        (
            "to a whole request through a tunnel",
            request.tunnelled.median() - request.direct.median(),
        ),
        ("to a whole request that is read", read_request.median() - secured.median()),
    ];
    let times = [exchange.series(Vec::new()), request.series(vec![secured, read_request])].concat();
    let rates = content.series(vec![secured_content, read_content]);
    let what = "egress, times";
    let times = Report { what, unit: Unit::Milliseconds, base: "request, direct", series: times };
    let what = "egress, 32 MiB in one response";
    let rates = Report { what, unit: Unit::PerSecond, base: "MiB, direct", series: rates };
    println!("{}\n{}", times.table(), rates.table());
    for (what, milliseconds) in added {
        println!("added {what}: {milliseconds:.3} ms (goal: {ADDED})");
    }

    let open = client::tunnels(&tunnel, far.echo, CONNECTIONS)?;
    let memory = engine.memory()?;
    drop(open);
    println!("memory with {CONNECTIONS} connections: {memory} KiB (goal: {MEMORY_KIB})");
    let mut changes = Series::new("until all are closed");
    for _ in 0..runs.min(20) {
        let open = client::tunnels(&tunnel, far.echo, CLOSED)?;
        let start = Instant::now();
        engine.tell("close")?;
        client::wait_for_ends(open)?;
        changes.push_time(start.elapsed());
        engine.tell("open")?;
    }
    let (median, worst) = (changes.median(), changes.quantile(1.0));
    println!(
        "a new policy closed {CLOSED} connections in {median:.1} ms, at most {worst:.1} ms (goal: {CHANGE})"
    );
    if let Some(file) = file {
        let added: Vec<_> = added.iter().map(|(what, time)| json!([what, time])).collect();
        let more = json!({
            "rounds": runs, "addedMilliseconds": added, "memoryKib": memory,
            "policyChangeMilliseconds": { "median": median, "worst": worst },
        });
        times.write(file, "egress", &more)?;
    }
    Ok(())
}

/// A body in so many milliseconds, as MiB per second.
fn rate(milliseconds: f64) -> f64 {
    let mebibytes = u32::try_from(BODY >> 20).unwrap_or(u32::MAX);
    f64::from(mebibytes) * 1e3 / milliseconds
}
