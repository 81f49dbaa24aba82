//! What the fault tests share: a data directory with its keeper, and short functions for operations
//! on sandboxes.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use stockade_core::{ExecId, SandboxId, SandboxSpec, SnapshotId};
use stockade_runtime::conformance::Backend as _;
use stockade_runtime::{Command, Ending, Event, Exec, Runtime as _, SandboxPath, Stream};
use stockade_runtime_native::Native;

use crate::native::NativeFixture;

/// How long any expected event may take.
const TIMEOUT: Duration = Duration::from_secs(40);
/// How often a condition that cannot be waited for is polled.
const INTERVAL: Duration = Duration::from_millis(20);

/// A data directory, and a client of its keeper.
pub(super) struct Scene {
    fixture: NativeFixture,
    pub(super) native: Native,
}

/// What was received from a command.
#[derive(Debug)]
pub(super) struct ExecOutput {
    pub(super) ending: Ending,
    /// The received bytes of standard output.
    pub(super) output: Vec<u8>,
    /// How many bytes were reported as lost.
    pub(super) lost: u64,
}

impl ExecOutput {
    /// Checks that a command succeeded, and returns its output.
    #[track_caller]
    pub(super) fn expect_success(self) -> String {
        assert_eq!((&self.ending, self.lost), (&Ending::Exited(0), 0), "{self:?}");
        String::from_utf8(self.output).unwrap()
    }
}

/// Runs a test on a scene, and checks at its end that nothing is left.
pub(super) fn run_scene(kept: NativeFixture, test: impl AsyncFnOnce(&mut Scene)) {
    run_scene_alone(kept, async |scene| {
        test(scene).await;
        for status in scene.native.list(&Default::default()).await.unwrap() {
            scene.native.cleanup(&status.id).await.unwrap();
        }
        scene
            .eventually("nothing left", async |scene| scene.fixture.leftovers().await.is_empty())
            .await;
        scene.fixture.close().await;
    });
}

/// Runs a test on a scene, without a check at its end.
pub(super) fn run_scene_alone(kept: NativeFixture, test: impl AsyncFnOnce(&mut Scene)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let native = kept.client();
    runtime.block_on(test(&mut Scene { fixture: kept, native }));
}

/// A sandbox id.
pub(super) fn id(name: &str) -> SandboxId {
    SandboxId::new(name).unwrap()
}

/// An exec id.
pub(super) fn exec_id(name: &str) -> ExecId {
    ExecId::new(name).unwrap()
}

/// A command that runs this text in a shell.
pub(super) fn script(text: &str) -> Command {
    Command { arguments: ["sh", "-c", text].map(Into::into).to_vec(), ..Command::default() }
}

impl Scene {
    pub(super) const fn fixture(&self) -> &NativeFixture {
        &self.fixture
    }

    /// Creates a sandbox.
    pub(super) async fn create(&self, name: &str) -> SandboxId {
        self.create_with(name, SandboxSpec::default()).await
    }

    /// The same, with this spec.
    pub(super) async fn create_with(&self, name: &str, spec: SandboxSpec) -> SandboxId {
        let id = id(name);
        self.native.create(&id, &spec).await.unwrap();
        id
    }

    /// Starts a shell script.
    pub(super) async fn start(&self, sandbox: &SandboxId, exec: &str, text: &str) -> Exec {
        self.native.execute(sandbox, &exec_id(exec), &script(text)).await.unwrap()
    }

    /// Runs a shell script until it ends.
    pub(super) async fn run(&self, sandbox: &SandboxId, exec: &str, text: &str) -> ExecOutput {
        collect_output(self.start(sandbox, exec, text).await).await
    }

    /// Kills the keeper. The next request starts another.
    pub(super) async fn kill_keeper(&self) {
        self.fixture.kill_holder().await;
    }

    /// The pid of a sandbox's init.
    pub(super) fn init(&self, sandbox: &SandboxId) -> u32 {
        let held = &self.record(sandbox)["stage"]["held"]["init"];
        u32::try_from(held.as_u64().unwrap()).unwrap()
    }

    /// The record of a sandbox.
    pub(super) fn record(&self, sandbox: &SandboxId) -> Value {
        let path =
            self.fixture.runtime().join("sandboxes").join(sandbox.as_str()).join("record.json");
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    /// Waits until a condition is true.
    pub(super) async fn eventually(&self, what: &str, mut is_so: impl AsyncFnMut(&Self) -> bool) {
        let waited = tokio::time::timeout(TIMEOUT, async {
            while !is_so(self).await {
                tokio::time::sleep(INTERVAL).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("waited for: {what}"));
    }

    /// Checks that `/tmp/file` of a sandbox is in a snapshot of it, whether the sandbox is alive or
    /// not.
    pub(super) async fn sees_files_of(&self, sandbox: &SandboxId) {
        let snapshot = SnapshotId::new("kept").unwrap();
        self.native.snapshot(sandbox, &snapshot).await.unwrap();
        let restored = id("restored");
        self.native.restore(&snapshot, &restored, &SandboxSpec::default()).await.unwrap();
        assert_eq!(self.run(&restored, "look", "cat /tmp/file").await.expect_success(), "kept\n");
        self.native.cleanup(&restored).await.unwrap();
        self.native.remove_snapshot(&snapshot).await.unwrap();
    }

    /// Waits until a file exists in a sandbox.
    pub(super) async fn appears(&self, sandbox: &SandboxId, file: &str) {
        let path = SandboxPath::new(file).unwrap();
        let look = async |scene: &Self| scene.native.stat(sandbox, &path).await.is_ok();
        self.eventually(file, look).await;
    }
}

/// Receives the output of a command until it ends. The bytes arrive in order, and every missing
/// byte was reported as lost.
pub(super) async fn collect_output(mut exec: Exec) -> ExecOutput {
    let mut received = ExecOutput { ending: Ending::Unknown, output: Vec::new(), lost: 0 };
    let all = tokio::time::timeout(TIMEOUT, async {
        loop {
            match exec.events.next().await {
                Some(Event::Output { stream: Stream::Output, offset, bytes }) => {
                    assert_eq!(offset, received.output.len() as u64 + received.lost);
                    received.output.extend(bytes);
                }
                Some(Event::Lost { stream: Stream::Output, length, .. }) => received.lost += length,
                Some(Event::Output { .. } | Event::Lost { .. } | Event::RefusedCalls(_)) => {}
                Some(Event::Ended(ending)) => break received.ending = ending,
                None => panic!("no end was told"),
            }
        }
    });
    all.await.unwrap_or_else(|_| panic!("a command did not end in time"));
    received
}
