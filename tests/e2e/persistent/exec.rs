//! `exec`, `shell` and `logs`: exit code, streams, signals and terminal are those of the command
//! that the user typed.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::Value;

use super::{call, create, refused, sh};
use crate::daemons::{kill_server, wait_until};
use crate::harness::World;
use crate::host;
use crate::tty::Terminal;

fn the_exit_code_is_the_commands(world: &World) {
    let id = create(world, &[]);
    for (script, code) in [("true", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill $$", 143)] {
        sh(world, &id, script).ends_with(code);
    }
    let late = call(world, &["exec", "--timeout", "300ms", &id, "--", "sleep", "100"]);
    late.ends_with(124);
    assert!(late.stderr.contains("it timed out"), "{late}");
    let loud = call(world, &["exec", "--max-output", "1K", &id, "--", "yes"]);
    loud.ends_with(137);
    call(world, &["exec", "--unknown", &id, "--", "true"]).ends_with(125);
    refused(&sh(world, "nobody", "true"), 125, "NOT_FOUND");
}

fn a_command_may_run_on_every_processor(world: &World) {
    let id = create(world, &[]);
    for _ in 0..5 {
        let reported = sh(world, &id, "grep Cpus_allowed_list /proc/self/status");
        assert_eq!(reported.stdout, host::processors(), "{reported}");
    }
}

fn what_cannot_be_run_is_named(world: &World) {
    let id = create(world, &[]);
    for (options, program, code, words) in [
        (&[][..], "no-such-program", 127, "cannot run `no-such-program`: No such file"),
        (&[], "/etc/passwd", 126, "cannot run `/etc/passwd`: Permission denied"),
        (&["--cwd", "/nowhere"], "true", 126, "cannot enter `/nowhere`: No such file"),
        (&["--cwd", "/etc/passwd"], "true", 126, "cannot enter `/etc/passwd`: Not a directory"),
    ] {
        let refused = call(world, &[&["exec"], options, &[&id, "--", program]].concat());
        refused.ends_with(code);
        assert!(refused.stderr.contains(words), "not {words:?}: {refused}");
    }
    let started = call(world, &["exec", "--detach", &id, "--", "no-such-program"]);
    let reported = call(world, &["logs", "-f", started.stdout.trim_end()]);
    reported.ends_with(127);
    assert!(reported.stderr.contains("cannot run `no-such-program`: No such file"), "{reported}");
}

fn options_reach_the_command(world: &World) {
    let id = create(world, &["--env", "A=1", "--cwd", "/usr"]);
    let words = ["exec", "--env", "B=2 x", "--cwd", "/etc", &id, "--", "sh", "-c"];
    let seen = call(world, &[&words[..], &["echo $A $B; pwd"]].concat());
    assert_eq!(seen.stdout, "1 2 x\n/etc\n", "{seen}");
    assert_eq!(sh(world, &id, "pwd").stdout, "/usr\n");
    // An argument after the command that looks like an option belongs to the command.
    assert_eq!(call(world, &["exec", &id, "echo", "--json", "-x"]).stdout, "--json -x\n");
}

fn streams_are_kept_apart_and_whole(world: &World) {
    let id = create(world, &[]);
    let both = sh(world, &id, "echo out; echo err >&2");
    assert_eq!((both.stdout.as_str(), both.stderr.as_str()), ("out\n", "err\n"));

    let megabyte: Vec<u8> =
        (0..1 << 20).map(|at: u32| (at.wrapping_mul(31) >> 7).to_le_bytes()[0]).collect();
    let path = world.path("echoed");
    let cat = world.stockade(&["exec", &id, "--", "cat"]).input(megabyte.clone());
    cat.output_to(File::create(&path).unwrap()).finish().succeeds();
    assert!(std::fs::read(path).unwrap() == megabyte, "what cat was given is not what it gave");
    assert_eq!(sh(world, &id, "wc -c").stdout, "0\n", "nothing to read is an end");

    let answer =
        call(world, &["exec", "--json", &id, "--", "sh", "-c", "echo out; echo err >&2; exit 4"]);
    answer.ends_with(4);
    let json = answer.json();
    assert_eq!(
        (&json["stdout"], &json["stderr"], &json["exitCode"]),
        (&Value::from("out\n"), &Value::from("err\n"), &Value::from(4))
    );
    assert!(answer.stderr.is_empty(), "{answer}");
}

/// An image may have no home directory: one is created for its user, without changing the image's
/// own directories, and a user without a home starts at the root.
fn an_image_without_a_home_runs_commands(world: &World) {
    let image = world.path("image");
    for directory in ["usr", "home", "proc", "dev", "tmp"] {
        std::fs::create_dir_all(image.join(directory)).unwrap();
    }
    let mode = |name: &str, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(image.join(name), mode).unwrap();
    };
    mode("home", 0o711);
    mode("", 0o755);
    for name in ["bin", "lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{name}"), image.join(name)).unwrap();
    }
    world.chown(&image);
    let mount = ["--image", image.to_str().unwrap(), "--mount", "/usr:/usr"];
    let id = create(world, &mount);
    let seen = sh(world, &id, "pwd; stat -c %a /home /home/user; touch made");
    seen.succeeds();
    assert_eq!(seen.stdout, "/home/user\n711\n755\n", "{seen}");
    let root = call(world, &["exec", "--user", "0", &id, "--", "sh", "-c", "id -u; pwd"]);
    if !root.stderr.contains("only root can give") {
        assert_eq!(root.stdout, "0\n/\n", "{root}");
    }
}

