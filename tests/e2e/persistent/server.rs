//! The local server: started once for any number of concurrent commands, killed at bad times,
//! called by other users, and run on a database that is not its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rustix::process::Signal;

use super::{call, create, refused, sh, state};
use crate::daemons::{kill_server, servers, wait_until};
use crate::harness::{World, skip, tests_run_as_root};

/// A user who is neither root nor the user of the tests.
const STRANGER: u32 = 1001;

fn forty_commands_at_once_find_one_server(world: &World) {
    let creates: Vec<_> =
        (0..40).map(|_| world.stockade(&["create"]).deadline(300).start()).collect();
    let mut ids = Vec::new();
    for running in creates {
        let outcome = running.finish();
        outcome.succeeds();
        ids.push(outcome.stdout.trim_end().to_owned());
    }
    assert_eq!(servers(&world.data()).len(), 1);
    let listed = call(world, &["ls", "-q"]);
    assert_eq!(listed.stdout.lines().count(), 40);
    let execs: Vec<_> = ids
        .iter()
        .enumerate()
        .map(|(number, id)| {
            let script =
                format!("echo {number} > /tmp/own; sleep 0.1; cat /tmp/own; exit {number}");
            world.stockade(&["exec", id, "--", "sh", "-c", &script]).deadline(300).start()
        })
        .collect();
    for (number, running) in execs.into_iter().enumerate() {
        let outcome = running.finish();
        outcome.ends_with(i32::try_from(number).unwrap());
        assert_eq!(outcome.stdout, format!("{number}\n"), "{outcome}");
    }
}

fn a_killed_server_is_followed_by_one_that_finds_everything(world: &World) {
    let id = create(world, &[]);
    let script = "(until test -e /tmp/go; do sleep 0.02; done; echo lived > /tmp/end) \
        >/dev/null 2>&1 &";
    sh(world, &id, script).succeeds();
    let script =
        "echo begun; trap 'exit 0' TERM; while :; do touch /tmp/attached; sleep 0.02; done";
    let mut running = world.stockade(&["exec", &id, "--", "sh", "-c", script]).start();
    running.wait_for_output("begun");
    let before = servers(&world.data());
    kill_server(&world.data());
    let outcome = running.finish();
    refused(&outcome, 125, "UNREACHABLE");
    assert_eq!(state(world, &id), "running");
    let after = servers(&world.data());
    assert!(after.len() == 1 && after != before, "{after:?}");
    // A detached command kept running.
    sh(world, &id, "touch /tmp/go").succeeds();
    wait_until("it ends", || sh(world, &id, "cat /tmp/end").stdout == "lived\n");
    // A command whose streams have no client any more is ended.
    wait_until("the attached command is gone", || {
        let look = "rm -f /tmp/attached; sleep 0.2; test -e /tmp/attached";
        sh(world, &id, look).code() == 1
    });
    call(world, &["kill", &id]).succeeds();
}

/// A command whose server dies before it responds calls the next server with the same idempotency
/// key: the operation is executed once.
fn what_was_asked_of_a_killed_server_is_done_once(world: &World) {
    let id = create(world, &[]);
    for round in 0..5 {
        let script = "echo run >> /tmp/runs; until test -e /tmp/go; do sleep 0.02; done; exit 3";
        let running = world.stockade(&["exec", "--json", &id, "--", "sh", "-c", script]).start();
        wait_until("the command runs", || {
            sh(world, &id, "cat /tmp/runs 2>/dev/null").stdout.lines().count() == round + 1
        });
        kill_server(&world.data());
        sh(world, &id, "touch /tmp/go").succeeds();
        let outcome = running.finish();
        outcome.ends_with(3);
        assert_eq!(outcome.json()["exitCode"], 3, "{outcome}");
        sh(world, &id, "rm /tmp/go").succeeds();
    }
    assert_eq!(sh(world, &id, "wc -l < /tmp/runs").stdout.trim(), "5");

    // At any time during operations that change a state.
    for round in 0..10_u64 {
        let word = if round % 2 == 0 { "stop" } else { "start" };
        let running = world.stockade(&[word, &id]).start();
        std::thread::sleep(std::time::Duration::from_millis(round * 7));
        if !servers(&world.data()).is_empty() {
            kill_server(&world.data());
        }
        running.finish().succeeds();
        let wanted = if round % 2 == 0 { "stopped" } else { "running" };
        assert_eq!(state(world, &id), wanted);
    }
}

fn a_server_that_holds_nothing_ends(world: &World) {
    let response =
        |words: &[&str]| world.stockade(words).env("STOCKADE_SERVER_IDLE_SECONDS", "1").finish();
    let made = response(&["create"]);
    made.succeeds();
    let server = servers(&world.data());
    assert_eq!(server.len(), 1);
    // The server stays because it has a sandbox; a test can only observe that by waiting.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(servers(&world.data()), server, "it left a sandbox alone");
    response(&["kill", made.stdout.trim_end()]).succeeds();
    wait_until("the server ends", || servers(&world.data()).is_empty());
    assert!(!world.data().join("server/socket").exists());
    response(&["ls"]).succeeds();

    wait_until("the next server ends", || servers(&world.data()).is_empty());
    let odd = world.stockade(&["ls"]).env("STOCKADE_SERVER_IDLE_SECONDS", "soon").finish();
    refused(&odd, 2, "INVALID_INPUT");
    assert!(odd.stderr.contains("STOCKADE_SERVER_IDLE_SECONDS"), "{odd}");
    let many = world.stockade(&["ls"]).env("STOCKADE_POOL", "513").finish();
    refused(&many, 2, "INVALID_INPUT");
    assert!(many.stderr.contains("export STOCKADE_POOL=512"), "{many}");
}

