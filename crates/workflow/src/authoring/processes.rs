//! The processes of realms: started when they are needed, or in advance.
//!
//! Starting a process, raising its jail and compiling the library takes longer than a short workflow,
//! and is the same for all programs. So one process can be kept ready. It has no program yet, and
//! serves one.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::error::Error;
use crate::sync::lock;

/// The delay between taking a process and starting the next one, which must not slow down the first
/// one.
const PREPARE_DELAY: Duration = Duration::from_millis(100);

/// Starts the processes of realms. Its clones share the same state.
#[derive(Debug, Clone)]
pub struct Processes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// A command and its first arguments that run [`super::process`].
    program: Vec<OsString>,
    has_one_ready: bool,
    ready: Mutex<Option<RealmProcess>>,
    next: Mutex<Option<JoinHandle<()>>>,
}

/// A process, and the stream to it. Dropping this value ends the process.
#[derive(Debug)]
pub(super) struct RealmProcess {
    pub(super) process: Child,
    pub(super) stream: UnixStream,
}

impl Processes {
    /// Starts processes with `program`: a command and its first arguments that run [`super::process`].
    pub fn new(program: Vec<OsString>) -> Self {
        Self::of(program, false)
    }

    /// Like `new`, but keeps a process ready after the first use. Must be used in only one [`tokio`]
    /// runtime.
    pub fn with_one_ready(program: Vec<OsString>) -> Self {
        Self::of(program, true)
    }

    fn of(program: Vec<OsString>, has_one_ready: bool) -> Self {
        let (ready, next) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { program, has_one_ready, ready, next }))
    }

    /// Starts the next process now, if none is ready. If that fails, the next `take` reports the error.
    pub fn prepare(&self) {
        self.0.prepare();
    }

    /// Takes an unused process.
    pub(super) fn take(&self) -> Result<RealmProcess, Error> {
        if self.0.has_one_ready {
            *lock(&self.0.next) = Some(tokio::spawn(prepare_later(Arc::downgrade(&self.0))));
        }
        let ready = lock(&self.0.ready).take();
        match ready.and_then(RealmProcess::if_alive) {
            Some(started) => Ok(started),
            None => start(&self.0.program),
        }
    }
}

impl Inner {
    fn prepare(&self) {
        let mut ready = lock(&self.ready);
        if ready.is_none() {
            *ready = start(&self.program).ok();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(next) = lock(&self.next).take() {
            next.abort();
        }
    }
}

impl RealmProcess {
    fn if_alive(mut self) -> Option<Self> {
        matches!(self.process.try_wait(), Ok(None)).then_some(self)
    }
}

async fn prepare_later(processes: Weak<Inner>) {
    tokio::time::sleep(PREPARE_DELAY).await;
    if let Some(processes) = processes.upgrade() {
        processes.prepare();
    }
}

fn start(program: &[OsString]) -> Result<RealmProcess, Error> {
    let failed = |error: std::io::Error| Error::Start(error.to_string());
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
    ours.set_nonblocking(true).map_err(failed)?;
    let output: OwnedFd = theirs.try_clone().map_err(failed)?.into();
    let (name, arguments) =
        program.split_first().ok_or_else(|| Error::Start("no program".to_owned()))?;
    let process = Command::new(name)
        .args(arguments)
        // The workflow could read its environment.
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(output))
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    Ok(RealmProcess { process, stream: UnixStream::from_std(ours).map_err(failed)? })
}
