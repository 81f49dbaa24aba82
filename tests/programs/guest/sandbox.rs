//! Persistent sandboxes on version 2: their limits as the kernel enforces them, pausing with the
//! freezer, and changes of the clock while they run.
//!
//! Each check is a separate process in the caller's control group, in which its keeper runs, too.

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};
use serde_json::Value;
use stockade_core::sandbox::{LimitChange, LimitName, Limits};
use stockade_core::{ExecId, SandboxId, SandboxSpec};
use stockade_runtime::{Command, Ending, Error, Event, Exec, Runtime as _, State};
use stockade_runtime_native::{Native, Options};

use crate::Check;
use crate::caller::Caller;
use crate::groups::{Groups, USER};
use crate::limits::HOG;

pub(crate) const CHECKS: &[Check] = &[
    ("held-out-of-memory", |groups| run_part(&groups.scope(), "out-of-memory")),
    ("held-limits-outlive-the-keeper", |groups| run_part(&groups.scope(), "keeper-killed")),
    ("held-processor-share", |groups| run_part(&groups.scope(), "processor-share")),
    ("held-limits-are-seen-as-root", |groups| run_part(&groups.session(0), "seen")),
    ("held-limits-are-seen-as-user", |groups| run_part(&groups.scope(), "seen")),
    ("held-limits-change-as-root", |groups| run_part(&groups.session(0), "changed")),
    ("held-limits-change-as-user", |groups| run_part(&groups.scope(), "changed")),
    ("held-limits-are-refused", |groups| run_part(&groups.session(USER), "refused")),
    ("held-pause", |groups| run_part(&groups.scope(), "pause")),
    ("held-clocks-are-set", clocks_are_set),
    ("held-owners-are-kept-in-a-copy", |groups| run_part(&groups.session(0), "owners")),
];

/// The argument with which this program executes a part of a check.
pub(crate) const SANDBOX_COMMAND: &str = "held";
const MIB: u64 = 1 << 20;
const DAY: i64 = 24 * 3600;

/// Executes a part of a check in a process of the caller.
fn run_part(caller: &Caller, part: &str) -> String {
    caller.program("/init", &[SANDBOX_COMMAND, part]).ends_with(0).stdout.clone()
}

/// Executes a part of a check, and checks that it leaves no control group.
pub(crate) fn part(name: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let detail = runtime.block_on(async {
        let scene = Scene::new();
        let detail = match name {
            "out-of-memory" => out_of_memory(&scene).await,
            "keeper-killed" => keeper_killed(&scene).await,
            "processor-share" => processor_share(&scene).await,
            "seen" => seen(&scene).await,
            "changed" => changed(&scene).await,
            "refused" => refused(&scene).await,
            "pause" => pause(&scene).await,
            "clocks" => clocks(&scene).await,
            "owners" => owners(&scene).await,
            other => panic!("no part {other}"),
        };
        scene.clear().await;
        detail
    });
    write_out(&detail);
}

fn write_out(detail: &str) {
    use std::io::Write as _;
    std::io::stdout().write_all(detail.as_bytes()).unwrap();
}

