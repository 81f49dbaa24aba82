//! Other processes: those of the host cannot be seen, signalled or read, nor can the sandbox's own
//! init.

use super::{Comparison, assert_blocked};
use crate::harness::World;
use crate::host;

/// A process of the host, of the same user, as a target.
fn target(world: &World) -> (crate::call::Running, String, String) {
    let (first, second) = host::token();
    let word = format!("{first}{second}");
    let running = world.on_host(&world.probe(), &["linger", &word]).start();
    host::wait_for_process(&word);
    (running, first, second)
}

fn host_process_is_invisible(world: &World) {
    let (_target, first, second) = target(world);
    world.attack_bare(&["see-process", &first, &second]).escaped();
    world.attack(&["see-process", &first, &second]).is_blocked();
    let count = world.shell("ls -d /proc/[0-9]* | wc -l");
    let count: usize = count.stdout.trim().parse().unwrap();
    assert!(count < 10, "{count} processes are seen inside");
}

fn host_process_cannot_be_signalled(world: &World) {
    let (mut target, ..) = target(world);
    let pid = target.pid().to_string();
    world.attack(&["kill-host", &host::namespace("pid"), &pid]).is_blocked();
    assert!(target.is_running(), "the host's process was killed from inside");
}

/// `kill(-1)` ends the processes in the sandbox, and no others.
fn kill_everything(world: &World) {
    let (mut target, ..) = target(world);
    world.attack(&["kill-all", &host::namespace("pid")]);
    assert!(target.is_running(), "the host's process was killed from inside");
    world.shell("true").succeeds();
}

fn kill_init(world: &World) {
    world.attack(&["kill-init", &host::namespace("pid")]).is_blocked();
}

/// The files in /proc of pid 1 and of the parent: environment, memory, root, descriptors.
fn init_files(world: &World) {
    assert_blocked(world, Comparison::Root, &["init-files"]);
}

fn trace_init(world: &World) {
    // Without a sandbox it would stop the process that runs the tests.
    world.attack(&["trace"]).is_blocked();
}

/// The init is a fork of the caller's process: the caller's memory must not be readable in it.
fn memory_of_init(world: &World) {
    let (first, second) = host::token();
    let outcome = world
        .stockade(&["run", "--discard", "--", "./probe", "memory-of-init", &first, &second])
        .env("STOCKADE_TEST_SECRET", format!("{first}{second}"))
        .finish();
    outcome.is_blocked();
}

/// CVE-2019-5736: the runtime's own binary, reached through the process that runs it. The binary
/// here is a copy that the caller owns, so that file permissions alone do not protect it.
fn runtime_binary(world: &World) {
    let own = world.path("own-stockade");
    crate::harness::copy_program(&world.binary(), &own);
    world.chown(&own);
    let before = host::Tree::of(&own);
    let bytes = std::fs::read(&own).unwrap();
    let commands = [
        vec!["./probe", "init-executable"],
        vec!["./probe", "own-executable"],
        vec!["/proc/self/exe", "--version"],
        vec!["/proc/1/exe", "--version"],
        vec!["sh", "-c", "printf '#!/proc/1/exe\n' > x; chmod +x x; ./x; chmod 777 /proc/1/exe"],
        vec!["sh", "-c", "exec 3< /proc/1/exe; chmod 777 /proc/self/fd/3; : > /proc/self/fd/3"],
        vec!["sh", "-c", "ln /proc/1/exe here; ln -L /proc/1/exe here; ls here"],
    ];
    for (index, command) in commands.iter().enumerate() {
        let mut arguments = vec!["run", "--discard", "--"];
        arguments.extend(command);
        let outcome = world.on_host(&own, &arguments).finish();
        match index {
            0 => drop(outcome.is_blocked()),
            // Its own executable is the project's copy-on-write one, which it may change.
            1 => {}
            _ => assert_ne!(outcome.code(), 0, "{outcome}"),
        }
        before.assert_same(&host::Tree::of(&own), "the runtime's binary");
    }
    assert_eq!(std::fs::read(&own).unwrap(), bytes);
}

/// Two concurrent sandboxes of the same user.
fn sandboxes_are_apart(world: &World) {
    let (first, second) = host::token();
    let word = format!("{first}{second}");
    let script = format!(
        "echo secret > /tmp/{word}; echo secret > $HOME/{word}; echo secret > {word}; \
         mkdir -p /dev/shm && echo secret > /dev/shm/{word}; exec ./probe linger {word}"
    );
    let other = world.stockade(&["run", "--discard", "--", "sh", "-c", &script]).start();
    let pid = host::wait_for_process(&word).to_string();
    world.attack(&["see-process", &first, &second]).is_blocked();
    world.attack(&["find", &word]).is_blocked();
    world.attack(&["kill-host", &host::namespace("pid"), &pid]).is_blocked();
    assert!(!host::processes_with(&word).is_empty(), "the other sandbox still runs");
    drop(other);
    host::assert_none_survives(&word);
}

/// As root, each sandbox has host ids that no other sandbox has.
fn sandboxes_share_no_id(world: &World) {
    let started: Vec<_> = (0..3)
        .map(|_| {
            let (first, second) = host::token();
            let word = first + &second;
            let run = ["run", "--discard", "--", "./probe", "linger", &word];
            (world.stockade(&run).start(), word)
        })
        .collect();
    let ids: std::collections::BTreeSet<_> = started
        .iter()
        .map(|(_, word)| {
            let status = format!("/proc/{}/status", host::wait_for_process(word));
            let status = std::fs::read_to_string(status).unwrap();
            let line = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        })
        .collect();
    let wanted = if world.identity == crate::harness::Identity::Root { 3 } else { 1 };
    assert_eq!(ids.len(), wanted, "{ids:?}");
}

as_root_and_as_user![
    sandboxes_share_no_id,
    host_process_is_invisible,
    host_process_cannot_be_signalled,
    kill_everything,
    kill_init,
    init_files,
    trace_init,
    memory_of_init,
    runtime_binary,
    sandboxes_are_apart,
];
