//! Very many concurrent sandboxes.

use std::fs;
use std::path::PathBuf;

use stockade_core::{SandboxId, SandboxSpec};
use stockade_runtime::{Ending, Runtime as _, State};

use super::scene::{Scene, collect_output, exec_id, id, run_scene, script};
use crate::native::NativeFixture;

const SANDBOXES: usize = 500;
/// How many are requested concurrently.
const AT_ONCE: usize = 50;

/// Five hundred run concurrently, each executes its command, and nothing is left of any.
pub(super) fn five_hundred_at_once() {
    run_scene(NativeFixture::new(0), live);
}

async fn live(scene: &mut Scene) {
    let names: Vec<usize> = (0..SANDBOXES).collect();
    for some in names.chunks(AT_ONCE) {
        all(some, async |number| {
            let id = id(&format!("box-{number}"));
            scene.native.create(&id, &SandboxSpec::default()).await.unwrap();
        })
        .await;
    }
    let mut held = HostObjects::default();
    for status in scene.native.list(&Default::default()).await.unwrap() {
        assert_eq!(status.state, State::Running);
        held.add(scene, &status.id);
    }
    assert_eq!(held.inits.len(), SANDBOXES);
    assert!(held.inits.iter().all(|init| is_init(*init)));
    for some in names.chunks(AT_ONCE) {
        all(some, async |number| {
            let id = id(&format!("box-{number}"));
            let text = format!("echo {number} >/tmp/mine; cat /tmp/mine");
            let exec = scene.native.execute(&id, &exec_id("one"), &script(&text)).await.unwrap();
            let received = collect_output(exec).await;
            assert_eq!(received.ending, Ending::Exited(0));
            assert_eq!(received.expect_success(), format!("{number}\n"));
        })
        .await;
    }
    for some in names.chunks(AT_ONCE) {
        all(some, async |number| {
            scene.native.cleanup(&id(&format!("box-{number}"))).await.unwrap();
        })
        .await;
    }
    assert_eq!(scene.native.list(&Default::default()).await.unwrap(), []);
    scene.eventually("nothing left of any", async |_| held.remaining().is_empty()).await;
}

/// Runs something for all numbers concurrently.
async fn all(numbers: &[usize], each: impl AsyncFn(usize)) {
    let mut waiting: Vec<_> = numbers.iter().map(|number| Box::pin(each(*number))).collect();
    std::future::poll_fn(|context| {
        waiting.retain_mut(|one| one.as_mut().poll(context).is_pending());
        if waiting.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// The host's resources of sandboxes, other than their files.
#[derive(Default)]
struct HostObjects {
    inits: Vec<u32>,
    groups: Vec<PathBuf>,
}

impl HostObjects {
    fn add(&mut self, scene: &Scene, sandbox: &SandboxId) {
        self.inits.push(scene.init(sandbox));
        let record = scene.record(sandbox);
        let groups = record["groups"].as_array().unwrap().iter();
        let groups: Vec<u8> =
            groups.map(|byte| u8::try_from(byte.as_u64().unwrap()).unwrap()).collect();
        let groups = String::from_utf8(groups).unwrap();
        self.groups.extend(
            groups.lines().filter_map(|line| line.splitn(3, ' ').nth(2)).map(PathBuf::from),
        );
    }

    /// Those that still exist.
    fn remaining(&self) -> Vec<PathBuf> {
        let inits = self.inits.iter().filter(|init| is_init(**init));
        let inits = inits.map(|init| PathBuf::from(format!("/proc/{init}")));
        inits.chain(self.groups.iter().filter(|group| group.exists()).cloned()).collect()
    }
}

/// Whether a live init has this pid. A zombie has no resources.
fn is_init(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(start, rest)| start.ends_with("(stockade-init") && !rest.starts_with('Z'))
}
