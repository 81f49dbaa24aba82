//! The report of limits: each is enforced, watched or refused, and never silently missing.

use crate::harness::World;

/// The report of one limit in a run's JSON.
fn report(world: &World, options: &[&str], name: &str) -> Option<serde_json::Value> {
    let mut arguments = vec!["run", "--json", "--discard"];
    arguments.extend(options);
    arguments.extend(["--", "true"]);
    let outcome = world.stockade(&arguments).finish();
    if outcome.code() == 125 {
        let text = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(text.contains("LIMIT_UNAVAILABLE"), "{outcome}");
        return None;
    }
    outcome.succeeds();
    let json = outcome.json();
    let limits = json["isolation"]["limits"].as_array().unwrap().clone();
    let found = limits.into_iter().find(|limit| limit["name"] == name);
    Some(found.unwrap_or_else(|| panic!("no report of {name}: {json}")))
}

fn every_limit_is_reported(world: &World) {
    for (option, value, name) in [
        ("--memory", "256M", "memory"),
        ("--cpus", "0.5", "cpus"),
        ("--pids", "64", "pids"),
        ("--disk", "1G", "disk"),
        ("--timeout", "30s", "timeout"),
        ("--max-output", "1M", "output"),
    ] {
        if let Some(limit) = report(world, &[option, value], name) {
            assert!(
                limit["enforcement"] == "enforced" || limit["enforcement"] == "watched",
                "{limit}"
            );
            assert!(limit["by"].as_str().is_some_and(|by| !by.is_empty()), "{limit}");
        }
    }
}

/// With a limit that cannot be enforced, a command runs only if the limit is declared best effort,
/// which is then reported as not enforced.
fn best_effort(world: &World) {
    for (option, value, name) in
        [("--memory", "256M", "memory"), ("--cpus", "0.5", "cpus"), ("--pids", "64", "pids")]
    {
        let strict = report(world, &[option, value], name);
        let loose = report(world, &[option, value, "--best-effort", name], name).unwrap();
        match strict {
            Some(limit) => assert_eq!(limit["enforcement"], loose["enforcement"]),
            None => assert_ne!(loose["enforcement"], "enforced", "{loose}"),
        }
    }
}

/// For an ordinary user, a refusal names the command that would give the permission.
fn refusals_name_a_remedy(world: &World) {
    let outcome = world.run(&["--discard", "--memory", "64M"], &["true"]);
    if outcome.code() == 125 {
        let systemd = std::path::Path::new("/run/systemd/system").exists();
        let remedy =
            if systemd { "systemd-run --user --scope -p Delegate=yes" } else { "sudo sh -c " };
        assert!(outcome.stderr.contains(remedy), "{outcome}");
    }
}

/// The processors of a limit are what `nproc` and language runtimes count, in a persistent sandbox too.
fn processors_are_seen_inside(world: &World) {
    let create = ["create", "--id", "few", "--cpus", "1", "--best-effort", "cpus"];
    world.stockade(&create).finish().succeeds();
    let seen = world.stockade(&["exec", "few", "--", "nproc"]).finish();
    seen.succeeds();
    assert_eq!(seen.stdout, "1\n", "{seen}");
    world.stockade(&["kill", "few"]).finish().succeeds();
}

/// A kill by the memory limit is distinguished from any other.
fn out_of_memory_is_told_apart(world: &World) {
    let run = |words: &[&str]| {
        let mut arguments = vec!["run", "--json", "--discard", "--memory", "64M", "--", "./probe"];
        arguments.extend(words);
        world.stockade(&arguments).finish()
    };
    let outcome = run(&["hog-memory", "268435456"]);
    if outcome.code() == 125 {
        return;
    }
    outcome.ends_with(137);
    assert!(is_memory(&outcome.json()), "{outcome}");
    let arguments =
        ["run", "--json", "--discard", "--memory", "64M", "--", "sh", "-c", "kill -9 $$"];
    let killed = world.stockade(&arguments).finish();
    killed.ends_with(137);
    assert!(!is_memory(&killed.json()), "{killed}");
}

/// A limit that is too low for the sandbox itself is refused with a remedy.
fn too_little_memory_to_start(world: &World) {
    let outcome = world.run(&["--discard", "--memory", "64k"], &["true"]);
    outcome.ends_with(125);
    assert!(outcome.stderr.contains("LIMIT_UNAVAILABLE"), "{outcome}");
    assert!(outcome.stderr.contains("hint: "), "{outcome}");
}

/// A limited command sees its own control groups as the roots.
fn outer_groups_are_hidden(world: &World) {
    for options in [&["--discard"][..], &["--discard", "--memory", "64M"]] {
        let outcome = world.run(options, &["cat", "/proc/self/cgroup"]);
        if outcome.code() == 125 && options.len() > 1 {
            outcome.is_refused();
            continue;
        }
        outcome.succeeds();
        let seen: Vec<_> = outcome.stdout.lines().filter(|line| !line.ends_with(":/")).collect();
        assert!(seen.is_empty() && !outcome.stdout.is_empty(), "{outcome}");
    }
}

