//! The promises of `stockade run`: exit codes, streams, signals, what is visible.

use std::time::Duration;

use rustix::process::Signal;

use crate::harness::World;
use crate::host;

fn exit_codes_pass_through(world: &World) {
    for code in [0, 1, 2, 42, 124, 125, 126, 127, 130, 255] {
        world.shell(&format!("exit {code}")).ends_with(code);
    }
}

fn signals_become_exit_codes(world: &World) {
    for (name, number) in
        [("HUP", 1), ("INT", 2), ("ABRT", 6), ("KILL", 9), ("SEGV", 11), ("TERM", 15)]
    {
        world.shell(&format!("kill -{name} $$; sleep 5")).ends_with(128 + number);
    }
}

fn missing_and_unusable_commands(world: &World) {
    world.run(&["--discard"], &["no-such-command-anywhere"]).ends_with(127);
    world.run(&["--discard"], &["./no/such/file"]).ends_with(127);
    world.run(&["--discard"], &["./a.txt"]).ends_with(126);
    world.run(&["--discard"], &["/usr"]).ends_with(126);
    world.write("foreign", b"\x7fELF garbage");
    world.shell("chmod +x foreign; exec ./foreign").ends_with(126);
}

/// Failures of Stockade itself can be distinguished from those of the command.
fn bad_arguments(world: &World) {
    for arguments in [
        &["run", "--no-such-option", "--", "true"][..],
        &["run", "--memory", "lots", "--", "true"],
        &["run", "--timeout", "0", "--", "true"],
        &["run", "--env", "", "--", "true"],
        &["run", "--env", "=value", "--", "true"],
        &["run", "--net", "everything", "--", "true"],
        &["run", "--apply", "--discard", "--", "true"],
        &["run", "--best-effort", "no-such-wall", "--", "true"],
        &["run", "--"],
        &["run"],
    ] {
        let outcome = world.stockade(arguments).finish();
        outcome.is_refused();
        assert_eq!(outcome.stdout, "", "{outcome}");
    }
}

/// A run leaves the processor affinity of a command as the caller set it.
fn a_command_may_run_where_its_caller_may(world: &World) {
    for _ in 0..5 {
        let words = ["grep", "Cpus_allowed_list", "/proc/self/status"];
        assert_eq!(world.run(&["--discard"], &words).stdout, host::processors());
    }
}

fn streams_are_separate_and_whole(world: &World) {
    let outcome = world.shell("echo out; echo err >&2; printf 'no newline'");
    assert_eq!(outcome.stdout, "out\nno newline", "{outcome}");
    assert!(outcome.stderr.starts_with("err\n"), "{outcome}");
    let script = "head -c 5000000 /dev/zero | tr '\\0' x";
    assert_eq!(world.shell(script).stdout.len(), 5_000_000);
}

fn standard_input_is_passed(world: &World) {
    let run = ["run", "--discard", "--", "cat"];
    let text = "line\n".repeat(200_000);
    let outcome = world.stockade(&run).input(text.clone()).finish();
    outcome.succeeds();
    assert!(outcome.stdout == text, "{} bytes came back", outcome.stdout.len());
    // Binary input, and empty input.
    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let count = ["run", "--discard", "--", "sh", "-c", "wc -c"];
    assert_eq!(world.stockade(&count).input(bytes).finish().stdout.trim(), "70000");
    assert_eq!(world.stockade(&count).finish().stdout.trim(), "0");
}

/// A command that reads nothing does not wait for the end of its input.
fn unread_input_does_not_hold_the_end(world: &World) {
    let mut running = world.stockade(&["run", "--discard", "--", "true"]).start();
    running.send(b"never read");
    let start = std::time::Instant::now();
    while running.is_running() {
        assert!(start.elapsed() < Duration::from_secs(10), "still waiting for its input to end");
        std::thread::sleep(Duration::from_millis(5));
    }
    running.finish().succeeds();
}

