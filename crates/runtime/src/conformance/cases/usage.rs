//! The resource use of a sandbox is reported, or why it is not.

use std::time::Duration;

use super::super::harness::{Harness, within};
use super::super::sandbox::{Sandbox, command};
use crate::error::Error;
use crate::usage::Usage;

const MIB: u64 = 1 << 20;

async fn used(sandbox: &Sandbox<'_>) -> Usage {
    let used = within("what is used", sandbox.runtime().usage(sandbox.id())).await;
    let used = used.unwrap_or_else(|error| panic!("what is used: {error:?}"));
    let all_are_told = used.memory_bytes.is_some()
        && used.cpu_time.is_some()
        && used.processes.is_some()
        && used.disk_bytes.is_some();
    assert!(all_are_told || !used.reasons.is_empty(), "nobody says why: {used:?}");
    used
}

pub(crate) async fn it_grows_with_what_is_done(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let before = used(&sandbox).await;
    sandbox.write("/data/file", vec![b'x'; usize::try_from(MIB).unwrap_or_default()]).await;
    let running = sandbox.start(&command(&["sleep", "1000"])).await;
    let after = used(&sandbox).await;
    if let (Some(before), Some(after)) = (before.disk_bytes, after.disk_bytes) {
        assert!(after >= before + MIB, "a file of 1 MiB: {before} and {after}");
    }
    if let (Some(before), Some(after)) = (before.processes, after.processes) {
        assert!(after > before, "one more command: {before} and {after}");
    }
    assert_ne!(after.memory_bytes, Some(0));
    drop(running);
}

pub(crate) async fn the_time_of_what_has_ended_counts(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let Some(before) = used(&sandbox).await.cpu_time else { return };
    sandbox.good("n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done").await;
    let after = used(&sandbox).await.cpu_time;
    let enough = before + Duration::from_millis(20);
    assert!(after.is_some_and(|after| after >= enough), "{before:?} and {after:?}");
}

pub(crate) async fn of_nothing_there_is_none(harness: &Harness) {
    let used = within("what is used", harness.runtime().usage(&harness.id())).await;
    assert!(matches!(used, Err(Error::NoSandbox(_))), "{used:?}");
}
