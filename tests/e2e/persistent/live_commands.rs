//! Commands that live: `ps` lists them, `kill` ends one with all that it began, `attach` joins it
//! with output, input and terminal, `wait` returns its exit code.

use rustix::process::Signal;
use serde_json::Value;

use super::{call, create, refused, sh, state};
use crate::daemons::{kill_server, wait_until};
use crate::harness::World;
use crate::tty::Terminal;

/// Starts a command in the background and returns its name.
fn detach(world: &World, options: &[&str], id: &str, script: &str) -> String {
    let words = [&["exec", "--detach"], options, &[id, "--", "sh", "-c", script]].concat();
    let started = call(world, &words);
    started.succeeds();
    let name = started.stdout.trim_end().to_owned();
    assert!(name.starts_with(&format!("{id}/")), "{started}");
    name
}

fn listed(world: &World, words: &[&str]) -> Vec<Value> {
    let list = call(world, &[&["ps", "--json"], words].concat());
    list.succeeds();
    list.json()["commands"].as_array().unwrap().clone()
}

/// Whether a process inside has this text in its command line.
fn is_running(world: &World, id: &str, text: &str) -> bool {
    let script = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; echo; done 2>/dev/null";
    sh(world, id, script).stdout.lines().any(|line| line.contains(text))
}

fn commands_are_listed_with_short_names(world: &World) {
    let id = create(world, &["--id", "listed"]);
    let other = create(world, &["--id", "other"]);
    let name = detach(world, &[], &id, "echo begun; sleep 1000");
    let foreign = detach(world, &[], &other, "sleep 1001");
    let shown = call(world, &["ps", &id]);
    shown.succeeds();
    assert!(shown.stdout.contains(&name) && !shown.stdout.contains(&foreign), "{shown}");
    assert!(shown.stdout.contains("running") && shown.stdout.contains("sleep 1000"), "{shown}");
    assert!(shown.stdout.lines().count() == 2, "{shown}");
    let names = call(world, &["ps", "--quiet"]);
    assert_eq!(names.stdout, format!("{foreign}\n{name}\n"), "the newest first: {names}");
    // A command with a client's streams is one too.
    let mut attached =
        world.stockade(&["exec", &id, "--", "sh", "-c", "echo on; sleep 1002"]).start();
    attached.wait_for_output("on");
    let commands = listed(world, &[&id]);
    assert_eq!(commands.len(), 2, "{commands:?}");
    assert_eq!(commands[0]["detached"], false);
    assert_eq!(commands[1]["detached"], true);
    assert_eq!(commands[1]["command"][2], "echo begun; sleep 1000");
    let before = call(world, &["ps", "--quiet", &id]).stdout;
    // The names are the same in the next server; a command without a reader is ended.
    kill_server(&world.data());
    drop(attached);
    wait_until("the command without a reader is ended", || listed(world, &[&id]).len() == 1);
    let after = call(world, &["ps", "--quiet", &id]).stdout;
    assert!(before.contains(&after) && after.trim_end() == name, "{before} {after}");
    call(world, &["kill", &name]).succeeds();
    assert!(listed(world, &[&id]).is_empty());
    let ended = listed(world, &["--all", &id]);
    let killed = ended.iter().find(|one| name.ends_with(one["id"].as_str().unwrap())).unwrap();
    assert_eq!(killed["exitCode"], 137, "{killed}");
    assert_eq!(killed["ending"], "killed", "{killed}");
    refused(&call(world, &["ps", "nobody"]), 1, "NOT_FOUND");
}

fn a_killed_command_ends_with_all_that_it_began(world: &World) {
    let id = create(world, &["--id", "box"]);
    let script = "setsid sh -c 'trap \"\" TERM HUP; sleep 2001' & sleep 2002";
    let name = detach(world, &[], &id, script);
    let kept = detach(world, &[], &id, "sleep 2003");
    wait_until("both run", || is_running(world, &id, "sleep 2001"));
    let killed = call(world, &["kill", &name]);
    killed.succeeds();
    assert_eq!(killed.stdout, format!("{name}\n"), "{killed}");
    wait_until("nothing of it runs", || {
        !is_running(world, &id, "sleep 2001") && !is_running(world, &id, "sleep 2002")
    });
    assert!(is_running(world, &id, "sleep 2003"));
    assert_eq!(state(world, &id), "running");
    call(world, &["wait", &name]).ends_with(137);
    // Once more has no effect.
    call(world, &["kill", &name]).succeeds();
    call(world, &["kill", "--signal", "TERM", &kept]).succeeds();
    call(world, &["wait", &kept]).ends_with(143);
    // By the operation's id, and by a prefix.
    for by in ["operation", "prefix"] {
        let name = detach(world, &[], &id, "sleep 2004");
        let operation = listed(world, &[&id])[0]["workflowId"].as_str().unwrap().to_owned();
        match by {
            "operation" => call(world, &["kill", &operation]).succeeds(),
            _ => call(world, &["kill", &name[..name.len() - 2]]).succeeds(),
        };
        assert!(listed(world, &[&id]).is_empty(), "{by}");
    }
    refused(&call(world, &["kill", "box/ffffffff"]), 1, "NOT_FOUND");
    refused(&call(world, &["kill", "box/"]), 1, "NOT_FOUND");
    refused(&call(world, &["kill", "--signal", "TERM", "box"]), 2, "INVALID_INPUT");
    refused(&call(world, &["kill", "--discard", "box/ffffffff"]), 2, "INVALID_INPUT");
    assert_eq!(state(world, &id), "running", "a name of a command never names a sandbox");
}

