//! Snapshots: copies of a sandbox's upper layers below `snapshots/ID`, each with a record, and the
//! layers of a sandbox that starts from one.
//!
//! All of it runs on threads that may block, and completes there when its caller is cancelled.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;
use stockade_bundle::layer::{self, Owners};
use stockade_bundle::view;
use stockade_core::sandbox::Root;
use stockade_core::{SandboxId, SnapshotId};
use stockade_jail::{Identity, Range};

use super::call::{Client, unexpected_answer};
use super::channel::Channel;
use super::files::{blocking, is_subordinate};
use super::subordinate;
use crate::directory::{Directory, Staged, is_at, name};
use crate::wire::{Answer, InitialState, Layers, Request};
use crate::workspace_layer::{WorkspaceLayer, data, host, not_copied};
use stockade_runtime::{Error, Result, SnapshotInfo};

/// The entries of a snapshot's directory.
const RECORD: &str = "record.json";
pub(super) const UPPER: &str = "upper";
pub(super) const WORKSPACE: &str = "workspace";
/// The workspace layer in a sandbox's directory.
const WORKSPACE_LAYER: &str = "workspace/upper";
/// How often a hold is attempted when the sandbox's keeper died meanwhile.
pub(super) const ATTEMPTS: usize = 3;

/// The record of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    info: SnapshotInfo,
    /// The source of the root's lower layer.
    root: Root,
    /// Whether there is a workspace layer.
    workspace: bool,
    /// The initial state of the sandbox's workspace.
    #[serde(default)]
    begun: Option<InitialState>,
    /// Why the layers are complete trees, if they are.
    #[serde(default)]
    whole: Option<String>,
    /// The first host id of the uid range that owns the files here; absent if ids are the same
    /// inside and outside.
    range_start: Option<u32>,
}

/// The layers of a new sandbox. Dropping this value removes those that no keeper has taken over.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The layers, as a keeper receives them.
    pub(super) layers: Layers,
    /// The lock of the uid range that owns the layers.
    pub(super) lock: Option<OwnedFd>,
    staged: Staged,
}

impl Prepared {
    /// The staged layers, ready to be sent to a keeper.
    pub(super) const fn new(layers: Layers, lock: Option<OwnedFd>, staged: Staged) -> Self {
        Self { layers, lock, staged }
    }

    /// The directory of the staged layers.
    pub(super) const fn directory(&self) -> &Dir {
        &self.staged.dir
    }

    /// Whether a keeper has taken over the layers.
    pub(super) fn is_adopted(&self) -> bool {
        let upper = name(UPPER).map(|upper| self.staged.dir.open_dir(&upper));
        upper.is_ok_and(|upper| upper.is_err_and(|error| error.errno() == Some(Errno::NOENT)))
    }
}

/// An existing snapshot.
pub(super) struct StoredSnapshot {
    id: SnapshotId,
    snapshots: Dir,
    path: RelativePath,
    dir: Dir,
    record: Record,
}

impl StoredSnapshot {
    /// Opens a snapshot.
    pub(super) fn open(directory: &Directory, id: &SnapshotId) -> Result<Self> {
        let snapshots = directory.snapshots().map_err(host)?;
        let path = name(id.as_str()).map_err(host)?;
        let dir = snapshots.open_dir(&path).map_err(|error| match error.errno() {
            Some(Errno::NOENT) => Error::NoSnapshot(id.clone()),
            _ => host(error),
        })?;
        let record = record(&dir)?.ok_or_else(|| Error::NoSnapshot(id.clone()))?;
        Ok(Self { id: id.clone(), snapshots, path, dir, record })
    }

    /// Whether its files have subordinate ids, which this process does not have.
    pub(super) fn is_subordinate(&self) -> bool {
        is_subordinate(self.record.range_start)
    }

    /// The changes of its sandbox in the workspace.
    pub(super) fn workspace_layer(&self) -> Result<WorkspaceLayer> {
        let Record { workspace, begun, whole, .. } = &self.record;
        let (begun, whole) = (begun.as_ref(), whole.is_some());
        WorkspaceLayer::open(*workspace, begun, whole, Owners::Same, &self.dir, WORKSPACE)
    }

    /// The source of the root's lower layer.
    pub(super) fn root(&self) -> Root {
        self.record.root.clone()
    }

    /// Whether it has a workspace layer.
    pub(super) const fn has_workspace(&self) -> bool {
        self.record.workspace
    }

    /// Why its layers are complete trees, if they are.
    pub(super) fn full_copy_reason(&self) -> Option<String> {
        self.record.whole.clone()
    }

    /// One of its layers.
    pub(super) fn layer(&self, entry: &str) -> Result<Dir> {
        self.dir.open_dir(&name(entry).map_err(host)?).map_err(host)
    }

