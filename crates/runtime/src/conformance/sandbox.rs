//! One sandbox of a case, with short helpers for what cases do with it.

use std::sync::Arc;

use stockade_core::sandbox::VolumeMount;
use stockade_core::{ExecId, OwnerId, SandboxId, SandboxSpec, VolumeName};
use tokio::io::AsyncReadExt as _;

use super::harness::{Harness, eventually, path, within};
use super::running::{Finished, Running};
use crate::error::{Error, Result};
use crate::exec::{Command, Ending, Offsets};
use crate::files::{Content, FileInfo, ReadRange, WriteOptions};
use crate::runtime::{Runtime, Status, Target};
use crate::state::State;

/// The directory for files of cases, which every user may write to.
pub(super) const DATA: &str = "/data";

/// A sandbox that exists or existed.
#[derive(Debug, Clone)]
pub(super) struct Sandbox<'a> {
    harness: &'a Harness,
    id: SandboxId,
}

/// A command with these arguments.
pub(super) fn command(words: &[&str]) -> Command {
    Command { arguments: words.iter().map(Into::into).collect(), ..Command::default() }
}

/// A command that runs this script in a shell.
pub(super) fn script(text: &str) -> Command {
    command(&["sh", "-c", text])
}

/// The mount of a volume of the cases' owner.
pub(super) fn volume(name: &str, inside: &str) -> VolumeMount {
    VolumeMount {
        owner: OwnerId::new("conformance").expect("an owner"),
        name: VolumeName::new(name).expect("a name"),
        inside: inside.into(),
        writable: true,
        sub_path: None,
    }
}

/// Bytes to write to a file.
pub(super) fn content(bytes: impl Into<Vec<u8>>) -> Content {
    Box::pin(std::io::Cursor::new(bytes.into()))
}

impl Harness {
    /// Starts a server inside that returns what it gets, and waits until it listens.
    pub(super) async fn serve(&self, sandbox: &Sandbox<'_>, target: &Target) {
        let runtime = self.runtime();
        self.backend.serve(&*runtime, sandbox.id(), target).await;
        let what = format!("a server at {target}");
        eventually(&what, async || runtime.connect(sandbox.id(), target).await.is_ok()).await;
    }

    /// A new sandbox.
    pub(super) async fn sandbox(&self) -> Sandbox<'_> {
        self.sandbox_with(&self.spec()).await
    }

    /// A new sandbox with this spec.
    pub(super) async fn sandbox_with(&self, spec: &SandboxSpec) -> Sandbox<'_> {
        let sandbox = self.empty_sandbox(spec).await;
        sandbox.make_data().await;
        sandbox
    }

    /// A new sandbox without any changes, not even a directory for the case.
    pub(super) async fn empty_sandbox(&self, spec: &SandboxSpec) -> Sandbox<'_> {
        let id = self.id();
        within("a sandbox", self.runtime().create(&id, spec)).await.expect("a sandbox");
        Sandbox::new(self, id)
    }

    /// A sandbox that was created by other means.
    pub(super) async fn existing(&self, id: SandboxId) -> Sandbox<'_> {
        let sandbox = Sandbox::new(self, id);
        sandbox.make_data().await;
        sandbox
    }
}

impl<'a> Sandbox<'a> {
    pub(super) const fn new(harness: &'a Harness, id: SandboxId) -> Self {
        Self { harness, id }
    }

    pub(super) const fn id(&self) -> &SandboxId {
        &self.id
    }

    pub(super) fn runtime(&self) -> Arc<dyn Runtime> {
        self.harness.runtime()
    }

    pub(super) async fn make_data(&self) {
        let options = WriteOptions { mode: 0o777, ..WriteOptions::default() };
        let (runtime, data) = (self.runtime(), path(DATA));
        let made = within("a directory", runtime.make_directory(&self.id, &data, options)).await;
        made.expect("a directory");
    }

    /// Starts a command under a new id.
    pub(super) async fn start(&self, command: &Command) -> Running {
        self.start_as(&self.harness.exec_id(), command).await
    }

    /// Starts a command under this id, or attaches to it.
    pub(super) async fn start_as(&self, exec: &ExecId, command: &Command) -> Running {
        let started = self.try_start(exec, command).await;
        let started = started.unwrap_or_else(|error| panic!("start {command:?}: {error:?}"));
        Running::new(exec.clone(), started, Offsets::default())
    }

    pub(super) async fn try_start(
        &self,
        exec: &ExecId,
        command: &Command,
    ) -> Result<crate::exec::Exec> {
        within("the start of a command", self.runtime().execute(&self.id, exec, command)).await
    }