fn output_arrives_while_running(world: &World) {
    let mut running = world
        .stockade(&["run", "--discard", "--", "sh", "-c", "echo early; read x; echo $x"])
        .start();
    running.wait_for_output("early\n");
    running.send(b"late\n");
    assert_eq!(running.finish().stdout, "early\nlate\n");
}

fn what_is_visible(world: &World) {
    let script = "pwd; cat a.txt; id -u; test -x /usr/bin/env && echo usr; echo x > /tmp/f && echo tmp; \
        echo x > \"$HOME/f\" && echo home; : > /dev/null && head -c 4 /dev/urandom | wc -c; \
        test -e /proc/self/status && echo proc; echo $0 | wc -l";
    let outcome = world.shell(script);
    outcome.succeeds();
    let lines: Vec<_> = outcome.stdout.lines().collect();
    assert_eq!(lines[0], world.project.to_str().unwrap(), "{outcome}");
    assert_eq!(lines[1], "alpha", "{outcome}");
    assert_eq!(lines[2], world.identity.uid().to_string(), "{outcome}");
    assert_eq!(&lines[3..], ["usr", "tmp", "home", "4", "proc", "1"], "{outcome}");
}

fn git_works_inside(world: &World) {
    let script = "git status --porcelain && git log --format=%s && echo more >> a.txt && \
        git add a.txt && git -c user.name=x -c user.email=x@y commit -qm inside && git log --format=%s";
    let outcome = world.run(&["--review"], &["sh", "-c", script]);
    outcome.succeeds();
    assert_eq!(outcome.stdout, "start\ninside\nstart\n", "{outcome}");
    assert_eq!(world.git(&["log", "--format=%s"]), "start\n", "the host's history is as it was");
}

fn mounts_are_where_they_were_asked_for(world: &World) {
    let shared = world.path("shared with space");
    world.plant(&shared.join("file"), "shared\n");
    let text = shared.display();
    let read_only = format!("{text}:/data/in:ro");
    let writable = format!("{text}:/data/out");
    let options = ["--discard", "--mount", &read_only, "--mount", &writable];
    let script = "cat /data/in/file; echo x > /data/in/new; echo y > /data/out/new; echo end";
    let outcome = world.run(&options, &["sh", "-c", script]);
    assert_eq!(outcome.stdout, "shared\nend\n", "{outcome}");
    assert_eq!(std::fs::read_to_string(shared.join("new")).unwrap(), "y\n");
    let owner = host::Tree::of(&shared.join("new")).entries[&shared.join("new")].uid;
    assert_eq!(owner, world.identity.uid(), "what is made in a mount belongs to its owner");
    let single = format!("{text}/file:/one:ro");
    assert_eq!(world.run(&["--discard", "--mount", &single], &["cat", "/one"]).stdout, "shared\n");
}

fn working_directory(world: &World) {
    assert_eq!(world.run(&["--discard", "--cwd", "src/deep"], &["sh", "-c", "ls"]).stdout, "er\n");
    let absolute = world.project.join("src").display().to_string();
    let outcome = world.run(&["--discard", "--cwd", &absolute], &["pwd"]);
    assert_eq!(outcome.stdout.trim_end(), absolute);
    for missing in ["no/such", "/home/nobody", "a.txt"] {
        let outcome = world.run(&["--discard", "--cwd", missing], &["pwd"]);
        outcome.ends_with(126);
        assert!(outcome.stderr.contains("cannot enter `"), "{outcome}");
    }
}

