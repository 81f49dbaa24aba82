//! No process outlives its sandbox: not by forking twice, not by a new session, not by stopping or
//! killing the process that waits for it.

use rustix::process::Signal;

use crate::harness::World;
use crate::host;

fn unique_token() -> String {
    let (first, second) = host::token();
    first + &second
}

/// Proves that the daemon does outlive its parent without a sandbox.
fn daemon_after_the_end(world: &World) {
    let proof = unique_token();
    world.attack_bare(&["daemonize", &proof]).is_blocked();
    assert!(!host::processes_with(&proof).is_empty(), "without a sandbox it goes on");
    for pid in host::processes_with(&proof) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    let word = unique_token();
    let outcome = world.attack(&["daemonize", &word]);
    outcome.is_blocked();
    assert!(outcome.outputs_closed, "{outcome}");
    host::assert_none_survives(&word);
}

fn daemon_after_a_timeout(world: &World) {
    let word = unique_token();
    let script = format!("./probe daemonize {word}; exec ./probe linger {word}");
    let outcome = world.run(&["--discard", "--timeout", "1s"], &["sh", "-c", &script]);
    outcome.ends_with(124);
    assert!(outcome.took.as_secs() < 10, "{outcome}");
    host::assert_none_survives(&word);
}

fn new_session_does_not_escape_a_timeout(world: &World) {
    let word = unique_token();
    let script = format!("setsid ./probe linger {word} & setsid setsid sleep 100 & wait");
    world.run(&["--discard", "--timeout", "1s"], &["sh", "-c", &script]).ends_with(124);
    host::assert_none_survives(&word);
}

/// The daemon keeps writing while the bundle is created; the bundle must be a consistent state, and
/// match its hashes.
fn daemon_does_not_write_into_the_bundle(world: &World) {
    let word = unique_token();
    let script = format!("echo start > grown; ./probe daemonize {word} grown; sleep 0.3");
    world.run(&["--review"], &["sh", "-c", &script]).succeeds();
    host::assert_none_survives(&word);
    let outcome = world.stockade(&["apply", "latest"]).finish();
    outcome.succeeds();
    assert!(world.has("grown"));
}

/// `kill -9` of the waiting command.
fn killed_caller(world: &World) {
    let word = unique_token();
    let script = format!("./probe daemonize {word}; exec ./probe linger {word}");
    let running = world.stockade(&["run", "--review", "--", "sh", "-c", &script]).start();
    host::wait_for_process(&word);
    running.signal(Signal::KILL);
    running.finish();
    host::assert_none_survives(&word);
}

fn killed_caller_with_a_stopped_tree(world: &World) {
    let word = unique_token();
    let namespace = host::namespace("pid");
    let script = format!("./probe linger {word} & sleep 0.2; exec ./probe stop-all {namespace}");
    let running = world.stockade(&["run", "--discard", "--", "sh", "-c", &script]).start();
    host::wait_for_process(&word);
    std::thread::sleep(std::time::Duration::from_millis(600));
    running.signal(Signal::KILL);
    running.finish();
    host::assert_none_survives(&word);
}

fn stopping_itself(world: &World) {
    let outcome = world.run(&["--discard", "--timeout", "1s"], &["./probe", "stop-self"]);
    outcome.ends_with(124);
    assert!(outcome.took.as_secs() < 10, "{outcome}");
}

fn stopping_everything(world: &World) {
    let namespace = host::namespace("pid");
    let words = ["./probe", "stop-all", &namespace];
    let outcome = world.run(&["--discard", "--timeout", "1s"], &words);
    outcome.ends_with(124);
    assert!(outcome.took.as_secs() < 10, "{outcome}");
}

/// The command kills its own supervisor inside the sandbox and then stays: the time limit still
/// ends it, and no success is reported.
fn killing_the_supervisor_and_staying(world: &World) {
    let namespace = host::namespace("pid");
    let word = unique_token();
    let script = format!("./probe linger {word} & exec ./probe kill-others {namespace} stay");
    let outcome = world.run(&["--discard", "--timeout", "2s"], &["sh", "-c", &script]);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(outcome.took.as_secs() < 12, "{outcome}");
    host::assert_none_survives(&word);
}

fn killing_the_supervisor_and_ending(world: &World) {
    let namespace = host::namespace("pid");
    let word = unique_token();
    let script =
        format!("./probe daemonize {word} & sleep 0.2; exec ./probe kill-others {namespace} end");
    let outcome = world.run(&["--discard", "--timeout", "10s"], &["sh", "-c", &script]);
    assert!(outcome.took.as_secs() < 20, "{outcome}");
    host::assert_none_survives(&word);
}

/// A process that keeps the outputs open does not delay the end.
fn background_holder_of_the_output(world: &World) {
    let word = unique_token();
    let script = format!("./probe linger {word} & echo done");
    let outcome = world.shell(&script);
    outcome.succeeds();
    assert_eq!(outcome.stdout, "done\n", "{outcome}");
    assert!(outcome.took.as_secs() < 10, "{outcome}");
    assert!(outcome.outputs_closed, "{outcome}");
    host::assert_none_survives(&word);
}

as_root_and_as_user![
    daemon_after_the_end,
    daemon_after_a_timeout,
    new_session_does_not_escape_a_timeout,
    daemon_does_not_write_into_the_bundle,
    killed_caller,
    killed_caller_with_a_stopped_tree,
    stopping_itself,
    stopping_everything,
    killing_the_supervisor_and_staying,
    killing_the_supervisor_and_ending,
    background_holder_of_the_output,
];
