//! What a killed process or engine has left in the engine: found by its labels, and removed once no
//! sandbox needs it.

use std::collections::BTreeSet;

use bollard::query_parameters::{
    ListContainersOptions, ListImagesOptions, ListVolumesOptions, RemoveVolumeOptions,
};
use stockade_core::{SandboxId, SnapshotId};
use stockade_runtime::Result;

use crate::container;
use crate::engine::{Engine, Failure};
use crate::labels::{Owner, SANDBOX, SNAPSHOT};

/// The sandboxes that have a container in the engine, whatever its state is.
pub(crate) async fn containers(engine: &Engine, owner: &Owner) -> Result<BTreeSet<SandboxId>> {
    let options = ListContainersOptions {
        all: true,
        filters: Some(owner.filter()),
        ..ListContainersOptions::default()
    };
    let listed = engine.request(|client| client.list_containers(Some(options))).await;
    let listed = listed.map_err(|failure| failure.into_error("list containers"))?;
    let label = |one: bollard::models::ContainerSummary| one.labels?.remove(SANDBOX);
    Ok(listed.into_iter().filter_map(label).filter_map(|id| SandboxId::new(id).ok()).collect())
}

/// Removes the containers of sandboxes that do not exist.
pub(crate) async fn remove_containers(
    engine: &Engine,
    owner: &Owner,
    unknown: impl IntoIterator<Item = SandboxId>,
) -> Result<()> {
    for id in unknown {
        container::remove(engine, &owner.container(&id)).await?;
    }
    Ok(())
}

/// Removes the volumes that no container uses. Their content is in directories of ours.
pub(crate) async fn remove_volumes(engine: &Engine, owner: &Owner) -> Result<()> {
    let mut filters = owner.filter();
    filters.insert("dangling".to_owned(), vec!["true".to_owned()]);
    let options = ListVolumesOptions { filters: Some(filters) };
    let listed = engine.request(|client| client.list_volumes(Some(options))).await;
    let listed = listed.map_err(|failure| failure.into_error("list volumes"))?;
    for volume in listed.volumes.unwrap_or_default() {
        let options = RemoveVolumeOptions { force: true };
        let name = volume.name.as_str();
        match engine.request(|client| client.remove_volume(name, Some(options))).await {
            // One that is used again is no leftover.
            Ok(()) | Err(Failure::NotFound(_) | Failure::Conflict(_)) => {}
            Err(failure) => return Err(failure.into_error("remove a volume")),
        }
    }
    Ok(())
}

/// The images of snapshots, by their ids, with the snapshots. Some may have no name any more.
pub(crate) async fn images(engine: &Engine, owner: &Owner) -> Result<Vec<(String, SnapshotId)>> {
    let options =
        ListImagesOptions { filters: Some(owner.filter()), ..ListImagesOptions::default() };
    let listed = engine.request(|client| client.list_images(Some(options))).await;
    let listed = listed.map_err(|failure| failure.into_error("list images"))?;
    let snapshot = |summary: bollard::models::ImageSummary| {
        let id = SnapshotId::new(summary.labels.get(SNAPSHOT)?.clone()).ok()?;
        Some((summary.id, id))
    };
    Ok(listed.into_iter().filter_map(snapshot).collect())
}
