//! Scarce resources of the machine. Limits that this host cannot enforce must be refused, never
//! ignored: then the test expects the refusal instead.

use std::fs;
use std::time::Duration;

use crate::call::Outcome;
use crate::harness::World;
use crate::host;

/// Runs with a limit. `None` when Stockade refused it because it cannot be enforced here, in which
/// case the refusal must give that reason and nothing may have run.
fn limited(world: &World, options: &[&str], words: &[&str]) -> Option<Outcome> {
    let outcome = world.attack_with(options, words);
    if outcome.code() == 125 {
        assert!(outcome.stderr.contains(options[0].trim_start_matches('-')), "{outcome}");
        assert_eq!(outcome.stdout, "", "something ran: {outcome}");
        assert!(!crate::harness::tests_run_as_root() || world.identity.uid() != 0, "{outcome}");
        return None;
    }
    Some(outcome)
}

fn fork_bomb(world: &World) {
    world.attack_bare(&["fork-bomb", "100", "40"]).escaped();
    if let Some(outcome) = limited(world, &["--pids", "40"], &["fork-bomb", "100", "40"]) {
        outcome.is_blocked();
    }
}

/// Without a process limit, the fork bomb still ends with the sandbox.
fn fork_bomb_ends_with_the_timeout(world: &World) {
    let (first, second) = host::token();
    let word = format!("{first}{second}");
    let script = format!("for i in $(seq 200); do ./probe linger {word} & done; wait");
    let outcome = world.run(&["--discard", "--timeout", "2s"], &["sh", "-c", &script]);
    outcome.ends_with(124);
    host::assert_none_survives(&word);
}

fn memory_hog(world: &World) {
    world.attack_bare(&["hog-memory", "134217728"]).escaped();
    if let Some(outcome) = limited(world, &["--memory", "64M"], &["hog-memory", "134217728"]) {
        outcome.ends_with(137);
        assert!(outcome.stderr.to_lowercase().contains("memory"), "the reason is told: {outcome}");
    }
}

/// Memory files, /tmp and /dev/shm count as memory where they are in memory.
fn memory_hog_by_files(world: &World) {
    let words = ["fill-memory-files", "268435456"];
    world.attack_bare(&words).escaped();
    if let Some(outcome) = limited(world, &["--memory", "64M"], &words) {
        assert_ne!(outcome.code(), 42, "{outcome}");
    }
    for dir in ["/dev/shm", "/tmp"] {
        if limited(world, &["--memory", "64M"], &["hog-memory", "1"]).is_none() {
            return;
        }
        let kind = world.shell(&format!("stat -f -c %T {dir}"));
        if kind.stdout.trim() == "tmpfs" {
            let outcome = world.attack_with(&["--memory", "64M"], &["fill", dir, "268435456"]);
            assert_ne!(outcome.code(), 42, "{dir}: {outcome}");
        }
    }
}

fn processor_share(world: &World) {
    let words = ["processor-time", "1000"];
    if let Some(outcome) = limited(world, &["--cpus", "0.2"], &words) {
        let used: u64 = outcome.stdout.trim().trim_start_matches("held: ").parse().unwrap();
        assert!(used < 500, "{used} ms of processor time in a second: {outcome}");
    }
}

fn spinning(world: &World) {
    let outcome = world.attack_with(&["--timeout", "1s"], &["spin", "4"]);
    outcome.ends_with(124);
    assert!(outcome.took < Duration::from_secs(10), "{outcome}");
}

fn output_flood(world: &World) {
    for descriptor in ["1", "2"] {
        let outcome = world.attack_with(&["--max-output", "1M"], &["flood", descriptor]);
        outcome.ends_with(137);
        let length = outcome.stdout.len() + outcome.stderr.len();
        assert!(length < 2 << 20, "{length} bytes came out");
        assert!(outcome.stderr.contains("output"), "the reason is told");
    }
}

/// A reader that does not read blocks the writer; it does not fill Stockade's memory.
fn output_flood_to_a_slow_reader(world: &World) {
    let (reader, writer) = std::io::pipe().unwrap();
    let running = world
        .stockade(&["run", "--discard", "--max-output", "8G", "--", "./probe", "flood", "1"])
        .output_to(writer)
        .start();
    std::thread::sleep(Duration::from_secs(2));
    let status = fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
    let resident = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let kib: u64 = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 64 * 1024, "{kib} KiB are resident");
    drop(reader);
    drop(running);
}

/// If the reader closes its end, the run ends, as with a pipe.
fn output_to_a_closed_pipe(world: &World) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let outcome = world
        .stockade(&["run", "--discard", "--", "./probe", "flood", "1"])
        .output_to(writer)
        .deadline(20)
        .finish();
    assert!(!outcome.stderr.contains("panicked"), "{outcome}");
}

/// `--disk` limits the view; /tmp and the home are in memory.
fn disk_fill(world: &World) {
    let outcome = world.attack_with(&["--disk", "32M"], &["fill", ".", "134217728"]);
    if outcome.code() == 125 {
        assert!(outcome.stderr.contains("disk"), "{outcome}");
        return;
    }
    assert_ne!(outcome.code(), 42, "{outcome}");
    assert!(matches!(outcome.code(), 0 | 137), "{outcome}");
}

/// Every writable file system except the view has a limit well below the machine's memory.
fn scratch_space_has_an_end(world: &World) {
    let script = "stat -f -c '%n %T %b %S' /tmp \"$HOME\" /dev/shm /run /var/tmp / 2>/dev/null";
    let outcome = world.shell(script);
    let info = rustix::system::sysinfo();
    let memory = u64::from(info.mem_unit) * info.totalram;
    let mut seen = 0;
    for line in outcome.stdout.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [name, kind, blocks, size] = words[..] else { panic!("{line}") };
        if kind == "tmpfs" {
            let bytes = blocks.parse::<u64>().unwrap() * size.parse::<u64>().unwrap();
            assert!(bytes > 0 && bytes <= memory / 2, "{name} holds {bytes} of {memory}");
            seen += 1;
        }
    }
    assert!(seen >= 3, "{outcome}");
}

fn descriptors(world: &World) {
    world.attack(&["open-files"]).is_blocked();
    fs::File::open("/etc/passwd").expect("the host can still open files");
}

/// File names cost more than their bytes.
fn inode_bomb(world: &World) {
    let outcome = world
        .stockade(&["run", "--discard", "--", "./probe", "many-files", ".", "20000"])
        .deadline(120)
        .finish();
    outcome.is_blocked();
    let left: Vec<_> =
        fs::read_dir(world.data().join("views")).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "a discarded view is left: {left:?}");
}

as_root_and_as_user![
    fork_bomb,
    fork_bomb_ends_with_the_timeout,
    memory_hog,
    memory_hog_by_files,
    processor_share,
    spinning,
    output_flood,
    output_flood_to_a_slow_reader,
    output_to_a_closed_pipe,
    disk_fill,
    scratch_space_has_an_end,
    descriptors,
    inode_bomb,
];