fn timeouts(world: &World) {
    let outcome = world.run(&["--discard", "--timeout", "500ms"], &["sleep", "30"]);
    outcome.ends_with(124);
    assert!(outcome.took < Duration::from_secs(8), "{outcome}");
    world.run(&["--discard", "--timeout", "30s"], &["true"]).succeeds();
    // A command that ignores the signals; what it wrote before is kept.
    let script = "trap '' TERM INT HUP; echo kept > kept; while :; do sleep 0.1; done";
    let outcome = world.run(&["--review", "--timeout", "1s"], &["sh", "-c", script]);
    outcome.ends_with(124);
    assert_eq!(world.bundles().len(), 1, "what was written before the time-out is kept: {outcome}");
    assert!(outcome.last_line().contains("stockade diff"), "{outcome}");
}

/// Ctrl-C signals the foreground process group: the process tree ends, what was written remains.
fn interrupt_loses_nothing(world: &World) {
    for (signal, name) in [(Signal::INT, "INT"), (Signal::TERM, "TERM"), (Signal::HUP, "HUP")] {
        let (first, second) = host::token();
        let word = format!("{first}{second}");
        let script =
            format!("echo {name} > written-{name}; echo ready; exec ./probe linger {word}");
        let mut running = world.stockade(&["run", "--review", "--", "sh", "-c", &script]).start();
        running.wait_for_output("ready");
        host::wait_for_process(&word);
        running.signal(signal);
        // The command ignores the signal: a second signal forces the end.
        std::thread::sleep(Duration::from_millis(500));
        if running.is_running() {
            running.signal(signal);
        }
        let outcome = running.finish();
        assert!(outcome.code() > 128, "{outcome}");
        host::assert_none_survives(&word);
        let diff = world.stockade(&["diff", "latest", "--stat"]).finish();
        assert!(diff.stdout.contains(&format!("written-{name}")), "{diff}");
    }
    assert_eq!(world.bundles().len(), 3);
}

/// A command that handles the signal decides how it ends.
fn interrupt_reaches_the_command(world: &World) {
    let script = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done";
    let mut running = world.stockade(&["run", "--discard", "--", "sh", "-c", script]).start();
    running.wait_for_output("ready");
    running.signal(Signal::INT);
    let outcome = running.finish();
    assert_eq!((outcome.code(), outcome.stdout.as_str()), (7, "ready\ncaught\n"), "{outcome}");
}

/// `kill -9` of Stockade: the process tree ends, and the content of the view is still available.
fn killed_run_keeps_its_view(world: &World) {
    let (first, second) = host::token();
    let word = format!("{first}{second}");
    let script = format!("echo precious-{word} > precious; echo ready; exec ./probe linger {word}");
    let mut running = world.stockade(&["run", "--review", "--", "sh", "-c", &script]).start();
    running.wait_for_output("ready");
    host::wait_for_process(&word);
    running.signal(Signal::KILL);
    running.finish();
    host::assert_none_survives(&word);
    // The next command lists it: as a bundle, or as a view that it names.
    let listing = world.stockade(&["bundles"]).finish();
    listing.succeeds();
    let kept = world.files_with(&world.data(), &format!("precious-{word}"));
    assert!(!kept.is_empty(), "the view is gone: {listing}");
    let named = world.bundles().len() == 1
        || listing.stdout.contains("view")
        || listing.stderr.contains("view");
    assert!(named, "nobody is told of the view: {listing}");
    world.shell("true").succeeds();
}

