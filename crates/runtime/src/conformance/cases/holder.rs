//! The process that holds the sandboxes is killed, and nothing of them is lost: not a byte of
//! output, not an exit, not a lease.

use std::time::Duration;

use stockade_core::SandboxSpec;

use super::super::harness::{Harness, eventually, within};
use super::super::sandbox::{Sandbox, command, script};
use crate::capability::Capability;
use crate::error::Error;
use crate::exec::{Command, Ending, Offsets, StandardInput};
use crate::state::State;

/// Writes numbered lines until the test ends it.
const LINES: &str = "i=0; while [ ! -e /data/go ]; do echo line $i; i=$((i+1)); sleep 0.01; done
                     echo $i lines; exit 7";

/// Checks that the output of [`LINES`] is complete.
fn are_whole(output: &str) {
    let mut lines: Vec<&str> = output.lines().collect();
    let last = lines.pop().expect("a last line");
    assert_eq!(last, format!("{} lines", lines.len()));
    for (number, line) in lines.into_iter().enumerate() {
        assert_eq!(line, format!("line {number}"));
    }
}

async fn replace(harness: &Harness) {
    harness.kill_holder().await;
    harness.reopen().await;
}

/// Output from before, during and after the kill is received, from the reader's previous offset.
pub(crate) async fn a_command_goes_on(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let mut first = sandbox.start(&script(LINES)).await;
    first.wait_for_output("line 5\n").await;
    let (exec, offsets) = (first.exec.clone(), first.offsets());
    drop(first);
    replace(harness).await;
    let mut second = sandbox.attach(&exec, offsets).await;
    assert!(within("more output", second.step()).await);
    drop(second);
    replace(harness).await;
    sandbox.write("/data/go", "").await;
    let whole = sandbox.attach(&exec, Offsets::default()).await.finish().await;
    assert_eq!((whole.ending, whole.lost), (Ending::Exited(7), 0));
    let output = String::from_utf8(whole.output).unwrap();
    are_whole(&output);
    let rest = sandbox.attach(&exec, offsets).await.finish().await;
    let start = usize::try_from(offsets.output).unwrap();
    assert_eq!(rest.output(), output[start..]);
}

/// An end that no process observed is known nevertheless.
pub(crate) async fn an_end_meanwhile_is_told(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = "echo begun; sleep 2; echo over; echo error >&2; exit 9";
    let mut first = sandbox.start(&script(text)).await;
    first.wait_for_output("begun").await;
    let exec = first.exec.clone();
    drop(first);
    harness.kill_holder().await;
    // No process is there to observe the end. If a slow machine delays it until later, the case
    // tests less.
    tokio::time::sleep(Duration::from_secs(4)).await;
    harness.reopen().await;
    let finished = sandbox.attach(&exec, Offsets::default()).await.finish().await;
    assert_eq!((finished.output(), finished.error()), ("begun\nover\n".into(), "error\n".into()));
    assert_eq!(finished.ending, Ending::Exited(9));
}

pub(crate) async fn it_is_killed_while_much_is_written(harness: &Harness) {
    const LENGTH: u64 = 32 << 20;
    let sandbox = harness.sandbox().await;
    let text = format!("head -c {LENGTH} /dev/zero | tr '\\0' x; echo over >&2");
    let mut running = sandbox.start(&script(&text)).await.count_only();
    let exec = running.exec.clone();
    assert!(within("some output", running.step()).await);
    drop(running);
    for _ in 0..3 {
        replace(harness).await;
        // The next holder is started when it is needed.
        sandbox.inspect().await.unwrap();
    }
    let finished = sandbox.attach(&exec, Offsets::default()).await.count_only().finish().await;
    assert_eq!(finished.ending, Ending::Exited(0));
    assert_eq!(finished.offsets, Offsets { output: LENGTH, error: 5 });
}

