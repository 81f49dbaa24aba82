//! The host is restarted: the keeper, all inits and all their resources no longer exist.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use stockade_core::SandboxSpec;
use stockade_runtime::{Ending, Offsets, Runtime as _, State};

use super::scene::{Scene, collect_output, exec_id, run_scene};
use crate::native::NativeFixture;

/// Identifies one boot of the host.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Files and the output of commands still exist, and the restart of the host is reported. Nothing
/// starts again automatically, and everything can be cleaned up.
pub(super) fn what_ended_with_its_host_is_known() {
    run_scene(NativeFixture::new(1), async |scene| {
        let labels = [("owner".to_owned(), "me".to_owned())].into();
        let spec = SandboxSpec { labels, ..SandboxSpec::default() };
        let running = scene.create_with("running", spec.clone()).await;
        let paused = scene.create("paused").await;
        let ended = scene.create("ended").await;
        scene.run(&running, "over", "echo kept >/tmp/file; echo said; exit 3").await;
        scene.start(&running, "endless", "echo begun; touch /tmp/begun; sleep 1000").await;
        scene.appears(&running, "/tmp/begun").await;
        scene.run(&paused, "one", "echo kept >/tmp/file").await;
        scene.native.pause(&paused).await.unwrap();
        scene.run(&ended, "one", "echo said").await;
        kill(scene, &ended);
        let has_ended =
            async |scene: &Scene| scene.native.inspect(&ended).await.unwrap().state == State::Ended;
        scene.eventually("an end", has_ended).await;
        let reason = scene.native.inspect(&ended).await.unwrap().reason;

        scene.kill_keeper().await;
        kill(scene, &running);
        kill(scene, &paused);
        for id in [&running, &paused, &ended] {
            record_other_boot(scene, id);
        }

        for id in [&running, &paused] {
            let status = scene.native.inspect(id).await.unwrap();
            assert_eq!(status.state, State::Ended);
            assert_eq!(status.reason.as_deref(), Some("the host was rebooted"));
        }
        assert_eq!(scene.native.inspect(&ended).await.unwrap().reason, reason);
        let found = scene.native.list(&spec.labels).await.unwrap();
        assert!(matches!(&found[..], [status] if status.id == running), "{found:?}");
        // For a command that had ended, how it ended is no longer known, but its output is.
        for (exec, output) in [("over", "said\n"), ("endless", "begun\n")] {
            let again = scene.native.attach(&running, &exec_id(exec), Offsets::default()).await;
            let received = collect_output(again.unwrap()).await;
            assert_eq!((received.ending, received.output), (Ending::Unknown, output.into()));
        }
        let again = scene.native.attach(&ended, &exec_id("one"), Offsets::default()).await;
        assert_eq!(collect_output(again.unwrap()).await.expect_success(), "said\n");
        for id in [&running, &paused] {
            scene.sees_files_of(id).await;
        }
        // Its id still refers to the same sandbox.
        let same = scene.native.create(&running, &spec).await.unwrap();
        assert_eq!(same.state, State::Ended);
        scene.native.cleanup(&running).await.unwrap();
        scene.create_with("running", spec).await;
        assert_eq!(
            scene.run(&running, "over", "test ! -e /tmp/file; echo new").await.expect_success(),
            "new\n"
        );
    });
}

fn kill(scene: &Scene, sandbox: &stockade_core::SandboxId) {
    let init = Pid::from_raw(i32::try_from(scene.init(sandbox)).unwrap()).unwrap();
    kill_process(init, Signal::KILL).unwrap();
}

/// Changes a record into one of another boot of the host.
fn record_other_boot(scene: &Scene, sandbox: &stockade_core::SandboxId) {
    let path =
        scene.fixture().runtime().join("sandboxes").join(sandbox.as_str()).join("record.json");
    let this = fs::read_to_string(BOOT_ID).unwrap();
    let record = fs::read_to_string(&path).unwrap();
    let other = record.replace(this.trim(), "00000000-0000-4000-8000-000000000000");
    assert_ne!(record, other);
    fs::write(path, other).unwrap();
}
