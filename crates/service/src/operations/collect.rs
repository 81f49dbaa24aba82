//! `collect_changes`: the changes of a sandbox in its workspace become a bundle of its owner, while
//! the sandbox keeps running.

use std::path::Path;
use std::sync::Arc;

use stockade_api::{Bytes, Caller, CollectChanges, CollectedChanges, Result};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Timestamp;
use stockade_bundle::view::LayerChanges;
use stockade_core::access::{Effect, Level};
use stockade_core::sandbox::Workspace;
use stockade_core::{Code, Operation};
use stockade_durable::{Context, Failure, Step};
use stockade_review::{Collection, GatheredChanges, paths};
use stockade_runtime::{ChangesInPlace, Error, Runtime, WorkspaceChanges};

use super::bundles::{require_home, with_bundles};
use super::record_with_outcome;
use crate::clock::now_ms;
use crate::failure::{access_problem, invalid, runtime_problem, store_problem, to_failure};
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::options::Home;
use crate::owned_sandbox::OwnedSandbox;
use crate::service::Service;
use crate::store::sandboxes::SandboxRow;

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.collect_changes";

/// Makes a bundle of the changes.
pub(crate) async fn collect(
    service: &Service,
    caller: &Caller,
    request: CollectChanges,
) -> Result<CollectedChanges> {
    let owned = service.owned_sandbox(caller, &request.sandbox_id, Operation::Collect).await?;
    excluded(&owned, &request.exclude)?;
    require_home(&service.inner, &caller.owner)?;
    operation::run(&service.engine, NAME, caller, &request).await
}

/// The workflow.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<CollectChanges>,
) -> std::result::Result<CollectedChanges, Failure> {
    let request = &input.request;
    let id = &request.sandbox_id;
    context.hold(inner.lock_sandbox(id).await.map_err(to_failure)?);
    let owned = inner.acl(&context, &input.owner, id, Operation::Collect).await?;
    let home = require_home(&inner, &input.owner).map_err(to_failure)?;
    let info = context.engine().info(context.id()).await;
    let at_ms =
        info.map_err(|error| to_failure(store_problem(error)))?.map_or(0, |it| it.created_at);
    let collection = Collection {
        sandbox: id.clone(),
        at_ms: u64::try_from(at_ms).unwrap_or(0),
        workspace: workspace(&owned).map_err(to_failure)?.host.clone(),
        excluded: excluded(&owned, &request.exclude).map_err(to_failure)?,
        limit_bytes: request.limit_bytes,
        limit_paths: request.limit_paths,
        // The changes of a sandbox that has stopped by itself are in a bundle already.
        only_new: owned.is_bundled,
    };
    let again = context.run_number() > 1;
    let collect = async |_: Step| {
        collect_bundle(&inner, home, &owned, &collection, again).await.map_err(to_failure)
    };
    context.step_with("collect", record_with_outcome(), collect).await
}

/// Makes the runtime copy the changes, and makes a bundle of the copy.
async fn collect_bundle(
    inner: &Inner,
    home: &Home,
    owned: &OwnedSandbox,
    collection: &Collection,
    again: bool,
) -> Result<CollectedChanges> {
    if again {
        let collection = collection.clone();
        if let Some(answer) =
            with_bundles(home, move |bundles| bundles.find_collected(&collection)).await?
        {
            return Ok(answer);
        }
    }
    let gathering = with_bundles(home, |bundles| bundles.start_collection()).await?;
    let runtime = inner.runtime(&owned.runtime)?;
    let gathered = gather(inner, &**runtime, owned, gathering.layer());
    let gathered = inner.terminations.run_unless_terminated(&owned.id, gathered).await?;
    let WorkspaceChanges { since, removed } = gathered.map_err(|error| runtime_problem(&error))?;
    let gathered = copied(since, removed);
    let collection = collection.clone();
    with_bundles(home, move |bundles| bundles.store_collected(gathering, gathered, &collection))
        .await
}

/// Makes the runtime copy the changes of a sandbox, wherever its files are.
async fn gather(
    inner: &Inner,
    runtime: &dyn Runtime,
    row: &SandboxRow,
    to: &Path,
) -> std::result::Result<WorkspaceChanges, Error> {
    let changes = async {
        match &row.files {
            Some(files) => runtime.snapshot_changes(files, to).await,
            None => runtime.changes(&row.id, to).await,
        }
    };
    inner.with_deadline(changes).await
}

