//! An init is killed or stopped from outside, as by the kernel when memory is exhausted.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::{Pid, Signal, kill_process};
use stockade_bundle::data::DataDir;
use stockade_bundle::view::LayerCollector;
use stockade_core::SandboxSpec;
use stockade_core::sandbox::Workspace;
use stockade_runtime::{Ending, Error, Offsets, Runtime as _, State};

use super::scene::{Scene, collect_output, exec_id, run_scene};
use crate::native::NativeFixture;

fn signal(scene: &Scene, sandbox: &stockade_core::SandboxId, signal: Signal) {
    let init = i32::try_from(scene.init(sandbox)).unwrap();
    kill_process(Pid::from_raw(init).unwrap(), signal).unwrap();
}

/// The output of the killed sandbox's commands is still available, a snapshot contains its files,
/// and another sandbox is not affected.
pub(super) fn a_killed_init_ends_its_sandbox_alone() {
    run_scene(NativeFixture::new(0), async |scene| {
        let (killed, other) = (scene.create("killed").await, scene.create("other").await);
        let text = "echo written; echo kept >/tmp/file; sleep 1000";
        let running = scene.start(&killed, "one", text).await;
        let beside = scene.start(&other, "one", "read x; echo on; sleep 1000").await;
        scene.appears(&killed, "/tmp/file").await;
        signal(scene, &killed, Signal::KILL);
        let received = collect_output(running).await;
        assert_eq!((received.ending, &*received.output), (Ending::SandboxEnded, &b"written\n"[..]));

        let status = scene.native.inspect(&killed).await.unwrap();
        assert_eq!(status.state, State::Ended);
        assert!(status.reason.is_some() && status.execs[0].ending == Some(Ending::SandboxEnded));
        let again = scene.native.attach(&killed, &exec_id("one"), Offsets::default()).await;
        assert_eq!(collect_output(again.unwrap()).await.output, b"written\n");
        let refused =
            scene.native.execute(&killed, &exec_id("two"), &super::scene::script("")).await;
        assert!(matches!(refused, Err(Error::WrongState { state: State::Ended, .. })));
        scene.sees_files_of(&killed).await;

        assert_eq!(scene.run(&other, "two", "echo on").await.expect_success(), "on\n");
        scene.native.kill(&other, &exec_id("one")).await.unwrap();
        assert_eq!(collect_output(beside).await.ending, Ending::Killed);
    });
}

/// An init that does not respond is ended, without waiting for it.
pub(super) fn a_stopped_init_is_ended_alone() {
    run_scene(NativeFixture::new(0), async |scene| {
        let (stopped, other) = (scene.create("stopped").await, scene.create("other").await);
        let text = "echo written; touch /tmp/file; sleep 1000";
        let running = scene.start(&stopped, "one", text).await;
        scene.appears(&stopped, "/tmp/file").await;
        signal(scene, &stopped, Signal::STOP);
        // A keeper that finds it waits for it for a short time.
        scene.kill_keeper().await;
        assert_eq!(scene.run(&other, "one", "echo on").await.expect_success(), "on\n");
        // How its commands ended is not available any more.
        let received = collect_output(running).await;
        assert_eq!((received.ending, &*received.output), (Ending::Unknown, &b"written\n"[..]));
        let again = scene.native.attach(&stopped, &exec_id("one"), Offsets::default()).await;
        assert_eq!(collect_output(again.unwrap()).await.output, b"written\n");
        assert_eq!(scene.native.inspect(&stopped).await.unwrap().state, State::Ended);
    });
}

/// The changes in its workspace are available, too, through any client of a keeper.
pub(super) fn what_a_killed_sandbox_had_changed_is_told() {
    run_scene(NativeFixture::new(0), async |scene| {
        let host = tempfile::tempdir().unwrap();
        fs::set_permissions(host.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let workspace = Workspace { host: host.path().to_owned(), inside: "/project".into() };
        let spec = SandboxSpec { workspace: Some(workspace), ..SandboxSpec::default() };
        let killed = scene.create_with("killed", spec).await;
        scene.run(&killed, "one", "echo kept >/project/file").await.expect_success();
        signal(scene, &killed, Signal::KILL);
        scene
            .eventually("the end", async |scene| {
                scene.native.inspect(&killed).await.unwrap().state == State::Ended
            })
            .await;
        scene.kill_keeper().await;
        let data = DataDir::open(&scene.fixture().data()).unwrap();
        let gathering = LayerCollector::start(&data).unwrap();
        let reported = scene.native.changes(&killed, gathering.layer()).await.unwrap();
        assert_eq!(reported.removed, []);
        assert_eq!(fs::read_to_string(gathering.layer().join("file")).unwrap(), "kept\n");
        assert_eq!(fs::read_dir(host.path()).unwrap().count(), 0);
    });
}