/// A data directory with its keeper.
struct Scene {
    native: Native,
    data: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let data = std::env::current_dir().unwrap().join(format!("held-{}", std::process::id()));
        let keeper = ["/usr/bin/stockade", "__keeper"].map(Into::into).to_vec();
        let native = Native::open(Options { data: data.clone(), keeper, pool: 0 }).unwrap();
        Self { native, data }
    }

    async fn create(&self, name: &str, spec: SandboxSpec) -> SandboxId {
        let id = SandboxId::new(name).unwrap();
        self.native.create(&id, &spec).await.unwrap();
        id
    }

    async fn start(&self, id: &SandboxId, exec: &str, words: &[&str]) -> Exec {
        self.start_for(id, exec, words, None).await
    }

    async fn start_for(
        &self,
        id: &SandboxId,
        exec: &str,
        words: &[&str],
        timeout: Option<Duration>,
    ) -> Exec {
        let arguments = words.iter().map(Into::into).collect();
        let command = Command { arguments, timeout, ..Command::default() };
        self.native.execute(id, &ExecId::new(exec).unwrap(), &command).await.unwrap()
    }

    async fn run(&self, id: &SandboxId, exec: &str, words: &[&str]) -> (Ending, String) {
        wait_for_output(self.start(id, exec, words).await).await
    }

    /// The record of a sandbox.
    fn record(&self, id: &SandboxId) -> Value {
        let path = self.data.join("runtime/1/sandboxes").join(id.as_str()).join("record.json");
        serde_json::from_str(&read_to_string(path).unwrap()).unwrap()
    }

    /// The control groups of a sandbox.
    fn groups(&self, id: &SandboxId) -> BTreeSet<PathBuf> {
        let record = self.record(id);
        let bytes = record["groups"].as_array().unwrap().iter();
        let bytes = bytes.map(|byte| u8::try_from(byte.as_u64().unwrap()).unwrap()).collect();
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(|line| line.splitn(3, ' ').last().unwrap().into()).collect()
    }

    /// Ends everything.
    async fn clear(&self) {
        let list = self.native.list(&Default::default()).await.unwrap();
        let groups: Vec<_> = list.iter().flat_map(|status| self.groups(&status.id)).collect();
        for status in list {
            self.native.cleanup(&status.id).await.unwrap();
        }
        self.native.drain().await.unwrap();
        while let Some(group) = groups.iter().find(|group| group.exists()) {
            assert!(group.starts_with("/sys/fs/cgroup"), "{}", group.display());
            pause_briefly().await;
        }
    }
}

async fn pause_briefly() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

async fn wait_for_output(mut exec: Exec) -> (Ending, String) {
    let mut written = Vec::new();
    loop {
        match exec.events.next().await.unwrap() {
            Event::Output { bytes, .. } => written.extend(bytes),
            Event::Lost { .. } | Event::RefusedCalls(_) => {}
            Event::Ended(ending) => return (ending, String::from_utf8(written).unwrap()),
        }
    }
}

fn limited() -> SandboxSpec {
    let limits = Limits { memory_bytes: Some(48 * MIB), ..Limits::default() };
    SandboxSpec { limits, ..SandboxSpec::default() }
}

/// A process that uses too much memory is killed and reported, and the sandbox stays as it was.
async fn out_of_memory(scene: &Scene) -> String {
    let id = scene.create("box", limited()).await;
    let isolation = scene.native.inspect(&id).await.unwrap().isolation;
    let memory = isolation.limits.iter().find(|limit| limit.name == "memory").unwrap();
    assert_eq!(memory.by, "cgroup v2");
    let beside = scene.start(&id, "beside", &["probe", "linger", "here"]).await;
    assert_eq!(scene.run(&id, "hog", HOG).await.0, Ending::OutOfMemory);
    let less = scene.run(&id, "less", &["probe", "hog-memory", "16777216"]).await;
    assert!(matches!(less.0, Ending::Exited(_)), "{less:?}");
    assert_eq!(scene.run(&id, "where", &["cat", "/proc/self/cgroup"]).await.1, "0::/\n");
    scene.native.kill(&id, &ExecId::new("beside").unwrap()).await.unwrap();
    assert_eq!(wait_for_output(beside).await.0, Ending::Killed);
    format!("held by {}", memory.by)
}

/// The next keeper finds the groups: reaching a limit is still reported as that.
async fn keeper_killed(scene: &Scene) -> String {
    let id = scene.create("box", limited()).await;
    let hog = "while [ ! -e /tmp/go ]; do :; done; exec probe hog-memory 100663296";
    let hog = scene.start(&id, "hog", &["sh", "-c", hog]).await;
    kill_process(keeper(&scene.data), Signal::KILL).unwrap();
    assert_eq!(scene.run(&id, "go", &["sh", "-c", "echo >/tmp/go"]).await.0, Ending::Exited(0));
    assert_eq!(wait_for_output(hog).await.0, Ending::OutOfMemory);
    "told by the next keeper".to_owned()
}

