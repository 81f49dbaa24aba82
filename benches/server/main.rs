//! What a client over TCP waits for: create a sandbox, run `true` in it, receive the result; beside a stub
//! that answers the same requests and does nothing. One client, and 100 and 1000 at once; streams that are
//! open at the same time; and an upload, with the memory of the server. `cargo xtask bench server` builds
//! and starts it.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks here")]

mod client;
mod scene;
mod stub;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stockade_measure::{Goal, Report, Series, Unit};
use tokio::task::JoinSet;

use client::Client;
use scene::Scene;

/// What went wrong, for people.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What ratios are taken to.
const STUB: &str = "a stub that does nothing";
/// Rounds that are run and not counted.
const WARM_UP: usize = 10;
/// How often 100 clients come at once, and how often 1000 do.
const CROWDS: [(usize, usize); 2] = [(100, 5), (1000, 1)];
/// How long it is quiet before a crowd comes, in which the pool is filled.
const QUIET: Duration = Duration::from_secs(3);
/// How many streams are open at the same time, and in how many sandboxes.
const STREAMS: usize = 1000;
const SANDBOXES_OF_STREAMS: usize = 20;
/// The size of an upload.
const UPLOAD_BYTES: usize = 512 << 20;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [program, runs, json] = words.as_slice() else {
        eprintln!("usage: bench-server PROGRAM RUNS JSON-FILE-OR-EMPTY");
        return ExitCode::from(2);
    };
    let runs = runs.to_str().and_then(|runs| runs.parse().ok()).unwrap_or(200);
    let file = Some(Path::new(json)).filter(|_| !json.is_empty());
    match run(Path::new(program), runs, file) {
        Ok(failures) => ExitCode::from(u8::from(failures > 0)),
        Err(failure) => {
            eprintln!("bench server: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(program: &Path, runs: usize, file: Option<&Path>) -> Result<usize, Failure> {
    scene::allow_many_files()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let program = program.to_owned();
    let measured = runtime.spawn(async move { measure(&program, runs).await });
    let Measured { series, failures, idle, used, after_upload } = runtime.block_on(measured)??;
    let what = "create, `true`, result over TCP";
    let report = Report { what, unit: Unit::Milliseconds, base: STUB, series };
    println!("{}", report.table());
    println!("failed requests: {failures}");
    println!(
        "memory of the server: idle {idle} KiB, after the load {used} KiB, after an upload of {} MiB {after_upload} KiB",
        UPLOAD_BYTES >> 20
    );
    if let Some(file) = file {
        let more = json!({
            "rounds": runs,
            "failures": failures,
            "idleServerKib": idle,
            "usedServerKib": used,
            "serverAfterUploadKib": after_upload,
            "uploadBytes": UPLOAD_BYTES,
        });
        report.write(file, "server", &more)?;
    }
    Ok(failures)
}

struct Measured {
    series: Vec<Series>,
    failures: usize,
    idle: u64,
    used: u64,
    after_upload: u64,
}

async fn measure(program: &Path, runs: usize) -> Result<Measured, Failure> {
    let stub = stub::start().await?;
    let scene = Scene::start(program).await?;
    let idle = scene.server_memory()?;
    let mut base = Series::new(STUB);
    let mut one = Series::new("one client").with_goal(Goal::MedianAtMost(10.0));
    let (mut of_stub, mut of_server) = (Client::connect(stub).await?, scene.client().await?);
    for round in 0..WARM_UP + runs {
        if round == WARM_UP {
            base.clear();
            one.clear();
        }
        base.push_time(create_and_run(&mut of_stub).await?.0);
        let (time, id) = create_and_run(&mut of_server).await?;
        one.push_time(time);
        of_server.send("DELETE", &format!("/v1/sandboxes/{id}"), &[], &Value::Null).await?;
    }
    let mut series = vec![base, one];
    let mut failures = 0;
    for (clients, times) in CROWDS {
        let (name, goal) = match clients {
            100 => ("100 clients at once", Goal::P99AtMost(250.0)),
            _ => ("1000 clients at once", Goal::P99AtMost(2500.0)),
        };
        let mut crowd = Series::new(name).with_goal(goal);
        for _ in 0..times {
            tokio::time::sleep(QUIET).await;
            failures += measure_crowd(&scene, clients, &mut crowd).await?;
        }
        series.push(crowd);
    }
    let mut streams = Series::new("1000 streams at once, each to its end");
    failures += measure_streams(&scene, &mut streams).await?;
    series.push(streams);
    let used = scene.server_memory()?;
    upload(&scene).await?;
    let after_upload = scene.server_memory()?;
    scene.end().await;
    Ok(Measured { series, failures, idle, used, after_upload })
}

/// Creates a sandbox, runs `true` in it, and receives the result. Returns the time and the id.
async fn create_and_run(client: &mut Client) -> Result<(Duration, String), Failure> {
    let request = json!({ "image": { "uri": "host" }, "timeout": 600, "entrypoint": [] });
    let started = Instant::now();
    let created = client.send("POST", "/v1/sandboxes", &[], &request).await?.json()?;
    let id = created["id"].as_str().ok_or("no id")?.to_owned();
    run_command(client, &id, "true").await?;
    Ok((started.elapsed(), id))
}

/// Runs a command, and returns when its stream has ended.
async fn run_command(client: &mut Client, id: &str, command: &str) -> Result<(), Failure> {
    let endpoint = format!("/v1/sandboxes/{id}/endpoints/44772");
    let found = client.send("GET", &endpoint, &[], &Value::Null).await?.json()?;
    let token = found["headers"]["X-EXECD-ACCESS-TOKEN"].as_str().ok_or("no token")?.to_owned();
    let path = format!("/v1/sandboxes/{id}/proxy/44772/command");
    let headers = [("x-execd-access-token", token.as_str())];
    let ran = client.send("POST", &path, &headers, &json!({ "command": command })).await?;
    let text = String::from_utf8_lossy(&ran.body);
    if !text.contains("execution_complete") {
        return Err(format!("the command failed: {text}").into());
    }
    Ok(())
}

/// Adds how long each of many clients took, and returns how many failed.
async fn measure_crowd(
    scene: &Scene,
    clients: usize,
    series: &mut Series,
) -> Result<usize, Failure> {
    let mut connected = Vec::new();
    for _ in 0..clients {
        connected.push(scene.client().await?);
    }
    let mut running = JoinSet::new();
    for mut client in connected {
        running.spawn(async move { create_and_run(&mut client).await });
    }
    let (mut ids, mut failures) = (Vec::new(), 0);
    while let Some(done) = running.join_next().await {
        match done? {
            Ok((time, id)) => {
                series.push_time(time);
                ids.push(id);
            }
            Err(failure) => {
                eprintln!("bench server: of {clients} at once: {failure}");
                failures += 1;
            }
        }
    }
    let mut client = scene.client().await?;
    for id in ids {
        client.send("DELETE", &format!("/v1/sandboxes/{id}"), &[], &Value::Null).await?;
    }
    Ok(failures)
}

/// Opens many streams that are all open at the same time, and reads each to its end.
async fn measure_streams(scene: &Scene, series: &mut Series) -> Result<usize, Failure> {
    let mut client = scene.client().await?;
    let mut ids = Vec::new();
    for _ in 0..SANDBOXES_OF_STREAMS {
        ids.push(create_and_run(&mut client).await?.1);
    }
    let mut running = JoinSet::new();
    for number in 0..STREAMS {
        let id = ids[number % ids.len()].clone();
        let mut client = scene.client().await?;
        running.spawn(async move {
            let started = Instant::now();
            run_command(&mut client, &id, "sleep 10; echo end").await?;
            Ok::<_, Failure>(started.elapsed())
        });
    }
    let mut failures = 0;
    while let Some(done) = running.join_next().await {
        match done? {
            Ok(time) => series.push_time(time),
            Err(failure) => {
                eprintln!("bench server: a stream: {failure}");
                failures += 1;
            }
        }
    }
    for id in ids {
        client.send("DELETE", &format!("/v1/sandboxes/{id}"), &[], &Value::Null).await?;
    }
    Ok(failures)
}

/// Uploads a large file.
async fn upload(scene: &Scene) -> Result<(), Failure> {
    let mut client = scene.client().await?;
    let (_, id) = create_and_run(&mut client).await?;
    let endpoint = format!("/v1/sandboxes/{id}/endpoints/44772");
    let found = client.send("GET", &endpoint, &[], &Value::Null).await?.json()?;
    let token = found["headers"]["X-EXECD-ACCESS-TOKEN"].as_str().ok_or("no token")?.to_owned();
    let path = format!("/v1/sandboxes/{id}/proxy/44772/files/upload");
    let answer = client.upload(&path, &token, UPLOAD_BYTES).await?;
    if answer.status != 200 {
        return Err(format!("upload: {}", String::from_utf8_lossy(&answer.body)).into());
    }
    client.send("DELETE", &format!("/v1/sandboxes/{id}"), &[], &Value::Null).await?;
    Ok(())
}
