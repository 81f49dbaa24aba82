//! Kills the local server, the keeper and inits at random while clients work, and checks afterwards
//! whether anything was lost, done twice or left behind. `cargo xtask crash service` builds and
//! starts it.
//!
//! `socket_client`, `cli_client` and `workspace_client` are the kinds of clients, `world` is what they
//! share; `final_check` checks the last server's responses, `database` its records, and the runtime's `audit` the host.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks here")]

#[path = "../crash/audit.rs"]
mod audit;
mod cli_client;
mod database;
mod final_check;
mod ledger;
#[path = "../crash/random.rs"]
mod random;
mod socket_client;
#[path = "../crash/victims.rs"]
mod victims;
mod workspace_client;
mod world;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use random::Random;
use socket_client::SocketClient;
use stockade_core::State;
use stockade_runtime_native::{Native, Options};
use world::World;

/// What went wrong, as text for users.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How many clients use the socket, and how many use commands.
const SOCKET_CLIENTS: usize = 4;
const CLI_CLIENTS: usize = 2;
/// How many clients work in workspaces.
const WORKSPACE_CLIENTS: usize = 2;
/// How long the life cycle of one sandbox may take.
const TIMEOUT: Duration = Duration::from_secs(180);
/// How long the run may go without a kill before it is aborted.
const STALLED: Duration = Duration::from_secs(120);
/// How many sandboxes each client leaves alive to the end.
const SURVIVING: usize = 2;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let done = match words.as_slice() {
        ["run", program, kills, seed] => {
            run(Path::new(program), kills.parse().unwrap_or(0), seed.parse().unwrap_or(0))
        }
        _ => Err("usage: crash-service run PROGRAM KILLS SEED".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("crash service: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Opens the runtime beside the server.
fn open(program: &Path, data: &Path) -> Result<Native, Failure> {
    let keeper = vec![program.as_os_str().to_owned(), "__keeper".into()];
    Ok(Native::open(Options { data: data.to_owned(), keeper, pool: 2 })?)
}

/// A directory that is removed when dropped.
struct TestDir(PathBuf);

impl Drop for TestDir {
    fn drop(&mut self) {
        // A leftover in the temporary directory does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The whole run: load and kills, then the audit. The summary is the last line.
fn run(program: &Path, kills: u64, seed: u64) -> Result<(), Failure> {
    let name = format!("stockade-crash-service-{}-{seed}", std::process::id());
    let dir = TestDir(std::env::temp_dir().join(name));
    std::fs::create_dir(&dir.0)?;
    let data = dir.0.join("data");
    let before = audit::Host::read()?;
    println!("crash service: seed {seed}, {kills} kills");
    let world = Arc::new(World::new(program.to_owned(), data.clone())?);
    world.start_server()?;
    let mut random = Random::new(seed);
    let clients: Vec<_> = (0..SOCKET_CLIENTS + CLI_CLIENTS)
        .map(|number| {
            let (world, seed) = (world.clone(), random.below(u64::MAX));
            std::thread::spawn(move || client(&world, number, seed))
        })
        .collect();
    let mut seen = SeenProcesses::default();
    let workers: Vec<_> = (0..WORKSPACE_CLIENTS)
        .map(|_| {
            let (world, seed) = (world.clone(), random.below(u64::MAX));
            std::thread::spawn(move || work_in_workspaces(&world, seed))
        })
        .collect();
    let killed = kill_at_random(&world, kills, &mut random, &mut seen);
    world.stop.store(true, Ordering::SeqCst);
    let mut kept = Vec::new();
    for client in clients {
        kept.extend(join(client)?);
    }
    for worker in workers {
        worker.join().map_err(|_| "a client panicked")??;
    }
    let killed = killed?;
    let mut faults = final_check::check(&world, kept)?;
    faults.extend(database::check(&data)?);
    let left = audit::check_after(program, &data, &before, (seen.inits, seen.keepers))?;
    let ledger = world.update_ledger(std::mem::take);
    faults.extend(ledger.faults);
    for line in faults.iter().chain(&left) {
        println!("FAULT {line}");
    }
    println!(
        "crash service: {} kills (servers {}, keepers {}, inits {}, helpers {}, ways out {}), {} sandboxes, {} operations, \
         {} commands, {} files, {} reached, {} asked again, {} cut short by an init's death, {} faults, {} left behind, \
         seed {seed}",
        killed.iter().sum::<u64>(),
        killed[0],
        killed[1],
        killed[2],
        killed[3],
        killed[4],
        ledger.sandboxes,
        ledger.operations,
        ledger.commands,
        ledger.files,
        ledger.reached,
        ledger.repeated,
        ledger.interrupted,
        faults.len(),
        left.len(),
    );
    if ledger.commands == 0 || ledger.files == 0 {
        return Err("no command ran to its end or wrote a file, so nothing was tested".into());
    }
    if faults.is_empty() && left.is_empty() { Ok(()) } else { Err("see above".into()) }
}

/// The processes that existed.
#[derive(Default)]
struct SeenProcesses {
    inits: BTreeSet<u32>,
    keepers: BTreeSet<u32>,
}

/// The servers of a data directory.
fn servers(data: &Path) -> Vec<u32> {
    victims::with_arguments("__server", |argument| argument == data.to_string_lossy())
}

/// Kills at random; returns how many servers, keepers, inits, helpers and egress processes were
/// killed.
fn kill_at_random(
    world: &World,
    kills: u64,
    random: &mut Random,
    seen: &mut SeenProcesses,
) -> Result<[u64; 5], Failure> {
    let data = &world.data;
    let mut killed = [0_u64; 5];
    let mut last = Instant::now();
    while killed.iter().sum::<u64>() < kills {
        std::thread::sleep(Duration::from_millis(50 + random.below(700)));
        seen.inits.extend(victims::inits(data));
        seen.keepers.extend(victims::keepers(data));
        // Mostly the server: it has the state.
        let (kind, done) = match random.below(10) {
            0 | 1 => (1, victims::kill_keeper(data)),
            2 => (2, kill_init(world, random)),
            3 => (3, victims::kill_helper(data)),
            4 => (4, kill_egress(data)),
            _ => (0, servers(data).first().is_some_and(|it| victims::kill(*it))),
        };
        if done {
            killed[kind] += 1;
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
    Ok(killed)
}

/// Kills the egress process of the server's sandboxes; false when there is none.
fn kill_egress(data: &Path) -> bool {
    let is_ours = |process: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        servers(data).iter().any(|server| status.contains(&format!("PPid:\t{server}\n")))
    };
    let found = victims::with_arguments("__egress", |_| true).into_iter().find(is_ours);
    found.is_some_and(victims::kill)
}

fn kill_init(world: &World, random: &mut Random) -> bool {
    // Recorded before the kill, so that a client that fails because of it finds the reason.
    victims::kill_init(&world.data, random, true, |sandbox| {
        world.update_ledger(|ledger| ledger.lost.extend(sandbox));
    })
}

/// A sandbox that is alive at the end, and what ran in it.
type SandboxTokens = (String, Vec<ledger::Token>);

/// Runs the life cycles of sandboxes, one after another, until the end; returns those left alive.
fn client(world: &World, number: usize, seed: u64) -> Result<Vec<SandboxTokens>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (name, mut random, mut kept) = (format!("c{number}"), Random::new(seed), Vec::new());
    while !world.stop.load(Ordering::SeqCst) {
        let mut turn = SocketClient::new(world, &name)?;
        let is_typed = number >= SOCKET_CLIENTS;
        let life = runtime.block_on(async {
            let life = run_client(world, &mut turn, is_typed, kept.len() < SURVIVING, &mut random);
            tokio::time::timeout(TIMEOUT, life).await
        });
        match life {
            Ok(Ok(true)) => kept.push((turn.id.to_string(), turn.tokens)),
            Ok(Ok(false)) => {}
            Ok(Err(fault)) => {
                let line = format!("{}: {fault}", turn.id).replace('\n', " ");
                world.update_ledger(|ledger| ledger.faults.push(line));
            }
            Err(_) => {
                let line = format!("{}: its life took too long", turn.id);
                world.update_ledger(|ledger| ledger.faults.push(line));
            }
        }
    }
    Ok(kept)
}

/// Runs sandboxes with workspaces, one after another, until the end.
fn work_in_workspaces(world: &World, seed: u64) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut random = Random::new(seed);
    while !world.stop.load(Ordering::SeqCst) {
        let life = workspace_client::run(world, &mut random);
        let life = runtime.block_on(async { tokio::time::timeout(TIMEOUT, life).await });
        let line = match life {
            Ok(Ok(written)) => {
                world.update_ledger(|ledger| ledger.written.push(written));
                continue;
            }
            Ok(Err(fault)) => format!("a client of workspaces: {fault}"),
            Err(_) => "a client of workspaces: a life took too long".to_owned(),
        };
        world.update_ledger(|ledger| ledger.faults.push(line));
    }
    Ok(())
}

/// The life cycle of one sandbox; returns whether it is left alive.
async fn run_client(
    world: &World,
    turn: &mut SocketClient<'_>,
    is_typed: bool,
    may_stay: bool,
    random: &mut Random,
) -> Result<bool, Failure> {
    let worked = if is_typed {
        cli_client::work(world, turn, random).await
    } else {
        turn.work(random).await
    };
    if turn.is_lost() {
        // Its processes no longer exist, and every request to it may have failed.
        world.update_ledger(|ledger| ledger.interrupted += u64::from(worked.is_err()));
        if world.is_lost(&turn.id) && random.below(2) == 0 {
            world.update_ledger(|ledger| ledger.abandoned.insert(turn.id.to_string()));
            return Ok(false);
        }
    } else {
        worked?;
        if may_stay && !is_typed && random.below(3) == 0 {
            return Ok(true);
        }
    }
    for id in turn.others.iter().chain([&turn.id]) {
        match turn.kill(id).await {
            // The command was interrupted before the sandbox was created.
            Err(fault) if fault.to_string().contains("there is no sandbox") => {}
            killed => killed?,
        }
    }
    match turn.status().await {
        Ok((State::Terminated, _)) | Err(_) => Ok(false),
        Ok(other) => Err(format!("it was killed and is {other:?}").into()),
    }
}

fn join(
    client: JoinHandle<Result<Vec<SandboxTokens>, Failure>>,
) -> Result<Vec<SandboxTokens>, Failure> {
    client.join().map_err(|_| "a client panicked")?
}