    /// The initial state of its workspace, of which this is another copy.
    pub(super) fn copied_again(&self, copy: &Dir, staged: &Dir) -> Result<Option<InitialState>> {
        copied_again(self.record.begun.clone(), (&self.dir, WORKSPACE), copy, staged)
    }

    /// Checks that the snapshot still exists. A removal first renames the directory, so an existing
    /// one was complete.
    pub(super) fn is_still_there(&self) -> Result<()> {
        match is_at(&self.snapshots, &self.path, &self.dir).map_err(host)? {
            true => Ok(()),
            false => Err(Error::NoSnapshot(self.id.clone())),
        }
    }
}

/// A sandbox whose processes are stopped until this value is dropped.
#[derive(Debug)]
pub(super) struct PausedSandbox {
    root: Root,
    workspace: bool,
    initial_state: Option<InitialState>,
    full_copy_reason: Option<String>,
    host_start: Option<u32>,
    /// The keeper's program.
    program: OsString,
    channel: Channel,
}

impl PausedSandbox {
    /// The source of the root's lower layer.
    pub(super) fn root(&self) -> Root {
        self.root.clone()
    }

    /// The sandbox's changes in its workspace.
    pub(super) fn workspace_layer(
        &self,
        directory: &Directory,
        id: &SandboxId,
    ) -> Result<WorkspaceLayer> {
        let owners = stored_owners(self.host_start).1;
        let dir = directory.sandbox(id).map_err(host)?;
        let whole = self.full_copy_reason.is_some();
        WorkspaceLayer::open(
            self.workspace,
            self.initial_state.as_ref(),
            whole,
            owners,
            &dir,
            WORKSPACE_LAYER,
        )
    }

    /// Copies one of its layers to an empty directory. Returns the disk use of the copy in bytes.
    fn copy(&self, from: &Dir, layer: &str, to: &Dir) -> Result<u64> {
        match self.program_for_ids() {
            Some(program) => subordinate::copy_layer(program, from, layer, to),
            None => copy_layer(from, layer, to, stored_owners(self.host_start).1),
        }
    }

    /// The program that reads its files, where they have subordinate ids.
    pub(super) fn program_for_ids(&self) -> Option<&OsStr> {
        is_subordinate(self.host_start).then_some(&*self.program)
    }

    /// Releases the sandbox. Returns whether it was stopped until now.
    pub(super) fn resume(self) -> bool {
        self.channel.is_silent()
    }
}

/// Stores the state of a sandbox's file system under an id.
pub(super) async fn take(
    client: &Arc<Client>,
    sandbox: &SandboxId,
    id: &SnapshotId,
) -> Result<SnapshotInfo> {
    let known = |record: Record| {
        if record.info.sandbox != *sandbox {
            return Err(Error::Conflict(format!("the snapshot {id}")));
        }
        Ok(record.info)
    };
    for _ in 0..ATTEMPTS {
        match read(client, id).await {
            Err(Error::NoSnapshot(_)) => {}
            other => return known(other?),
        }
        let paused = pause(client, sandbox).await?;
        let (client, sandbox, id) = (client.clone(), sandbox.clone(), id.clone());
        let stored = blocking(move || store(&client.directory, &sandbox, &id, paused));
        if let Some(info) = stored.await? {
            return Ok(info);
        }
    }
    let source = io::Error::other(format!("the keeper disconnected {ATTEMPTS} times"));
    Err(Error::Unreachable { what: "the keeper".to_owned(), source })
}

/// Every snapshot.
pub(super) async fn list(client: &Arc<Client>) -> Result<Vec<SnapshotInfo>> {
    let client = client.clone();
    blocking(move || {
        let snapshots = client.directory.snapshots().map_err(host)?;
        let mut infos = Vec::new();
        for (entry, _) in snapshots.entries().map_err(host)? {
            let dir = match snapshots.open_dir(&name(&entry).map_err(host)?) {
                Err(error) if error.errno() == Some(Errno::NOENT) => continue,
                other => other.map_err(host)?,
            };
            // A snapshot that is being removed has no record any more.
            infos.extend(record(&dir)?.map(|record| record.info));
        }
        infos.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(infos)
    })
    .await
}

/// Removes a snapshot.
pub(super) async fn remove(client: &Arc<Client>, id: &SnapshotId) -> Result<()> {
    let (client, id) = (client.clone(), id.clone());
    blocking(move || {
        let directory = &client.directory;
        let snapshots = directory.snapshots().map_err(host)?;
        if let Some(thrown) = directory.discard(&snapshots, id.as_str()).map_err(host)? {
            // Files that cannot be removed here are swept later.
            let _ = name(thrown).and_then(|thrown| directory.trash()?.remove_tree(&thrown));
        }
        Ok(())
    })
    .await
}