/// The runtimes of languages read the limits where they look for them.
fn limits_are_seen_where_runtimes_look(world: &World) {
    let limits = ["--memory", "256M", "--cpus", "0.5"];
    let flags = [&["--discard"][..], &limits].concat();
    let script = "cat /sys/fs/cgroup/memory.max || cat /sys/fs/cgroup/memory/memory.limit_in_bytes; \
        cat /sys/fs/cgroup/cpu.max || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us";
    let outcome = world.run(&flags, &["sh", "-c", script]);
    if outcome.code() == 125 {
        outcome.is_refused();
        return;
    }
    let seen: Vec<_> = outcome.succeeds().stdout.lines().collect();
    assert_eq!(seen[0], "268435456", "{outcome}");
    assert!(["50000", "50000 100000"].contains(&seen[1]), "{outcome}");
    // Nothing above the own groups is seen, and nothing can be changed.
    let table = world.run(&flags, &["grep", " - cgroup", "/proc/self/mountinfo"]);
    for line in table.succeeds().stdout.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        assert_eq!(fields[3], "/", "{table}");
        let options: Vec<_> = fields[5].split(',').collect();
        for option in ["ro", "nosuid", "nodev", "noexec"] {
            assert!(options.contains(&option), "{table}");
        }
    }
    let change = "find /sys/fs/cgroup -type f -size -1000 | while read f; do \
        (echo 1 > $f) 2>/dev/null && echo $f; done; \
        find /sys/fs/cgroup -type d | while read d; do mkdir $d/x 2>/dev/null && echo $d; done; \
        find /sys/fs/cgroup -name release_agent -o -name 'devices.*'; true";
    assert_eq!(world.run(&flags, &["sh", "-c", change]).succeeds().stdout, "");
    // Without a limit it would be that of the caller.
    assert_eq!(world.run(&["--discard"], &["ls", "-A", "/sys"]).succeeds().stdout, "");
    if std::path::Path::new("/usr/bin/node").exists() {
        let node = world.run(&flags, &["node", "-e", "console.log(process.constrainedMemory())"]);
        assert_eq!(node.succeeds().stdout, "268435456\n");
    }
    if std::path::Path::new("/usr/bin/java").exists() {
        let words = ["java", "-XshowSettings:system", "-version"];
        let java = world.run(&flags, &words);
        let text = java.stderr.clone() + &java.stdout;
        assert!(text.contains("Memory Limit: 256.00M"), "{java}");
    }
    let create = [&["create", "--id", "box"][..], &limits].concat();
    world.stockade(&create).finish().succeeds();
    let in_box = |script: &str| {
        let words = ["exec", "box", "--", "sh", "-c", script];
        world.stockade(&words).finish().succeeds().stdout.clone()
    };
    assert_eq!(in_box(script), outcome.stdout);
    assert_eq!(in_box(change), "");
    let mount = "mkdir /tmp/groups; for kind in cgroup cgroup2; do \
        mount -t $kind none /tmp/groups 2>/dev/null && echo mounted $kind; done; \
        mount -o remount,rw /sys/fs/cgroup 2>/dev/null && echo remounted; \
        umount /sys/fs/cgroup 2>/dev/null && echo unmounted; ls /sys/fs/cgroup/..";
    assert_eq!(in_box(mount), "cgroup\n");
    world.stockade(&["kill", "box"]).finish().succeeds();
}