/// A command waits for a reader that is changing from one holder to the next.
pub(crate) async fn a_slow_reader_misses_nothing(harness: &Harness) {
    const FLOOD_BYTES: u64 = 64 << 20;
    let sandbox = harness.sandbox().await;
    let flood = script(&format!("head -c {FLOOD_BYTES} /dev/zero; exit 5"));
    let mut running = sandbox.start(&flood).await.count_only();
    for _ in 0..2 {
        within("some events", async {
            for _ in 0..20 {
                assert!(running.step().await, "64 MiB in 40 events");
            }
        })
        .await;
        replace(harness).await;
        // The next holder is running, and has time to read all that it can.
        assert_eq!(sandbox.run(&["sleep", "1"]).await.ending, Ending::Exited(0));
    }
    let finished = running.finish().await;
    assert_eq!(
        (finished.ending, finished.offsets.output, finished.lost),
        (Ending::Exited(5), FLOOD_BYTES, 0)
    );
}

pub(crate) async fn input_goes_on(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let taking = Command { input: StandardInput::Streamed, ..command(&["cat"]) };
    let mut first = sandbox.start(&taking).await;
    first.write("before ").await;
    first.wait_for_output("before ").await;
    let exec = first.exec.clone();
    drop(first);
    replace(harness).await;
    let second = sandbox.attach(&exec, Offsets::default()).await;
    second.write("after").await;
    second.close().await;
    let finished = second.finish().await;
    assert_eq!((finished.output(), finished.ending), ("before after".into(), Ending::Exited(0)));
}

/// If the holder is killed right after it has started a command, or during the start, no input is
/// lost.
pub(crate) async fn input_that_was_given_is_whole(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let bytes: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let input = StandardInput::Whole(bytes.clone());
    let text = "echo ran >> /data/runs; while [ ! -e /data/go ]; do sleep 0.05; done; exec cat";
    let reading = Command { input, ..script(text) };
    let exec = harness.exec_id();
    let started = async {
        // The command may or may not have been started before the kill.
        let _ = sandbox.try_start(&exec, &reading).await;
    };
    tokio::join!(started, harness.kill_holder());
    harness.reopen().await;
    drop(sandbox.start_as(&exec, &reading).await);
    replace(harness).await;
    sandbox.write("/data/go", "").await;
    let finished = sandbox.attach(&exec, Offsets::default()).await.finish().await;
    assert_eq!(finished.ending, Ending::Exited(0));
    assert!(finished.output == bytes, "{} bytes came", finished.output.len());
    assert_eq!(sandbox.read("/data/runs").await, "ran\n");
}

/// A connected reader receives the end, or that it is unknown; it never waits forever.
pub(crate) async fn who_listens_is_not_left_waiting(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let mut running = sandbox.start(&script("echo begun; sleep 1; echo over; exit 3")).await;
    running.wait_for_output("begun").await;
    let exec = running.exec.clone();
    replace(harness).await;
    let ending = running.finish().await.ending;
    assert!(matches!(ending, Ending::Exited(3) | Ending::Unknown), "{ending:?}");
    let finished = sandbox.attach(&exec, Offsets::default()).await.finish().await;
    assert_eq!((finished.output(), finished.ending), ("begun\nover\n".into(), Ending::Exited(3)));
}

pub(crate) async fn sandboxes_are_found_again(harness: &Harness) {
    let labels = [("case".to_owned(), harness.name())].into();
    let lease = Some(Duration::from_secs(3600));
    let environment = [("OWN".to_owned(), "kept".into())].into();
    let spec = SandboxSpec { labels, lease, environment, ..harness.spec() };
    let sandbox = harness.sandbox_with(&spec).await;
    sandbox.write("/data/file", "kept").await;
    let before = sandbox.inspect().await.unwrap();
    replace(harness).await;
    let after = sandbox.inspect().await.unwrap();
    assert_eq!(after.state, State::Running);
    assert_eq!((after.created_at_ms, &after.labels), (before.created_at_ms, &before.labels));
    assert_eq!(after.isolation, before.isolation);
    assert!(after.lease_left.is_some_and(|left| left <= before.lease_left.unwrap()));
    assert_eq!(harness.runtime().list(&spec.labels).await.unwrap().len(), 1);
    let again = harness.runtime().create(sandbox.id(), &spec).await.unwrap();
    assert_eq!(again.created_at_ms, before.created_at_ms);
    let other = SandboxSpec { lease: None, ..spec };
    let conflict = harness.runtime().create(sandbox.id(), &other).await;
    assert!(matches!(conflict, Err(Error::Conflict(_))), "{conflict:?}");
    assert_eq!(sandbox.good("cat /data/file; echo $OWN").await, "keptkept\n");
}

