//! The keeper has a low limit of open files.

use stockade_core::SandboxSpec;
use stockade_runtime::{
    Command, Ending, Error, Event, Runtime as _, SandboxPath, State, WindowSize, WriteOptions,
};

use super::scene::{Scene, collect_output, exec_id, id, run_scene, script};
use crate::native::NativeFixture;
use stockade_test_support::program;

/// More sandboxes than the limit allows.
const MANY: usize = 300;

/// A data directory whose keeper may have this many files open.
fn with_descriptor_limit(limit: u32) -> NativeFixture {
    NativeFixture::new(0).under(&["prlimit", &format!("--nofile={limit}:{limit}")])
}

/// Creates sandboxes until the limit allows no more, then commands in the first one until it allows
/// no more either. All of them keep running, and each that ends makes room.
pub(super) fn sandboxes_work_without_descriptors() {
    run_scene(with_descriptor_limit(256), async |scene| {
        let mut held = Vec::new();
        let refused = loop {
            assert!(held.len() < MANY, "there is always room");
            let id = id(&format!("box-{}", held.len()));
            match scene.native.create(&id, &SandboxSpec::default()).await {
                Ok(_) => held.push(id),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::Exhausted(_)), "{refused:?}");
        assert!(held.len() > 3, "only {}", held.len());
        let mut running = Vec::new();
        let refused = loop {
            assert!(running.len() < MANY, "there is always room");
            let exec = exec_id(&format!("exec-{}", running.len()));
            let text = "while [ ! -e /tmp/go ]; do sleep 0.05; done; echo on";
            match scene.native.execute(&held[0], &exec, &script(text)).await {
                Ok(exec) => running.push(exec),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::Exhausted(_)), "{refused:?}");
        assert!(running.len() > 3, "only {}", running.len());

        // The next keeper has the same limit, and finds all of them.
        scene.kill_keeper().await;
        assert_works(scene, held.len(), running.len()).await;
        let all = wait_all(scene, running).await;
        assert!(all.iter().all(|output| output == "on\n"), "{all:?}");
        for number in 0..all.len() {
            scene.native.acknowledge(&held[0], &exec_id(&format!("exec-{number}"))).await.unwrap();
        }
        for sandbox in &held {
            assert_eq!(scene.run(sandbox, "after", "echo after").await.expect_success(), "after\n");
        }
        // A client keeps some of its connections, and the keeper notices their end some time later.
        scene.native = scene.fixture().client();
        scene.native.cleanup(&held.pop().unwrap()).await.unwrap();
        let again = id("again");
        scene
            .eventually("room for a sandbox", async |scene| {
                scene.native.create(&again, &SandboxSpec::default()).await.is_ok()
            })
            .await;
        assert_eq!(scene.run(&again, "one", "echo there").await.expect_success(), "there\n");
    });
}

async fn assert_works(scene: &Scene, sandboxes: usize, commands: usize) {
    let list = scene.native.list(&Default::default()).await.unwrap();
    assert_eq!(list.len(), sandboxes);
    assert!(list.iter().all(|status| status.state == State::Running));
    let first = list.iter().find(|status| status.id == id("box-0")).unwrap();
    assert_eq!(first.execs.len(), commands);
    assert!(first.execs.iter().all(|exec| exec.ending.is_none()), "{:?}", first.execs);
}

async fn wait_all(scene: &Scene, running: Vec<stockade_runtime::Exec>) -> Vec<String> {
    let go = stockade_runtime::SandboxPath::new("/tmp/go").unwrap();
    let nothing = Box::pin(std::io::Cursor::new(Vec::new()));
    scene.native.write_file(&id("box-0"), &go, nothing, Default::default()).await.unwrap();
    let mut received = Vec::new();
    for exec in running {
        let of_one = collect_output(exec).await;
        assert_eq!(of_one.ending, Ending::Exited(0));
        received.push(of_one.expect_success());
    }
    received
}

/// Clients that only connect use up the descriptors of other clients, and of no other process.
pub(super) fn clients_are_refused_alone() {
    run_scene(with_descriptor_limit(256), async |scene| {
        let held = scene.create("held").await;
        let running = scene.start(&held, "one", "sleep 1; echo on").await;
        let idle: Vec<_> = std::iter::repeat_with(|| scene.fixture().connection())
            .take(MANY)
            .collect::<Option<_>>()
            .unwrap();
        let stranger = scene.fixture().client();
        scene
            .eventually("a refusal", async |_| {
                matches!(stranger.inspect(&held).await, Err(Error::Exhausted(_)))
            })
            .await;
        assert_eq!(collect_output(running).await.expect_success(), "on\n");
        drop(idle);
        scene
            .eventually("room for a client", async |_| stranger.inspect(&held).await.is_ok())
            .await;
        assert_eq!(scene.run(&held, "two", "echo on").await.expect_success(), "on\n");
    });
}

/// The kernel counts descriptors that were sent and not received for each user of the host, and an
/// ordinary user's sandboxes all belong to that user. None may use up the share that the keeper and
/// other inits need.
pub(super) fn descriptors_in_flight_are_ones_own() {
    run_scene(with_descriptor_limit(2048), async |scene| {
        let (hoarder, other) = (scene.create("hoarder").await, scene.create("other").await);
        let probe = Box::pin(std::io::Cursor::new(std::fs::read(program("probe")).unwrap()));
        let path = SandboxPath::new("/tmp/probe").unwrap();
        let options = WriteOptions { mode: 0o755, ..WriteOptions::default() };
        scene.native.write_file(&hoarder, &path, probe, options).await.unwrap();
        let mut hoard = scene.start(&hoarder, "hoard", "exec /tmp/probe hoard-in-flight").await;
        let first = hoard.events.next().await;
        assert!(matches!(first, Some(Event::Output { .. })), "{first:?}");
        for number in 0..3 {
            let received = scene.run(&other, &format!("exec-{number}"), "echo on").await;
            assert_eq!(received.expect_success(), "on\n");
        }
        let size = WindowSize { rows: 24, columns: 80 };
        let terminal = Command { terminal: Some(size), ..script("echo on") };
        let exec = scene.native.execute(&other, &exec_id("terminal"), &terminal).await.unwrap();
        assert_eq!(collect_output(exec).await.expect_success(), "on\r\n");
        // The descriptors for the next keeper are sent, too.
        scene.kill_keeper().await;
        assert_eq!(scene.run(&other, "again", "echo on").await.expect_success(), "on\n");
        scene.native.stat(&other, &path).await.unwrap_err();
        scene.native.kill(&hoarder, &exec_id("hoard")).await.unwrap();
    });
}
