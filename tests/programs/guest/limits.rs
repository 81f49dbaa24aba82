//! Enforced limits: each is checked in its group in the kernel, not in the reports of `stockade`.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::Check;
use crate::caller::{Caller, Outcome, Running};
use crate::groups::{Groups, USER};

pub(crate) const CHECKS: &[Check] = &[
    ("out-of-memory-as-root", |groups| out_of_memory(&groups.session(0))),
    ("out-of-memory-as-user", |groups| out_of_memory(&groups.scope())),
    ("out-of-memory-of-a-child", out_of_memory_of_a_child),
    ("files-in-memory-count", files_in_memory_count),
    ("enough-memory", enough_memory),
    ("too-little-memory-to-start", too_little_memory),
    ("a-kill-is-told-apart", kill_is_told_apart),
    ("processor-share-as-root", |groups| processor_share(groups, &groups.session(0))),
    ("processor-share-as-user", |groups| processor_share(groups, &groups.scope())),
    ("process-count-as-root", |groups| process_count(&groups.session(0))),
    ("process-count-as-user", |groups| process_count(&groups.session(USER))),
    ("a-time-out-ends-the-group", time_out),
    ("outer-groups-are-hidden", outer_groups_are_hidden),
    ("limits-are-seen", limits_are_seen),
];

const MIB: u64 = 1 << 20;

/// Uses twice the memory that [`LIMITED`] allows.
pub(crate) const HOG: &[&str] = &["probe", "hog-memory", "100663296"];

/// 48 MiB.
pub(crate) const LIMITED: &[&str] = &["--memory", "48M"];

/// The report of one limit, from a list by `doctor` or `run`.
#[track_caller]
pub(crate) fn limit_report<'a>(limits: &'a Value, name: &str) -> &'a Value {
    let found = limits.as_array().unwrap().iter().find(|limit| limit["name"] == name);
    found.unwrap_or_else(|| panic!("nothing is told of {name}: {limits}"))
}

/// Fails unless a group of version 2 enforces a limit.
#[track_caller]
pub(crate) fn assert_enforced(limits: &Value, name: &str) {
    let limit = limit_report(limits, name);
    assert_eq!((&limit["enforcement"], &limit["by"]), (&"enforced".into(), &"cgroup v2".into()));
}

/// Fails unless a run with 48 MiB ended because of missing memory, and this is reported.
#[track_caller]
pub(crate) fn assert_out_of_memory(outcome: &Outcome) -> String {
    let json = outcome.ends_with(137).json();
    assert_eq!((&json["ending"], &json["exitCode"]), (&"outOfMemory".into(), &137.into()));
    assert_eq!(json["outOfMemoryKills"], 1, "{json}");
    let peak = json["memoryPeakBytes"].as_u64().unwrap();
    assert!((40 * MIB..=48 * MIB).contains(&peak), "{peak}");
    assert_enforced(&json["isolation"]["limits"], "memory");
    format!("a peak of {peak} bytes")
}

fn out_of_memory(caller: &Caller) -> String {
    let detail = assert_out_of_memory(&caller.run(LIMITED, HOG));
    let words = ["run", "--discard", "--memory", "48M", "--", "probe", "hog-memory", "100663296"];
    let outcome = caller.stockade(&words);
    outcome.ends_with(137);
    assert!(outcome.stderr.contains("the command ran out of memory"), "{outcome:?}");
    detail
}

/// The kernel kills the process that uses the memory; the command that started it continues.
fn out_of_memory_of_a_child(groups: &Groups) -> String {
    let script = "probe hog-memory 100663296; echo the child ended with $?";
    let json = groups.scope().run(LIMITED, &["sh", "-c", script]).ends_with(0).json();
    let stdout = json["stdout"].as_str().unwrap();
    assert!(stdout.ends_with("the child ended with 137\n"), "{json}");
    assert_eq!((&json["ending"], &json["outOfMemoryKills"]), (&"exited".into(), &1.into()));
    stdout.to_owned()
}

fn files_in_memory_count(groups: &Groups) -> String {
    let fill = ["probe", "fill", "/tmp", "100663296"];
    // A full file system comes before the lack of memory.
    let json = groups.session(0).run(LIMITED, &fill).ends_with(0).json();
    let text = json["stdout"].as_str().unwrap();
    assert!(text.contains("No space left on device"), "{text}");
    assert_eq!(json["outOfMemoryKills"], 0);
    assert!(json["memoryPeakBytes"].as_u64().unwrap() <= 48 * MIB, "{json}");
    text.trim_end().to_owned()
}

fn enough_memory(groups: &Groups) -> String {
    let outcome = groups.session(0).run(LIMITED, &["probe", "hog-memory", "16777216"]);
    let json = outcome.json();
    assert_eq!((&json["ending"], &json["outOfMemoryKills"]), (&"exited".into(), &0.into()));
    let peak = json["memoryPeakBytes"].as_u64().unwrap();
    assert!((16 * MIB..=48 * MIB).contains(&peak), "{peak}");
    format!("a peak of {peak} bytes")
}

