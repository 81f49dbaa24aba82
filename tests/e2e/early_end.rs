//! How a run starts and ends: every process that it starts ends with it, whenever that is.
//!
//! These tests become the parent of every process that a run leaves behind, so each needs its own
//! process: nextest runs each test in one.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, getpid, set_child_subreaper, wait};

use crate::harness::World;
use crate::host;

/// How long processes may take to end.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How much later each round kills its run. On a machine that is not slow, a run has started its
/// command after some of these steps.
const STEP: Duration = Duration::from_micros(40);

/// Fails unless all processes that this process adopted end.
#[track_caller]
fn assert_nothing_is_left(message: &str) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match wait(WaitOptions::NOHANG) {
            Err(Errno::CHILD) => return,
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            ended => drop(ended.unwrap()),
        }
        assert!(Instant::now() < deadline, "{message}: something goes on without it");
    }
}

fn killed_at_any_moment(world: &World) {
    set_child_subreaper(Some(getpid())).unwrap();
    let (first, second) = host::token();
    let word = first + &second;
    for round in 0..200 {
        let running = world.stockade(&["run", "--", "./probe", "linger", &word]).start();
        std::thread::sleep(STEP * round);
        running.signal(Signal::KILL);
        running.finish();
        assert_nothing_is_left(&format!("killed in round {round}"));
    }
    host::assert_none_survives(&word);
    world.shell("true").succeeds();
}

/// Calls of `stockade run` that start no run.
fn no_run_after_all(world: &World) {
    set_child_subreaper(Some(getpid())).unwrap();
    let calls: [(&[&str], i32); 5] = [
        (&["run", "--help"], 0),
        (&["run"], 125),
        (&["run", "--bogus", "--", "true"], 125),
        (&["run", "--pull", "never", "--image", "nowhere", "--", "true"], 125),
        (&["run", "--", "./not-there"], 127),
    ];
    for (words, code) in calls {
        let mut running = world.stockade(words).start();
        let deadline = Instant::now() + TIMEOUT;
        while running.is_running() {
            assert!(Instant::now() < deadline, "{words:?} goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
        // It has waited for all of its children.
        assert_eq!(wait(WaitOptions::NOHANG).unwrap_err(), Errno::CHILD, "{words:?}");
        running.finish().ends_with(code);
    }
}

as_root_and_as_user![killed_at_any_moment, no_run_after_all];
