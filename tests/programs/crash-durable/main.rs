//! Kills a process that executes workflows at every write of one workflow, then at random under
//! load, and checks each time whether anything was lost or done again. `cargo xtask crash durable`
//! builds and starts it.
//!
//! `worker` is the process that is killed; `log` is its log; `audit` compares that with the
//! database.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks here")]

mod audit;
mod log;
#[path = "../../../crates/durable/tests/contract/mortal.rs"]
mod mortal;
#[path = "../crash/random.rs"]
mod random;
mod worker;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use audit::Audit;
use mortal::Death;
use random::Random;

/// What went wrong, as text for users.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How long a process may take for its work.
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["worker", place, load, death, writes] => {
            worker::run(Path::new(place), number(load), self::death(death), number(writes))
        }
        ["run", kills, seed] => run(number(kills), number(seed)),
        _ => Err("usage: crash-durable run KILLS SEED".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("crash durable: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or(0)
}

fn death(word: &str) -> Option<Death> {
    match word {
        "before" => Some(Death::Before),
        "after" => Some(Death::After),
        _ => None,
    }
}

/// A directory that is removed when dropped.
struct TestDir(PathBuf);

impl TestDir {
    fn new(name: &str) -> std::io::Result<Self> {
        let name = format!("stockade-crash-durable-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        // A leftover in the temporary directory does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The whole run. The summary is the last line.
fn run(kills: u64, seed: u64) -> Result<(), Failure> {
    println!("crash durable: seed {seed}, {kills} kills");
    let mut total = Audit::default();
    let at_writes = at_each_write(kills, &mut total)?;
    let at_random = under_load(kills.saturating_sub(at_writes), seed, &mut total)?;
    for fault in &total.faults {
        println!("FAULT {fault}");
    }
    println!(
        "crash durable: {} kills ({at_writes} at each write of a workflow, {at_random} under \
         load), {} workflows, {} steps, {} of them run again before their record, {} faults, \
         seed {seed}",
        at_writes + at_random,
        total.workflows,
        total.steps,
        total.repeated,
        total.faults.len(),
    );
    if total.workflows == 0 {
        return Err("no workflow ran to its end, so nothing was tested".into());
    }
    if total.faults.is_empty() { Ok(()) } else { Err("see above".into()) }
}

/// One workflow with the workflows that it starts, killed before and after each of its writes,
/// until a run needs fewer writes than are allowed.
fn at_each_write(kills: u64, total: &mut Audit) -> Result<u64, Failure> {
    let mut done = 0;
    for writes in 0.. {
        for death in ["before", "after"] {
            if done == kills {
                return Ok(done);
            }
            let path = TestDir::new(&format!("{writes}-{death}"))?;
            let mut audit = Audit::default();
            let mut first = start(&path.0, 1, death, writes)?;
            drop(first.stdin.take());
            let killed = !wait_for(&mut first)?;
            audit.update(&path.0)?;
            if killed {
                done += 1;
                finish(&path.0, &mut audit)?;
            }
            audit.finish(&path.0)?;
            total.add(audit);
            if !killed {
                return Ok(done);
            }
        }
    }
    Ok(done)
}

/// Many concurrent workflows in one database.
fn under_load(kills: u64, seed: u64, total: &mut Audit) -> Result<u64, Failure> {
    let mut random = Random::new(seed);
    let dir = TestDir::new("load")?;
    let mut audit = Audit::default();
    for done in 1..=kills {
        // At a random write, or at any time.
        if random.below(2) == 0 {
            let death = if random.below(2) == 0 { "before" } else { "after" };
            let mut worker = start(&dir.0, worker::LOAD, death, random.below(400))?;
            if wait_for(&mut worker)? {
                return Err("a worker ended before it was killed".into());
            }
        } else {
            let mut worker = start(&dir.0, worker::LOAD, "none", 0)?;
            std::thread::sleep(Duration::from_millis(20 + random.below(300)));
            worker.kill()?;
            worker.wait()?;
        }
        audit.update(&dir.0)?;
        if done.is_multiple_of(50) {
            println!("{done} kills under load");
        }
    }
    if kills > 0 {
        finish(&dir.0, &mut audit)?;
        audit.finish(&dir.0)?;
    }
    total.add(audit);
    Ok(kills)
}

fn start(dir: &Path, load: u64, death: &str, writes: u64) -> Result<Child, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("worker").arg(dir).args([&load.to_string(), death, &writes.to_string()]);
    Ok(command.stdin(Stdio::piped()).spawn()?)
}

/// Lets a process that starts nothing new finish all workflows.
fn finish(dir: &Path, audit: &mut Audit) -> Result<(), Failure> {
    let mut worker = start(dir, 0, "none", 0)?;
    drop(worker.stdin.take());
    if !wait_for(&mut worker)? {
        audit.faults.push("the last process did not end what was there".to_owned());
    }
    audit.update(dir)
}

/// Waits for the end of a process; returns whether it ended by itself and successfully.
fn wait_for(worker: &mut Child) -> Result<bool, Failure> {
    let until = Instant::now() + TIMEOUT;
    loop {
        if let Some(status) = worker.try_wait()? {
            if let Some(code) = status.code().filter(|code| *code != 0) {
                return Err(format!("a worker ended with {code}").into());
            }
            return Ok(status.success());
        }
        if Instant::now() > until {
            worker.kill()?;
            worker.wait()?;
            return Err("a worker did not end".into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
