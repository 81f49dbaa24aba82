//! One fake sandbox: its spec, its files, its commands, its lease.

use std::collections::BTreeMap;
use std::future::pending;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::egress::EgressListeners;
use stockade_bundle::beneath::Timestamp;
use stockade_core::sandbox::{LimitName, Limits, Root};
use stockade_core::{
    Bytes, Enforcement, ExecId, Isolation, Level, LimitReport, SandboxId, SandboxSpec, WallReport,
};
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::process::Command;
use super::tree::Tree;
use super::{State, copies, lock, network};
use crate::capability::Capability;
use crate::error::{Error, Result};
use crate::exec::{Ending, ExecStatus};
use crate::runtime::{EndCause, Status, Target};

/// The default working directory.
const HOME: &str = "/home/user";

#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) spec: SandboxSpec,
    pub(super) files: Arc<Mutex<Tree>>,
    pub(super) commands: BTreeMap<ExecId, Command>,
    pub(super) ports: Vec<(Target, mpsc::Sender<DuplexStream>)>,
    /// The listeners of its network, if it has one and has not ended.
    pub(super) listeners: Option<EgressListeners>,
    pub(super) state: watch::Sender<crate::State>,
    pub(super) lease: watch::Sender<Option<Instant>>,
    /// The initial state of its workspace.
    pub(super) workspace: Option<InitialWorkspace>,
    reason: Option<String>,
    end_cause: Option<EndCause>,
    created_at_ms: u64,
    isolation: Isolation,
}

/// The initial state of a workspace.
#[derive(Debug, Clone)]
pub(super) struct InitialWorkspace {
    /// Its path inside.
    pub(super) inside: PathBuf,
    /// When it was copied.
    pub(super) since: Timestamp,
    /// All files at that time.
    pub(super) files: Tree,
}

impl Sandbox {
    /// A sandbox with the files that its spec requests.
    pub(super) fn new(state: &State, spec: &SandboxSpec) -> Result<Self> {
        if spec.workspace.is_some() {
            state.needs(Capability::Workspace)?;
        }
        if !spec.mounts.is_empty() {
            state.needs(Capability::HostMounts)?;
        }
        if !spec.volumes.is_empty() || !spec.caches.is_empty() {
            state.needs(Capability::Volumes)?;
        }
        if spec.ssh_agent {
            state.needs(Capability::SshAgent)?;
        }
        if spec.network.is_some() {
            state.needs(Capability::Egress)?;
        }
        let isolation = isolation(state, spec)?;
        let listeners = spec.network.as_ref().map(|_| network::open()).transpose()?;
        let mut tree = Tree::default();
        let mut initial = None;
        match &spec.root {
            Root::Host | Root::Image(_) => {}
            Root::Directory(host) => copies::ship(&mut tree, host, "/".as_ref())?,
            Root::Snapshot(snapshot) => {
                let stored = state.snapshots.get(snapshot);
                let (_, kept) = stored.ok_or_else(|| Error::NoSnapshot(snapshot.clone()))?;
                tree = kept.files.clone();
                initial = kept.workspace.clone();
            }
        }
        // A snapshot already contains the workspace.
        if let Some(workspace) = &spec.workspace
            && !matches!(spec.root, Root::Snapshot(_))
        {
            let since = copies::timestamp()?;
            copies::ship(&mut tree, &workspace.host, &workspace.inside)?;
            initial = Some(InitialWorkspace {
                inside: workspace.inside.clone(),
                since,
                files: tree.clone(),
            });
        }
        Ok(Self {
            spec: spec.clone(),
            files: Arc::new(Mutex::new(tree)),
            commands: BTreeMap::new(),
            ports: Vec::new(),
            listeners,
            state: watch::Sender::new(crate::State::Running),
            lease: watch::Sender::new(spec.lease.map(|lease| Instant::now() + lease)),
            workspace: initial,
            reason: None,
            end_cause: None,
            created_at_ms: now_ms(),
            isolation,
        })
    }

    pub(super) fn state(&self) -> crate::State {
        *self.state.borrow()
    }

    /// Changes to another state, from any but the last.
    ///
    /// # Errors
    /// [`Error::WrongState`] when it has ended.
    pub(super) fn transition(&self, id: &SandboxId, next: crate::State) -> Result<()> {
        self.allows(id, "continue", |state| state != crate::State::Ended)?;
        self.state.send_replace(next);
        Ok(())
    }

