//! The loss of a client has no effect on sandboxes: another client finds everything unchanged.

use super::super::harness::Harness;
use super::super::sandbox::{command, script};
use crate::error::Error;
use crate::exec::{Command, Ending, Offsets, StandardInput};
use crate::state::State;

pub(crate) async fn a_sandbox_is_found_again(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/file", "kept").await;
    let before = sandbox.inspect().await.unwrap();
    harness.reopen().await;
    assert_eq!(sandbox.inspect().await.unwrap(), before);
    assert_eq!(sandbox.read("/data/file").await, "kept");
    let again = harness.runtime().create(sandbox.id(), &harness.spec()).await.unwrap();
    assert_eq!(again.created_at_ms, before.created_at_ms);
    assert_eq!(sandbox.run(&["echo", "alive"]).await.output(), "alive\n");
}

pub(crate) async fn a_command_is_found_again(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let taking = Command { input: StandardInput::Streamed, ..command(&["cat"]) };
    let mut first = sandbox.start(&taking).await;
    first.write("before ").await;
    first.wait_for_output("before ").await;
    let (exec, offsets) = (first.exec.clone(), first.offsets());
    drop(first);
    harness.reopen().await;
    let second = sandbox.attach(&exec, offsets).await;
    second.write("after").await;
    second.close().await;
    let finished = second.finish().await;
    assert_eq!((finished.output(), finished.ending), ("after".into(), Ending::Exited(0)));
    let whole = sandbox.attach(&exec, Offsets::default()).await.finish().await;
    assert_eq!(whole.output(), "before after");
}

/// The next client receives an end that occurred while no client was connected.
pub(crate) async fn an_end_is_not_missed(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = "echo begun; while [ ! -e /data/go ]; do sleep 0.05; done; echo over; exit 7";
    let mut first = sandbox.start(&script(text)).await;
    first.wait_for_output("begun").await;
    let exec = first.exec.clone();
    drop(first);
    sandbox.write("/data/go", "").await;
    harness.reopen().await;
    let finished = sandbox.attach(&exec, Offsets::default()).await.finish().await;
    assert_eq!((finished.output(), finished.ending), ("begun\nover\n".into(), Ending::Exited(7)));
    let again = sandbox.start_as(&exec, &script(text)).await.finish().await;
    assert_eq!(again.output(), "begun\nover\n");
}

pub(crate) async fn a_pause_outlasts_its_client(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.pause().await;
    harness.reopen().await;
    assert_eq!(sandbox.inspect().await.unwrap().state, State::Paused);
    sandbox.resume().await;
    assert_eq!(sandbox.run(&["echo", "on"]).await.output(), "on\n");
}

pub(crate) async fn what_was_left_is_cleaned_up(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = sandbox.start(&command(&["sleep", "1000"])).await;
    drop(running);
    harness.reopen().await;
    sandbox.cleanup().await;
    assert!(matches!(sandbox.inspect().await, Err(Error::NoSandbox(_))));
}