/// Copies a snapshot's layers for a new sandbox.
pub(super) async fn prepare(client: &Arc<Client>, id: &SnapshotId) -> Result<Prepared> {
    let (client, id) = (client.clone(), id.clone());
    blocking(move || {
        let stored = StoredSnapshot::open(&client.directory, &id)?;
        let identity =
            Identity::for_caller().map_err(|error| Error::Exhausted(error.to_string()))?;
        let range = identity.range();
        let owners = match (stored.record.range_start, range) {
            (Some(from), Some(range)) => Owners::Shifted { from, to: range.start },
            _ => Owners::Same,
        };
        let copy_layer =
            |from: &Dir, layer: &str, to: &Dir, owners: Owners| match stored.is_subordinate() {
                true => subordinate::copy_layer(client.program(), from, layer, to),
                false => copy_layer(from, layer, to, owners),
            };
        let staged = client.directory.stage().map_err(host)?;
        copy_layer(&stored.dir, UPPER, &make_dir(&staged.dir, UPPER)?, owners)?;
        let Record { workspace, begun, whole, .. } = &stored.record;
        let mut begun = begun.clone();
        if *workspace {
            let copy = make_dir(&staged.dir, WORKSPACE)?;
            copy_layer(&stored.dir, WORKSPACE, &copy, owners)?;
            if whole.is_some() {
                begun = copied_again(begun, (&stored.dir, WORKSPACE), &copy, &staged.dir)?;
            }
        }
        stored.is_still_there()?;
        let exhausted = |error: io::Error| Error::Exhausted(error.to_string());
        let lock = range.map_or(Ok(None), Range::lock).map_err(exhausted)?;
        let layers = Layers {
            staged: staged.name.clone(),
            root: stored.record.root,
            range_start: range.map(|range| range.start),
            begun,
            whole: stored.record.whole,
        };
        Ok(Prepared { layers, lock, staged })
    })
    .await
}

/// The source of the lower layer of a snapshot's root; `None` where there is no such snapshot.
pub(super) fn root_of(directory: &Directory, id: &SnapshotId) -> Result<Option<Root>> {
    match StoredSnapshot::open(directory, id) {
        Err(Error::NoSnapshot(_)) => Ok(None),
        stored => Ok(Some(stored?.record.root)),
    }
}

/// Keeps a sandbox's processes stopped.
pub(super) async fn pause(client: &Client, sandbox: &SandboxId) -> Result<PausedSandbox> {
    let answered = client.call(&Request::Hold { id: sandbox.clone() }, &[], &[]).await?;
    match answered.message.head {
        Answer::Held { root, workspace, host_start, begun, whole } => Ok(PausedSandbox {
            root,
            workspace,
            initial_state: begun,
            full_copy_reason: whole,
            host_start,
            program: client.program().to_owned(),
            channel: answered.channel,
        }),
        _ => Err(unexpected_answer()),
    }
}

/// Makes a snapshot of a held sandbox; `None` when its keeper died meanwhile, so that the processes
/// may have run, or when another snapshot has the id.
fn store(
    directory: &Directory,
    sandbox: &SandboxId,
    id: &SnapshotId,
    paused: PausedSandbox,
) -> Result<Option<SnapshotInfo>> {
    let from = directory.sandbox(sandbox).map_err(host)?;
    let staged = directory.stage().map_err(host)?;
    let (range_start, _) = stored_owners(paused.host_start);
    let (root, workspace) = (paused.root.clone(), paused.workspace);
    let (mut initial_state, whole) =
        (paused.initial_state.clone(), paused.full_copy_reason.clone());
    let mut size_bytes = paused.copy(&from, "layers/upper", &make_dir(&staged.dir, UPPER)?)?;
    if workspace {
        let copy = make_dir(&staged.dir, WORKSPACE)?;
        size_bytes += paused.copy(&from, WORKSPACE_LAYER, &copy)?;
        if whole.is_some() {
            initial_state =
                copied_again(initial_state, (&from, WORKSPACE_LAYER), &copy, &staged.dir)?;
        }
    }
    if !paused.resume() {
        return Ok(None);
    }
    let info = SnapshotInfo {
        id: id.clone(),
        sandbox: sandbox.clone(),
        created_at_ms: now_ms(),
        size_bytes,
    };
    let record = Record { info, root, workspace, begun: initial_state, whole, range_start };
    let bytes = serde_json::to_vec(&record).map_err(unreadable)?;
    let mut file = staged.dir.create_file(&name(RECORD).map_err(host)?, 0o600).map_err(host)?;
    file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(unreadable)?;
    staged.dir.sync_file_system().map_err(host)?;
    let placed = staged.publish(&directory.snapshots().map_err(host)?, id.as_str());
    Ok(placed.map_err(host)?.then_some(record.info))
}