    /// # Errors
    /// [`Error::WrongState`] in other states than these.
    pub(super) fn allows(
        &self,
        id: &SandboxId,
        operation: &'static str,
        is_right: impl Fn(crate::State) -> bool,
    ) -> Result<()> {
        let state = self.state();
        if is_right(state) {
            return Ok(());
        }
        Err(Error::WrongState { id: id.clone(), state, operation })
    }

    pub(super) fn status(&self, id: &SandboxId) -> Status {
        let execs = self.commands.iter().map(|(id, command)| {
            let transcript = command.transcript.borrow();
            let ending = transcript.ending.clone();
            ExecStatus { id: id.clone(), ending, written: transcript.written }
        });
        Status {
            id: id.clone(),
            state: self.state(),
            reason: self.reason.clone(),
            end_cause: self.end_cause,
            labels: self.spec.labels.clone(),
            created_at_ms: self.created_at_ms,
            lease_left: self.lease.borrow().map(|end| end.duration_since(Instant::now())),
            isolation: self.isolation.clone(),
            execs: execs.collect(),
        }
    }

    pub(super) fn working_directory(&self) -> PathBuf {
        self.spec.working_directory.clone().unwrap_or_else(|| HOME.into())
    }

    /// The environment of every command.
    pub(super) fn environment(&self) -> BTreeMap<String, Bytes> {
        let own = [("HOME", HOME), ("PATH", "/usr/bin:/bin")];
        let own = own.map(|(name, value)| (name.to_owned(), value.into()));
        own.into_iter().chain(self.spec.environment.clone()).collect()
    }

    /// Ends it, with its commands and connections.
    pub(super) fn end(&mut self, reason: &str, cause: EndCause) {
        self.reason.get_or_insert_with(|| reason.to_owned());
        self.end_cause.get_or_insert(cause);
        self.state.send_replace(crate::State::Ended);
        self.ports.clear();
        self.listeners = None;
        for command in self.commands.values() {
            command.end(Ending::SandboxEnded);
        }
    }

    /// Drops it without recording how its commands ended.
    pub(super) fn crash(self) {
        for command in self.commands.into_values() {
            command.task.abort();
        }
    }
}

/// Ends a sandbox when its lease expires.
pub(super) async fn watch_lease(
    state: Weak<Mutex<State>>,
    id: SandboxId,
    mut lease: watch::Receiver<Option<Instant>>,
) {
    loop {
        let end = *lease.borrow_and_update();
        let ended = async {
            match end {
                Some(end) => tokio::time::sleep_until(end).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = ended => {
                let Some(state) = state.upgrade() else { return };
                if let Some(sandbox) = lock(&state).sandboxes.get_mut(&id) {
                    sandbox.end("its lease ended", EndCause::LeaseExpired);
                }
                return;
            }
            changed = lease.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

/// How the limits of a spec are enforced.
///
/// # Errors
/// [`Error::Limit`] for one that was refused and is not left to best effort.
fn isolation(state: &State, spec: &SandboxSpec) -> Result<Isolation> {
    let mut limits = Vec::new();
    for (limit, capability) in requested(&spec.limits) {
        let report = |enforcement, by: &str| LimitReport {
            name: limit.as_str().into(),
            enforcement,
            by: by.to_owned(),
        };
        match state.supports(capability) {
            Ok(()) => limits.push(report(Enforcement::Enforced, "a fake")),
            Err(unsupported) if spec.best_effort.contains(&limit.into()) => {
                limits.push(report(Enforcement::Refused, &unsupported.reason));
            }
            Err(unsupported) => {
                let remedy = unsupported.remedy.unwrap_or_default();
                return Err(Error::Limit { limit, reason: unsupported.reason, remedy });
            }
        }
    }
    let reasons = vec!["this is a fake: nothing runs, and nothing is isolated".to_owned()];
    let mut walls = Vec::new();
    if !spec.access.is_empty() {
        walls.push(WallReport::access(Some("nothing runs")));
    }
    Ok(Isolation { level: Level::Reduced, walls, limits, reasons })
}

fn requested(limits: &Limits) -> impl Iterator<Item = (LimitName, Capability)> {
    let all = [
        (limits.memory_bytes, LimitName::Memory, Capability::MemoryLimit),
        (limits.cpu_millis, LimitName::Cpus, Capability::CpuLimit),
        (limits.processes, LimitName::Processes, Capability::ProcessLimit),
        (limits.disk_bytes, LimitName::Disk, Capability::DiskLimit),
    ];
    all.into_iter().filter_map(|(asked, limit, capability)| asked.map(|_| (limit, capability)))
}

pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
