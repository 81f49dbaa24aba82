//! A command of a fake sandbox: the interface for its program, and what ends it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{self, Debug, Formatter};
use std::future::pending;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stockade_core::sandbox::User;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::lock;
use super::transcript::{Transcript, events};
use super::tree::Tree;
use crate::exec::{Ending, Exec, Input, Offsets, Stream, WindowSize};
use crate::files::WriteOptions;
use crate::state::State;

/// A program of a fake sandbox: the function that runs instead of a process.
pub(super) type Program =
    Arc<dyn Fn(Process) -> Pin<Box<dyn Future<Output = Ending> + Send>> + Send + Sync>;

/// The interface for a program of a fake sandbox: its arguments, its streams, its files.
pub struct Process {
    /// The program's name and its arguments.
    pub arguments: Vec<OsString>,
    /// Its complete environment.
    pub environment: BTreeMap<OsString, OsString>,
    /// Its working directory.
    pub working_directory: PathBuf,
    /// Its user.
    pub user: User,
    pub(super) size: watch::Receiver<Option<WindowSize>>,
    pub(super) transcript: Arc<watch::Sender<Transcript>>,
    pub(super) input: Option<mpsc::Receiver<Option<Vec<u8>>>>,
    pub(super) files: Arc<Mutex<Tree>>,
}

impl Process {
    /// Writes a text to its standard output.
    pub fn print(&self, text: &str) {
        self.write(Stream::Output, text.as_bytes());
    }

    /// Writes bytes to a stream; with a terminal there is only one.
    pub fn write(&self, stream: Stream, bytes: &[u8]) {
        let stream = if self.terminal().is_some() { Stream::Output } else { stream };
        self.transcript.send_modify(|transcript| transcript.write(stream, bytes));
    }

    /// The next bytes of its standard input; `None` at its end.
    pub async fn read(&mut self) -> Option<Vec<u8>> {
        let bytes = self.input.as_mut()?.recv().await.flatten();
        if bytes.is_none() {
            self.input = None;
        }
        bytes
    }

    /// The size of its terminal, where it has one.
    pub fn terminal(&self) -> Option<WindowSize> {
        *self.size.borrow()
    }

    /// The content of a file of its sandbox; `None` when there is no such file. A relative path
    /// starts at the working directory.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let path = self.working_directory.join(path);
        let (content, _) = lock(&self.files).read(&path).ok()?;
        Some(content.to_vec())
    }

    /// Writes a file of its sandbox, and creates missing parent directories; true if it succeeded.
    pub fn write_file(&self, path: impl AsRef<Path>, content: impl Into<Vec<u8>>) -> bool {
        let path = self.working_directory.join(path);
        let options = WriteOptions { owner: Some(self.user), ..WriteOptions::default() };
        lock(&self.files).write(&path, content.into(), options).is_ok()
    }
}

impl Debug for Process {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("arguments", &self.arguments).finish_non_exhaustive()
    }
}

/// The sandbox's state of a command that runs or ran.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) transcript: watch::Receiver<Transcript>,
    /// The ending that an operation has set.
    pub(super) verdict: watch::Sender<Option<Ending>>,
    pub(super) size: watch::Sender<Option<WindowSize>>,
    pub(super) input: Option<mpsc::Sender<Option<Vec<u8>>>>,
    pub(super) task: AbortHandle,
}

impl Command {
    pub(super) fn attach(&self, from: Offsets) -> Exec {
        Exec {
            events: events(self.transcript.clone(), from),
            input: self.input.clone().map(Input::new),
        }
    }

    pub(super) fn ending(&self) -> Option<Ending> {
        self.transcript.borrow().ending.clone()
    }

    /// Ends the command with this ending, unless it has ended.
    pub(super) fn end(&self, ending: Ending) {
        self.verdict.send_if_modified(|verdict| {
            let first = verdict.is_none();
            verdict.get_or_insert(ending);
            first
        });
    }
}

/// What ends a command besides its program.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) verdict: watch::Receiver<Option<Ending>>,
    pub(super) state: watch::Receiver<State>,
    pub(super) timeout: Option<Duration>,
    pub(super) output_limit_bytes: Option<u64>,
}

/// Runs a program until something ends it, and reports its end.
pub(super) async fn run(
    program: Pin<Box<dyn Future<Output = Ending> + Send>>,
    transcript: Arc<watch::Sender<Transcript>>,
    mut bounds: Bounds,
) {
    let limit = bounds.output_limit_bytes.unwrap_or(u64::MAX);
    let mut written = transcript.subscribe();
    let ending = tokio::select! {
        biased;
        ending = wait_for_verdict(&mut bounds.verdict) => ending,
        () = wait_for_timeout(bounds.timeout) => Ending::TimedOut,
        ending = run_unless_paused(bounds.state, program) => ending,
        _ = written.wait_for(|transcript| transcript.length() > limit) => Ending::OutputExceeded,
    };
    drop(written);
    transcript.send_modify(|transcript| {
        let exceeded = transcript.length() > limit;
        transcript.ending = Some(if exceeded { Ending::OutputExceeded } else { ending });
    });
}

async fn wait_for_verdict(verdict: &mut watch::Receiver<Option<Ending>>) -> Ending {
    let ending = verdict.wait_for(Option::is_some).await.ok().and_then(|ending| ending.clone());
    match ending {
        Some(ending) => ending,
        // No sender is left that could set an ending.
        None => pending().await,
    }
}

async fn wait_for_timeout(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => pending().await,
    }
}

/// Runs a program, but not while its sandbox is paused.
async fn run_unless_paused(
    mut state: watch::Receiver<State>,
    mut program: Pin<Box<dyn Future<Output = Ending> + Send>>,
) -> Ending {
    loop {
        // If the sandbox no longer exists, its commands have been ended in another way.
        let _ = state.wait_for(|state| *state != State::Paused).await;
        tokio::select! {
            biased;
            Ok(_) = state.wait_for(|state| *state == State::Paused) => {}
            ending = &mut program => return ending,
        }
    }
}
