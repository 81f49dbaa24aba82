//! A requested limit is enforced or refused, but never ignored.

use stockade_core::sandbox::{LimitChange, LimitName, Limits};
use stockade_core::{Enforcement, Isolation, SandboxSpec};

use super::super::harness::{Harness, within};
use super::super::running::Running;
use super::super::sandbox::script;
use crate::capability::Capability;
use crate::error::Error;
use crate::exec::{Ending, Offsets};

const MIB: u64 = 1 << 20;

/// Each limit, with the capability that it requires.
fn each() -> [(LimitName, Capability, Limits); 4] {
    let none = Limits::default();
    [
        (
            LimitName::Memory,
            Capability::MemoryLimit,
            Limits { memory_bytes: Some(256 * MIB), ..none },
        ),
        (LimitName::Cpus, Capability::CpuLimit, Limits { cpu_millis: Some(500), ..none }),
        (LimitName::Processes, Capability::ProcessLimit, Limits { processes: Some(50), ..none }),
        (LimitName::Disk, Capability::DiskLimit, Limits { disk_bytes: Some(64 * MIB), ..none }),
    ]
}

/// How a limit is enforced, according to the report. The limit on processes has two names.
fn enforcement(isolation: &Isolation, limit: LimitName) -> Enforcement {
    let is_it =
        |name: &str| name == limit.as_str() || (limit == LimitName::Processes && name == "pids");
    let report = isolation.limits.iter().find(|report| is_it(&report.name));
    report.unwrap_or_else(|| panic!("nothing is said of {limit}: {isolation:?}")).enforcement
}

pub(crate) async fn they_hold_or_are_refused(harness: &Harness) {
    let runtime = harness.runtime();
    for (limit, capability, limits) in each() {
        let (id, spec) = (harness.id(), SandboxSpec { limits, ..harness.spec() });
        let made = within("a sandbox", runtime.create(&id, &spec)).await;
        match runtime.supports(capability).await {
            Ok(()) => {
                let made = made.unwrap_or_else(|error| panic!("{limit}: {error:?}"));
                assert_ne!(enforcement(&made.isolation, limit), Enforcement::Refused, "{limit}");
            }
            Err(_) => {
                let is_it =
                    matches!(&made, Err(Error::Limit { limit: told, .. }) if *told == limit);
                assert!(is_it, "{limit}: {made:?}");
                let gone = runtime.inspect(&id).await;
                assert!(matches!(gone, Err(Error::NoSandbox(_))), "{gone:?}");
            }
        }
    }
}

pub(crate) async fn best_effort_says_what_it_was(harness: &Harness) {
    let runtime = harness.runtime();
    for (limit, capability, limits) in each() {
        let best_effort = [limit.into()].into();
        let spec = SandboxSpec { limits, best_effort, ..harness.spec() };
        let sandbox = harness.sandbox_with(&spec).await;
        let status = sandbox.inspect().await.unwrap();
        let actual = enforcement(&status.isolation, limit);
        // A limit that cannot be enforced may still be watched.
        let is_held = runtime.supports(capability).await.is_ok();
        let unlike = if is_held { Enforcement::Refused } else { Enforcement::Enforced };
        assert_ne!(actual, unlike, "{limit}");
        assert_eq!(sandbox.run(&["true"]).await.ending, Ending::Exited(0));
    }
}

/// A changed limit is that of the sandbox from then on: a repeated creation names it.
pub(crate) async fn they_change_while_it_runs(harness: &Harness) {
    let runtime = harness.runtime();
    for (limit, capability, limits) in each() {
        if limit == LimitName::Disk || runtime.supports(capability).await.is_err() {
            continue;
        }
        let (id, old) = (harness.id(), SandboxSpec { limits, ..harness.spec() });
        within("a sandbox", runtime.create(&id, &old)).await.unwrap();
        let twice = |value: Option<u64>| value.map(|value| 2 * value);
        let change = LimitChange {
            memory_bytes: twice(limits.memory_bytes),
            cpu_millis: twice(limits.cpu_millis),
            processes: twice(limits.processes),
        };
        within("a change", runtime.change_limits(&id, &change)).await.unwrap();
        let new = SandboxSpec { limits: limits.with(&change), ..harness.spec() };
        let found = within("the sandbox", runtime.create(&id, &new)).await.unwrap();
        assert_ne!(enforcement(&found.isolation, limit), Enforcement::Refused, "{limit}");
        let other = within("a refusal", runtime.create(&id, &old)).await;
        assert!(matches!(other, Err(Error::Conflict(_))), "{limit}: {other:?}");
        within("the end", runtime.end(&id)).await.unwrap();
        let ended = within("a refusal", runtime.change_limits(&id, &change)).await;
        assert!(matches!(ended, Err(Error::WrongState { .. })), "{limit}: {ended:?}");
        within("the removal", runtime.cleanup(&id)).await.unwrap();
    }
}

