//! A paused sandbox does nothing, and continues unchanged when it is resumed.

use std::time::Duration;

use stockade_core::SandboxSpec;

use super::super::harness::{Harness, eventually};
use super::super::running::Running;
use super::super::sandbox::{Sandbox, command, script};
use crate::error::Error;
use crate::exec::{Command, Ending};
use crate::state::State;

/// How long to check that something does not happen which would otherwise happen many times.
const WHILE: Duration = Duration::from_millis(500);

/// Starts a command that appends to a file continuously.
async fn counter(sandbox: &Sandbox<'_>) -> Running {
    let text = "while :; do echo x >> /data/count; sleep 0.02; done";
    let running = sandbox.start(&script(text)).await;
    sandbox.grows_beyond("/data/count", 4).await;
    running
}

async fn count(sandbox: &Sandbox<'_>) -> u64 {
    sandbox.size("/data/count").await
}

async fn stands_still(sandbox: &Sandbox<'_>) {
    let before = count(sandbox).await;
    tokio::time::sleep(WHILE).await;
    assert_eq!(count(sandbox).await, before, "it counts while it is paused");
}

async fn state(sandbox: &Sandbox<'_>) -> State {
    sandbox.inspect().await.unwrap().state
}

pub(crate) async fn it_is_told(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    for _ in 0..3 {
        sandbox.pause().await;
        assert_eq!(state(&sandbox).await, State::Paused);
        sandbox.resume().await;
        assert_eq!(state(&sandbox).await, State::Running);
    }
    assert_eq!(sandbox.run(&["echo", "on"]).await.output(), "on\n");
}

pub(crate) async fn twice_is_once(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.resume().await;
    sandbox.pause().await;
    sandbox.pause().await;
    assert_eq!(state(&sandbox).await, State::Paused);
    sandbox.resume().await;
    sandbox.resume().await;
    assert_eq!(state(&sandbox).await, State::Running);
}

pub(crate) async fn processes_stop_and_go_on(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = counter(&sandbox).await;
    sandbox.good("(setsid sh -c 'while :; do echo y >> /data/daemon; sleep 0.02; done' &)").await;
    sandbox.grows_beyond("/data/daemon", 4).await;
    for _ in 0..2 {
        sandbox.pause().await;
        let daemon = sandbox.size("/data/daemon").await;
        stands_still(&sandbox).await;
        assert_eq!(sandbox.size("/data/daemon").await, daemon);
        sandbox.resume().await;
        sandbox.grows_beyond("/data/count", count(&sandbox).await).await;
        sandbox.grows_beyond("/data/daemon", daemon).await;
    }
    sandbox.kill(&running.exec).await;
    assert_eq!(running.finish().await.ending, Ending::Killed);
}

pub(crate) async fn nothing_is_started(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let exec = harness.exec_id();
    sandbox.pause().await;
    let refused = sandbox.try_start(&exec, &command(&["true"])).await;
    assert!(matches!(refused, Err(Error::WrongState { state: State::Paused, .. })), "{refused:?}");
    sandbox.resume().await;
    // The id is still free.
    let finished = sandbox.start_as(&exec, &command(&["echo", "now"])).await.finish().await;
    assert_eq!(finished.output(), "now\n");
}

pub(crate) async fn what_runs_loses_nothing(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = "echo begun; i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; exit 3";
    let mut running = sandbox.start(&script(text)).await;
    running.wait_for_output("begun").await;
    for _ in 0..5 {
        sandbox.pause().await;
        sandbox.resume().await;
    }
    let finished = running.finish().await;
    assert_eq!(finished.ending, Ending::Exited(3));
    let lines: String = (0..2000).map(|number| format!("line {number}\n")).collect();
    assert!(finished.output() == format!("begun\n{lines}"), "{}", finished.output.len());
}

pub(crate) async fn a_lease_ends_all_the_same(harness: &Harness) {
    let spec = SandboxSpec { lease: Some(Duration::from_secs(6)), ..harness.spec() };
    let sandbox = harness.sandbox_with(&spec).await;
    let running = sandbox.start(&command(&["sleep", "1000"])).await;
    sandbox.pause().await;
    assert_eq!(running.finish().await.ending, Ending::SandboxEnded);
    eventually("the end of a lease", async || sandbox.has_ended().await).await;
}

pub(crate) async fn the_time_is_up_meanwhile(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let other = counter(&sandbox).await;
    let timeout = Some(Duration::from_secs(1));
    let running = sandbox.start(&Command { timeout, ..command(&["sleep", "1000"]) }).await;
    sandbox.pause().await;
    assert_eq!(running.finish().await.ending, Ending::TimedOut);
    ends_alone(&sandbox, other).await;
}

pub(crate) async fn what_is_paused_can_be_killed(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let other = counter(&sandbox).await;
    let left = script("(setsid sleep 1000 &); exec sleep 1000");
    let (first, second) = (sandbox.start(&left).await, sandbox.start(&left).await);
    sandbox.pause().await;
    for running in [first, second] {
        sandbox.kill(&running.exec).await;
        assert_eq!(running.finish().await.ending, Ending::Killed);
    }
    ends_alone(&sandbox, other).await;
}

/// Checks that ending a command in a paused sandbox resumes nothing else, and that the rest resumes
/// after the pause.
async fn ends_alone(sandbox: &Sandbox<'_>, other: Running) {
    assert_eq!(state(sandbox).await, State::Paused);
    stands_still(sandbox).await;
    sandbox.resume().await;
    sandbox.grows_beyond("/data/count", count(sandbox).await).await;
    sandbox.kill(&other.exec).await;
    assert_eq!(other.finish().await.ending, Ending::Killed);
    assert_eq!(sandbox.run(&["true"]).await.ending, Ending::Exited(0));
}

pub(crate) async fn what_is_paused_is_cleaned_up(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = sandbox.start(&command(&["sleep", "1000"])).await;
    sandbox.pause().await;
    sandbox.cleanup().await;
    assert_eq!(running.finish().await.ending, Ending::SandboxEnded);
    let gone = sandbox.inspect().await;
    assert!(matches!(gone, Err(Error::NoSandbox(_))), "{gone:?}");
}

pub(crate) async fn files_can_be_reached(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.pause().await;
    sandbox.write("/data/file", "while paused").await;
    assert_eq!(sandbox.read("/data/file").await, "while paused");
    sandbox.resume().await;
    assert_eq!(sandbox.run(&["cat", "/data/file"]).await.output(), "while paused");
}