    /// Attaches to a command.
    pub(super) async fn attach(&self, exec: &ExecId, from: Offsets) -> Running {
        let attached = within("attaching", self.runtime().attach(&self.id, exec, from)).await;
        Running::new(exec.clone(), attached.expect("a command"), from)
    }

    /// Runs a command to its end.
    pub(super) async fn run(&self, words: &[&str]) -> Finished {
        self.start(&command(words)).await.finish().await
    }

    /// Runs a script in a shell to its end.
    pub(super) async fn sh(&self, text: &str) -> Finished {
        self.start(&script(text)).await.finish().await
    }

    /// The output of a script that must succeed.
    pub(super) async fn good(&self, text: &str) -> String {
        let finished = self.sh(text).await;
        assert_eq!(finished.ending, Ending::Exited(0), "{text}: {}", finished.error());
        finished.output()
    }

    pub(super) async fn try_read(&self, file: &str) -> Result<Vec<u8>> {
        self.try_read_range(file, ReadRange::default()).await
    }

    pub(super) async fn try_read_range(&self, file: &str, range: ReadRange) -> Result<Vec<u8>> {
        within("reading a file", async {
            let mut bytes = Vec::new();
            let mut content = self.runtime().read_file(&self.id, &path(file), range).await?;
            let read = content.read_to_end(&mut bytes).await;
            read.map_err(|source| Error::File {
                operation: "read",
                path: file.to_owned(),
                source,
            })?;
            Ok(bytes)
        })
        .await
    }

    pub(super) async fn read(&self, file: &str) -> String {
        let bytes = self.try_read(file).await.unwrap_or_else(|error| panic!("{file}: {error:?}"));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(super) async fn try_write(&self, file: &str, bytes: impl Into<Vec<u8>>) -> Result<u64> {
        let (runtime, file) = (self.runtime(), path(file));
        let options = WriteOptions::default();
        within("writing a file", runtime.write_file(&self.id, &file, content(bytes), options)).await
    }

    pub(super) async fn write(&self, file: &str, bytes: impl Into<Vec<u8>>) {
        let written = self.try_write(file, bytes).await;
        written.unwrap_or_else(|error| panic!("{file}: {error:?}"));
    }

    pub(super) async fn stat(&self, file: &str) -> Result<FileInfo> {
        within("looking at a file", self.runtime().stat(&self.id, &path(file))).await
    }

    pub(super) async fn exists(&self, file: &str) -> bool {
        self.stat(file).await.is_ok()
    }

    /// Waits until a file exists.
    pub(super) async fn appears(&self, file: &str) {
        eventually(&format!("a file {file}"), async || self.exists(file).await).await;
    }

    /// How long a file is; 0 when there is none.
    pub(super) async fn size(&self, file: &str) -> u64 {
        self.stat(file).await.map_or(0, |info| info.size_bytes)
    }

    /// Waits until a file is longer than this.
    pub(super) async fn grows_beyond(&self, file: &str, size: u64) {
        let what = format!("{file} longer than {size} bytes");
        eventually(&what, async || self.size(file).await > size).await;
    }

    /// The names in a directory, sorted.
    pub(super) async fn names(&self, directory: &str) -> Vec<Vec<u8>> {
        let (runtime, directory) = (self.runtime(), path(directory));
        let read = within("reading a directory", runtime.read_directory(&self.id, &directory));
        let mut names: Vec<_> = read.await.unwrap().into_iter().map(|info| info.name).collect();
        names.sort();
        names
    }

    pub(super) async fn inspect(&self) -> Result<Status> {
        within("inspecting", self.runtime().inspect(&self.id)).await
    }

    /// Whether its processes have ended permanently.
    pub(super) async fn has_ended(&self) -> bool {
        match self.inspect().await {
            Ok(status) => status.state == State::Ended,
            Err(Error::NoSandbox(_)) => true,
            Err(error) => panic!("inspect: {error:?}"),
        }
    }

    pub(super) async fn cleanup(&self) {
        within("a cleanup", self.runtime().cleanup(&self.id)).await.expect("a cleanup");
    }

    pub(super) async fn kill(&self, exec: &ExecId) {
        within("a kill", self.runtime().kill(&self.id, exec)).await.expect("a kill");
    }

    pub(super) async fn signal(&self, exec: &ExecId, signal: i32) {
        let sent = within("a signal", self.runtime().signal(&self.id, exec, signal)).await;
        sent.expect("a signal");
    }

    pub(super) async fn pause(&self) {
        within("a pause", self.runtime().pause(&self.id)).await.expect("a pause");
    }

    pub(super) async fn resume(&self) {
        within("going on", self.runtime().resume(&self.id)).await.expect("going on");
    }
}
