//! `kill -9` in the middle of the creation of sandboxes, of the client, the server and the keeper, in
//! the runtimes that use another program: after the next commands nothing of them is left.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::call::Call;
use crate::daemons::wait_until;
use crate::harness::{World, skip};

/// How often a creation is killed; `STOCKADE_CRASH_ROUNDS` sets another number.
fn rounds() -> u32 {
    std::env::var("STOCKADE_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// The processes of Stockade that have the data directory in their arguments.
fn processes(data: &Path) -> Vec<(Pid, String)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let process = |entry: std::fs::DirEntry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let data = data.to_string_lossy();
        let is_ours = words.iter().skip(1).any(|word| word.starts_with(&*data));
        let role = words.get(1)?.to_string();
        (is_ours && role.starts_with("__")).then_some((pid, role))
    };
    entries.filter_map(process).collect()
}

fn kill(data: &Path, is_victim: impl Fn(&str) -> bool) {
    for (process, role) in processes(data) {
        if is_victim(&role) {
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

/// What is left of sandboxes in the directory that clients and a keeper share.
fn remaining(runtime: &Path) -> Vec<PathBuf> {
    let parts = ["staging", "trash", "snapshots", "sandboxes"];
    let entries = parts.iter().flat_map(|part| std::fs::read_dir(runtime.join(part)));
    entries.flatten().flatten().map(|entry| entry.path()).collect()
}

/// Kills creations with these options at times spread over one, and checks that nothing is left of any.
/// `runtime` is the directory of the runtime.
pub(crate) fn leave_nothing(
    data: &Path,
    runtime: &Path,
    stockade: impl Fn(&[&str]) -> Call,
    options: &[&str],
) {
    let create = |id: &str| stockade(&[&["create", "--id", id], options].concat());
    let begun = Instant::now();
    create("first").finish().succeeds();
    let longest = begun.elapsed();
    stockade(&["kill", "first", "--discard"]).finish().succeeds();
    let mut was_early = 0;
    for round in 0..rounds() {
        let id = format!("killed-{round}");
        let running = create(&id).start();
        std::thread::sleep(longest.mul_f64(f64::from(round + 1) / f64::from(rounds() + 1)));
        match round % 4 {
            0 => running.signal(Signal::KILL),
            1 => kill(data, |role| role == "__server"),
            2 => kill(data, |role| role.starts_with("__keeper")),
            _ => kill(data, |_| true),
        }
        let ended = running.finish();
        was_early += u32::from(!ended.status.success());
        // The next command finds a whole sandbox of that name, or none.
        let listed = stockade(&["ls", "--json"]).finish();
        listed.succeeds();
        if stockade(&["exec", &id, "--", "true"]).finish().status.success() {
            stockade(&["kill", &id, "--discard"]).finish().succeeds();
        }
        // The id can be used again, whatever was left of it.
        let again = create(&id).finish();
        let exists = again.stderr.contains("[CONFLICT]");
        assert!(again.status.success() || exists, "round {round}: {ended}\n{again}");
        stockade(&["kill", &id, "--discard"]).finish();
    }
    assert!(was_early > 0 || rounds() < 4, "no kill came early enough to mean anything");
    stockade(&["prune", "--all", "--discard"]).finish().succeeds();
    let until = Instant::now() + Duration::from_secs(60);
    while !remaining(runtime).is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(remaining(runtime), Vec::<PathBuf>::new());
    let listed = stockade(&["ls", "--json"]).finish().json();
    assert_eq!(listed["sandboxes"].as_array().map(Vec::len), Some(0), "{listed}");
}

fn creations_of_bubblewrap_that_are_killed_leave_nothing(world: &World) {
    let usable = world.stockade(&["create", "--runtime", "bwrap", "--id", "probe"]).finish();
    if usable.stderr.contains("[UNSUPPORTED]") {
        skip("killed_creations of bwrap", &usable.stderr);
        return;
    }
    usable.succeeds();
    world.stockade(&["kill", "probe", "--discard"]).finish().succeeds();
    let data = world.data();
    let runtime = data.join("runtime-bwrap/1");
    assert!(runtime.is_dir(), "the test looks at another directory than the runtime has");
    leave_nothing(&data, &runtime, |words| world.stockade(words), &["--runtime", "bwrap"]);
    // The keepers end with the test; until then only they and the server know the directory.
    let roles = || processes(&data).into_iter().map(|(_, role)| role).collect::<Vec<_>>();
    wait_until("only daemons are left", || {
        roles().iter().all(|role| role.starts_with("__keeper") || role == "__server")
    });
}

as_root_and_as_user! {
    creations_of_bubblewrap_that_are_killed_leave_nothing,
}
