//! The state of a file system is stored, and sandboxes start from it.

use std::time::Duration;

use stockade_core::sandbox::Root;
use stockade_core::{SandboxId, SandboxSpec, SnapshotId};

use super::super::harness::{Harness, eventually, path, within};
use super::super::sandbox::{Sandbox, command, content, script};
use crate::error::{Error, Result};
use crate::exec::Ending;
use crate::files::{FileKind, WriteOptions};
use crate::runtime::{EndCause, SnapshotInfo};
use crate::state::State;

async fn take(sandbox: &Sandbox<'_>, id: &SnapshotId) -> Result<SnapshotInfo> {
    within("a snapshot", sandbox.runtime().snapshot(sandbox.id(), id)).await
}

async fn snapshot(harness: &Harness, sandbox: &Sandbox<'_>) -> SnapshotId {
    let id = harness.snapshot_id();
    let info = take(sandbox, &id).await.expect("a snapshot");
    assert_eq!((&info.id, &info.sandbox), (&id, sandbox.id()));
    id
}

async fn restore<'a>(harness: &'a Harness, snapshot: &SnapshotId) -> Sandbox<'a> {
    let (runtime, id) = (harness.runtime(), harness.id());
    let restored = within("a sandbox", runtime.restore(snapshot, &id, &harness.spec())).await;
    assert_eq!(restored.expect("a sandbox").state, State::Running);
    Sandbox::new(harness, id)
}

async fn all(harness: &Harness) -> Vec<SnapshotInfo> {
    within("all snapshots", harness.runtime().snapshots()).await.expect("all snapshots")
}

pub(crate) async fn what_was_is_again(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let (runtime, id) = (sandbox.runtime(), sandbox.id());
    let options = WriteOptions { mode: 0o640, ..WriteOptions::default() };
    let file = path("/data/deep/file");
    within("writing", runtime.write_file(id, &file, content("kept"), options)).await.unwrap();
    let empty = path("/data/empty");
    let options = WriteOptions { mode: 0o750, ..options };
    within("a directory", runtime.make_directory(id, &empty, options)).await.unwrap();
    sandbox.write("/data/odd \n name", "odd").await;
    sandbox.write("/data/gone", "gone").await;
    within("a removal", runtime.remove(id, &path("/data/gone"))).await.unwrap();
    let stored = snapshot(harness, &sandbox).await;

    let restored = restore(harness, &stored).await;
    assert_eq!(restored.read("/data/deep/file").await, "kept");
    assert_eq!(restored.read("/data/odd \n name").await, "odd");
    assert_eq!(restored.names("/data").await, [&b"deep"[..], b"empty", b"odd \n name"]);
    assert_eq!(restored.stat("/data/deep/file").await.unwrap().mode & 0o777, 0o640);
    let empty = restored.stat("/data/empty").await.unwrap();
    assert_eq!((empty.kind, empty.mode & 0o777), (FileKind::Directory, 0o750));
}

/// A file that was deleted before the second snapshot is missing in a sandbox from it.
pub(crate) async fn deletions_are_kept(harness: &Harness) {
    let first = harness.sandbox().await;
    first.write("/data/one", "1").await;
    first.write("/data/two", "2").await;
    first.write("/data/tree/deep/file", "3").await;
    let second = restore(harness, &snapshot(harness, &first).await).await;
    let (runtime, id) = (second.runtime(), second.id());
    within("changes", async {
        runtime.remove(id, &path("/data/one")).await.unwrap();
        runtime.remove(id, &path("/data/tree")).await.unwrap();
        runtime.rename(id, &path("/data/two"), &path("/data/moved")).await.unwrap();
    })
    .await;
    second.write("/data/tree/new", "4").await;
    let third = restore(harness, &snapshot(harness, &second).await).await;
    assert_eq!(third.names("/data").await, [&b"moved"[..], b"tree"]);
    assert_eq!(third.names("/data/tree").await, [b"new"]);
    assert_eq!(third.read("/data/moved").await, "2");
}

/// The files of an ended sandbox remain, whatever has ended it.
pub(crate) async fn files_of_an_ended_sandbox_remain(harness: &Harness) {
    for is_requested in [true, false] {
        let sandbox = harness.sandbox().await;
        let (runtime, id) = (sandbox.runtime(), sandbox.id());
        sandbox.write("/data/file", "kept").await;
        let running = sandbox.start(&command(&["sleep", "1000"])).await;
        let cause = if is_requested {
            within("an end", runtime.end(id)).await.expect("an end");
            EndCause::Requested
        } else {
            let lease = Some(Duration::from_millis(10));
            within("a renewal", runtime.renew(id, lease)).await.expect("a renewal");
            eventually("the end of a lease", async || sandbox.has_ended().await).await;
            EndCause::LeaseExpired
        };
        assert_eq!(running.finish().await.ending, Ending::SandboxEnded);
        let ended = sandbox.inspect().await.unwrap();
        assert_eq!((ended.state, ended.end_cause), (State::Ended, Some(cause)));
        within("another end", runtime.end(id)).await.expect("an ended sandbox can be ended again");
        let restored = restore(harness, &snapshot(harness, &sandbox).await).await;
        assert_eq!(restored.read("/data/file").await, "kept");
    }
    let unknown = within("an end", harness.runtime().end(&harness.id())).await;
    assert!(matches!(unknown, Err(Error::NoSandbox(_))), "{unknown:?}");
}