/// The command waits for a slow reader, as it would in a shell.
fn a_slow_reader_gets_all_of_it(world: &World) {
    const LINES: u32 = 6_000_000;
    let id = create(world, &[]);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let script = format!("seq 1 {LINES}; echo over >&2; exit 3");
    let running = world.stockade(&["exec", &id, "--", "sh", "-c", &script]);
    let running = running.output_to(writer).deadline(120).start();
    let mut read = vec![0; 4096];
    reader.read_exact(&mut read).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    reader.read_to_end(&mut read).unwrap();
    let outcome = running.finish();
    outcome.ends_with(3);
    assert_eq!(outcome.stderr, "over\n", "{outcome}");
    let mut expected = String::new();
    for line in 1..=LINES {
        writeln!(expected, "{line}").unwrap();
    }
    assert!(read == expected.as_bytes(), "{} of {} bytes came", read.len(), expected.len());
}

/// A second request to end the command ends it, even if its output is not read.
fn a_signal_ends_what_nobody_reads(world: &World) {
    let id = create(world, &[]);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let script = "trap '' INT; yes | tee /tmp/copy";
    let running =
        world.stockade(&["exec", &id, "--", "sh", "-c", script]).output_to(writer).start();
    reader.read_exact(&mut [0; 4096]).unwrap();
    let count = "stat -c %s /tmp/copy; sleep 0.1; stat -c %s /tmp/copy";
    let mut before = String::new();
    wait_until("it waits for who reads", || {
        let now = sh(world, &id, count).stdout;
        std::mem::replace(&mut before, now.clone()) == now && !now.is_empty()
    });
    running.signal(Signal::INT);
    std::thread::sleep(std::time::Duration::from_millis(100));
    running.signal(Signal::INT);
    running.finish().ends_with(130);
}

/// If the output is never read, only the command waits; lost output is reported to the client.
fn who_does_not_read_stops_nothing_else(world: &World) {
    let id = create(world, &[]);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let script = "head -c 64000000 /dev/zero; echo >/tmp/over";
    let running = world.stockade(&["exec", &id, "--", "sh", "-c", script]);
    let running = running.output_to(writer).start();
    let mut read = vec![0; 4096];
    reader.read_exact(&mut read).unwrap();
    sh(world, &id, "test ! -e /tmp/over && echo here").succeeds();
    call(world, &["pause", &id]).succeeds();
    call(world, &["resume", &id]).succeeds();
    call(world, &["kill", &id]).succeeds();
    reader.read_to_end(&mut read).unwrap();
    assert!(read.len() < 64_000_000, "all of it came");
    let outcome = running.finish();
    outcome.ends_with(125);
    let missing = 64_000_000 - read.len();
    assert!(outcome.stderr.contains("bytes of the output were lost"), "{missing}: {outcome}");
}