fn too_little_memory(groups: &Groups) -> String {
    let outcome = groups.session(0).run(&["--memory", "64k"], &["probe", "hog-memory", "1"]);
    let json = outcome.ends_with(125).json();
    assert_eq!(json["error"]["code"], "LIMIT_UNAVAILABLE", "{json}");
    json["error"]["message"].as_str().unwrap().to_owned()
}

fn kill_is_told_apart(groups: &Groups) -> String {
    let mut running = groups.session(0).start(LIMITED, &["probe", "spin"]);
    let (group, pid) = wait_for_probe(groups, &mut running);
    let limit = |file: &str| read_to_string(group.join(file)).unwrap();
    assert_eq!(limit("memory.max"), format!("{}\n", 48 * MIB));
    assert_eq!(limit("memory.swap.max"), "0\n");
    kill_process(pid, Signal::KILL).unwrap();
    let json = running.finish().ends_with(137).json();
    assert_eq!((&json["ending"], &json["signal"]), (&"signaled".into(), &9.into()));
    assert_eq!(json["outOfMemoryKills"], 0);
    assert!(!group.exists());
    "killed by signal 9".to_owned()
}

fn processor_share(groups: &Groups, caller: &Caller) -> String {
    let mut running = caller.start(&["--cpus", "0.2"], &["probe", "spin"]);
    let (group, pid) = wait_for_probe(groups, &mut running);
    assert_eq!(read_to_string(group.join("cpu.max")).unwrap(), "20000 100000\n");
    let throttled = || {
        let stat = read_to_string(group.join("cpu.stat")).unwrap();
        let line = stat.lines().find_map(|line| line.strip_prefix("nr_throttled ")).unwrap();
        line.parse::<u32>().unwrap()
    };
    while throttled() < 3 {
        running.assert_runs();
        sleep(Duration::from_millis(10));
    }
    kill_process(pid, Signal::KILL).unwrap();
    let json = running.finish().ends_with(137).json();
    assert_enforced(&json["isolation"]["limits"], "cpus");
    "cpu.max is 20000 100000 and throttles".to_owned()
}

fn process_count(caller: &Caller) -> String {
    let outcome = caller.run(&["--pids", "20"], &["probe", "fork-bomb", "100", "20"]);
    let json = outcome.ends_with(0).json();
    assert_eq!(limit_report(&json["isolation"]["limits"], "pids")["enforcement"], "enforced");
    json["stdout"].as_str().unwrap().to_owned()
}

fn time_out(groups: &Groups) -> String {
    let options = ["--memory", "48M", "--cpus", "1", "--timeout", "1s"];
    let outcome = groups.scope().run(&options, &["probe", "spin", "4"]);
    assert_eq!(outcome.ends_with(124).json()["ending"], "timedOut");
    assert_eq!(groups.stockade_groups(), Vec::<PathBuf>::new());
    "no group is left".to_owned()
}

fn outer_groups_are_hidden(groups: &Groups) -> String {
    for caller in [groups.session(0), groups.scope()] {
        let json = caller.run(LIMITED, &["cat", "/proc/self/cgroup"]).ends_with(0).json();
        assert_eq!(json["stdout"], "0::/\n");
    }
    "0::/".to_owned()
}

/// The runtimes of languages read limits in the command's own group, which nothing inside can change.
fn limits_are_seen(groups: &Groups) -> String {
    let script = "cd /sys/fs/cgroup && cat memory.max cpu.max; \
        for file in *; do (echo 1 > $file) 2>/dev/null && echo $file; done; \
        while read -r _ _ _ root point rest; do case $rest in \
        *cgroup2*) echo $root $point;; esac; done < /proc/self/mountinfo; true";
    let limits = ["--memory", "48M", "--cpus", "0.5"];
    for caller in [groups.session(0), groups.scope()] {
        let json = caller.run(&limits, &["sh", "-c", script]).ends_with(0).json();
        assert_eq!(json["stdout"], "50331648\n50000 100000\n/ /sys/fs/cgroup\n", "{json}");
        let none = caller.run(&[], &["sh", "-c", "echo /sys/*"]).ends_with(0).json();
        assert_eq!(none["stdout"], "/sys/*\n", "{none}");
    }
    "memory.max and cpu.max, read-only".to_owned()
}

/// The group that was created for a call and the process of the probe in it, once that runs there.
fn wait_for_probe(groups: &Groups, running: &mut Running) -> (PathBuf, Pid) {
    loop {
        let mut found = groups.stockade_groups().into_iter();
        if let Some(found) = found.find_map(|group| Some((group.clone(), probe_in(&group)?))) {
            return found;
        }
        running.assert_runs();
        sleep(Duration::from_millis(10));
    }
}

fn probe_in(group: &Path) -> Option<Pid> {
    let processes = read_to_string(group.join("cgroup.procs")).ok()?;
    let probe = processes.lines().find(|process| {
        read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name == "probe\n")
    });
    Pid::from_raw(probe?.parse().ok()?)
}
