//! How a run begins and ends: whatever it starts ends with it, at whichever moment that is.
//!
//! These tests become the parent of every process that a run leaves behind, so each needs a process of
//! its own: nextest gives each test one.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, getpid, set_child_subreaper, wait};

use crate::harness::World;
use crate::host;

/// How long what ends may take to be gone.
const PATIENCE: Duration = Duration::from_secs(20);
/// A run has begun its command after some of these, on a machine that is not slow.
const STEP: Duration = Duration::from_micros(40);

/// Fails unless all that was left to this process ends.
#[track_caller]
fn assert_nothing_is_left(told: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match wait(WaitOptions::NOHANG) {
            Err(Errno::CHILD) => return,
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            ended => drop(ended.unwrap()),
        }
        assert!(Instant::now() < deadline, "{told}: something goes on without it");
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

/// What is asked for is no run after all.
fn no_run_after_all(world: &World) {
    set_child_subreaper(Some(getpid())).unwrap();
    let calls: [(&[&str], i32); 5] = [
        (&["run", "--help"], 0),
        (&["run"], 125),
        (&["run", "--bogus", "--", "true"], 125),
        (&["run", "--image", "nowhere", "--", "true"], 125),
        (&["run", "--", "./not-there"], 127),
    ];
    for (words, code) in calls {
        let mut running = world.stockade(words).start();
        let deadline = Instant::now() + PATIENCE;
        while running.is_running() {
            assert!(Instant::now() < deadline, "{words:?} goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
        // It has waited for its own.
        assert_eq!(wait(WaitOptions::NOHANG).unwrap_err(), Errno::CHILD, "{words:?}");
        running.finish().ends_with(code);
    }
}

as_root_and_as_user![killed_at_any_moment, no_run_after_all];
