//! The disk is full.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use stockade_core::{SandboxSpec, SnapshotId};
use stockade_runtime::{Ending, Error, Runtime as _, SandboxPath, State, WriteOptions};

use super::scene::{Scene, collect_output, exec_id, id, run_scene};
use crate::identity::on_small_disk;
use crate::native::NativeFixture;

const SIZE_MEBIBYTES: u64 = 24;
/// The size of the output of a command that cannot be stored.
const FLOOD_BYTES: u64 = 1 << 20;

/// A file that fills the disk.
struct Ballast(PathBuf);

impl Ballast {
    /// Fills the remaining space.
    fn take() -> Self {
        let path = std::env::temp_dir().join("ballast");
        let mut file = File::create(&path).unwrap();
        for length in [1 << 16, 1 << 12] {
            while file.write_all(&vec![1; length]).is_ok() {}
        }
        Self(path)
    }

    fn give_back(self) {
        std::fs::remove_file(self.0).unwrap();
    }
}

/// No sandbox ends, not even when its keeper does; requests that need space are refused, and output
/// of a command that could not be stored is reported as lost. With free space, all works again.
pub(super) fn a_full_disk_ends_nothing() {
    on_small_disk(SIZE_MEBIBYTES, || run_scene(NativeFixture::new(0), fill));
}

async fn fill(scene: &mut Scene) {
    let held = scene.create("held").await;
    let waiting = "echo before; echo >/tmp/said; \
        while [ ! -e /tmp/go ]; do sleep 0.05; done; echo after; exit 3";
    let waiting = scene.start(&held, "waiting", waiting).await;
    let first =
        "while [ ! -e /tmp/said ]; do sleep 0.05; done; echo kept >/tmp/file; cat /tmp/file";
    assert_eq!(scene.run(&held, "first", first).await.expect_success(), "kept\n");
    let ballast = Ballast::take();

    refuses(scene).await;
    let flood = format!("head -c {FLOOD_BYTES} /dev/zero");
    let flooded = scene.run(&held, "flood", &flood).await;
    assert_eq!(flooded.ending, Ending::Exited(0));
    assert_eq!(flooded.output.len() as u64 + flooded.lost, FLOOD_BYTES);
    assert!(flooded.lost > 0);
    assert_eq!(scene.run(&held, "silent", "test -e /tmp/file").await.expect_success(), "");

    scene.kill_keeper().await;
    let status = scene.native.inspect(&held).await.unwrap();
    assert_eq!((status.state, status.execs.len()), (State::Running, 4));
    refuses(scene).await;
    assert_eq!(scene.run(&held, "again", "test -e /tmp/file").await.expect_success(), "");

    ballast.give_back();
    assert_eq!(
        scene.run(&held, "whole", "yes | head -c 100000").await.expect_success().len(),
        100_000
    );
    assert_eq!(
        scene.run(&held, "go", "echo >/tmp/go; cat /tmp/file").await.expect_success(),
        "kept\n"
    );
    let received = collect_output(waiting).await;
    assert_eq!(
        (received.ending, received.lost, &*received.output),
        (Ending::Exited(3), 0, &b"before\nafter\n"[..])
    );
    let new = scene.create("new").await;
    assert_eq!(scene.run(&new, "one", "echo there").await.expect_success(), "there\n");
    scene.sees_files_of(&held).await;
}

/// Requests that need space are refused with an error that gives this reason, and leave nothing
/// behind.
async fn refuses(scene: &Scene) {
    let held = id("held");
    let refused = scene.native.create(&id("new"), &SandboxSpec::default()).await;
    assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
    assert!(matches!(scene.native.inspect(&id("new")).await, Err(Error::NoSandbox(_))));
    let path = SandboxPath::new("/tmp/large").unwrap();
    let content = Box::pin(std::io::Cursor::new(vec![1; 1 << 16]));
    let written = scene.native.write_file(&held, &path, content, WriteOptions::default()).await;
    let full = |error: &std::io::Error| error.kind() == std::io::ErrorKind::StorageFull;
    assert!(matches!(&written, Err(Error::File { source, .. }) if full(source)), "{written:?}");
    let taken = scene.native.snapshot(&held, &SnapshotId::new("full").unwrap()).await;
    assert!(matches!(taken, Err(Error::Exhausted(_))), "{taken:?}");
    assert_eq!(scene.native.snapshots().await.unwrap(), []);
    // A command with a limit has to be recorded.
    let limited =
        stockade_runtime::Command { output_limit_bytes: Some(9), ..super::scene::script("true") };
    let refused = scene.native.execute(&held, &exec_id("limited"), &limited).await;
    assert!(matches!(refused, Err(Error::Exhausted(_))), "{:?}", refused.err());
}