/// What happens with the files of a sandbox without processes, once a bundle of its changes exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// They remain, and may be used again.
    Keep,
    /// They are removed.
    Remove,
}

/// Makes a bundle of the changes of a sandbox without processes, unless a waiting bundle has the
/// same changes. Returns its id; none if nothing has changed. Content of any size is stored: the
/// files are removed sooner or later. If they are removed now, nothing is copied where that can be
/// avoided, so that a sandbox that fills the disk can be ended.
pub(super) async fn remaining(
    inner: &Inner,
    home: &Home,
    row: &SandboxRow,
    next: NextStep,
) -> Result<Option<String>> {
    let excluded = match excluded(row, &[]) {
        // Its owner keeps the workspace from every client.
        Err(problem) if problem.code == Code::AccessDenied => return Ok(None),
        excluded => excluded?,
    };
    let collection = Collection {
        sandbox: row.id.clone(),
        at_ms: u64::try_from(now_ms()).unwrap_or(0),
        workspace: workspace(row)?.host.clone(),
        excluded,
        limit_bytes: Some(u64::MAX),
        limit_paths: Some(u64::MAX),
        only_new: true,
    };
    let gathering = with_bundles(home, |bundles| bundles.start_collection()).await?;
    let runtime = inner.runtime(&row.runtime)?;
    let in_place = match next {
        NextStep::Keep => Ok(None),
        NextStep::Remove => {
            inner.with_deadline(runtime.changes_in_place(&row.id, row.files.as_ref())).await
        }
    };
    let gathered = match in_place {
        Ok(Some(ChangesInPlace { layer, changes: WorkspaceChanges { since, removed } })) => {
            let changes = LayerChanges { since, removed };
            Ok(GatheredChanges { changes, in_place: Some(layer) })
        }
        Ok(None) => {
            let changes = gather(inner, &**runtime, row, gathering.layer()).await;
            changes.map(|WorkspaceChanges { since, removed }| copied(since, removed))
        }
        Err(error) => Err(error),
    };
    let gathered = match gathered {
        // Its files do not exist any more.
        Err(Error::NoSandbox(_) | Error::NoSnapshot(_)) => return Ok(row.bundle.clone()),
        gathered => gathered.map_err(|error| runtime_problem(&error))?,
    };
    let kept = with_bundles(home, move |bundles| {
        bundles.store_collected(gathering, gathered, &collection)
    });
    Ok(kept.await?.bundle.map(|bundle| bundle.id))
}

fn copied(since: Timestamp, removed: Vec<RelativePath>) -> GatheredChanges {
    GatheredChanges { changes: LayerChanges { since, removed }, in_place: None }
}

fn workspace(row: &SandboxRow) -> Result<&Workspace> {
    row.request.workspace.as_ref().ok_or_else(|| {
        invalid(format!("the sandbox {} has no workspace", row.id))
            .remedied_by("stockade create --workspace DIR")
    })
}

/// The excluded paths: those of the request, and those that the sandbox's rules make unreadable.
fn excluded(row: &SandboxRow, paths_to_exclude: &[Bytes]) -> Result<Vec<RelativePath>> {
    let Workspace { host, inside } = workspace(row)?;
    let mut excluded = paths(host.as_os_str().as_encoded_bytes(), paths_to_exclude)?;
    if excluded.len() < paths_to_exclude.len() {
        return Err(invalid("the whole workspace is excluded"));
    }
    let read = row.rules.allows(Level::Read, inside.as_os_str().as_encoded_bytes());
    read.map_err(|error| access_problem(&error))?;
    for rule in row.rules.as_slice().map_err(|error| access_problem(&error))? {
        let is_denied = rule.effect == Effect::Deny && Level::Read.includes(rule.level);
        if is_denied && let Ok(below) = Path::new(&rule.path).strip_prefix(inside) {
            let below = below.as_os_str().as_encoded_bytes();
            excluded.extend(RelativePath::new(below).ok());
        }
    }
    Ok(excluded)
}
