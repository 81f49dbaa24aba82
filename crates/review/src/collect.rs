//! Bundles of the changes that a persistent sandbox has made in its workspace. The command and
//! the time of creation identify such a bundle, so that a bundle that was created before a crash
//! is found again.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use stockade_api::{CollectedChanges, Result};
use stockade_bundle::baseline::Baseline;
use stockade_bundle::beneath::{self, Dir, Timestamp};
use stockade_bundle::history::History;
use stockade_bundle::project::Project;
use stockade_bundle::store::{Bundle, Draft, Error, State, StoredBundle};
use stockade_bundle::view::{LayerChanges, LayerCollector, View};
use stockade_bundle::{Entry, RelativePath, scan};
use stockade_core::{Code, Problem, SandboxId};

use crate::branch::object;
use crate::bundles::{Bundles, READ_LIMITS, limits};
use crate::inspect::describe;
use crate::problem::{caused, raise_limit, scan_problem, store_problem};

/// The sandbox, and which of its changes become a bundle.
#[derive(Debug, Clone)]
pub struct Collection {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// When it was requested, in milliseconds since 1970.
    pub at_ms: u64,
    /// The host directory that is its workspace.
    pub workspace: PathBuf,
    /// The paths that are left out, with everything below them.
    pub excluded: Vec<RelativePath>,
    /// The most content that the bundle may have, in bytes.
    pub limit_bytes: Option<u64>,
    /// The most paths that the bundle may have.
    pub limit_paths: Option<u64>,
    /// Whether no bundle is created if one that waits has the same changes. That bundle is the
    /// response then.
    pub only_new: bool,
}

/// The gathered changes of a sandbox.
#[derive(Debug)]
pub struct GatheredChanges {
    /// What was gathered, besides the layer.
    pub changes: LayerChanges,
    /// The layer, if it was not copied. It is not changed.
    pub in_place: Option<Dir>,
}

impl Collection {
    fn command(&self) -> Vec<String> {
        ["stockade", "collect", self.sandbox.as_str()].map(str::to_owned).into()
    }
}

impl Bundles {
    /// Creates a directory for the changes.
    ///
    /// # Errors
    /// [`Code::Io`] when it cannot be created.
    pub fn start_collection(&self) -> Result<LayerCollector> {
        LayerCollector::start(&self.data).map_err(|error| caused(Code::Io, &error))
    }

    /// The response of an earlier run that created a bundle, and crashed before the response was
    /// recorded.
    ///
    /// # Errors
    /// [`Code::Io`] when the bundles cannot be read.
    pub fn find_collected(&self, collection: &Collection) -> Result<Option<CollectedChanges>> {
        self.find_created(&collection.command(), collection.at_ms)
    }

    /// The bundle that a command created at a time, as a response.
    pub(crate) fn find_created(
        &self,
        command: &[String],
        at_ms: u64,
    ) -> Result<Option<CollectedChanges>> {
        let listed = self.store.list(&READ_LIMITS).map_err(|error| store_problem(&error))?;
        let is_it = |bundle: &Bundle| {
            bundle.manifest.created_at_ms == at_ms && bundle.manifest.command == command
        };
        let mut bundles = listed.into_iter().filter_map(|StoredBundle { bundle, .. }| bundle.ok());
        bundles.find(is_it).map(|bundle| response(Some(&bundle), Vec::new())).transpose()
    }

    /// Creates a bundle of what was gathered. If the layer is in place, the contents keep its owner
    /// until [`Self::take_ownership`].
    ///
    /// # Errors
    /// [`Code::BundleTooLarge`]; [`Code::ProjectRefused`] when the workspace no longer exists.
    pub fn store_collected(
        &self,
        gathering: LayerCollector,
        gathered: GatheredChanges,
        collection: &Collection,
    ) -> Result<CollectedChanges> {
        let project = project(&collection.workspace)?;
        let GatheredChanges { changes, in_place } = gathered;
        let is_in_place = in_place.is_some();
        let command = collection.command();
        let view = match in_place {
            Some(layer) => gathering.finish_in_place(&project, layer, changes, &command),
            None => gathering.finish(&project, changes, &command),
        };
        let view = view.map_err(|error| caused(Code::Io, &error))?;
        let made = self.create_bundle(&view, &project, collection, is_in_place);
        let removed = view.remove().map_err(|error| caused(Code::Io, &error));
        let answer = made?;
        removed?;
        Ok(answer)
    }

