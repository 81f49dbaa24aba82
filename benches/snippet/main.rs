//! What a snippet costs, beside a start of the same binary that does nothing: warm in a server, cold
//! from the command line, and its parts. `cargo xtask bench snippet` builds and starts it.
//!
//! The contenders take turns, so that whatever else the machine does hits them alike.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks here")]

mod memory;

use std::ffi::OsString;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use stockade_measure::{Goal, Report, Series, Unit};
use stockade_script::SourceFile;
use stockade_script::worker::Program;
use stockade_snippet::{Imports, Input, Options, Runner, Transcript, check};

/// What went wrong, for people.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Rounds that are run and not counted.
const WARM_UP: usize = 10;
/// How often files are checked in one round: once is too quick for the clock of a busy machine.
const CHECKS: u32 = 100;
/// How many calls the rate is taken from, and how many calls there should be in a second.
const CALLS: u32 = 1_000;
const CALLS_PER_SECOND: f64 = 300.0;
/// How many isolates live when memory is measured, and what each should take, in KiB.
const ISOLATES: usize = 20;
const ISOLATE_KIB: u64 = 2 << 10;
/// What ratios are taken to.
const FLOOR: &str = "fork, exec and exit of the binary";

const COUNTER: &str = "import { createModule, t } from \"@directive-run/core\";
export const counter = createModule(\"counter\", {
  schema: { facts: { count: t.number() }, derivations: { isPositive: t.boolean() } },
  init: (facts) => { facts.count = 0; },
  derive: { isPositive: (facts) => facts.count > 0 },
  events: { increment: (facts, { by }: { by: number }) => { facts.count += by; } },
});
";
const MAIN: &str = "import { createSystem } from \"@directive-run/core\";
import { counter } from \"./counter.js\";
const system = createSystem({ module: counter });
system.start();
console.log(\"[start] count=\", system.facts.count);
system.events.increment({ by: 2 });
await system.settle();
console.log(\"[settled] count=\", system.facts.count);
";

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [program, runs, json] = words.as_slice() else {
        eprintln!("usage: bench-snippet PROGRAM RUNS JSON-FILE-OR-EMPTY");
        return ExitCode::from(2);
    };
    let runs = runs.to_str().and_then(|runs| runs.parse().ok()).unwrap_or(200);
    let file = Some(Path::new(json)).filter(|_| !json.is_empty());
    match run(Path::new(program), runs, file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench snippet: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(program: &Path, runs: usize, file: Option<&Path>) -> Result<(), Failure> {
    let place = Place::new()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let arguments = vec![stockade_snippet::worker::ARGUMENT.into()];
    let path = program.with_file_name("stockade-server");
    let forked = Program { path, arguments };
    let mut options = Options::new(forked);
    options.library.modules.push(memory::waits());
    let runner = Arc::new(Runner::new(options));
    let mut floor = Series::new(FLOOR);
    let mut warm = Series::new("warm call, two files").with_goal(Goal::MedianAtMost(5.0));
    let mut cold = Series::new("the same from the command line, cold");
    cold = cold.with_goal(Goal::MedianAtMost(30.0));
    let mut checked = Series::new("check and transform of them, in process");
    checked = checked.with_goal(Goal::MedianAtMost(0.1));
    for round in 0..WARM_UP + runs {
        if round == WARM_UP {
            for series in [&mut floor, &mut warm, &mut cold, &mut checked] {
                series.clear();
            }
        }
        floor.push_time(process(program, &[OsString::from("--version")])?);
        warm.push_time(runtime.block_on(call(&runner))?);
        let arguments = ["snippet", "run", "--json"].map(OsString::from);
        let arguments: Vec<_> = arguments.into_iter().chain([place.0.clone().into()]).collect();
        cold.push_time(process(program, &arguments)?);
        checked.push_time(read()?);
    }
    let rate = runtime.block_on(rate(&runner))?;
    let memory = runtime.block_on(memory::of_isolates(&runner, ISOLATES))?;
    let series = vec![floor, warm, cold, checked];
    let report = Report { what: "counter", unit: Unit::Milliseconds, base: FLOOR, series };
    println!("{}", report.table());
    let judged = |reached: bool| if reached { "reached" } else { "missed" };
    let reached = judged(rate >= CALLS_PER_SECOND);
    println!(
        "warm calls in a second, as many at once as there are processors: {rate:.0} (goal: {CALLS_PER_SECOND:.0}, {reached})"
    );
    match memory {
        Some(kib) => {
            let reached = judged(kib <= ISOLATE_KIB);
            println!("memory of a live isolate: {kib} KiB (goal: {ISOLATE_KIB}, {reached})");
        }
        None => println!("memory of a live isolate: only root can look"),
    }
    if let Some(file) = file {
        let more = json!({ "rounds": runs, "callsPerSecond": rate, "isolateKib": memory });
        report.write(file, "snippet", &more)?;
    }
    Ok(())
}

/// The snippet on disk, as long as the value lives.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Self, Failure> {
        let place = std::env::temp_dir().join(format!("stockade-bench-{}", std::process::id()));
        std::fs::create_dir(&place)?;
        let place = Self(place);
        std::fs::write(place.0.join("counter.ts"), COUNTER)?;
        std::fs::write(place.0.join("main.ts"), MAIN)?;
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What is left in a directory for such things is nobody's loss.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn files(main: &str) -> Vec<SourceFile> {
    [("src/counter.ts", COUNTER), ("src/main.ts", main)]
        .map(|(path, source)| SourceFile { path: path.to_owned(), source: source.to_owned() })
        .into()
}

/// Runs the snippet, with this text as its main file.
async fn snippet(runner: &Runner, main: &str) -> Result<Transcript, Failure> {
    let input = Input { files: Some(files(main)), timeout_ms: Some(10_000.0), source: None };
    let transcript = runner.run(input, std::future::pending()).await?;
    if transcript.is_clean() { Ok(transcript) } else { Err(transcript.errors.join("\n").into()) }
}

async fn call(runner: &Runner) -> Result<Duration, Failure> {
    let begun = Instant::now();
    let transcript = snippet(runner, MAIN).await?;
    let time = begun.elapsed();
    if transcript.facts.get("count") == Some(&json!(2)) {
        Ok(time)
    } else {
        Err(format!("{transcript:?}").into())
    }
}

/// How long a process lives that does this.
fn process(program: &Path, arguments: &[OsString]) -> Result<Duration, Failure> {
    let mut command = std::process::Command::new(program);
    command.args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let status = command.status()?;
    let time = begun.elapsed();
    if status.success() { Ok(time) } else { Err(format!("{command:?}: {status}").into()) }
}

fn read() -> Result<Duration, Failure> {
    let (files, imports) = (files(MAIN), Imports::default());
    let begun = Instant::now();
    for _ in 0..CHECKS {
        let modules = check(black_box(&files), &imports);
        black_box(modules).map_err(|faults| format!("{faults:?}"))?;
    }
    Ok(begun.elapsed() / CHECKS)
}

/// How many calls end in a second when there is always another one.
async fn rate(runner: &Arc<Runner>) -> Result<f64, Failure> {
    let begun = Instant::now();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..CALLS {
        let runner = Arc::clone(runner);
        calls.spawn(async move { call(&runner).await.map(drop) });
    }
    while let Some(call) = calls.join_next().await {
        call??;
    }
    Ok(f64::from(CALLS) / begun.elapsed().as_secs_f64())
}
