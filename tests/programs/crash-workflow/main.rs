//! Kills the process that executes workflow runs, at every write of a run (`every`), then the local
//! server at random during several runs, and checks afterwards whether a finished task was executed
//! again, or one was lost. `cargo xtask crash workflow` builds and starts it. The processes that
//! are killed at random are controlled by commands, as a user would.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks here")]

mod every_write;
mod flows;
#[path = "../../../crates/durable/tests/contract/mortal.rs"]
mod mortal;
#[path = "../crash/random.rs"]
mod random;
mod sandbox_audit;
mod sandboxes;
mod worker;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::time::{Duration, Instant};

use mortal::Death;
use random::Random;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// What went wrong, as text for users.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The workflow: each kind of task, in each kind of order.
const FLOW: &str = r#"
import { createSmithers, Sandbox } from "stockade";
const { Workflow, Task, Parallel, Loop, Timer, Subflow, smithers, outputs } =
  createSmithers({ part: {}, other: {}, output: {} });
const later = (ms) => new Promise((done) => setTimeout(done, ms));
const child = smithers((ctx) => (
  <Workflow name="below">
    {[1, 2, 3].map((n) => (
      <Task id={`below-${n}`} output="part">{async () => { await later(5); return { n }; }}</Task>
    ))}
    <Task id="sum" output="output">{() => ({ n: ctx.outputs("part").length })}</Task>
  </Workflow>
));
const boxed = smithers((ctx) => (
  <Workflow name="boxed">
    <Task id="one" output="part">{async () => { await later(20); return { n: 1 }; }}</Task>
    <Task id="two" output="output">{() => ({ n: ctx.outputs("part").length })}</Task>
  </Workflow>
));
export default smithers((ctx) => (
  <Workflow name="crash">
    {[1, 2, 3, 4, 5, 6, 7, 8].map((n) => (
      <Task id={`one-${n}`} output={outputs.part}>{async () => { await later(n * 3); return { n }; }}</Task>
    ))}
    <Parallel maxConcurrency={3}>
      {[1, 2, 3, 4, 5, 6, 7, 8].map((n) => (
        <Task id={`par-${n}`} output={outputs.part}>{async () => { await later(20 - n); return { n }; }}</Task>
      ))}
    </Parallel>
    <Loop id="again" until={ctx.iterationCount(outputs.other, "round") >= 4} maxIterations={9}>
      <Task id="round" output={outputs.other}>{async () => { await later(5); return { n: ctx.iteration }; }}</Task>
      <Task id="known" output={outputs.part}>{{ n: 0 }}</Task>
    </Loop>
    <Timer id="rest" duration="30ms" />
    <Subflow id="sub" workflow={child} input={{}} output={outputs.other} />
    <Parallel>
      <Task id="asked" output={outputs.part} agent={{ command: "tee agent.txt" }}>{JSON.stringify({ of: ctx.runId })}</Task>
      <Sandbox id="child" output={outputs.part} workflow={boxed} />
      <Sandbox id="edit" output={outputs.part} autoAcceptDiffs
        command={`echo made > made-${ctx.runId}; echo '{"n": 1}'`} />
    </Parallel>
    <Task id="end" output={outputs.output}>
      {() => ({ parts: ctx.outputs(outputs.part).length, others: ctx.outputs(outputs.other).length })}
    </Task>
  </Workflow>
));
"#;