    /// Makes this process the only owner of a bundle's contents, when the layer that they were
    /// linked from is not needed any more. A bundle that was decided needs nothing.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn take_ownership(&self, id: &str) -> Result<()> {
        match self.store.find(id, &READ_LIMITS) {
            Err(Error::NotFound(_)) => Ok(()),
            found => found.and_then(|bundle| bundle.take_ownership()),
        }
        .map_err(|error| store_problem(&error))
    }

    /// Removes the history of the bundles of a sandbox that ends.
    ///
    /// # Errors
    /// [`Code::Io`] when it cannot be removed.
    pub fn remove_history(&self, sandbox: &SandboxId) -> Result<()> {
        let io = |error: beneath::Error| caused(Code::Io, &error);
        let (histories, name) = self.history_of(sandbox)?;
        History::remove(&histories, &name).map_err(io)?;
        Baseline::remove(&histories, &baseline_of(sandbox)?).map_err(io)
    }

    /// Records what the files of the workspace of a new sandbox contained at a time before its
    /// creation, as far as git has these contents.
    ///
    /// # Errors
    /// [`Code::Io`] when it cannot be recorded: changes of the host are then conflicts without a base.
    pub fn record_baseline(
        &self,
        sandbox: &SandboxId,
        workspace: &Path,
        at: Timestamp,
    ) -> Result<()> {
        let (histories, _) = self.history_of(sandbox)?;
        let baseline = Baseline::read(&project(workspace)?, at, &AtomicBool::new(false));
        let stored = baseline.store(&histories, &baseline_of(sandbox)?, at);
        stored.map_err(|error| caused(Code::Io, &error))
    }

    fn history_of(&self, sandbox: &SandboxId) -> Result<(Dir, RelativePath)> {
        let histories = self.data.histories().map_err(|error| caused(Code::Io, &error))?;
        let name = RelativePath::new(sandbox.as_str().as_bytes());
        Ok((histories, name.map_err(|error| Problem::new(Code::InvalidInput, error.to_string()))?))
    }

    /// The bundle of a command that has exactly these changes left to decide.
    fn with_changes(
        &self,
        entries: &[Entry],
        project: &Project,
        command: &[String],
    ) -> Result<Option<Bundle>> {
        if entries.is_empty() {
            return Ok(None);
        }
        let of = |entry: &Entry| (entry.path.clone(), entry.change.clone());
        let mut wanted: Vec<_> = entries.iter().map(of).collect();
        wanted.sort_by(|one, other| one.0.cmp(&other.0));
        let listed = self.store.list(&READ_LIMITS).map_err(|error| store_problem(&error))?;
        for bundle in listed.into_iter().filter_map(|StoredBundle { bundle, .. }| bundle.ok()) {
            let manifest = &bundle.manifest;
            let root = project.root.as_os_str().as_encoded_bytes();
            if manifest.command != command || manifest.project != root {
                continue;
            }
            let Ok(State { applied, .. }) = bundle.state() else { continue };
            let left = manifest.entries.iter().filter(|entry| !applied.contains(&entry.path));
            if left.map(of).eq(wanted.iter().cloned()) {
                return Ok(Some(bundle));
            }
        }
        Ok(None)
    }

    fn create_bundle(
        &self,
        view: &View,
        project: &Project,
        collection: &Collection,
        is_in_place: bool,
    ) -> Result<CollectedChanges> {
        let limits = limits(collection.limit_bytes, collection.limit_paths);
        let since = view.record().started;
        let (histories, name) = self.history_of(&collection.sandbox)?;
        let mut history = History::read(&histories, &name, since);
        let changes =
            scan::scan_excluding(view, project, &collection.excluded, &mut history, &limits);
        let scan::Changes { mut entries, listings, notes } = changes.map_err(|error| {
            let problem = scan_problem(&error);
            match &error {
                // The changes are still in the sandbox.
                scan::Error::Limit(limit) => problem.remedied_by(raise_limit(
                    limit,
                    &format!("stockade collect {}", collection.sandbox),
                )),
                scan::Error::Read { .. } => problem,
            }
        })?;
        let baseline = Baseline::load(&histories, &baseline_of(&collection.sandbox)?, since);
        let old_contents = baseline.rebase(&mut entries, &mut |name| object(&project.root, name));
        if collection.only_new
            && let Some(bundle) = self.with_changes(&entries, project, &collection.command())?
        {
            return response(Some(&bundle), notes);
        }
        if !entries.is_empty() {
            // The history must be written before a bundle exists that could be applied.
            let written = history.write(&histories, &name, since);
            written.map_err(|error| caused(Code::Io, &error))?;
        }
        // The sandbox is still running, so there is no exit code.
        let created_at_ms = collection.at_ms;
        let draft =
            Draft { view, project, entries, old_contents, listings, exit_code: 0, created_at_ms };
        let made = match is_in_place {
            true => self.store.create_in_place(draft, &limits),
            false => self.store.create(draft, &limits),
        };
        let made = made.map_err(|error| store_problem(&error))?;
        response(made.as_ref(), notes)
    }
}

/// The name of a baseline beside the histories, which have the names of sandboxes: those have no dot.
fn baseline_of(sandbox: &SandboxId) -> Result<RelativePath> {
    let name = RelativePath::new(format!("{}.base", sandbox.as_str()).as_bytes());
    name.map_err(|error| Problem::new(Code::InvalidInput, error.to_string()))
}

fn project(workspace: &Path) -> Result<Project> {
    let real = std::fs::canonicalize(workspace).map_err(|error| caused(Code::Io, &error))?;
    Project::open(&real, None).map_err(|error| caused(Code::ProjectRefused, &error))
}

pub(crate) fn response(bundle: Option<&Bundle>, notes: Vec<String>) -> Result<CollectedChanges> {
    let described = |bundle: &Bundle| Ok(describe(bundle, &bundle.state()?));
    let bundle = bundle.map(described).transpose().map_err(|error| store_problem(&error))?;
    Ok(CollectedChanges { bundle, notes })
}