pub(crate) async fn what_commands_made_is_kept(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = "cd /data && umask 022 && echo text > file && ln file hard && ln -s file soft &&
                ln -s /etc/passwd away && mkfifo pipe && mkdir closed && chmod 700 closed &&
                printf '#!/bin/sh\necho runs\n' > program && chmod 755 program &&
                touch -t 200102030405 file && echo home > ~/file";
    sandbox.good(text).await;
    let look = "cd /data && ls -l file hard && ls -ld soft pipe program closed | cut -c 1-10 &&
                readlink soft && readlink away && cat hard ~/file && ./program &&
                [ file -ef hard ] && echo same";
    let before = sandbox.good(look).await;
    assert!(before.ends_with("text\nhome\nruns\nsame\n"), "{before}");
    let restored = restore(harness, &snapshot(harness, &sandbox).await).await;
    assert_eq!(restored.good(look).await, before);
    restored.good("echo more >> /data/file && rm -r /data/closed && : > /data/new").await;
}

pub(crate) async fn those_restored_are_independent(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/file", "first").await;
    let stored = snapshot(harness, &sandbox).await;
    sandbox.write("/data/file", "changed since").await;
    let (one, two) = (restore(harness, &stored).await, restore(harness, &stored).await);
    one.write("/data/file", "one").await;
    one.write("/data/new", "one").await;
    assert_eq!(two.read("/data/file").await, "first");
    assert!(!two.exists("/data/new").await);
    two.write("/data/file", "two").await;
    assert_eq!(one.read("/data/file").await, "one");
    assert_eq!(sandbox.read("/data/file").await, "changed since");
    assert_eq!(restore(harness, &stored).await.read("/data/file").await, "first");
}

/// The sandbox continues unchanged.
pub(crate) async fn processes_go_on(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let counting = script("while :; do echo x >> /data/count; sleep 0.02; done");
    let running = sandbox.start(&counting).await;
    sandbox.grows_beyond("/data/count", 0).await;
    let stored = snapshot(harness, &sandbox).await;
    sandbox.grows_beyond("/data/count", sandbox.size("/data/count").await).await;
    // The new one has none of its processes.
    let restored = restore(harness, &stored).await;
    let size = restored.size("/data/count").await;
    sandbox.grows_beyond("/data/count", sandbox.size("/data/count").await + 20).await;
    assert_eq!(restored.size("/data/count").await, size);
    assert!(restored.inspect().await.unwrap().execs.is_empty());
    sandbox.kill(&running.exec).await;
}

pub(crate) async fn taken_twice_it_is_one(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/file", "first").await;
    let stored = snapshot(harness, &sandbox).await;
    let first = all(harness).await;
    sandbox.write("/data/file", "second").await;
    take(&sandbox, &stored).await.expect("the same snapshot");
    assert_eq!(all(harness).await, first);
    assert_eq!(restore(harness, &stored).await.read("/data/file").await, "first");
    let other = harness.sandbox().await;
    let conflict = take(&other, &stored).await;
    assert!(matches!(conflict, Err(Error::Conflict(_))), "{conflict:?}");
}

pub(crate) async fn it_outlives_its_sandbox(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/file", "kept").await;
    let stored = snapshot(harness, &sandbox).await;
    sandbox.cleanup().await;
    let info = all(harness).await.into_iter().find(|info| info.id == stored).expect("the snapshot");
    assert_eq!(info.sandbox, *sandbox.id());
    assert!(info.created_at_ms > 0);
    assert_eq!(restore(harness, &stored).await.read("/data/file").await, "kept");
}

pub(crate) async fn removed_it_is_gone(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/file", "kept").await;
    let stored = snapshot(harness, &sandbox).await;
    let restored = restore(harness, &stored).await;
    let runtime = harness.runtime();
    for _ in 0..2 {
        within("a removal", runtime.remove_snapshot(&stored)).await.unwrap();
    }
    assert!(all(harness).await.iter().all(|info| info.id != stored));
    assert_eq!(restored.read("/data/file").await, "kept");
    let lost = within("a refusal", runtime.restore(&stored, &harness.id(), &harness.spec())).await;
    assert!(matches!(lost, Err(Error::NoSnapshot(_))), "{lost:?}");
}

/// A spec that names the snapshot is the same request.
pub(crate) async fn a_spec_can_name_it(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/file", "kept").await;
    let stored = snapshot(harness, &sandbox).await;
    let root = Root::Snapshot(stored.clone());
    let labels = [("made".to_owned(), "again".to_owned())].into();
    let spec = SandboxSpec { root, labels, ..harness.spec() };
    let (runtime, id) = (harness.runtime(), harness.id());
    let made = within("a sandbox", runtime.create(&id, &spec)).await.unwrap();
    assert_eq!(made.labels, spec.labels);
    let again = within("a sandbox", runtime.restore(&stored, &id, &spec)).await.unwrap();
    assert_eq!(again.created_at_ms, made.created_at_ms);
    assert_eq!(Sandbox::new(harness, id).read("/data/file").await, "kept");
}

pub(crate) async fn of_nothing_there_is_none(harness: &Harness) {
    let (runtime, none) = (harness.runtime(), harness.snapshot_id());
    let absent = SandboxId::new("no-such-sandbox").unwrap();
    let refused = within("a refusal", runtime.snapshot(&absent, &none)).await;
    assert!(matches!(refused, Err(Error::NoSandbox(_))), "{refused:?}");
    let id = harness.id();
    let refused = within("a refusal", runtime.restore(&none, &id, &harness.spec())).await;
    assert!(matches!(refused, Err(Error::NoSnapshot(_))), "{refused:?}");
    assert!(matches!(runtime.inspect(&id).await, Err(Error::NoSandbox(_))));
}

pub(crate) async fn a_paused_one_stays_paused(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/file", "kept").await;
    sandbox.pause().await;
    let stored = snapshot(harness, &sandbox).await;
    assert_eq!(sandbox.inspect().await.unwrap().state, State::Paused);
    assert_eq!(restore(harness, &stored).await.read("/data/file").await, "kept");
    sandbox.resume().await;
}
