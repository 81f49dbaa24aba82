//! The output of a command is received completely and in order, and then its end, whatever happens
//! to it.

use std::time::Duration;

use super::super::harness::{Harness, eventually, within};
use super::super::running::{Finished, Running};
use super::super::sandbox::{Sandbox, script};
use crate::exec::{Command, Ending, Offsets};

/// Runs until the file `/data/go` exists.
const WAIT: &str = "while [ ! -e /data/go ]; do sleep 0.05; done";

pub(crate) async fn silence_has_an_end(harness: &Harness) {
    let finished = harness.sandbox().await.run(&["true"]).await;
    assert_eq!(finished.ending, Ending::Exited(0));
    assert_eq!(finished.length(), 0);
}

pub(crate) async fn output_is_whole_and_in_order(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let lines = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done";
    let finished = sandbox.sh(lines).await;
    assert_eq!(finished.ending, Ending::Exited(0));
    let expected: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
    assert!(finished.output() == expected, "{} bytes came", finished.output.len());
}

pub(crate) async fn the_two_streams_are_told_apart(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = "echo one; echo two >&2; echo three; echo four >&2; exit 5";
    let finished = sandbox.sh(text).await;
    assert_eq!(finished.ending, Ending::Exited(5));
    assert_eq!(finished.output(), "one\nthree\n");
    assert_eq!(finished.error(), "two\nfour\n");
}

pub(crate) async fn any_byte_may_come(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let finished = sandbox.sh(r"printf '\000\001\377\012\r\200'; printf '\000' >&2").await;
    assert_eq!(finished.output, b"\0\x01\xff\n\r\x80");
    assert_eq!(finished.error, b"\0");
}

pub(crate) async fn output_is_heard_while_a_command_runs(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let mut running = sandbox.start(&script(&format!("printf begun; {WAIT}; echo over"))).await;
    running.wait_for_output("begun").await;
    sandbox.write("/data/go", "").await;
    let finished = running.finish().await;
    assert_eq!(finished.output(), "begunover\n");
}

/// Two readers receive the same; a reader that disconnects does not affect the other.
pub(crate) async fn everybody_hears_everything(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let first = sandbox.start(&script(&format!("echo begun; {WAIT}; echo over; exit 4"))).await;
    let exec = first.exec.clone();
    let mut second = sandbox.attach(&exec, Offsets::default()).await;
    second.wait_for_output("begun").await;
    drop(first);
    let third = sandbox.attach(&exec, Offsets::default()).await;
    sandbox.write("/data/go", "").await;
    for listener in [second, third] {
        let finished = listener.finish().await;
        assert_eq!(finished.output(), "begun\nover\n");
        assert_eq!(finished.ending, Ending::Exited(4));
    }
}

/// More than any backend buffers without a reader.
const FLOOD_BYTES: u64 = 64 << 20;

/// A command that writes [`FLOOD_BYTES`], and then a word to the other stream.
fn flood() -> Command {
    script(&format!("head -c {FLOOD_BYTES} /dev/zero; echo over >&2"))
}

/// Every byte was received, and nothing was lost.
fn is_whole(finished: &Finished) {
    assert_eq!(finished.ending, Ending::Exited(0));
    let offsets = Offsets { output: FLOOD_BYTES, error: 5 };
    assert_eq!((finished.offsets, finished.lost), (offsets, 0));
}