async fn read(client: &Arc<Client>, id: &SnapshotId) -> Result<Record> {
    let (client, id) = (client.clone(), id.clone());
    blocking(move || Ok(StoredSnapshot::open(&client.directory, &id)?.record)).await
}

/// The record in a snapshot's directory; `None` if the snapshot is being removed.
fn record(dir: &Dir) -> Result<Option<Record>> {
    let mut file = match dir.open_file(&name(RECORD).map_err(host)?) {
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(None),
        other => other.map_err(host)?,
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    serde_json::from_slice(&bytes).map(Some).map_err(unreadable)
}

/// The uid range that is to own the files of a snapshot, and how the owners change in the copy. An
/// exclusive range of a host will belong to another sandbox later; the single range of a container
/// will not.
fn stored_owners(range_start: Option<u32>) -> (Option<u32>, Owners) {
    match range_start {
        Some(from) if Range::is_exclusive(from) => {
            (Some(Owners::STORED), Owners::Shifted { from, to: Owners::STORED })
        }
        other => (other, Owners::Same),
    }
}

/// Creates a directory and opens it.
pub(super) fn make_dir(parent: &Dir, new: &str) -> Result<Dir> {
    let new = name(new).map_err(host)?;
    parent.mkdir(&new, 0o700).and_then(|()| parent.open_dir(&new)).map_err(host)
}

/// Copies a layer, and returns its disk use in bytes.
fn copy_layer(from: &Dir, layer: &str, to: &Dir, owners: Owners) -> Result<u64> {
    let from = from.open_dir(&name(layer).map_err(host)?).map_err(host)?;
    // The size was limited when it was written, and is limited by the disk.
    layer::copy(&from, to, u64::MAX, owners).map_err(not_copied)
}

/// The initial state of a copied workspace after it is copied again from a layer in a directory.
/// The new copy also shows which files are as they were on the host.
fn copied_again(
    initial_state: Option<InitialState>,
    (from, layer): (&Dir, &str),
    copy: &Dir,
    staged: &Dir,
) -> Result<Option<InitialState>> {
    let Some(initial_state) = initial_state else { return Ok(None) };
    let Some(copied) = initial_state.copied else { return Ok(Some(initial_state)) };
    let again =
        view::later_stamp(staged).map_err(|error| data("a layer", io::Error::other(error)))?;
    let from = from.open_dir(&name(layer).map_err(host)?).map_err(host)?;
    layer::mark_changed(&from, copy, copied).map_err(not_copied)?;
    Ok(Some(InitialState { copied: Some(again), ..initial_state }))
}

fn unreadable(error: impl Into<io::Error>) -> Error {
    data("a snapshot's record", error.into())
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bubblewrap::Launcher;

    #[tokio::test]
    async fn a_copy_counts_only_when_the_sandbox_stood_still_to_its_end() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(scratch.path().join("runtime/1/sandboxes/box/layers/upper"))
            .unwrap();
        let directory = Directory::open(scratch.path(), Launcher::Own).unwrap();
        let listener = directory.listen().unwrap();
        let (sandbox, id) = (SandboxId::new("box").unwrap(), SnapshotId::new("snap").unwrap());
        let paused = || PausedSandbox {
            root: Root::Host,
            workspace: false,
            initial_state: None,
            full_copy_reason: None,
            host_start: None,
            program: OsString::new(),
            channel: Channel::new(directory.connect().unwrap()).unwrap(),
        };
        let lost = paused();
        drop(listener.accept().unwrap());
        assert_eq!(store(&directory, &sandbox, &id, lost).unwrap(), None);
        assert_eq!(directory.snapshots().unwrap().entries().unwrap(), []);

        let (one, other) = (paused(), paused());
        let _keeper = [listener.accept().unwrap(), listener.accept().unwrap()];
        assert!(store(&directory, &sandbox, &id, one).unwrap().is_some());
        // Another snapshot was faster.
        assert_eq!(store(&directory, &sandbox, &id, other).unwrap(), None);
        assert_eq!(directory.staging().unwrap().entries().unwrap(), []);
    }

    #[test]
    fn files_of_a_snapshot_belong_to_no_range_that_a_sandbox_gets() {
        let moved = |from| (Some(Owners::STORED), Owners::Shifted { from, to: Owners::STORED });
        assert_eq!(stored_owners(Some(0x7000_0000)), moved(0x7000_0000));
        assert_eq!(stored_owners(Some(32_768)), (Some(32_768), Owners::Same));
        assert_eq!(stored_owners(None), (None, Owners::Same));
    }
}