fn signals_reach_the_command(world: &World) {
    let id = create(world, &[]);
    for (signal, name, code) in [(Signal::INT, "INT", 5), (Signal::TERM, "TERM", 6)] {
        let script = format!(
            "trap 'echo caught; exit {code}' {name}; echo ready; \
            while :; do sleep 0.05; done"
        );
        let mut running = world.stockade(&["exec", &id, "--", "sh", "-c", &script]).start();
        running.wait_for_output("ready");
        running.signal(signal);
        let outcome = running.finish();
        outcome.ends_with(code);
        assert!(outcome.stdout.contains("caught"), "{outcome}");
    }
    let mut running =
        world.stockade(&["exec", &id, "--", "sh", "-c", "echo ready; exec sleep 100"]).start();
    running.wait_for_output("ready");
    running.signal(Signal::INT);
    running.finish().ends_with(130);
}

fn who_does_not_end_when_asked_is_killed(world: &World) {
    let id = create(world, &[]);
    let script = "trap '' TERM; trap 'echo caught' INT; echo ready; while :; do sleep 0.05; done";
    let mut running = world.stockade(&["exec", &id, "--", "sh", "-c", script]).start();
    running.wait_for_output("ready");
    running.signal(Signal::INT);
    running.wait_for_output("caught");
    running.signal(Signal::TERM);
    let outcome = running.finish();
    outcome.ends_with(143);
    assert!(outcome.stderr.contains("was killed"), "{outcome}");
    // One signal and the timeout do the same.
    let mut running = world.stockade(&["exec", &id, "--", "sh", "-c", script]).start();
    running.wait_for_output("ready");
    running.signal(Signal::TERM);
    running.finish().ends_with(143);
}

fn a_shell_without_a_terminal_reads_its_input(world: &World) {
    let id = create(world, &[]);
    call(world, &["shell", &id]).succeeds();
    let typed = world.stockade(&["shell", &id]).input("test -t 0 || echo none\nexit 7\n").finish();
    typed.ends_with(7);
    assert_eq!(typed.stdout, "none\n", "{typed}");
}

fn a_terminal_is_one_inside_too(world: &World) {
    let id = create(world, &[]);
    let terminal = Terminal::open(world);
    let script = "test -t 0 && test -t 1 && echo is one; stty size; \
        trap 'echo caught; exit 5' INT; echo ready; read x; echo got $x; read y";
    let running = terminal.start(world, &["exec", "--tty", &id, "--", "sh", "-c", script]);
    terminal.wait_for("ready");
    let text = terminal.text();
    assert!(text.contains("is one") && text.contains("24 80"), "{text:?}");
    terminal.type_in(b"hello\r");
    terminal.wait_for("got hello");
    terminal.type_in(&[3]);
    running.finish().ends_with(5);
    terminal.wait_for("caught");

    let terminal = Terminal::open(world);
    let running = terminal.start(world, &["shell", &id]);
    terminal.type_in(b"echo $((6*7)); stty size\r");
    terminal.wait_for("42\r\n24 80");
    terminal.resize(33, 99);
    // Input and window size are sent separately: the shell waits for the size.
    terminal.type_in(b"until stty size | grep '33 99'; do sleep 0.02; done\r");
    terminal.wait_for("\n33 99");
    terminal.type_in(b"exit 7\r");
    running.finish().ends_with(7);
}

