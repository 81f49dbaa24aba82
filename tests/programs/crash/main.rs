//! Kills clients, keepers, their helpers and inits at random under load, and checks afterwards
//! whether anything was lost, done twice or left behind. `cargo xtask crash runtime` builds and
//! starts it.
//!
//! `worker` is a client that does what clients do and checks every response; `victims` finds the
//! processes to kill; `audit` checks what is left.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks here")]

mod audit;
mod ledger;
mod random;
mod victims;
mod worker;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use random::Random;
use stockade_runtime_native::{Native, Options};

/// What went wrong, as text for users.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How many clients work concurrently.
const WORKERS: usize = 4;
/// How long the run may go without a kill before it is aborted.
const STALLED: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let done = match words.as_slice() {
        ["worker", program, data, name, seed] => {
            worker::run(Path::new(program), Path::new(data), name, number(seed))
        }
        ["run", program, kills, seed] => run(Path::new(program), number(kills), number(seed)),
        _ => Err("usage: crash run PROGRAM KILLS SEED".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("crash: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or(0)
}

/// Opens the runtime as every client of this run does.
fn open(program: &Path, data: &Path) -> Result<Native, Failure> {
    let keeper = vec![program.as_os_str().to_owned(), "__keeper".into()];
    Ok(Native::open(Options { data: data.to_owned(), keeper, pool: 2 })?)
}

/// A directory that is removed when dropped.
struct TestDir(PathBuf);

impl TestDir {
    fn new(seed: u64) -> std::io::Result<Self> {
        let path =
            std::env::temp_dir().join(format!("stockade-crash-{}-{seed}", std::process::id()));
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

/// The whole run: load and kills, then the audit. The summary is the last line.
fn run(program: &Path, kills: u64, seed: u64) -> Result<(), Failure> {
    let dir = TestDir::new(seed)?;
    let data = dir.0.join("data");
    let before = audit::Host::read()?;
    let mut random = Random::new(seed);
    println!("crash runtime: seed {seed}, {kills} kills");
    let mut workers: Vec<Worker> = (0..WORKERS).map(Worker::new).collect();
    let mut killed = [0_u64; 4];
    let (mut inits, mut keepers) = (BTreeSet::new(), BTreeSet::new());
    let mut last = Instant::now();
    while killed.iter().sum::<u64>() < kills {
        for worker in &mut workers {
            worker.keep_alive(program, &data, &mut random)?;
        }
        std::thread::sleep(Duration::from_millis(20 + random.below(130)));
        inits.extend(victims::inits(&data));
        keepers.extend(victims::keepers(&data));
        let kind = random.below(4);
        let done = match kind {
            0 => {
                let at = random.below(WORKERS as u64);
                workers[usize::try_from(at)?].kill()
            }
            1 => victims::kill_keeper(&data),
            2 => victims::kill_init(&data, &mut random, false, drop),
            _ => victims::kill_helper(&data),
        };
        if done {
            killed[usize::try_from(kind)?] += 1;
            last = Instant::now();
            let total: u64 = killed.iter().sum();
            if total.is_multiple_of(50) {
                println!("{total} kills");
            }
        }
        if last.elapsed() > STALLED {
            return Err("nothing could be killed for too long".into());
        }
    }
    for worker in &mut workers {
        worker.finish()?;
    }
    let ledger = ledger::read_all(&data)?;
    let left = audit::check_after(program, &data, &before, (inits, keepers))?;
    for line in ledger.faults.iter().chain(&left) {
        println!("FAULT {line}");
    }
    println!(
        "crash runtime: {} kills (clients {}, keepers {}, inits {}, helpers {}), {} sandboxes, \
         {} commands, {} cut short by an init's death, {} faults, {} left behind, seed {seed}",
        killed.iter().sum::<u64>(),
        killed[0],
        killed[1],
        killed[2],
        killed[3],
        ledger.sandboxes,
        ledger.commands,
        ledger.interrupted,
        ledger.faults.len(),
        left.len(),
    );
    if ledger.commands == 0 {
        return Err("no command ran to its end, so nothing was tested".into());
    }
    if ledger.faults.is_empty() && left.is_empty() { Ok(()) } else { Err("see above".into()) }
}

/// One client process, started again whenever it was killed.
struct Worker {
    name: String,
    child: Option<Child>,
}

impl Worker {
    fn new(at: usize) -> Self {
        Self { name: format!("w{at}"), child: None }
    }

    /// Starts the client if none runs. A client that ended by itself has found a fault, which is in
    /// its ledger.
    fn keep_alive(
        &mut self,
        program: &Path,
        data: &Path,
        random: &mut Random,
    ) -> Result<(), Failure> {
        if let Some(child) = &mut self.child
            && child.try_wait()?.is_none()
        {
            return Ok(());
        }
        let seed = random.below(u64::MAX).to_string();
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("worker").arg(program).arg(data).args([&self.name, &seed]);
        self.child = Some(command.stdin(Stdio::piped()).spawn()?);
        Ok(())
    }

    fn kill(&mut self) -> bool {
        match &mut self.child {
            Some(child) => child.kill().and_then(|()| child.wait()).is_ok(),
            None => false,
        }
    }

    /// Closes the client's input, so that it finishes what it has started.
    fn finish(&mut self) -> Result<(), Failure> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        drop(child.stdin.take());
        let until = Instant::now() + Duration::from_secs(60);
        while child.try_wait()?.is_none() {
            if Instant::now() > until {
                child.kill()?;
                child.wait()?;
                return Err(format!("the client {} did not end", self.name).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}
