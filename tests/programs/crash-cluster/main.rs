//! Kills, pauses and cuts off several processes that execute workflows on one PostgreSQL database, and the
//! database itself, and then checks that nothing was lost or done again. `cargo xtask crash cluster` builds
//! and starts it.
//!
//! `worker` is a process of the cluster, `database` its database, `proxy` the connection between them, `clocks`
//! their wall clocks, `log` what the workers have seen, and `audit` compares that with the database.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks here")]

mod audit;
mod clocks;
mod database;
mod log;
mod proxy;
#[path = "../crash/random.rs"]
mod random;
mod worker;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clocks::Clocks;
use database::Database;
use proxy::Proxy;
use random::Random;
use rustix::process::{Pid, Signal, kill_process};

/// What went wrong, as text for users.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How many processes share the database.
const WORKERS: usize = 3;
/// How long the processes may take to end the work that is left.
const TIMEOUT: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["worker", place, url, name, load] => {
            worker::run(Path::new(place), url, name, load.parse().unwrap_or(0))
        }
        ["run", kills, seed] => run(kills.parse().unwrap_or(0), seed.parse().unwrap_or(0)),
        _ => Err("usage: crash-cluster run KILLS SEED".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("crash cluster: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// A directory that is removed when dropped.
struct TestDir(PathBuf);

impl TestDir {
    fn new() -> std::io::Result<Self> {
        let name = format!("stockade-crash-cluster-{}", std::process::id());
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

/// The processes of the cluster. They end with this value.
struct Workers {
    dir: PathBuf,
    url: String,
    clocks: Option<Clocks>,
    running: Vec<Child>,
    /// How many were started.
    started: usize,
}

impl Workers {
    /// Starts a process in a place: half of the time under the name of its predecessor.
    fn start(&mut self, place: usize, random: &mut Random) -> Result<Child, Failure> {
        let name = match random.below(2) {
            0 => format!("w{place}"),
            _ => format!("w{place}-{}", self.started),
        };
        self.started += 1;
        let mut command = command(&self.dir, &self.url, &name, worker::LOAD)?;
        if let Some(clocks) = &self.clocks {
            clocks.give(&mut command, place);
        }
        Ok(command.spawn()?)
    }

    /// The places whose process runs.
    fn alive(&mut self) -> Result<Vec<usize>, Failure> {
        let mut alive = Vec::new();
        for (place, child) in self.running.iter_mut().enumerate() {
            if child.try_wait()?.is_none() {
                alive.push(place);
            }
        }
        Ok(alive)
    }

    /// Starts again what has ended: a process whose lease another one has ended ends by itself.
    fn restart(&mut self, random: &mut Random) -> Result<(), Failure> {
        for place in 0..WORKERS {
            let has_ended = match self.running.get_mut(place) {
                Some(child) => child.try_wait()?.is_some(),
                None => true,
            };
            if has_ended {
                let child = self.start(place, random)?;
                if place < self.running.len() {
                    self.running[place] = child;
                } else {
                    self.running.push(child);
                }
            }
        }
        Ok(())
    }

    fn signal(&self, place: usize, signal: Signal) {
        let pid = self.running.get(place).and_then(|child| Pid::from_raw(child.id().cast_signed()));
        if let Some(pid) = pid {
            // It may have ended.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn command(dir: &Path, url: &str, name: &str, load: u64) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("worker").arg(dir).args([url, name, &load.to_string()]);
    // What a worker reports while its database is away is expected.
    command.stdin(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// Sets the clock of a process, and waits for longer than a lease: all must keep theirs.
fn set_clock(
    workers: &mut Workers,
    place: usize,
    random: &mut Random,
    seen: &mut audit::Samples,
) -> Result<bool, Failure> {
    // A process that was paused before has noticed until then that its lease has ended.
    std::thread::sleep(worker::LEASE);
    let alive = workers.alive()?;
    let Some(clocks) = workers.clocks.as_ref().filter(|_| alive.contains(&place)) else {
        return Ok(false);
    };
    clocks.set(place, random)?;
    std::thread::sleep(worker::LEASE * 2);
    let left = workers.alive()?;
    for lost in alive.iter().filter(|place| !left.contains(place)) {
        seen.fault(format!("process {lost} lost its lease when the clock of {place} was set"));
    }
    Ok(true)
}

/// What happens to the cluster.
#[derive(Debug, Default)]
struct Faults {
    kills: u64,
    pauses: u64,
    clocks: u64,
    cuts: u64,
    restarts: u64,
}

/// The whole run. The summary is the last line.
fn run(kills: u64, seed: u64) -> Result<(), Failure> {
    println!("crash cluster: seed {seed}, {kills} faults");
    let dir = TestDir::new()?;
    let Some(mut database) = Database::create(&dir.0.join("database"))? else {
        println!(
            "SKIPPED: crash cluster: there is no PostgreSQL server: apt-get install postgresql"
        );
        return Ok(());
    };
    let proxy = Proxy::start(database.port)?;
    let url = database.url(proxy.port);
    let mut random = Random::new(seed);
    let clocks = Clocks::create(&dir.0, WORKERS)?;
    if clocks.is_none() {
        println!(
            "SKIPPED: crash cluster: clocks are not set without libfaketime: apt-get install faketime"
        );
    }
    let mut workers =
        Workers { dir: dir.0.clone(), url: url.clone(), clocks, running: Vec::new(), started: 0 };
    let mut faults = Faults::default();
    let mut seen = audit::Samples::default();
    for _ in 0..kills {
        workers.restart(&mut random)?;
        std::thread::sleep(Duration::from_millis(100 + random.below(500)));
        let place = usize::try_from(random.below(WORKERS as u64))?;
        match random.below(100) {
            0..45 => {
                workers.signal(place, Signal::KILL);
                faults.kills += 1;
            }
            45..55 => {
                let was_set = set_clock(&mut workers, place, &mut random, &mut seen)?;
                faults.clocks += u64::from(was_set);
            }
            55..75 => {
                // Longer than its lease, so that others take over what it holds.
                workers.signal(place, Signal::STOP);
                std::thread::sleep(worker::LEASE + Duration::from_millis(random.below(800)));
                workers.signal(place, Signal::CONT);
                faults.pauses += 1;
            }
            75..90 => {
                proxy.cut(true);
                std::thread::sleep(Duration::from_millis(random.below(1500)));
                proxy.cut(false);
                faults.cuts += 1;
            }
            _ => {
                database.kill()?;
                std::thread::sleep(Duration::from_millis(random.below(500)));
                database.start()?;
                faults.restarts += 1;
            }
        }
        seen.take(&database);
    }
    drop(workers);
    finish(&dir.0, &url)?;
    let audit = audit::Audit::new(&dir.0, &database, &seen)?;
    for fault in &audit.faults {
        println!("FAULT {fault}");
    }
    println!(
        "crash cluster: {} kills, {} pauses beyond the lease, {} clocks set ({} times seen), {} cuts, {} \
         restarts of the database; {} workflows, {} taken over, {} steps, {} of them run again before their record, {} with a late effect of a paused process; {} operations are \
         linearizable; {} faults, seed {seed}",
        faults.kills,
        faults.pauses,
        faults.clocks,
        audit.clocks,
        faults.cuts,
        faults.restarts,
        audit.workflows,
        audit.taken_over,
        audit.steps,
        audit.repeated,
        audit.late,
        audit.operations,
        audit.faults.len(),
    );
    if faults.clocks > 4 && audit.clocks == 0 {
        return Err("no process has seen that its clock was set, so that was not tested".into());
    }
    if audit.workflows == 0 {
        return Err("no workflow ran to its end, so nothing was tested".into());
    }
    if audit.faults.is_empty() { Ok(()) } else { Err("see above".into()) }
}

/// Lets a process that starts nothing new finish all workflows.
fn finish(dir: &Path, url: &str) -> Result<(), Failure> {
    let mut last = command(dir, url, "last", 0)?.spawn()?;
    let until = Instant::now() + TIMEOUT;
    loop {
        if let Some(status) = last.try_wait()? {
            return match status.success() {
                true => Ok(()),
                false => Err(format!("the last process ended with {status}").into()),
            };
        }
        if Instant::now() > until {
            last.kill()?;
            last.wait()?;
            return Err("the last process did not end what was there".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