/// The expected output of each run. The loop ends when its condition is true, before its last
/// `known`.
const EXPECTED: (u64, u64) = (22, 5);
/// How many runs are active concurrently.
const AT_ONCE: usize = 4;
/// One run in this many has a sandbox.
const SANDBOX_RUNS: u64 = 4;
/// How long no run may end before everything is aborted.
const STALLED: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let done = match words.as_slice() {
        ["worker", kind, place, program, death, write] => {
            let kind = flows::Kind::ALL.into_iter().find(|known| known.argument() == *kind);
            let kind = kind.unwrap_or(flows::Kind::Plain);
            let death = match *death {
                "before" => Some(Death::Before),
                "after" => Some(Death::After),
                _ => None,
            };
            let death = death.map(|death| (death, write.parse().unwrap_or(0)));
            worker::work(kind, Path::new(place), Path::new(program), death)
        }
        ["run", program, kills, seed] => {
            run(Path::new(program), kills.parse().unwrap_or(0), seed.parse().unwrap_or(0))
        }
        _ => Err("usage: crash-workflow run PROGRAM KILLS SEED".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("crash workflow: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// A directory with a project and a data directory, removed when dropped.
struct TestDir(PathBuf);

impl Drop for TestDir {
    fn drop(&mut self) {
        // They may have ended by themselves. The server first: it would replace the keeper, and
        // waits for no client here.
        for process in
            with_arguments("__server", &self.data()).into_iter().chain(keepers(&self.data()))
        {
            let _ = kill_process(process, Signal::KILL);
        }
        // A leftover in the temporary directory does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl TestDir {
    fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("stockade-flows-{}", std::process::id()));
        fs::create_dir(&path)?;
        let dir = Self(path);
        fs::create_dir(dir.data())?;
        fs::set_permissions(dir.data(), fs::Permissions::from_mode(0o700))?;
        fs::create_dir(dir.project())?;
        fs::write(dir.project().join("flow.tsx"), FLOW)?;
        fs::write(dir.project().join("boxes.tsx"), sandboxes::FLOW)?;
        Ok(dir)
    }

    fn project(&self) -> PathBuf {
        self.0.join("project")
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    fn call(&self, program: &Path, words: &[&str]) -> Result<Output, Failure> {
        let mut command = Command::new(program);
        command.args(words).current_dir(self.project()).env("STOCKADE_DATA_DIR", self.data());
        Ok(command.output()?)
    }

    /// The output of a command that may be interrupted by the death of a server, and is then
    /// repeated.
    fn json(&self, program: &Path, words: &[&str]) -> Result<Vec<Value>, Failure> {
        let give_up = Instant::now() + STALLED;
        loop {
            let output = self.call(program, words)?;
            if output.status.success() {
                let text = String::from_utf8(output.stdout)?;
                let values = serde_json::Deserializer::from_str(&text).into_iter();
                return Ok(values.collect::<Result<_, _>>()?);
            }
            if Instant::now() > give_up {
                let errors = String::from_utf8_lossy(&output.stderr).into_owned();
                return Err(format!("{words:?} is not answered: {errors}").into());
            }
        }
    }
}

/// The server processes of a data directory.
fn servers(data: &Path) -> Vec<Pid> {
    with_arguments("__server", data)
}

/// The keepers of its sandboxes.
fn keepers(data: &Path) -> Vec<Pid> {
    with_arguments("__keeper", data)
}

/// The processes with this first argument that belong to this data directory.
fn with_arguments(word: &str, data: &Path) -> Vec<Pid> {
    let mut found = Vec::new();
    let Ok(processes) = fs::read_dir("/proc") else { return found };
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0).skip(1);
        let serves = words.next() == Some(word.as_bytes())
            && words.any(|word| word == data.as_os_str().as_encoded_bytes());
        found.extend(Pid::from_raw(number).filter(|_| serves));
    }
    found
}

fn run(program: &Path, kills: usize, seed: u64) -> Result<(), Failure> {
    for kind in flows::Kind::ALL {
        let (every, word) = (every_write::run(kind, program)?, kind.argument());
        println!(
            "crash workflow: {every} processes killed, before and after each write of a {word} run"
        );
    }
    println!("crash workflow: {kills} kills, seed {seed}");
    let dir = TestDir::new()?;
    let mut random = Random::new(seed);
    let (mut killed, mut started, mut last) = (0, 0_u64, Instant::now());
    let mut last_kill = Instant::now();
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut ended: Vec<String> = Vec::new();
    while killed < kills || !open.is_empty() {
        while open.len() < AT_ONCE && killed < kills {
            started += 1;
            let (file, name) = match started % SANDBOX_RUNS {
                0 => ("boxes.tsx", "box"),
                _ => ("flow.tsx", "run"),
            };
            let id = format!("{name}-{started}");
            // Whether it was started is visible in whether it exists.
            dir.call(program, &["up", file, "--run-id", &id, "--detach"])?;
            open.insert(id);
        }
        if killed < kills {
            std::thread::sleep(Duration::from_millis(20 + random.below(300)));
            for server in servers(&dir.data()) {
                if kill_process(server, Signal::KILL).is_ok() {
                    killed += 1;
                    last_kill = Instant::now();
                }
            }
            if last_kill.elapsed() > STALLED {
                return Err("there is no server to kill".into());
            }
        }
        for id in open.clone() {
            let known = dir.call(program, &["inspect", &id, "--json"])?;
            if known.status.success() {
                let found: Value = serde_json::from_slice(&known.stdout)?;
                if !found["run"]["finishedAt"].is_null() {
                    open.remove(&id);
                    ended.push(id);
                    last = Instant::now();
                } else {
                    sandboxes::answer(&dir, program, &id, &found)?;
                }
            } else if String::from_utf8_lossy(&known.stdout).contains("NOT_FOUND") {
                open.remove(&id);
            }
        }
        if last.elapsed() > STALLED {
            return Err(format!("nothing ends any more: {open:?}").into());
        }
    }
    let (mut tasks, mut again) = (0, 0);
    let (boxed, plain): (Vec<_>, Vec<_>) = ended.iter().partition(|id| id.starts_with("box"));
    for id in &plain {
        let (done, repeated) = audit(&dir, program, id)?;
        tasks += done;
        again += repeated;
    }
    let mut inside = 0;
    for id in &boxed {
        inside += sandboxes::audit(&dir, program, id)?;
    }
    let left = dir.json(program, &["ls", "--json"])?;
    if left.iter().any(|left| left["sandboxes"] != json!([])) {
        return Err(format!("sandboxes are left: {left:?}").into());
    }
    println!(
        "crash workflow: {} runs waited twice from inside a sandbox, where {inside} tasks were done, \
         each once",
        boxed.len()
    );
    // What killed servers have collected is removed by the next command that lists bundles.
    let listed = dir.json(program, &["bundles", "--json"])?;
    sandbox_audit::bundles(&dir.data(), plain.len())
        .map_err(|error| format!("{error}: {plain:?} have ended, and there are {listed:?}"))?;
    println!(
        "crash workflow: {killed} servers killed, {} runs and {tasks} tasks finished, {again} tasks \
         begun again, none that was finished",
        ended.len()
    );
    Ok(())
}

/// Checks a run that has ended, and its child runs; returns how many tasks were executed, and how
/// many executions were repetitions.
fn audit(dir: &TestDir, program: &Path, id: &str) -> Result<(u64, u64), Failure> {
    let mut totals = (0, 0);
    let made = fs::read_to_string(dir.project().join(format!("made-{id}"))).unwrap_or_default();
    if made != "made\n" {
        return Err(format!("the sandbox of run {id} has made {made:?}").into());
    }
    for id in [id.to_owned(), format!("{id}:child:sub:0")] {
        let found = dir.json(program, &["inspect", &id, "--json"])?;
        let found = found.first().ok_or("nothing is told")?;
        if found["run"]["status"] != "finished" {
            return Err(format!("run {id} is not finished: {}", found["run"]).into());
        }
        if !id.contains(':') {
            let output = json!({ "parts": EXPECTED.0, "others": EXPECTED.1 });
            if found["run"]["output"] != output {
                return Err(format!("run {id} gave {}", found["run"]["output"]).into());
            }
        }
        for task in found["tasks"].as_array().ok_or("no tasks are told")? {
            if task["status"] != "finished" || task["attempts"] != 1 {
                let events = dir.json(program, &["events", &id, "--json"])?;
                let of_task = |event: &&Value| event["nodeId"] == task["id"];
                let reported: Vec<_> =
                    events.iter().filter(of_task).map(Value::to_string).collect();
                return Err(
                    format!("run {id} has left a task: {task}\n{}", reported.join("\n")).into()
                );
            }
            totals.0 += 1;
            totals.1 += u64::from(task["executions"] != 1);
        }
        every_write::check_order(&dir.json(program, &["events", &id, "--json"])?)
            .map_err(|error| format!("run {id}: {error}"))?;
    }
    Ok(totals)
}