fn a_command_is_joined_and_waited_for(world: &World) {
    let id = create(world, &[]);
    let script = "echo begun; until test -e /tmp/go; do sleep 0.02; done; echo done; \
        echo bad >&2; exit 5";
    let name = detach(world, &[], &id, script);
    let mut joined = world.stockade(&["attach", &name]).start();
    let waiting = world.stockade(&["wait", &name]).start();
    joined.wait_for_output("begun");
    // A client that leaves ends nothing; neither does a server.
    let mut leaving = world.stockade(&["attach", &id]).start();
    leaving.wait_for_output("begun");
    leaving.signal(Signal::TERM);
    let left = leaving.finish();
    left.ends_with(143);
    assert!(left.stderr.contains(&format!("stockade attach {name}")), "{left}");
    kill_server(&world.data());
    sh(world, &id, "touch /tmp/go").succeeds();
    let joined = joined.finish();
    joined.ends_with(5);
    assert_eq!(joined.stdout, "begun\ndone\n", "{joined}");
    assert!(joined.stderr.contains("bad"), "{joined}");
    waiting.finish().ends_with(5);
    // Afterwards too.
    let late = call(world, &["attach", &name]);
    late.ends_with(5);
    assert_eq!(late.stdout, "begun\ndone\n", "{late}");
    call(world, &["wait", &name]).ends_with(5);
    let logs = call(world, &["logs", &name]);
    assert_eq!(logs.stdout, "begun\ndone\n", "{logs}");
    let ended = call(world, &["wait", "--json", &name]);
    assert_eq!(ended.json()["commands"][0]["exitCode"], 5, "{ended}");
    refused(&call(world, &["attach", &id]), 125, "NOT_FOUND");
    let slow = detach(world, &[], &id, "sleep 1000");
    call(world, &["wait", "--timeout", "300ms", &slow]).ends_with(125);
    assert_eq!(listed(world, &[&id]).len(), 1, "it continues");
}

fn input_and_terminal_are_joined(world: &World) {
    let id = create(world, &[]);
    let name = detach(world, &["--interactive"], &id, "read a; echo got $a; read b; echo got $b");
    let first = world.stockade(&["attach", &name]).start();
    let mut second = world.stockade(&["attach", &name]).start();
    second.send(b"one\n");
    second.wait_for_output("got one");
    // The end of a client's input is not the end of the command's.
    second.signal(Signal::TERM);
    second.finish().ends_with(143);
    let third = world.stockade(&["attach", &name]).input("two\n").finish();
    third.ends_with(0);
    assert_eq!(third.stdout, "got one\ngot two\n", "{third}");
    assert_eq!(first.finish().stdout, "got one\ngot two\n");

    let script = "test -t 0 && test -t 1 && echo is one; \
        until stty size | grep '33 99'; do sleep 0.02; done; read x; echo got $x; read y; exit 6";
    let name = detach(world, &["--tty"], &id, script);
    let terminal = Terminal::open(world);
    terminal.resize(33, 99);
    let running = terminal.start(world, &["attach", &name]);
    terminal.wait_for("is one");
    terminal.wait_for("33 99");
    terminal.type_in(b"hello\r");
    terminal.wait_for("got hello");
    terminal.type_in(&[16, 17]);
    running.finish().ends_with(0);
    terminal.wait_for("stockade attach");
    let terminal = Terminal::open(world);
    let running = terminal.start(world, &["attach", "--detach-keys", "ctrl-x", &name]);
    terminal.wait_for("got hello");
    terminal.type_in(b"\r");
    running.finish().ends_with(6);
}

as_root_and_as_user![
    commands_are_listed_with_short_names,
    a_killed_command_ends_with_all_that_it_began,
    a_command_is_joined_and_waited_for,
    input_and_terminal_are_joined,
];
