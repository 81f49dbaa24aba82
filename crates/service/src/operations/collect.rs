//! `collect_changes`: the changes of a sandbox in its workspace become a bundle of its owner, while
//! the sandbox keeps running.

use std::path::Path;
use std::sync::Arc;

use stockade_api::{Bytes, Caller, CollectChanges, CollectedChanges, Result};
use stockade_bundle::RelativePath;
use stockade_core::Operation;
use stockade_core::access::{Effect, Level};
use stockade_core::sandbox::Workspace;
use stockade_durable::{Context, Failure, Step};
use stockade_review::{Collection, paths};

use super::bundles::{on_files, place_of};
use super::with_answer;
use crate::failure::{invalid, of_access, of_runtime, of_store, to_failure};
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::options::Home;
use crate::owned::Owned;
use crate::service::Service;

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.collect_changes";

/// Makes a bundle of the changes.
pub(crate) async fn collect(
    service: &Service,
    caller: &Caller,
    request: CollectChanges,
) -> Result<CollectedChanges> {
    let owned = service.owned(caller, &request.sandbox_id, Operation::Collect).await?;
    excluded(&owned, &request.exclude)?;
    place_of(&service.inner, &caller.owner)?;
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
    context.hold(inner.drive(id).await.map_err(to_failure)?);
    let owned = inner.acl(&context, &input.owner, id, Operation::Collect).await?;
    let home = place_of(&inner, &input.owner).map_err(to_failure)?;
    let info = context.engine().info(context.id()).await;
    let at_ms = info.map_err(|error| to_failure(of_store(error)))?.map_or(0, |it| it.created_at);
    let collection = Collection {
        sandbox: id.clone(),
        at_ms: u64::try_from(at_ms).unwrap_or(0),
        workspace: workspace(&owned).map_err(to_failure)?.host.clone(),
        excluded: excluded(&owned, &request.exclude).map_err(to_failure)?,
        limit_bytes: request.limit_bytes,
    };
    let again = context.run_number() > 1;
    let collect =
        async |_: Step| keep(&inner, home, &owned, &collection, again).await.map_err(to_failure);
    context.step_with("collect", with_answer(), collect).await
}

/// Makes the runtime copy the changes, and makes a bundle of the copy.
async fn keep(
    inner: &Inner,
    home: &Home,
    owned: &Owned,
    collection: &Collection,
    again: bool,
) -> Result<CollectedChanges> {
    if again {
        let collection = collection.clone();
        if let Some(answer) = on_files(home, move |bundles| bundles.collected(&collection)).await? {
            return Ok(answer);
        }
    }
    let gathering = on_files(home, |bundles| bundles.gather()).await?;
    let runtime = inner.runtime(&owned.runtime)?;
    let changes = async {
        match &owned.files {
            Some(files) => runtime.snapshot_changes(files, gathering.layer()).await,
            None => runtime.changes(&owned.id, gathering.layer()).await,
        }
    };
    let gathered = inner.terminations.unless(&owned.id, inner.within(changes)).await?;
    let gathered = gathered.map_err(|error| of_runtime(&error))?;
    let collection = collection.clone();
    on_files(home, move |bundles| bundles.keep(gathering, gathered, &collection)).await
}

fn workspace(owned: &Owned) -> Result<&Workspace> {
    owned.request.workspace.as_ref().ok_or_else(|| {
        invalid(format!("the sandbox {} has no workspace", owned.id))
            .remedied_by("stockade create --workspace DIR")
    })
}

/// The excluded paths: those of the request, and those that the sandbox's rules make unreadable.
fn excluded(owned: &Owned, asked: &[Bytes]) -> Result<Vec<RelativePath>> {
    let Workspace { host, inside } = workspace(owned)?;
    let mut excluded = paths(host.as_os_str().as_encoded_bytes(), asked)?;
    if excluded.len() < asked.len() {
        return Err(invalid("the whole workspace is excluded"));
    }
    owned.allows(Level::Read, inside.as_os_str().as_encoded_bytes())?;
    for rule in owned.rules.as_slice().map_err(|error| of_access(&error))? {
        let is_denied = rule.effect == Effect::Deny && Level::Read.includes(rule.level);
        if is_denied && let Ok(below) = Path::new(&rule.path).strip_prefix(inside) {
            let below = below.as_os_str().as_encoded_bytes();
            excluded.extend(RelativePath::new(below).ok());
        }
    }
    Ok(excluded)
}
