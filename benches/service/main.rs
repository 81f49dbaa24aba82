//! What an operation of the product costs, beside its parts: a process of the host, the same
//! command at the level of the runtime, and a commit of the same disk. `cargo xtask bench service`
//! builds and starts it.
//!
//! The contenders take turns, so that whatever else the machine does hits them alike.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks here")]

mod burst;
mod late;
mod samples;
mod scene;

use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use stockade_api::{Caller, CommandLine, CreateSandbox, Execute, Problem, Sandboxes};
use stockade_core::{ExecId, SandboxId};
use stockade_runtime::{Command, Ending, Event, Runtime as _};

use samples::Samples;
use scene::Scene;

/// What went wrong, for people.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Rounds that are run and not counted.
const WARM_UP: usize = 10;
/// What is run, inside and outside.
const PROGRAM: &str = "/bin/true";
/// How much memory an idle server may take, in KiB.
const IDLE_KIB: u64 = 40 * 1024;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [program, runs, json] = words.as_slice() else {
        eprintln!("usage: bench-service PROGRAM RUNS JSON-FILE-OR-EMPTY");
        return ExitCode::from(2);
    };
    let runs = runs.to_str().and_then(|runs| runs.parse().ok()).unwrap_or(200);
    let file = Some(Path::new(json)).filter(|_| !json.is_empty());
    match run(Path::new(program), runs, file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench service: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(program: &Path, runs: usize, file: Option<&Path>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let program = program.to_owned();
    // A task as any other: where a server serves, too.
    let measured = runtime.spawn(async move {
        let mut scene = Scene::set(&program).await?;
        let idle = scene.server_memory()?;
        scene.furnish().await?;
        let mut samples = Samples::default();
        for round in 0..WARM_UP + runs {
            if round == WARM_UP {
                samples = Samples::default();
            }
            measure(&scene, &mut samples, round).await?;
        }
        burst::measure(&scene, &mut samples.burst).await?;
        late::measure(&scene, &mut samples.late).await?;
        let used = scene.server_memory()?;
        scene.leave().await?;
        Ok::<_, Failure>((samples.report(), idle, used))
    });
    let (report, idle, used) = runtime.block_on(measured)??;
    println!("{}", report.table());
    println!(
        "memory of the idle server: {idle} KiB (goal: {IDLE_KIB}), after the load: {used} KiB"
    );
    if let Some(file) = file {
        let more = json!({ "rounds": runs, "idleServerKib": idle, "usedServerKib": used });
        report.write(file, "service", &more)?;
    }
    Ok(())
}

/// One turn of every contender.
async fn measure(scene: &Scene, samples: &mut Samples, round: usize) -> Result<(), Failure> {
    scene.settle().await?;
    samples.floor.push_time(floor()?);
    samples.commit.push_time(scene.commit(round)?);
    let exec = ExecId::new(format!("e{round}"))?;
    let begun = Instant::now();
    at_runtime(scene, &exec).await?;
    samples.runtime.push_time(begun.elapsed());
    scene.native.acknowledge(&scene.bare, &exec).await?;
    let (service, server) = (&scene.service, &scene.server);
    samples.service.push_time(timed(execute(service, &scene.caller, &scene.own)).await?);
    samples.socket.push_time(timed(execute(server, &scene.caller, &scene.remote)).await?);
    let begun = Instant::now();
    let id = create_and_execute(server, &scene.caller).await?;
    samples.whole.push_time(begun.elapsed());
    scene.kill(id).await
}

async fn timed<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<Duration, Failure> {
    let begun = Instant::now();
    work.await?;
    Ok(begun.elapsed())
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

async fn at_runtime(scene: &Scene, exec: &ExecId) -> Result<(), Failure> {
    let command = Command { arguments: vec![PROGRAM.into()], ..Command::default() };
    let mut running = scene.native.execute(&scene.bare, exec, &command).await?;
    while let Some(event) = running.events.next().await {
        match event {
            Event::Ended(Ending::Exited(0)) => return Ok(()),
            Event::Ended(other) => return Err(format!("{PROGRAM} ended as {other:?}").into()),
            Event::Output { .. } | Event::Lost { .. } | Event::RefusedCalls(_) => {}
        }
    }
    Err("the events ended without an end".into())
}

/// Runs the program as an operation of its owner.
async fn execute(
    sandboxes: &impl Sandboxes,
    caller: &Caller,
    id: &SandboxId,
) -> Result<(), Failure> {
    let request = Execute::new(id.clone(), CommandLine::Program(vec![PROGRAM.to_owned()]));
    let done = sandboxes.execute(caller, request).await.map_err(failed)?;
    match done.end.exit_code {
        Some(0) => Ok(()),
        _ => Err(format!("{PROGRAM} ended as {done:?}").into()),
    }
}

/// Makes a sandbox and runs the program in it.
async fn create_and_execute(
    sandboxes: &impl Sandboxes,
    caller: &Caller,
) -> Result<SandboxId, Failure> {
    let made = sandboxes.create(caller, CreateSandbox::default()).await.map_err(failed)?;
    execute(sandboxes, caller, &made.id).await?;
    Ok(made.id)
}

fn failed(problem: Problem) -> Failure {
    let Problem { code, message, cause, .. } = problem;
    format!("{code}: {message}: {}", cause.unwrap_or_default()).into()
}
