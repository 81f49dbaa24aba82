//! The Docker backend under test: an engine of the tests' own, and for each case a data directory.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod faults;
mod hardening;

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use rustix::net::sockopt;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use stockade_core::sandbox::Root;
use stockade_core::{ExecId, SandboxId, SandboxSpec};
use stockade_runtime::conformance::{self, Backend};
use stockade_runtime::{Command, Runtime, SandboxPath, Target, WriteOptions};
use stockade_runtime_docker::{Address, Docker, Options};
use stockade_test_support::{Engine, program, require_nextest};
use tempfile::TempDir;

/// The first argument of the binary as a keeper.
const KEEPER: &str = "__keeper";

/// An engine and a data directory.
#[derive(Debug)]
pub(crate) struct DockerFixture {
    directory: TempDir,
    pub(crate) engine: Engine,
}

/// Runs a test that needs an engine, or records why it cannot run.
pub(crate) fn with_engine(engine: Result<Engine, String>, test: impl AsyncFnOnce(&DockerFixture)) {
    require_nextest();
    let is_root = rustix::process::geteuid().is_root();
    let engine = if is_root { engine } else { Err("the tests do not run as root".to_owned()) };
    match engine {
        Err(reason) => conformance::skipped(&reason),
        Ok(engine) => {
            let fixture = DockerFixture::with(engine);
            let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            tokio.block_on(test(&fixture));
        }
    }
}

/// Runs a case, or records why it cannot run.
pub(crate) fn as_root(case: &str) {
    require_nextest();
    conformance::run(case, DockerFixture::new().map(|fixture| Arc::new(fixture) as _));
}

impl DockerFixture {
    pub(crate) fn new() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("the tests do not run as root".to_owned());
        }
        Ok(Self::with(Engine::start()?))
    }

    /// A data directory for another engine.
    pub(crate) fn with(engine: Engine) -> Self {
        let directory = tempfile::Builder::new().prefix("stockade-docker-").tempdir().unwrap();
        Self { directory, engine }
    }

    /// A separate client.
    pub(crate) fn client(&self) -> Docker {
        Docker::new(self.options())
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            data: self.data(),
            keeper: vec![program("stockade").into(), KEEPER.into()],
            programs: Vec::new(),
            build: "test".to_owned(),
            deadline: stockade_runtime_docker::DEADLINE,
            address: Ok(Address { socket: self.engine.socket() }),
        }
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        let data = self.directory.path().join("data");
        fs::create_dir_all(&data).unwrap();
        data
    }

    /// The directory that clients and the keeper share.
    pub(crate) fn runtime(&self) -> PathBuf {
        self.data().join("runtime-docker/runtime/1")
    }

    /// A running sandbox.
    pub(crate) async fn sandbox(
        &self,
        runtime: &Docker,
        change: impl FnOnce(&mut SandboxSpec),
    ) -> SandboxId {
        let id = SandboxId::new(format!("box-{}", self.objects("container").len())).unwrap();
        let mut spec = self.spec();
        change(&mut spec);
        runtime.create(&id, &spec).await.unwrap();
        id
    }

    /// The output of a script in a sandbox.
    pub(crate) async fn sh(&self, runtime: &Docker, id: &SandboxId, script: &str) -> String {
        use stockade_runtime::Event;
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let exec = ExecId::new(format!("run-{number}")).unwrap();
        let arguments = ["sh", "-c", script].map(OsString::from).into();
        let command = Command { arguments, ..Command::default() };
        let mut running = runtime.execute(id, &exec, &command).await.unwrap();
        let mut output = Vec::new();
        while let Some(event) = running.events.next().await {
            if let Event::Output { bytes, .. } = event {
                output.extend_from_slice(&bytes);
            }
        }
        String::from_utf8_lossy(&output).into_owned()
    }

    /// The ids of our objects of a kind, such as `container`.
    pub(crate) fn objects(&self, kind: &str) -> Vec<String> {
        let Ok(id) = fs::read_to_string(self.data().join("runtime-docker/engine-id")) else {
            return Vec::new();
        };
        let filter = format!("label=dev.stockade.data={id}");
        let all: &[&str] = if kind == "container" { &["-a"] } else { &[] };
        let listed =
            self.engine.docker(&[&[kind, "ls", "-q", "--filter", &filter][..], all].concat());
        listed.lines().map(|line| format!("{kind} {line}")).collect()
    }

    fn keeper(&self) -> Option<std::os::fd::OwnedFd> {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
        let kind = SocketType::SEQPACKET;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
                .unwrap();
        let address = SocketAddrUnix::new(self.runtime().join("socket")).unwrap();
        rustix::net::connect(&socket, &address).ok()?;
        let process = sockopt::socket_peercred(&socket).unwrap().pid;
        pidfd_open(process, PidfdFlags::empty()).ok()
    }

    /// Kills the keeper.
    pub(crate) fn kill_keeper(&self) {
        let Some(keeper) = self.keeper() else { return };
        pidfd_send_signal(&keeper, Signal::KILL).unwrap();
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut news = [PollFd::from_borrowed_fd(keeper.as_fd(), PollFlags::IN)];
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        assert_eq!(poll(&mut news, Some(&limit)).unwrap(), 1, "the keeper cannot be killed");
    }
}

#[async_trait]
impl Backend for DockerFixture {
    async fn open(&self) -> Result<Arc<dyn Runtime>, String> {
        Ok(Arc::new(self.client()))
    }

    fn spec(&self) -> SandboxSpec {
        SandboxSpec { root: Root::Image("t:1".to_owned()), ..SandboxSpec::default() }
    }

    fn server(&self) -> Result<(), String> {
        Ok(())
    }

    async fn serve(&self, runtime: &dyn Runtime, id: &SandboxId, target: &Target) {
        let file = SandboxPath::new("/data/echo").unwrap();
        let content = Box::pin(std::io::Cursor::new(fs::read(program("echo")).unwrap()));
        let options = WriteOptions { mode: 0o755, ..WriteOptions::default() };
        runtime.write_file(id, &file, content, options).await.unwrap();
        let (kind, place) = match target {
            Target::Tcp(port) => ("tcp", port.to_string()),
            Target::Unix(path) => ("unix", path.to_string()),
        };
        let arguments = ["/data/echo", kind, &place].map(OsString::from).into();
        let command = Command { arguments, ..Command::default() };
        let exec = ExecId::new(format!("echo-{kind}")).unwrap();
        runtime.execute(id, &exec, &command).await.unwrap();
    }

    fn holder(&self) -> Result<(), String> {
        Ok(())
    }

    async fn kill_holder(&self) {
        self.kill_keeper();
    }

    async fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        for part in ["sandboxes", "snapshots", "staging", "trash"] {
            let names = fs::read_dir(self.runtime().join(part)).into_iter().flatten().flatten();
            let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
            let names = names.filter(|name| !name.starts_with('.'));
            left.extend(names.map(|name| format!("{part}/{name}")));
        }
        for kind in ["container", "volume", "image"] {
            left.extend(self.objects(kind));
        }
        left
    }

    async fn close(&self) {
        self.kill_keeper();
    }
}

impl Drop for DockerFixture {
    fn drop(&mut self) {
        self.kill_keeper();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.runtime().join("log")).unwrap_or_default();
            let _ = std::io::Write::write_all(&mut std::io::stderr(), log.as_bytes());
        }
        if !self.engine.socket().exists() {
            return;
        }
        for container in self.objects("container") {
            let id = container.trim_start_matches("container ").to_owned();
            let _ = self.engine.docker(&["rm", "-fv", &id]);
        }
    }
}