/// The keeper of a data directory.
fn keeper(data: &Path) -> Pid {
    let data = data.to_str().unwrap();
    let is_keeper = |process: &Path| {
        let line = read_to_string(process.join("cmdline")).unwrap_or_default();
        line.contains("__keeper\0") && line.contains(data)
    };
    let mut processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let found = processes.find(|process| is_keeper(process)).unwrap();
    Pid::from_raw(found.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap()
}

async fn processor_share(scene: &Scene) -> String {
    let limits = Limits { cpu_millis: Some(200), ..Limits::default() };
    let id = scene.create("box", SandboxSpec { limits, ..SandboxSpec::default() }).await;
    let spinning = scene.start(&id, "spin", &["probe", "spin"]).await;
    let groups = scene.groups(&id);
    let group = groups.iter().find(|group| group.join("cpu.max").exists()).unwrap();
    assert_eq!(read_to_string(group.join("cpu.max")).unwrap(), "20000 100000\n");
    let throttled = || read_to_string(group.join("cpu.stat")).unwrap().contains("nr_throttled 0\n");
    while throttled() {
        pause_briefly().await;
    }
    scene.native.kill(&id, &ExecId::new("spin").unwrap()).await.unwrap();
    assert_eq!(wait_for_output(spinning).await.0, Ending::Killed);
    "cpu.max is 20000 100000 and throttles".to_owned()
}

/// Where the runtimes of languages look for limits: in the command's own group.
const READ_LIMITS: &str = "read -r group < /proc/self/cgroup && \
    cd /sys/fs/cgroup${group#0::} && cat memory.max cpu.max pids.max";

/// A sandbox shows its own limits and nothing else, and nothing inside can change or pass by that.
async fn seen(scene: &Scene) -> String {
    let limits = Limits {
        memory_bytes: Some(48 * MIB),
        cpu_millis: Some(500),
        processes: Some(64),
        ..Limits::default()
    };
    let id = scene.create("box", SandboxSpec { limits, ..SandboxSpec::default() }).await;
    let other = Limits { memory_bytes: Some(51 * MIB), ..limits };
    scene.create("other", SandboxSpec { limits: other, ..SandboxSpec::default() }).await;
    let (ending, read) = scene.run(&id, "read", &["sh", "-c", READ_LIMITS]).await;
    assert_eq!((ending, &*read), (Ending::Exited(0), "50331648\n50000 100000\n64\n"));
    let attack = "for file in /sys/fs/cgroup/* /sys/fs/cgroup/commands/*; do \
        (echo 1 > $file) 2>/dev/null && echo wrote $file; done; \
        for place in /sys/fs/cgroup /sys/fs/cgroup/commands /sys/fs/cgroup/..; do \
        mkdir $place/new 2>/dev/null && echo made $place/new; done; \
        mount -o remount,rw /sys/fs/cgroup 2>/dev/null && echo remounted; \
        umount /sys/fs/cgroup 2>/dev/null && echo unmounted; \
        mkdir /tmp/groups; mount -t cgroup2 none /tmp/groups 2>/dev/null && echo mounted; \
        unshare -C true 2>/dev/null && echo unshared; \
        echo /sys/fs/* /sys/fs/cgroup/../* /sys/fs/cgroup/*/; \
        cat /sys/fs/cgroup/*/memory.max /sys/fs/cgroup/../*/memory.max 2>/dev/null; \
        cat /sys/fs/cgroup/* 2>/dev/null | while read -r line; do \
        case $line in *53477376*) echo another: $line;; esac; done; \
        while read -r _ _ _ root point rest; do case $rest in \
        *cgroup2*) echo $root $point;; esac; done < /proc/self/mountinfo; \
        cat /proc/1/cgroup";
    let (ending, found) = scene.run(&id, "attack", &["sh", "-c", attack]).await;
    // The only number that is found by `..` is its own.
    let expected = "/sys/fs/cgroup /sys/fs/cgroup/../cgroup /sys/fs/cgroup/commands/\n\
        50331648\n/.. /sys/fs/cgroup\n0::/\n";
    assert_eq!((ending, &*found), (Ending::Exited(0), expected));
    "memory.max, cpu.max and pids.max, read-only".to_owned()
}

/// Limits of a running sandbox change, and what it sees of them too. One that had none gets them where
/// the keeper's group can give them.
async fn changed(scene: &Scene) -> String {
    let id = scene.create("box", limited()).await;
    let before = scene.start(&id, "beside", &["probe", "linger", "here"]).await;
    let change = |mebibytes| LimitChange {
        memory_bytes: Some(mebibytes * MIB),
        cpu_millis: Some(1500),
        processes: Some(99),
    };
    scene.native.change_limits(&id, &change(64)).await.unwrap();
    let read =
        async |id: &SandboxId, exec: &str| scene.run(id, exec, &["sh", "-c", READ_LIMITS]).await.1;
    assert_eq!(read(&id, "first").await, "67108864\n150000 100000\n99\n");
    // The kernel would kill processes instead of refusing a limit below what they use.
    scene.run(&id, "fill", &["probe", "fill", "/dev/shm", "10485760"]).await;
    let refused = scene.native.change_limits(&id, &change(8)).await;
    let Err(Error::Limit { limit: LimitName::Memory, reason, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(read(&id, "second").await, "67108864\n150000 100000\n99\n");
    assert_eq!(scene.run(&id, "hog", HOG).await.0, Ending::OutOfMemory);
    // The next keeper knows them, also those of a sandbox that was created without any.
    let free = scene.create("free", SandboxSpec::default()).await;
    let added = scene.native.change_limits(&free, &change(48)).await;
    kill_process(keeper(&scene.data), Signal::KILL).unwrap();
    assert_eq!(read(&id, "third").await, "67108864\n150000 100000\n99\n");
    match added {
        Ok(()) => {
            assert_eq!(read(&free, "first").await, "50331648\n150000 100000\n99\n");
            assert_eq!(scene.run(&free, "hog", HOG).await.0, Ending::OutOfMemory);
        }
        // This process is in the group of the keeper.
        Err(Error::Limit { reason, .. }) => assert!(reason.contains("without"), "{reason}"),
        Err(other) => panic!("{other:?}"),
    }
    scene.native.kill(&id, &ExecId::new("beside").unwrap()).await.unwrap();
    assert_eq!(wait_for_output(before).await.0, Ending::Killed);
    reason
}

async fn refused(scene: &Scene) -> String {
    let refused = scene.native.create(&SandboxId::new("box").unwrap(), &limited()).await;
    let Err(Error::Limit { limit: LimitName::Memory, reason, remedy }) = refused else {
        panic!("{refused:?}");
    };
    let best_effort = [LimitName::Memory.into()].into();
    let id = scene.create("box", SandboxSpec { best_effort, ..limited() }).await;
    let (ending, _) = scene.run(&id, "hog", &["probe", "hog-memory", "1073741824"]).await;
    assert_eq!(ending, Ending::LimitExceeded("memory".to_owned()));
    format!("{reason}: {remedy}")
}

/// The freezer stops all processes, and a command that is killed or times out meanwhile ends alone.
async fn pause(scene: &Scene) -> String {
    let id = scene.create("box", SandboxSpec::default()).await;
    let counting = "while :; do echo x; done";
    let mut counting = scene.start(&id, "counting", &["sh", "-c", counting]).await;
    let killed = scene.start(&id, "killed", &["probe", "spin"]).await;
    scene.native.pause(&id).await.unwrap();
    let frozen = scene.groups(&id).into_iter().find(|group| {
        read_to_string(group.join("cgroup.events")).is_ok_and(|events| events.contains("frozen 1"))
    });
    assert!(frozen.is_some(), "{:?}", scene.groups(&id));
    scene.native.kill(&id, &ExecId::new("killed").unwrap()).await.unwrap();
    assert_eq!(wait_for_output(killed).await.0, Ending::Killed);
    scene.native.resume(&id).await.unwrap();
    let second = Some(Duration::from_secs(1));
    let late = scene.start_for(&id, "late", &["probe", "spin"], second).await;
    scene.native.pause(&id).await.unwrap();
    assert_eq!(wait_for_output(late).await.0, Ending::TimedOut);
    assert_eq!(scene.native.inspect(&id).await.unwrap().state, State::Paused);
    let written = async || {
        let status = scene.native.inspect(&id).await.unwrap();
        status.execs.iter().find(|exec| exec.id.as_str() == "counting").unwrap().written.output
    };
    let before = written().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(written().await, before);
    scene.native.resume(&id).await.unwrap();
    while written().await == before {
        let _ = counting.events.next().await;
    }
    format!("frozen in {}", frozen.unwrap().display())
}

/// Sets the wall clock back and forth, by more than a year each time, while leases and timeouts
/// run.
fn clocks_are_set(groups: &Groups) -> String {
    let mut running = groups.scope().spawn("/init", &[SANDBOX_COMMAND, "clocks"]);
    let mut times = 0;
    for days in [400, -800, 800, -400].into_iter().cycle() {
        if running.has_ended() && times % 4 == 0 {
            break;
        }
        let now = clock_gettime(ClockId::Realtime);
        let then = Timespec { tv_sec: now.tv_sec + days * DAY, ..now };
        clock_settime(ClockId::Realtime, then).unwrap();
        times += 1;
        std::thread::sleep(Duration::from_millis(50));
    }
    running.finish().ends_with(0);
    format!("set {times} times")
}

/// Leases and timeouts use a clock that cannot be set, also those that another keeper has found.
async fn clocks(scene: &Scene) -> String {
    let (second, hour) = (Some(Duration::from_secs(1)), Some(Duration::from_secs(3600)));
    let id = scene.create("box", SandboxSpec { lease: hour, ..SandboxSpec::default() }).await;
    let endless = scene.start_for(&id, "endless", &["probe", "linger", "here"], hour).await;
    for round in 0..3 {
        let short = SandboxSpec { lease: second, ..SandboxSpec::default() };
        let short = scene.create("short", short).await;
        let late = format!("late-{round}");
        let late = scene.start_for(&id, &late, &["probe", "spin"], second).await;
        kill_process(keeper(&scene.data), Signal::KILL).unwrap();
        assert_eq!(wait_for_output(late).await.0, Ending::TimedOut);
        // Its processes have ended; its files remain.
        while !matches!(scene.native.inspect(&short).await, Ok(it) if it.state == State::Ended) {
            pause_briefly().await;
        }
        scene.native.cleanup(&short).await.unwrap();
        let status = scene.native.inspect(&id).await.unwrap();
        assert_eq!(status.state, State::Running);
        let left = status.lease_left.unwrap();
        assert!(left > Duration::from_secs(3000) && left < Duration::from_secs(3600), "{left:?}");
        assert!(status.execs.iter().any(|e| e.id.as_str() == "endless" && e.ending.is_none()));
    }
    drop(endless);
    String::new()
}

/// As root, files inside have other owners than outside, which not every file system supports:
/// there a sandbox starts with copies, and reports that.
async fn owners(scene: &Scene) -> String {
    let id = SandboxId::new("box").unwrap();
    let made = scene.native.create(&id, &SandboxSpec::default()).await.unwrap();
    let reason = made.isolation.reasons.join("; ");
    assert!(reason.contains("the files were copied"), "{reason}");
    scene.native.cleanup(&id).await.unwrap();
    reason
}