fn json_is_one_object(world: &World) {
    let run = [
        "run",
        "--json",
        "--review",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; echo x > new; exit 3",
    ];
    let outcome = world.stockade(&run).finish();
    outcome.ends_with(3);
    let json = outcome.json();
    assert_eq!(json["exitCode"], 3, "{json}");
    assert_eq!(json["signal"], serde_json::Value::Null, "{json}");
    assert_eq!(json["stdout"], "out\n", "{json}");
    assert_eq!(json["stderr"], "err\n", "{json}");
    assert!(json["durationMs"].as_u64().is_some(), "{json}");
    assert_eq!(json["bundle"]["id"], world.bundles()[0]["id"], "{json}");
    assert_eq!(json["isolation"]["level"], "full", "{json}");
    let walls = json["isolation"]["walls"].as_array().unwrap();
    assert!(walls.len() >= 5, "{json}");
    for wall in walls {
        assert_eq!(wall["raised"], true, "{wall}");
    }
    assert!(json["isolation"]["limits"].is_array() && json["isolation"]["reasons"].is_array());
    let quiet = world.stockade(&["run", "--json", "--", "true"]).finish().json();
    assert_eq!(
        (quiet["exitCode"].clone(), quiet["bundle"].clone()),
        (0.into(), serde_json::Value::Null)
    );
    let killed = world.stockade(&["run", "--json", "--", "sh", "-c", "kill -9 $$"]).finish();
    killed.ends_with(137);
    assert_eq!(killed.json()["signal"], 9, "{killed}");
    let late =
        world.stockade(&["run", "--json", "--timeout", "300ms", "--", "sleep", "9"]).finish();
    late.ends_with(124);
    assert!(late.json()["ending"].to_string().to_lowercase().contains("time"), "{late}");
}

/// Failures come as JSON too.
fn json_of_a_failure(world: &World) {
    let outcome =
        world.stockade(&["run", "--json", "--", "true"]).current_dir("/".as_ref()).finish();
    outcome.ends_with(125);
    let text = if outcome.stdout.trim().is_empty() { &outcome.stderr } else { &outcome.stdout };
    let json: serde_json::Value =
        serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{e}: {outcome}"));
    let problem = json.get("error").unwrap_or(&json);
    assert_eq!(problem["code"], "PROJECT_REFUSED", "{json}");
    assert!(problem["remediation"].is_string() && problem["message"].is_string(), "{json}");
}

fn last_line_says_what_to_do(world: &World) {
    let outcome = world.review("echo x > new");
    let id = world.bundles()[0]["id"].as_str().unwrap().to_owned();
    let short = &id[..6];
    let line = outcome.last_line();
    for command in ["stockade diff", "stockade apply", "stockade reject"] {
        assert!(line.contains(command), "{line}");
    }
    assert!(line.contains(short), "{line} does not name {id}");
    let quiet = world.review("true");
    assert!(!quiet.stderr.contains("stockade apply"), "{quiet}");
    assert_eq!(world.bundles().len(), 1, "no change, no bundle");
    // Reading, and writing outside the project, is no change either.
    world
        .review("cat a.txt src/main.rs; ls -lR; echo x > /tmp/x; touch \"$HOME/y\"; cat .git/HEAD");
    assert_eq!(world.bundles().len(), 1, "no change, no bundle");
}

fn many_runs_at_once(world: &World) {
    let running: Vec<_> = (0..8)
        .map(|number| {
            let script = format!("echo {number} > made-{number}; sleep 0.1; ls");
            world.stockade(&["run", "--review", "--", "sh", "-c", &script]).start()
        })
        .collect();
    for (number, running) in running.into_iter().enumerate() {
        let outcome = running.finish();
        outcome.succeeds();
        assert!(outcome.stdout.contains(&format!("made-{number}")), "{outcome}");
        assert_eq!(outcome.stdout.matches("made-").count(), 1, "{outcome}");
    }
    assert_eq!(world.bundles().len(), 8);
}

as_root_and_as_user![
    exit_codes_pass_through,
    signals_become_exit_codes,
    missing_and_unusable_commands,
    bad_arguments,
    a_command_may_run_where_its_caller_may,
    streams_are_separate_and_whole,
    standard_input_is_passed,
    unread_input_does_not_hold_the_end,
    output_arrives_while_running,
    what_is_visible,
    git_works_inside,
    mounts_are_where_they_were_asked_for,
    working_directory,
    timeouts,
    interrupt_loses_nothing,
    interrupt_reaches_the_command,
    killed_run_keeps_its_view,
    json_is_one_object,
    json_of_a_failure,
    last_line_says_what_to_do,
    many_runs_at_once,
];