/// Receives a few events slowly.
async fn dawdle(running: &mut Running) {
    within("the first events", async {
        for _ in 0..20 {
            assert!(running.step().await, "64 MiB in 20 events");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// The command waits for a slow reader, as it would for a pipe.
pub(crate) async fn a_slow_reader_misses_nothing(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let mut running = sandbox.start(&flood()).await.count_only();
    dawdle(&mut running).await;
    is_whole(&running.finish().await);
    let to_error = script(&format!("head -c {FLOOD_BYTES} /dev/zero >&2"));
    let mut running = sandbox.start(&to_error).await.count_only();
    dawdle(&mut running).await;
    let finished = running.finish().await;
    assert_eq!((finished.offsets.error, finished.lost), (FLOOD_BYTES, 0));
}

/// It waits for the slowest of its readers, but not for one that has disconnected.
pub(crate) async fn who_stops_listening_is_not_waited_for(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let slow = sandbox.start(&flood()).await;
    let mut quick = sandbox.attach(&slow.exec, Offsets::default()).await.count_only();
    dawdle(&mut quick).await;
    let ending = async || {
        let status = sandbox.inspect().await.unwrap();
        let exec = status.execs.into_iter().find(|exec| exec.id == slow.exec).expect("the command");
        assert!(exec.ending.is_some() || exec.written.output < FLOOD_BYTES, "{exec:?}");
        exec.ending
    };
    assert_eq!(ending().await, None, "it has not waited for who does not read");
    let exec = slow.exec.clone();
    drop(slow);
    is_whole(&quick.finish().await);
    // Without a reader, the command does not wait.
    let alone = sandbox.start(&flood()).await.exec.clone();
    eventually("the end of a command to which nobody listens", async || {
        let status = sandbox.inspect().await.unwrap();
        status.execs.iter().any(|exec| exec.id == alone && exec.ending.is_some())
    })
    .await;
    for exec in [exec, alone] {
        let late = sandbox.attach(&exec, Offsets::default()).await.count_only().finish().await;
        assert_eq!(late.offsets.output, FLOOD_BYTES);
        let received = FLOOD_BYTES - late.lost;
        assert!(received >= 1 << 20, "only {received} bytes of {FLOOD_BYTES} were kept");
    }
}

/// A slow reader delays nothing else: a command that waits for its reader can be ended immediately.
pub(crate) async fn who_does_not_read_holds_up_nobody_else(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let endless = script("while :; do head -c 1000000 /dev/zero; done");
    let limit_bytes = FLOOD_BYTES / 2;
    let limited = Command { output_limit_bytes: Some(limit_bytes), ..endless.clone() };
    let limited = sandbox.start(&limited).await.count_only();
    let timed = Command { timeout: Some(Duration::from_secs(1)), ..endless.clone() };
    let timed = sandbox.start(&timed).await.count_only();
    let killed = sandbox.start(&endless).await.count_only();
    let ended = sandbox.start(&endless).await.count_only();
    let other = harness.sandbox().await;
    for sandbox in [&sandbox, &other] {
        assert_eq!(sandbox.run(&["echo", "here"]).await.output(), "here\n");
    }
    eventually("the end of a command whose time is up", async || {
        let status = sandbox.inspect().await.unwrap();
        status.execs.iter().any(|exec| exec.id == timed.exec && exec.ending.is_some())
    })
    .await;
    sandbox.kill(&killed.exec).await;
    for (running, ending) in [(timed, Ending::TimedOut), (killed, Ending::Killed)] {
        let finished = running.finish().await;
        assert_eq!((finished.ending, finished.lost), (ending, 0));
    }
    let finished = limited.finish().await;
    let whole = Offsets { output: limit_bytes, error: 0 };
    assert_eq!((&finished.ending, finished.lost), (&Ending::OutputExceeded, 0));
    assert_eq!(finished.offsets, whole);
    sandbox.cleanup().await;
    assert_eq!(ended.finish().await.ending, Ending::SandboxEnded);
}

pub(crate) async fn closed_streams_are_not_the_end(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = format!("echo begun; exec >&- 2>&-; : > /data/closed; {WAIT}; exit 3");
    let mut running = sandbox.start(&script(&text)).await;
    running.wait_for_output("begun").await;
    sandbox.appears("/data/closed").await;
    // A backend that mistook this for the end would report it before the next command's.
    assert_eq!(sandbox.run(&["true"]).await.ending, Ending::Exited(0));
    let status = sandbox.inspect().await.unwrap();
    let exec = status.execs.iter().find(|exec| exec.id == running.exec).expect("the command");
    assert_eq!(exec.ending, None);
    sandbox.write("/data/go", "").await;
    assert_eq!(running.finish().await.ending, Ending::Exited(3));
}

/// A remaining child holds the streams open, but the end is reported nevertheless. The child keeps
/// running.
pub(crate) async fn children_that_stay_are_no_reason_to_wait(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let finished = sandbox
        .sh("(while :; do echo beat >> /data/beats; sleep 0.05; done) & echo left; exit 6")
        .await;
    assert_eq!(finished.ending, Ending::Exited(6));
    assert_eq!(finished.output(), "left\n");
    let beats = sandbox.size("/data/beats").await;
    sandbox.grows_beyond("/data/beats", beats).await;
}

async fn ends_like(sandbox: &Sandbox<'_>, words: &str, ending: Ending) {
    let mut running = sandbox.start(&script(&format!("printf begun; {words}"))).await;
    running.wait_for_output("begun").await;
    match ending {
        Ending::Killed => sandbox.kill(&running.exec).await,
        Ending::Signaled(signal) => sandbox.signal(&running.exec, signal).await,
        Ending::SandboxEnded => sandbox.cleanup().await,
        _ => {}
    }
    let finished = running.finish().await;
    assert_eq!(finished.output(), "begun");
    assert_eq!(finished.ending, ending);
}

/// Whatever ends a command, its earlier output is received first.
pub(crate) async fn every_end_is_told(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    ends_like(&sandbox, "exit 255", Ending::Exited(255)).await;
    ends_like(&sandbox, "exec sleep 1000", Ending::Killed).await;
    ends_like(&sandbox, "exec sleep 1000", Ending::Signaled(15)).await;
    ends_like(&sandbox, "exec sleep 1000", Ending::Signaled(9)).await;
    ends_like(&sandbox, "sleep 1000; :", Ending::SandboxEnded).await;
}

/// More than any backend may buffer.
pub(crate) async fn ten_gigabytes_pass(harness: &Harness) {
    const LENGTH: u64 = 10 << 30;
    let sandbox = harness.sandbox().await;
    let flood = script(&format!("head -c {LENGTH} /dev/zero"));
    let running = sandbox.start(&flood).await.count_only();
    let finished = running.finish_within(Duration::from_secs(240)).await;
    assert_eq!(finished.ending, Ending::Exited(0));
    assert_eq!(finished.offsets.output, LENGTH);
}
