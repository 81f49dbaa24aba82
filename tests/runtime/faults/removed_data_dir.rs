//! The data directory is removed while it has sandboxes, or the last sandbox and its keeper are
//! removed.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use stockade_core::SandboxSpec;
use stockade_runtime::Runtime as _;
use stockade_runtime::conformance::Backend as _;

use super::scene::{id, run_scene_alone};
use crate::native::NativeFixture;

/// How long the keeper may take to notice it and to end everything.
const TIMEOUT: Duration = Duration::from_secs(50);

/// Its content can never be found again, so the keeper ends the sandboxes, and itself.
pub(super) fn what_was_removed_is_ended() {
    run_scene_alone(NativeFixture::new(1), async |scene| {
        let sandbox = id("box");
        scene.native.create(&sandbox, &SandboxSpec::default()).await.unwrap();
        scene.start(&sandbox, "endless", "sleep 1000").await;
        let init = Pid::from_raw(i32::try_from(scene.init(&sandbox)).unwrap()).unwrap();
        let lives =
            [scene.fixture().process().unwrap(), pidfd_open(init, PidfdFlags::empty()).unwrap()];
        scene.fixture().remove();
        for life in &lives {
            assert!(wait_for_end(life), "something lives on");
        }
    });
}

fn wait_for_end(life: &OwnedFd) -> bool {
    let time = Timespec::try_from(TIMEOUT).unwrap();
    poll(&mut [PollFd::new(life, PollFlags::IN)], Some(&time)).unwrap() == 1
}

/// A keeper collects trash for a moment. If it has to end at that moment, it first removes the
/// trash.
pub(super) fn who_makes_way_leaves_nothing() {
    run_scene_alone(NativeFixture::new(0), async |scene| {
        let only = scene.create("only").await;
        scene.native.cleanup(&only).await.unwrap();
        scene.fixture().close().await;
        assert_eq!(scene.fixture().leftovers().await, Vec::<String>::new());
    });
}
