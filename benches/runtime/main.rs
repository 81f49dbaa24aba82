//! What a sandbox costs at the level of the runtime, beside the cheapest that the host can do:
//! starting a process. `cargo xtask bench runtime` builds and starts it.
//!
//! The contenders take turns, so that whatever else the machine does hits them alike.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks here")]

mod docker;
mod held;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use stockade_core::{ExecId, SandboxId, SandboxSpec};
use stockade_measure::{Goal, Report, Series, Unit};
use stockade_runtime::{Command, Ending, Event, Runtime as _};
use stockade_runtime_native::{Native, Options};

use docker::Docker;

/// What went wrong, for people.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Rounds that are run and not counted.
const WARM_UP: usize = 10;
/// A round in so many measures Docker, which is slow.
const RARELY: usize = 10;
/// How many never-used sandboxes wait.
const POOL: usize = 4;
/// How long the pool may take to be filled.
const PATIENCE: Duration = Duration::from_secs(30);
/// What ratios are taken to.
const FLOOR: &str = "fork, exec and exit on the host";
/// What is run, inside and outside.
const PROGRAM: &str = "/bin/true";

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [program, runs, image, json] = words.as_slice() else {
        eprintln!("usage: bench-runtime PROGRAM RUNS DOCKER-IMAGE JSON-FILE-OR-EMPTY");
        return ExitCode::from(2);
    };
    let runs = runs.to_str().and_then(|runs| runs.parse().ok()).unwrap_or(200);
    let image = image.to_string_lossy();
    match run(Path::new(program), runs, &image, Some(Path::new(json)).filter(|_| !json.is_empty()))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench runtime: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(program: &Path, runs: usize, image: &str, file: Option<&Path>) -> Result<(), Failure> {
    let place = std::env::temp_dir().join(format!("stockade-bench-{}", std::process::id()));
    std::fs::create_dir(&place)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measured = runtime.block_on(async {
        let mut bench = Bench::open(program, place.join("data"), image).await?;
        bench.rounds(runs).await?;
        let held = held::measure(program, &place.join("held")).await?;
        Ok::<_, Failure>((bench.series(), held, bench.skipped))
    });
    // Left in the temporary directory, it harms nobody.
    let _ = std::fs::remove_dir_all(&place);
    let (series, held, skipped) = measured?;
    let report = Report { what: "`true`", unit: Unit::Milliseconds, base: FLOOR, series };
    println!("{}", report.table());
    println!("{}", held.table());
    for line in &skipped {
        println!("Skipped: {line}");
    }
    if let Some(file) = file {
        let more = json!({ "rounds": runs, "held": held.as_json(), "skipped": skipped });
        report.write(file, "runtime", &more)?;
    }
    Ok(())
}

/// Opens a runtime over a keeper of its own.
fn open(program: &Path, data: PathBuf, pool: usize) -> Result<Native, Failure> {
    let keeper = vec![program.as_os_str().to_owned(), "__keeper".into()];
    Ok(Native::open(Options { data, keeper, pool })?)
}

struct Bench {
    native: Native,
    live: SandboxId,
    docker: Option<Docker>,
    skipped: Vec<String>,
    floor: Series,
    exec: Series,
    pooled: Series,
    docker_exec: Series,
}

impl Bench {
    async fn open(program: &Path, data: PathBuf, image: &str) -> Result<Self, Failure> {
        let native = open(program, data, POOL)?;
        let live = SandboxId::new("live")?;
        native.create(&live, &SandboxSpec::default()).await?;
        let (docker, skipped) = match Docker::start(image) {
            Ok(docker) => (Some(docker), Vec::new()),
            Err(reason) => (None, vec![format!("docker exec: {reason}")]),
        };
        Ok(Self {
            native,
            live,
            docker,
            skipped,
            floor: Series::new(FLOOR),
            exec: Series::new("exec in a live sandbox").with_goal(Goal::RatioAtMost(1.2)),
            pooled: Series::new("never-used sandbox from the pool, and exec")
                .with_goal(Goal::RatioAtMost(1.6)),
            docker_exec: Series::new("docker exec"),
        })
    }

    async fn rounds(&mut self, runs: usize) -> Result<(), Failure> {
        for round in 0..WARM_UP + runs {
            if round == WARM_UP {
                let all =
                    [&mut self.floor, &mut self.exec, &mut self.pooled, &mut self.docker_exec];
                all.into_iter().for_each(Series::clear);
            }
            // What the last sandbox left to do hits nobody: neither the floor nor who comes after it.
            self.pool_is_ready().await?;
            self.floor.push_time(floor()?);
            let exec = ExecId::new(format!("e{round}"))?;
            let begun = Instant::now();
            execute(&self.native, &self.live, &exec).await?;
            self.exec.push_time(begun.elapsed());
            self.native.acknowledge(&self.live, &exec).await?;
            let id = SandboxId::new(format!("s{round}"))?;
            let begun = Instant::now();
            self.native.create(&id, &SandboxSpec::default()).await?;
            execute(&self.native, &id, &exec).await?;
            self.pooled.push_time(begun.elapsed());
            self.native.cleanup(&id).await?;
            match &self.docker {
                Some(docker) if round % RARELY == 0 => self.docker_exec.push_time(docker.exec()?),
                _ => self.docker_exec.pause(),
            }
        }
        self.native.cleanup(&self.live).await?;
        Ok(())
    }

    async fn pool_is_ready(&self) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        loop {
            let metrics = self.native.metrics().await?;
            if metrics.pool_ready >= POOL as u64 && metrics.pool_filling == 0 {
                return Ok(());
            }
            if Instant::now() > until {
                return Err("the pool is not filled".into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn series(&self) -> Vec<Series> {
        let all = [&self.floor, &self.exec, &self.pooled, &self.docker_exec];
        all.into_iter().filter(|series| series.count() > 0).cloned().collect()
    }
}

/// Starts a process of the host and waits for its end.
fn floor() -> Result<Duration, Failure> {
    let mut command = std::process::Command::new(PROGRAM);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let status = command.status()?;
    let time = begun.elapsed();
    if status.success() { Ok(time) } else { Err(format!("{PROGRAM}: {status}").into()) }
}

/// Runs the program in a sandbox and waits for its end.
async fn execute(native: &Native, id: &SandboxId, exec: &ExecId) -> Result<(), Failure> {
    let command = Command { arguments: vec![PROGRAM.into()], ..Command::default() };
    let mut running = native.execute(id, exec, &command).await?;
    while let Some(event) = running.events.next().await {
        match event {
            Event::Ended(Ending::Exited(0)) => return Ok(()),
            Event::Ended(other) => return Err(format!("{PROGRAM} ended as {other:?}").into()),
            Event::Output { .. } | Event::Lost { .. } | Event::RefusedCalls(_) => {}
        }
    }
    Err("the events ended without an end".into())
}