fn a_detached_command_is_read_later_and_by_many(world: &World) {
    let id = create(world, &[]);
    let script =
        "echo one; until test -e /tmp/go; do sleep 0.02; done; echo two; echo bad >&2; exit 9";
    let started = call(world, &["exec", "--detach", &id, "--", "sh", "-c", script]);
    started.succeeds();
    let operation = started.stdout.trim_end();
    assert!(started.stderr.contains(operation), "{started}");
    let logs = ["logs", operation];
    wait_until("the first line is recorded", || call(world, &logs).stdout == "one\n");
    let mut early = world.stockade(&["logs", "-f", operation]).start();
    early.wait_for_output("one");
    sh(world, &id, "touch /tmp/go").succeeds();
    let early = early.finish();
    early.ends_with(9);
    assert_eq!(early.stdout, "one\ntwo\n");
    assert_eq!(early.stderr, "bad\n");
    let late = call(world, &["logs", "-f", operation]);
    late.ends_with(9);
    assert_eq!(late.stdout, "one\ntwo\n");
    call(world, &logs).succeeds();
    let lines = call(world, &["logs", "--json", operation]);
    let items: Vec<Value> =
        lines.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(items.last().unwrap()["kind"], "exit", "{lines}");
    assert_eq!(items.last().unwrap()["exitCode"], 9, "{lines}");
    refused(&call(world, &["logs", "no-such-operation"]), 1, "NOT_FOUND");
    let detached = call(world, &["exec", "--detach", "--json", &id, "--", "true"]);
    assert!(detached.json()["workflowId"].is_string(), "{detached}");
}

/// A client that follows the log while the server is killed continues to read, without gaps or
/// repetitions.
fn logs_go_on_with_the_next_server(world: &World) {
    let id = create(world, &[]);
    let script = "for i in 1 2 3; do echo $i; done; until test -e /tmp/go; do sleep 0.02; done; \
        for i in 4 5 6; do echo $i; done; exit 9";
    let started = call(world, &["exec", "--detach", &id, "--", "sh", "-c", script]);
    let operation = started.stdout.trim_end();
    let mut reading = world.stockade(&["logs", "-f", operation]).start();
    reading.wait_for_output("3\n");
    kill_server(&world.data());
    sh(world, &id, "touch /tmp/go").succeeds();
    let read = reading.finish();
    read.ends_with(9);
    assert_eq!(read.stdout, "1\n2\n3\n4\n5\n6\n", "{read}");
    assert_eq!(call(world, &["logs", "-f", operation]).stdout, read.stdout);
}

fn access_rules_bind_commands_and_copies(world: &World) {
    let id =
        create(world, &["--access", "allow:readwrite:/tmp/open", "--access", "allow:execute:/usr"]);
    let file = world.path("file");
    world.plant(&file, "content\n");
    let to = format!("{id}:/etc/file");
    refused(&call(world, &["cp", file.to_str().unwrap(), &to]), 1, "ACCESS_DENIED");
    let from = format!("{id}:/etc/passwd");
    let out = world.path("out");
    refused(&call(world, &["cp", &from, out.to_str().unwrap()]), 1, "ACCESS_DENIED");
    assert!(!out.exists());
    call(world, &["exec", &id, "--", "/usr/bin/env", "true"]).succeeds();
    refused(&call(world, &["exec", &id, "--", "/opt/program"]), 125, "ACCESS_DENIED");
    let shown = call(world, &["show", &id]);
    assert!(shown.stdout.contains("allow readwrite /tmp/open"), "{shown}");
}

as_root_and_as_user![
    the_exit_code_is_the_commands,
    a_command_may_run_on_every_processor,
    what_cannot_be_run_is_named,
    options_reach_the_command,
    streams_are_kept_apart_and_whole,
    an_image_without_a_home_runs_commands,
    a_slow_reader_gets_all_of_it,
    a_signal_ends_what_nobody_reads,
    who_does_not_read_stops_nothing_else,
    signals_reach_the_command,
    who_does_not_end_when_asked_is_killed,
    a_shell_without_a_terminal_reads_its_input,
    a_terminal_is_one_inside_too,
    a_detached_command_is_read_later_and_by_many,
    logs_go_on_with_the_next_server,
    access_rules_bind_commands_and_copies,
];