pub(crate) async fn leases_end_all_the_same(harness: &Harness) {
    let spec = SandboxSpec { lease: Some(Duration::from_secs(6)), ..harness.spec() };
    let sandbox = harness.sandbox_with(&spec).await;
    let lasting = harness.sandbox().await;
    replace(harness).await;
    eventually("the end of a lease", async || sandbox.has_ended().await).await;
    assert_eq!(lasting.run(&["true"]).await.ending, Ending::Exited(0));
}

pub(crate) async fn timeouts_end_all_the_same(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let timeout = Some(Duration::from_secs(4));
    let running = sandbox.start(&Command { timeout, ..command(&["sleep", "1000"]) }).await;
    let exec = running.exec.clone();
    drop(running);
    replace(harness).await;
    let finished = sandbox.attach(&exec, Offsets::default()).await.finish().await;
    assert_eq!(finished.ending, Ending::TimedOut);
}

pub(crate) async fn nothing_runs_twice(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let (ended, running) = (harness.exec_id(), harness.exec_id());
    let once = script("echo ended >> /data/runs; echo done");
    let long = script("echo running >> /data/runs; exec sleep 1000");
    sandbox.start_as(&ended, &once).await.finish().await;
    drop(sandbox.start_as(&running, &long).await);
    sandbox.grows_beyond("/data/runs", 10).await;
    replace(harness).await;
    let again = sandbox.start_as(&ended, &once).await.finish().await;
    assert_eq!((again.output(), again.ending), ("done\n".into(), Ending::Exited(0)));
    let again = sandbox.start_as(&running, &long).await;
    sandbox.kill(&running).await;
    assert_eq!(again.finish().await.ending, Ending::Killed);
    assert_eq!(sandbox.read("/data/runs").await, "ended\nrunning\n");
    // An acknowledged command stays acknowledged.
    harness.runtime().acknowledge(sandbox.id(), &ended).await.unwrap();
    replace(harness).await;
    let attached = harness.runtime().attach(sandbox.id(), &ended, Offsets::default()).await;
    assert!(matches!(attached, Err(Error::NoExec { .. })), "{attached:?}");
}

pub(crate) async fn a_pause_outlasts_it(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = sandbox.start(&script(LINES)).await;
    let exec = running.exec.clone();
    drop(running);
    sandbox.pause().await;
    replace(harness).await;
    assert_eq!(sandbox.inspect().await.unwrap().state, State::Paused);
    sandbox.resume().await;
    sandbox.write("/data/go", "").await;
    let finished = sandbox.attach(&exec, Offsets::default()).await.finish().await;
    assert_eq!(finished.ending, Ending::Exited(7));
    are_whole(&finished.output());
}

async fn is_whole(sandbox: &Sandbox<'_>) {
    assert_eq!(sandbox.read("/data/file").await, "kept");
    assert_eq!(sandbox.run(&["echo", "alive"]).await.output(), "alive\n");
}

/// Many kills, with all features in use.
pub(crate) async fn again_and_again(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/file", "kept").await;
    let can_keep = harness.runtime().supports(Capability::Snapshot).await.is_ok();
    let stored = harness.snapshot_id();
    if can_keep {
        harness.runtime().snapshot(sandbox.id(), &stored).await.unwrap();
    }
    for _ in 0..5 {
        replace(harness).await;
        is_whole(&sandbox).await;
    }
    if can_keep {
        let id = harness.id();
        harness.runtime().restore(&stored, &id, &harness.spec()).await.unwrap();
        is_whole(&Sandbox::new(harness, id)).await;
    }
    replace(harness).await;
    sandbox.cleanup().await;
    assert!(matches!(sandbox.inspect().await, Err(Error::NoSandbox(_))));
}
