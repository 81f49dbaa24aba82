//! A runtime for the tests of its callers: sandboxes in memory, with programs that are Rust
//! functions. It keeps every promise of [`Runtime`](crate::Runtime) that is possible without a
//! process, and breaks them on request.
//!
//! Time is tokio's: leases, timeouts and `sleep` follow a paused clock too. There is no shell, but
//! `sh -c` (and `bash -c`) with a text that is a program's name, or words separated by spaces, runs
//! that program. Nothing here is isolated.

mod builtin;
mod changes;
#[cfg(test)]
mod conformance;
mod copies;
mod network;
mod process;
mod runtime;
mod sandbox;
mod start;
mod streams;
#[cfg(test)]
mod tests;
mod transcript;
mod tree;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stockade_core::{SandboxId, SnapshotId};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use crate::capability::{Capability, Unsupported};
use crate::error::{Error, Result};
use crate::exec::Ending;
use crate::runtime::{EndCause, SnapshotInfo, Target};

pub use process::Process;

use process::Program;
use sandbox::{InitialWorkspace, Sandbox};
use tree::Tree;

/// How many connections wait for [`Listener::accept`].
const BACKLOG: usize = 128;

/// The content of a fake snapshot.
#[derive(Debug, Clone)]
struct StoredSnapshot {
    files: Tree,
    workspace: Option<InitialWorkspace>,
}

/// A runtime in memory. Clones share the same state.
#[derive(Debug, Clone)]
pub struct Fake(Arc<Mutex<State>>);

/// The state of a fake runtime, and its configuration.
#[derive(Default)]
struct State {
    name: Option<&'static str>,
    unavailable: Option<Unsupported>,
    sandboxes: BTreeMap<SandboxId, Sandbox>,
    snapshots: BTreeMap<SnapshotId, (SnapshotInfo, StoredSnapshot)>,
    programs: BTreeMap<String, Program>,
    refused: BTreeMap<Capability, Unsupported>,
    failures: VecDeque<(&'static str, Error)>,
    calls: BTreeMap<&'static str, usize>,
}

impl Fake {
    /// A runtime without sandboxes that supports everything except bind mounts of host files,
    /// volumes and ssh agents.
    pub fn new() -> Self {
        let fake = Self(Arc::default());
        for name in builtin::NAMES {
            fake.program(name, |process| builtin::run(name, process));
        }
        fake.refuse(Capability::HostMounts, "its files are in memory");
        fake.refuse(Capability::Volumes, "its files are in memory");
        fake.refuse(Capability::SshAgent, "its files are in memory");
        fake
    }

    /// The same under the name of another runtime.
    pub fn named(name: &'static str) -> Self {
        let fake = Self::new();
        lock(&fake.0).name = Some(name);
        fake
    }

    /// Makes the runtime unusable, for this reason and with this remedy.
    pub fn make_unavailable(&self, reason: &str, remedy: &str) {
        let (reason, remedy) = (reason.to_owned(), Some(remedy.to_owned()));
        lock(&self.0).unavailable = Some(Unsupported { reason, remedy });
    }

    /// Makes commands whose program is `name` run a function. It runs once for each command, and
    /// not while the sandbox is paused; its future is dropped when the command is killed.
    pub fn program<F, R>(&self, name: &str, program: F)
    where
        F: Fn(Process) -> R + Send + Sync + 'static,
        R: Future<Output = Ending> + Send + 'static,
    {
        let program = Arc::new(program);
        let program: Program = Arc::new(move |process| {
            let program = Arc::clone(&program);
            Box::pin(async move { program(process).await })
        });
        lock(&self.0).programs.insert(name.to_owned(), program);
    }

    /// Makes a capability unsupported, for this reason.
    pub fn refuse(&self, capability: Capability, reason: &str) {
        let unsupported = Unsupported { reason: reason.to_owned(), remedy: None };
        lock(&self.0).refused.insert(capability, unsupported);
    }

    /// Makes the next call of an operation fail before it does anything. `operation` is the name of
    /// the method, such as `execute`. Repeated calls add further failures.
    pub fn fail_next(&self, operation: &'static str, error: Error) {
        lock(&self.0).failures.push_back((operation, error));
    }

    /// How many operations were called.
    pub fn all_calls(&self) -> usize {
        lock(&self.0).calls.values().sum()
    }

    /// How often an operation was called, by the name of its method.
    pub fn calls(&self, operation: &str) -> usize {
        lock(&self.0).calls.get(operation).copied().unwrap_or_default()
    }

    /// Ends the processes of every sandbox, for this cause. Their files remain.
    pub fn end_processes(&self, cause: EndCause) {
        for sandbox in lock(&self.0).sandboxes.values_mut() {
            sandbox.end("its processes ended", cause);
        }
    }

    /// Loses every sandbox, command and snapshot, as if the machine were lost. The events of
    /// running commands end with [`Ending::Unknown`].
    pub fn crash(&self) {
        let mut state = lock(&self.0);
        for sandbox in std::mem::take(&mut state.sandboxes).into_values() {
            sandbox.crash();
        }
        state.snapshots.clear();
    }

    /// Accepts the connections to a port or socket of a sandbox, until the listener is dropped.
    ///
    /// # Errors
    /// [`Error::NoSandbox`].
    pub fn listen(&self, id: &SandboxId, target: Target) -> Result<Listener> {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        let mut state = lock(&self.0);
        let sandbox = state.sandbox(id)?;
        sandbox.ports.retain(|(other, _)| *other != target);
        sandbox.ports.push((target, sender));
        Ok(Listener(receiver))
    }

    /// Counts a call, and fails it if that was requested.
    fn enter(&self, operation: &'static str) -> Result<MutexGuard<'_, State>> {
        let mut state = lock(&self.0);
        *state.calls.entry(operation).or_default() += 1;
        match state.failures.iter().position(|(name, _)| *name == operation) {
            Some(at) => match state.failures.remove(at) {
                Some((_, error)) => Err(error),
                None => Ok(state),
            },
            None => Ok(state),
        }
    }
}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn sandbox(&mut self, id: &SandboxId) -> Result<&mut Sandbox> {
        self.sandboxes.get_mut(id).ok_or_else(|| Error::NoSandbox(id.clone()))
    }

    fn supports(&self, capability: Capability) -> std::result::Result<(), Unsupported> {
        self.refused.get(&capability).map_or(Ok(()), |unsupported| Err(unsupported.clone()))
    }

    /// # Errors
    /// [`Error::Unsupported`] for a refused capability.
    fn needs(&self, capability: Capability) -> Result<()> {
        self.supports(capability).map_err(|unsupported| Error::from((capability, unsupported)))
    }

    /// Ends a sandbox and removes everything that belongs to it.
    fn remove(&mut self, id: &SandboxId) {
        if let Some(mut sandbox) = self.sandboxes.remove(id) {
            sandbox.end("it was cleaned up", EndCause::Requested);
        }
    }
}

impl Debug for State {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("sandboxes", &self.sandboxes.keys())
            .field("snapshots", &self.snapshots.keys())
            .field("programs", &self.programs.keys())
            .finish_non_exhaustive()
    }
}

/// Accepts the connections to one port or socket of a fake sandbox.
#[derive(Debug)]
pub struct Listener(mpsc::Receiver<DuplexStream>);

impl Listener {
    /// The next connection's inner end; `None` when the sandbox has ended.
    pub async fn accept(&mut self) -> Option<DuplexStream> {
        self.0.recv().await
    }
}

/// Locks a mutex that a panicked program may have poisoned.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
