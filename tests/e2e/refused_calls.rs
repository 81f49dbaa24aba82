//! The end of a command names the system calls that it made and that sandboxes refuse.

use serde_json::json;

use crate::call::Outcome;
use crate::daemons::{keepers, wait_until};
use crate::harness::{Identity, World};

const PAGE: &str = "`stockade explain SYSTEM_CALLS`";
const ID: &str = "refused";

/// The one line about refused calls.
fn line(outcome: &Outcome) -> Option<String> {
    let mut lines = outcome.stderr.lines().filter(|line| line.contains("sandboxes refuse"));
    let line = lines.next().map(str::to_owned);
    assert_eq!(lines.next(), None, "it is said twice: {outcome}");
    assert!(!outcome.stdout.contains("sandboxes refuse"), "on standard output: {outcome}");
    line
}

/// Two refused calls and one that many programs only try.
const CALLS: &str = "./probe syscall keyctl mount io_uring_setup";

fn a_run_names_its_calls(world: &World) {
    let outcome = world.run(&["--discard"], &["sh", "-c", CALLS]);
    outcome.is_blocked();
    let line = line(&outcome).unwrap();
    assert!(line.starts_with("stockade: note: "), "{outcome}");
    assert!(line.contains(": mount, keyctl, io_uring_setup; ") && line.contains(PAGE), "{line}");
    let outcome = world.stockade(&["run", "--json", "--discard", "--", "sh", "-c", CALLS]).finish();
    outcome.succeeds();
    assert_eq!(outcome.json()["refusedCalls"], json!(["mount", "keyctl", "io_uring_setup"]));
    let explained = world.stockade(&["explain", "SYSTEM_CALLS"]).finish();
    explained.succeeds();
    assert!(explained.stdout.contains("refusedCalls"), "{explained}");
    let quiet = world.run(&["--discard"], &["true"]);
    assert_eq!(self::line(&quiet), None);
    let none = world.stockade(&["run", "--json", "--discard", "--", "true"]).finish();
    assert_eq!(none.json()["refusedCalls"], json!([]));
}

/// What is only tried is named after a failure, and calls with their arguments as such.
fn what_programs_only_try_is_named_after_a_failure(world: &World) {
    let script = |code| format!("./probe syscall io_uring_setup >/dev/null; exit {code}");
    let outcome = world.run(&["--discard"], &["sh", "-c", &script(0)]);
    assert_eq!(line(&outcome), None, "{outcome}");
    let outcome = world.run(&["--discard"], &["sh", "-c", &script(3)]);
    outcome.ends_with(3);
    assert!(line(&outcome).unwrap().contains(": io_uring_setup; "), "{outcome}");
    let outcome = world.run(&["--discard"], &["./probe", "personality"]);
    outcome.is_blocked();
    assert!(line(&outcome).unwrap().contains("personality (with its arguments)"), "{outcome}");
}

/// A flood from many processes, some of which are killed while they wait, is one line, and delays
/// neither output nor the end.
fn a_flood_is_one_line(world: &World) {
    let script =
        "for i in $(seq 40); do (while :; do ./probe syscall keyctl; done >/dev/null) & done
        ./probe syscall keyctl >/dev/null; ./probe syscall mount >/dev/null; sleep 1; echo reached";
    for words in [&["--discard"][..], &["--discard", "--tty"]] {
        let outcome = world.run(words, &["sh", "-c", script]);
        outcome.succeeds();
        assert!(outcome.stdout.contains("reached"), "{outcome}");
        assert!(line(&outcome).unwrap().contains(": mount, keyctl; "), "{outcome}");
    }
}

/// A call of another architecture still ends the process.
fn a_foreign_call_ends_the_process(world: &World) {
    world.run(&["--discard"], &["./probe", "int80"]).is_blocked();
}

/// Each command of a persistent sandbox names what was refused while it ran.
fn sandboxes_name_the_calls_of_each_command(world: &World) {
    let project = world.project.to_str().unwrap();
    world.stockade(&["create", "--id", ID, "--workspace", project]).finish().succeeds();
    let exec = |options: &[&str], script: &str| {
        let words = [&["exec"], options, &[ID, "--", "sh", "-c", script]].concat();
        world.stockade(&words).finish()
    };
    let outcome = exec(&[], CALLS);
    outcome.is_blocked();
    let said = line(&outcome).unwrap();
    assert!(said.contains(": mount, keyctl, io_uring_setup; ") && said.contains(PAGE), "{said}");
    let outcome = exec(&["--json"], CALLS);
    outcome.succeeds();
    assert_eq!(outcome.json()["refusedCalls"], json!(["mount", "keyctl", "io_uring_setup"]));
    // Those of an earlier command are not named again.
    assert_eq!(line(&exec(&[], "exit 3")), None);
    let outcome = exec(&["--json"], "exit 3");
    assert_eq!(outcome.json()["refusedCalls"], json!([]));
    // A flood of one command does not keep another one from its end.
    let flood = "for i in $(seq 20); do (while :; do ./probe syscall keyctl; done) & done; wait";
    let flood = ["exec", "--detach", ID, "--", "sh", "-c", flood];
    let started = world.stockade(&flood).finish();
    started.succeeds();
    exec(&[], "true").succeeds();
    world.stockade(&["kill", started.stdout.trim()]).finish().succeeds();
    world.stockade(&["kill", ID, "--discard"]).finish().succeeds();
}

/// When the keeper is killed, no call is allowed, none waits for ever, and the next keeper serves the
/// sandbox.
fn without_its_keeper_a_sandbox_refuses_the_same(world: &World) {
    world.stockade(&["create", "--id", ID]).finish().succeeds();
    let probe = world.probe();
    let probe = probe.to_str().unwrap();
    world.stockade(&["cp", probe, &format!("{ID}:/tmp/probe")]).finish().succeeds();
    let attack = || {
        let words = ["exec", ID, "--", "/tmp/probe", "syscall", "keyctl", "mount", "bpf"];
        world.stockade(&words).finish()
    };
    attack().is_blocked();
    let killed = keepers(&world.data());
    for keeper in &killed {
        rustix::process::kill_process(*keeper, rustix::process::Signal::KILL).unwrap();
    }
    // The server may have started the next one before anybody looks.
    wait_until("the keeper is dead", || {
        !keepers(&world.data()).iter().any(|keeper| killed.contains(keeper))
    });
    let outcome = attack();
    outcome.is_blocked();
    match world.identity {
        Identity::Root => {
            assert!(outcome.stdout.contains("ENOSYS"), "{outcome}");
            assert_eq!(line(&outcome), None, "{outcome}");
        }
        // Its init hears of the calls, because it follows renames too.
        Identity::User => {
            assert!(!outcome.stdout.contains("ENOSYS"), "{outcome}");
            assert!(line(&outcome).unwrap().contains(": mount, keyctl, bpf; "), "{outcome}");
        }
    }
    world.stockade(&["kill", ID, "--discard"]).finish().succeeds();
}

as_root_and_as_user![
    a_run_names_its_calls,
    what_programs_only_try_is_named_after_a_failure,
    a_flood_is_one_line,
    a_foreign_call_ends_the_process,
    sandboxes_name_the_calls_of_each_command,
    without_its_keeper_a_sandbox_refuses_the_same,
];
