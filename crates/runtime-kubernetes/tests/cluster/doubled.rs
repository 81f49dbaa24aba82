//! The suite of all backends against the double.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use stockade_core::sandbox::Root;
use stockade_core::{ExecId, SandboxId, SandboxSpec};
use stockade_runtime::conformance::{self, Backend};
use stockade_runtime::{Command, Event, Runtime, SandboxPath, Target, WriteOptions};
use stockade_runtime_kubernetes::{Kubernetes, Options};
use stockade_test_support::{program, require_nextest};

use crate::double::{Agents, Double};

/// Cases of limits that a kubelet enforces, which the one of the double does not.
const OF_A_KUBELET: [&str; 4] = [
    "limits::they_hold_or_are_refused",
    "limits::want_of_memory_is_told",
    "limits::other_ends_are_not_want_of_memory",
    "limits::memory_is_the_sandboxes_own",
];

/// A cluster with clients.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) double: Double,
    pub(crate) warm: u32,
}

impl Fixture {
    pub(crate) fn new(agents: Agents) -> Result<Self, String> {
        Ok(Self { double: Double::start(agents)?, warm: 0 })
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.double.place().join("data")
    }

    pub(crate) fn options(&self) -> Options {
        let options = Options::from_environment(self.data(), |_| None);
        Options {
            kubeconfig: Some(self.double.kubeconfig()),
            image: Some("stockade:test".to_owned()),
            warm: self.warm,
            ..options
        }
    }

    pub(crate) fn client(&self) -> Kubernetes {
        Kubernetes::new(self.options())
    }

    pub(crate) fn spec() -> SandboxSpec {
        SandboxSpec { root: Root::Image("image:1".to_owned()), ..SandboxSpec::default() }
    }

    /// The names of the objects of a kind.
    pub(crate) fn names(&self, kind: &str) -> Vec<String> {
        let objects = self.double.store.list(kind, None);
        objects.iter().map(|object| object["metadata"]["name"].to_string()).collect()
    }
}

/// A new id.
pub(crate) fn id(text: &str) -> SandboxId {
    SandboxId::new(text).unwrap()
}

/// What a script writes in a sandbox.
pub(crate) async fn sh(runtime: &Kubernetes, id: &SandboxId, exec: &str, script: &str) -> String {
    let arguments = ["sh", "-c", script].map(OsString::from).into();
    let command = Command { arguments, ..Command::default() };
    let exec = ExecId::new(exec).unwrap();
    let mut running = runtime.execute(id, &exec, &command).await.unwrap();
    let mut output = Vec::new();
    while let Some(event) = running.events.next().await {
        if let Event::Output { bytes, .. } = event {
            output.extend_from_slice(&bytes);
        }
    }
    String::from_utf8_lossy(&output).into_owned()
}

/// Runs a test against a double, or records why it cannot run.
pub(crate) fn with_double(agents: Agents, warm: u32, test: impl AsyncFnOnce(&Fixture)) {
    require_nextest();
    match Fixture::new(agents) {
        Err(reason) => conformance::skipped(&reason),
        Ok(fixture) => {
            let fixture = Fixture { warm, ..fixture };
            let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            tokio.block_on(test(&fixture));
        }
    }
}

#[async_trait]
impl Backend for Fixture {
    async fn open(&self) -> Result<Arc<dyn Runtime>, String> {
        Ok(Arc::new(self.client()))
    }

    fn spec(&self) -> SandboxSpec {
        Self::spec()
    }

    fn server(&self) -> Result<(), String> {
        Ok(())
    }

    async fn serve(&self, runtime: &dyn Runtime, id: &SandboxId, target: &Target) {
        let file = SandboxPath::new("/home/user/echo").unwrap();
        let content = Box::pin(std::io::Cursor::new(std::fs::read(program("echo")).unwrap()));
        let options = WriteOptions { mode: 0o755, ..WriteOptions::default() };
        runtime.write_file(id, &file, content, options).await.unwrap();
        let (kind, place) = match target {
            Target::Tcp(port) => ("tcp", port.to_string()),
            Target::Unix(path) => ("unix", path.to_string()),
        };
        let arguments = ["/home/user/echo", kind, &place].map(OsString::from).into();
        let command = Command { arguments, ..Command::default() };
        let exec = ExecId::new(format!("echo-{kind}")).unwrap();
        runtime.execute(id, &exec, &command).await.unwrap();
    }

    async fn leftovers(&self) -> Vec<String> {
        let processes = self.double.store.processes.lock().unwrap().len();
        let mut left: Vec<_> =
            ["pods", "sandboxes", "sandboxclaims"].map(|kind| self.names(kind)).concat();
        left.extend((processes > 0).then(|| format!("{processes} containers")));
        left
    }
}

fn pods(case: &str) {
    require_nextest();
    if OF_A_KUBELET.contains(&case) {
        return conformance::skipped("double only: a kubelet enforces limits, not the double");
    }
    if case.contains("workspaces::mounts_") {
        return conformance::skipped("a directory of the host is copied at the start");
    }
    let fixture = Fixture::new(Agents::None).map(|fixture| Arc::new(fixture) as Arc<dyn Backend>);
    conformance::run(case, fixture);
}

stockade_runtime::conformance_tests!(super::pods);