/// Limits of a running sandbox change, for its commands too, and so does what it sees of them.
fn limits_change_while_commands_run(world: &World) {
    let create = ["create", "--id", "box", "--memory", "256M", "--cpus", "0.5", "--pids", "300"];
    let created = world.stockade(&create).finish();
    if created.code() != 0 {
        created.is_refused();
        return;
    }
    world.stockade(&["exec", "box", "--detach", "--", "sleep", "100"]).finish().succeeds();
    let update = |words: &[&str]| world.stockade(&[&["update"][..], words].concat()).finish();
    let flags = ["box", "--memory", "512M", "--cpus", "2", "--pids", "200", "--json"];
    let updated = update(&flags).json();
    assert_eq!(updated["limits"]["memoryBytes"], 536_870_912, "{updated}");
    let script = "cat /sys/fs/cgroup/memory.max || cat /sys/fs/cgroup/memory/memory.limit_in_bytes; \
        cat /sys/fs/cgroup/cpu.max || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us; \
        cat /sys/fs/cgroup/pids.max || cat /sys/fs/cgroup/pids/pids.max; \
        grep processes /proc/self/limits | tr -s ' ' | cut -d ' ' -f 3";
    let seen = || {
        let seen = world.stockade(&["exec", "box", "--", "sh", "-c", script]).finish();
        seen.succeeds().stdout.replace(" 100000", "")
    };
    assert_eq!(seen(), "536870912\n200000\n200\n200\n");
    // What is not named stays, and a refused change changes nothing.
    let told = update(&["box", "--memory", "128M"]);
    let limits = "128.0 MiB of memory, 2 processors, 200 processes";
    assert!(told.succeeds().stderr.contains(limits), "{told}");
    let shown = world.stockade(&["show", "box"]).finish();
    assert!(shown.stdout.contains(&format!("limits     {limits}\n")), "{shown}");
    assert_eq!(seen(), "134217728\n200000\n200\n200\n");
    update(&["box"]).ends_with(2);
    update(&["box", "--max-connections", "3"]).ends_with(1);
    assert_eq!(seen(), "134217728\n200000\n200\n200\n");
    let hog = ["exec", "box", "--", "sh", "-c", "x=0123456789abcdef; while :; do x=$x$x; done"];
    world.stockade(&hog).finish().ends_with(137);
    // They outlast the processes.
    world.stockade(&["stop", "box"]).finish().succeeds();
    update(&["box", "--memory", "300M"]).succeeds();
    world.stockade(&["start", "box"]).finish().succeeds();
    assert_eq!(seen(), "314572800\n200000\n200\n200\n");
    let events = world.stockade(&["events", "box"]).finish();
    assert_eq!(events.stdout.matches("LIMITS_CHANGED").count(), 3, "{events}");
    world.stockade(&["kill", "box"]).finish().succeeds();
}

/// A limit that was not there from the start is added, or refused with the reason and a remedy.
fn a_limit_is_added_or_refused(world: &World) {
    world.stockade(&["create", "--id", "free"]).finish().succeeds();
    let updated = world.stockade(&["update", "free", "--memory", "256M"]).finish();
    if updated.code() == 0 {
        let read = ["exec", "free", "--", "cat", "/sys/fs/cgroup/memory.max"];
        assert_eq!(world.stockade(&read).finish().succeeds().stdout, "268435456\n");
    } else {
        assert!(updated.stderr.contains("[LIMIT_UNAVAILABLE]"), "{updated}");
        assert!(updated.stderr.contains("hint: create another sandbox"), "{updated}");
    }
    // This limit needs no control group.
    world.stockade(&["update", "free", "--pids", "77"]).finish().succeeds();
    let read = ["exec", "free", "--", "sh", "-c", "grep processes /proc/self/limits"];
    assert!(world.stockade(&read).finish().succeeds().stdout.contains(" 77 "));
    world.stockade(&["kill", "free"]).finish().succeeds();
}

fn no_cgroup_is_left(world: &World) {
    let groups = || {
        let mut found = Vec::new();
        let mut pending = vec![(std::path::PathBuf::from("/sys/fs/cgroup"), 0)];
        while let Some((path, depth)) = pending.pop() {
            for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) && depth < 5 {
                    if entry.file_name().to_string_lossy().contains("stockade") {
                        let path = entry.path();
                        // The group of a persistent sandbox; the end of a test kills its keeper,
                        // too.
                        if path.join("commands").is_dir() || path.ends_with("commands") {
                            continue;
                        }
                        let tasks = std::fs::read_to_string(path.join("cgroup.procs"));
                        found.push((path, tasks.unwrap_or_default().trim().is_empty()));
                    }
                    pending.push((entry.path(), depth + 1));
                }
            }
        }
        found
    };
    for _ in 0..3 {
        world.run(&["--discard", "--pids", "40", "--best-effort", "pids"], &["true"]);
        let words = ["sh", "-c", "sleep 100 & sleep 100"];
        world.run(
            &["--discard", "--timeout", "300ms", "--pids", "40", "--best-effort", "pids"],
            &words,
        );
    }
    // Other tests run concurrently: only a group that is empty, and stays, was left behind.
    let empty = |groups: Vec<(std::path::PathBuf, bool)>| {
        groups
            .into_iter()
            .filter(|(_, empty)| *empty)
            .map(|(path, _)| path)
            .collect::<std::collections::BTreeSet<_>>()
    };
    let mut left = empty(groups());
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        left = left.intersection(&empty(groups())).cloned().collect();
    }
    left.retain(|path| path.file_name().is_some_and(|name| name != "stockade"));
    assert!(left.is_empty(), "{left:?}");
}

/// Whether a command ended because of missing memory, or because it exceeded its memory limit.
fn is_memory(answer: &serde_json::Value) -> bool {
    answer["ending"] == "outOfMemory"
        || (answer["ending"] == "limitExceeded" && answer["reason"] == "memory")
}

as_root_and_as_user![
    processors_are_seen_inside,
    every_limit_is_reported,
    best_effort,
    refusals_name_a_remedy,
    out_of_memory_is_told_apart,
    too_little_memory_to_start,
    outer_groups_are_hidden,
    limits_are_seen_where_runtimes_look,
    limits_change_while_commands_run,
    a_limit_is_added_or_refused,
    no_cgroup_is_left,
];
