//! Somebody removes the data directory under its sandboxes.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use stockade_core::SandboxSpec;
use stockade_runtime::Runtime as _;

use super::scene::{id, play_alone};
use crate::native::Kept;

/// How long the keeper may take to see it, and to end everything.
const PATIENCE: Duration = Duration::from_secs(50);

/// Nobody will ever find what is in it again, so the keeper ends it, and itself.
pub(super) fn what_was_removed_is_ended() {
    play_alone(Kept::new(1), async |scene| {
        let sandbox = id("box");
        scene.native.create(&sandbox, &SandboxSpec::default()).await.unwrap();
        scene.start(&sandbox, "endless", "sleep 1000").await;
        let init = Pid::from_raw(i32::try_from(scene.init(&sandbox)).unwrap()).unwrap();
        let lives =
            [scene.kept().process().unwrap(), pidfd_open(init, PidfdFlags::empty()).unwrap()];
        scene.kept().remove();
        for life in &lives {
            assert!(ends(life), "something lives on");
        }
    });
}

fn ends(life: &OwnedFd) -> bool {
    let time = Timespec::try_from(PATIENCE).unwrap();
    poll(&mut [PollFd::new(life, PollFlags::IN)], Some(&time)).unwrap() == 1
}