fn a_server_ends_with_its_directory(world: &World) {
    let id = create(world, &[]);
    let pid_inside = sh(world, &id, "sleep 1000 >/dev/null 2>&1 & readlink /proc/self/ns/pid");
    let namespace = pid_inside.stdout.trim().to_owned();
    let is_there = || processes_in(&namespace) > 0;
    assert!(is_there(), "nothing runs in {namespace}");
    // A running process writes to the directory meanwhile.
    wait_until("the directory is removed", || {
        let remove = "chmod -R u+rwX \"$1\" 2>/dev/null; rm -rf \"$1\" 2>/dev/null";
        Command::new("sh").args(["-c", remove, "sh"]).arg(world.data()).status().unwrap().success()
    });
    wait_until("the server ends", || servers(&world.data()).is_empty());
    wait_until("what it held is ended", || !is_there());
    assert!(!world.data().exists(), "something made the directory again");
}

/// The number of processes in a PID namespace, given by its link.
fn processes_in(namespace: &str) -> usize {
    let namespaces = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path().join("ns/pid")).ok());
    namespaces.filter(|found| found.as_os_str() == namespace).count()
}

fn a_server_by_hand_serves_until_it_is_told_to_end(world: &World) {
    let mut serving = world.stockade(&["serve"]).env("STOCKADE_SERVER_IDLE_SECONDS", "1").start();
    wait_until("it listens", || world.data().join("server/socket").exists());
    let id = create(world, &[]);
    assert!(servers(&world.data()).is_empty(), "another server was started");
    refused(&call(world, &["serve"]), 1, "CONFLICT");
    assert!(serving.is_running());
    serving.signal(Signal::TERM);
    serving.finish().succeeds();
    // The next server finds the sandbox of the killed one.
    assert_eq!(sh(world, &id, "echo here").stdout, "here\n");
}

fn nobody_else_is_told_anything(world: &World) {
    if !tests_run_as_root() {
        skip("persistent::server::nobody_else_is_told_anything", "needs root to be somebody else");
        return;
    }
    use std::os::unix::process::CommandExt as _;
    create(world, &[]);
    let server = world.data().join("server");
    let ask = || {
        let program = "use IO::Socket::UNIX; $SIG{PIPE} = q(IGNORE); my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) \
            or do { print \"no way: $!\"; exit 3 }; \
            $s->print(\"GET /v0/health HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n\"); $s->flush; \
            local $/; my $a = <$s>; print \"heard: \", $a // '';";
        let mut perl = Command::new("perl");
        perl.args(["-e", program]).arg(server.join("socket")).uid(STRANGER).gid(STRANGER);
        let output = perl.current_dir("/").output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(ask(), "no way: Permission denied");
    // Even if the directory were accessible, the server itself would not respond.
    for path in [world.data(), server.clone(), server.join("socket")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    assert_eq!(ask(), "heard: ");
    // A directory that other users can enter is not used.
    kill_server(&world.data());
    refused(&call(world, &["ls"]), 125, "IO");
    fs::set_permissions(&server, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(world.data(), fs::Permissions::from_mode(0o755)).unwrap();
}

fn a_database_that_is_no_good_is_refused_untouched(world: &World) {
    let database = world.data().join("stockade.db");
    let refuses = |what: &str| {
        let before = fs::read(&database).unwrap();
        let outcome = call(world, &["ls"]);
        refused(&outcome, 125, "DATABASE_INVALID");
        assert!(outcome.stderr.contains("hint: "), "{what}: {outcome}");
        assert_eq!(fs::read(&database).unwrap(), before, "{what} was changed");
    };
    world.plant(&database, "this is no database, and somebody wants it back\n");
    refuses("a file of another kind");
    fs::remove_file(&database).unwrap();

    call(world, &["ls"]).succeeds();
    for server in servers(&world.data()) {
        rustix::process::kill_process(server, Signal::TERM).unwrap();
    }
    wait_until("the server ends", || servers(&world.data()).is_empty());
    let whole = fs::read(&database).unwrap();
    let newer = "INSERT INTO application_migrations (number, name, applied_at) \
        VALUES (999, 'of a later version', 0); PRAGMA journal_mode = DELETE;";
    match Command::new("sqlite3").arg(&database).arg(newer).output() {
        Ok(output) => {
            assert!(output.status.success(), "{output:?}");
            refuses("a newer database");
        }
        Err(error) => skip("persistent::server: a newer database", &format!("no sqlite3: {error}")),
    }
    let mut damaged = whole;
    let page = damaged.len() / 2;
    damaged[page..].fill(0x5a);
    fs::write(&database, &damaged).unwrap();
    refuses("a damaged database");
    fs::remove_file(&database).unwrap();
    call(world, &["ls"]).succeeds();
}

as_root_and_as_user![
    forty_commands_at_once_find_one_server,
    a_killed_server_is_followed_by_one_that_finds_everything,
    what_was_asked_of_a_killed_server_is_done_once,
    a_server_that_holds_nothing_ends,
    a_server_ends_with_its_directory,
    a_server_by_hand_serves_until_it_is_told_to_end,
    nobody_else_is_told_anything,
    a_database_that_is_no_good_is_refused_untouched,
];