async fn ending(harness: &Harness, limits: Limits, text: &str) -> Ending {
    let sandbox = harness.sandbox_with(&SandboxSpec { limits, ..harness.spec() }).await;
    sandbox.sh(text).await.ending
}

/// Doubles a text until memory is exhausted.
const HUNGER: &str = "x=0123456789abcdef; while :; do x=$x$x; done";

pub(crate) async fn want_of_memory_is_told(harness: &Harness) {
    let limits = Limits { memory_bytes: Some(64 * MIB), ..Limits::default() };
    assert_eq!(ending(harness, limits, HUNGER).await, Ending::OutOfMemory);
}

/// A command that was not killed for lack of memory is reported with its real ending.
pub(crate) async fn other_ends_are_not_want_of_memory(harness: &Harness) {
    let limits = Limits { memory_bytes: Some(64 * MIB), ..Limits::default() };
    let sandbox = harness.sandbox_with(&SandboxSpec { limits, ..harness.spec() }).await;
    assert_eq!(sandbox.sh("kill -9 $$").await.ending, Ending::Signaled(9));
    assert_eq!(sandbox.sh("exit 137").await.ending, Ending::Exited(137));
    assert_eq!(sandbox.sh(HUNGER).await.ending, Ending::OutOfMemory);
    // An earlier kill for lack of memory does not affect the next ending.
    assert_eq!(sandbox.sh("kill -9 $$").await.ending, Ending::Signaled(9));
    assert_eq!(sandbox.run(&["true"]).await.ending, Ending::Exited(0));
}

pub(crate) async fn memory_is_the_sandboxes_own(harness: &Harness) {
    let other = harness.sandbox().await;
    let limits = Limits { memory_bytes: Some(64 * MIB), ..Limits::default() };
    ending(harness, limits, HUNGER).await;
    assert_eq!(other.run(&["true"]).await.ending, Ending::Exited(0));
}

pub(crate) async fn processes_run_out(harness: &Harness) {
    let limits = Limits { processes: Some(30), ..Limits::default() };
    let sandbox = harness.sandbox_with(&SandboxSpec { limits, ..harness.spec() }).await;
    let finished = sandbox
        .sh("i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); echo $i; done 2>&1; echo all")
        .await;
    // A shell that cannot fork exits, or continues and prints errors.
    let started = finished.output();
    let complaints = started.lines().filter(|line| line.parse::<u32>().is_err() && *line != "all");
    let failed = finished.ending != Ending::Exited(0) || complaints.count() > 0;
    assert!(failed, "100 processes were started: {:?}", finished.ending);
}

/// Growth is limited, however many commands contribute to it, and a sandbox can be cleaned up.
pub(crate) async fn the_disk_does_not_run_out_bit_by_bit(harness: &Harness) {
    let limits = Limits { disk_bytes: Some(16 * MIB), ..Limits::default() };
    let sandbox = harness.sandbox_with(&SandboxSpec { limits, ..harness.spec() }).await;
    sandbox.sh("head -c 24000000 /dev/zero > /data/first; sleep 3").await;
    assert_eq!(sandbox.sh("rm /data/first; echo gone").await.output(), "gone\n");
    assert_eq!(sandbox.sh("sleep 1; echo here").await.output(), "here\n");
    let mut refused = 0;
    for number in 0..12 {
        let text = format!("head -c 2000000000 /dev/zero > /data/{number}; sleep 3");
        let exec = harness.exec_id();
        match sandbox.try_start(&exec, &script(&text)).await {
            Ok(started) => {
                let running = Running::new(exec, started, Offsets::default());
                assert_ne!(running.finish().await.ending, Ending::Exited(0));
            }
            Err(Error::Exceeded { limit: LimitName::Disk, .. }) => refused += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(refused >= 6, "{refused} of 12 commands were refused");
}

pub(crate) async fn the_disk_runs_out(harness: &Harness) {
    let limits = Limits { disk_bytes: Some(16 * MIB), ..Limits::default() };
    let sandbox = harness.sandbox_with(&SandboxSpec { limits, ..harness.spec() }).await;
    let text = "i=0; while [ $i -lt 64 ]; do
                    dd if=/dev/zero of=/data/$i bs=1048576 count=16 2>/dev/null || exit 9
                    sync; i=$((i+1))
                done";
    let ending = sandbox.sh(text).await.ending;
    let held =
        matches!(ending, Ending::Exited(9) | Ending::LimitExceeded(_) | Ending::SandboxEnded);
    assert!(held, "a gigabyte was written: {ending:?}");
}
