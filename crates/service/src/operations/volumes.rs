//! Operations on volumes. Each is one atomic change in the data directory, so none needs a record.

use std::collections::BTreeMap;
use std::time::Duration;

use stockade_api::{
    Caller, CreateVolume, RemovedVolume, Result, Volume, VolumeByName, VolumeList, VolumeRecord,
};
use stockade_bundle::data::DataDir;
use stockade_bundle::disk_usage::used_bytes;
use stockade_core::{Code, OwnerId, Problem, VolumeName};
use stockade_volume::problem::{check_labels, in_use, problem, user};
use stockade_volume::{Error, Volumes, of_cache};

use crate::clock::{now_ms, timestamp};
use crate::failure::caused;
use crate::operation::workflow_id;
use crate::possession::Kind;
use crate::possessions;
use crate::service::Service;
use crate::store::sandboxes::{self, Selection};

/// What uses a volume that is no sandbox of its owner: a run, on the machine of this server.
const RUN: &str = "a command on the server's machine";

/// The ids of the sandboxes that mount each volume, also of those that are stopped.
type Users = BTreeMap<VolumeName, Vec<String>>;

/// How long an operation waits for another one on the volumes of the same owner.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a function on the caller's volumes, on a thread that may block. Each owner has one such thread, which
/// a request that is given up does not end.
async fn with<T: Send + 'static>(
    service: &Service,
    caller: &Caller,
    work: impl FnOnce(&Volumes) -> Result<T> + Send + 'static,
) -> Result<T> {
    let home = service.inner.options.home.as_ref().ok_or_else(|| {
        Problem::new(Code::Unsupported, "this server has no data directory for volumes")
    })?;
    let (path, owner) = (home.path.clone(), caller.owner.clone());
    let lock = tokio::time::timeout(PATIENCE, service.inner.volume_locks.lock(&owner));
    let lock = lock.await.map_err(|_| {
        Problem::new(Code::Busy, "another operation on your volumes is still in progress")
            .because("they have many files, or many requests are about them")
            .remedied_by("request it again later")
    })?;
    let done = tokio::task::spawn_blocking(move || {
        let _lock = lock;
        let data = DataDir::open(&path).map_err(|error| caused(Code::Io, &error))?;
        work(&Volumes::open(&data, &owner).map_err(|error| problem(&error))?)
    });
    done.await.unwrap_or_else(|error| {
        Err(Problem::new(Code::Io, "the volumes could not be used").because(error.to_string()))
    })
}

async fn users(service: &Service, owner: &OwnerId) -> Result<Users> {
    let selection =
        Selection { owner, after: None, states: &[], metadata: &BTreeMap::new(), limit: u32::MAX };
    let mut users = Users::new();
    for row in sandboxes::list(&*service.inner.store, &selection).await? {
        let caches = row.request.caches.iter();
        let caches = caches.filter_map(|cache| of_cache(&cache.of(owner)).ok());
        let volumes = row.request.volumes.iter().map(|volume| volume.name.clone());
        for name in volumes.chain(caches.map(|(name, _)| name)) {
            let of_volume = users.entry(name).or_default();
            if !of_volume.iter().any(|known| *known == row.id.as_str()) {
                of_volume.push(row.id.to_string());
            }
        }
    }
    Ok(users)
}

/// The public form of a volume. A caller on another machine does not learn where it is on this one.
fn shown(volume: stockade_volume::Volume, users: &Users, is_remote: bool) -> Volume {
    let sandboxes = users.get(&volume.name);
    // The locks of running sandboxes are those of their keeper.
    let by_run = (sandboxes.is_none() && !volume.processes.is_empty()).then(|| RUN.to_owned());
    let sandboxes = sandboxes.into_iter().flatten().map(|id| user(id));
    Volume {
        size_bytes: used_bytes(&volume.path),
        used_by: sandboxes.chain(by_run).collect(),
        mountpoint: (!is_remote).then(|| volume.path.to_string_lossy().into_owned()),
        name: volume.name,
        labels: volume.labels,
        created_at: volume.created_at,
        anonymous: volume.is_anonymous,
    }
}

/// Creates a volume. As with Docker, one of that name is not an error.
pub(crate) async fn create(
    service: &Service,
    caller: &Caller,
    request: CreateVolume,
) -> Result<Volume> {
    let CreateVolume { name, labels } = request;
    check_labels(&labels)?;
    let is_anonymous = name.is_none();
    let name = match name {
        Some(name) => name,
        None => generated_name(caller)?,
    };
    let users = users(service, &caller.owner).await?;
    let is_remote = caller.remote;
    let _lock = service.inner.possessions.locks.lock(&caller.owner).await;
    possessions::claim(&service.inner, &caller.owner, Kind::Volume, name.as_str()).await?;
    let created = with(service, caller, {
        let name = name.clone();
        move |all| {
            let created = all.create(&name, &labels, is_anonymous, timestamp(now_ms()));
            created.map_err(|error| problem(&error))?;
            let found = all.get(&name).map_err(|error| problem(&error))?;
            let found = found.ok_or_else(|| problem(&Error::NotFound(name)))?;
            Ok(shown(found, &users, is_remote))
        }
    });
    let created = created.await;
    if created.is_err() {
        possessions::release(&service.inner, &caller.owner, Kind::Volume, name.as_str()).await?;
    }
    created
}

/// Creates a volume for a new sandbox, unless there is one of that name.
pub(crate) async fn ensure(service: &Service, caller: &Caller, name: &VolumeName) -> Result<()> {
    let _lock = service.inner.possessions.locks.lock(&caller.owner).await;
    possessions::claim(&service.inner, &caller.owner, Kind::Volume, name.as_str()).await?;
    let created = name.clone();
    with(service, caller, move |all| {
        let created = all.create(&created, &BTreeMap::new(), false, timestamp(now_ms()));
        created.map(drop).map_err(|error| problem(&error))
    })
    .await
}

/// The name of a volume whose request has none. The same request, sent again, means the same volume.
pub(crate) fn generated_name(caller: &Caller) -> Result<VolumeName> {
    let hash = blake3::hash(workflow_id(caller)?.as_str().as_bytes()).to_hex();
    VolumeName::new(&hash[..32]).map_err(|error| caused(Code::InvalidInput, &error))
}

/// The caller's volumes.
pub(crate) async fn list(service: &Service, caller: &Caller) -> Result<VolumeList> {
    possessions::publish(&service.inner, &caller.owner, Kind::Volume).await?;
    let users = users(service, &caller.owner).await?;
    let is_remote = caller.remote;
    with(service, caller, move |all| {
        let found = all.list().map_err(|error| problem(&error))?;
        let volumes = found.into_iter().map(|volume| shown(volume, &users, is_remote)).collect();
        Ok(VolumeList { volumes, ..VolumeList::default() })
    })
    .await
}

/// One of the caller's volumes, without its files: that takes no time however many there are.
pub(crate) async fn find(
    service: &Service,
    caller: &Caller,
    VolumeByName { name }: VolumeByName,
) -> Result<VolumeRecord> {
    let found = with(service, caller, move |all| {
        let found = all.get(&name).map_err(|error| problem(&error))?;
        let found = found.ok_or_else(|| problem(&Error::NotFound(name)))?;
        let stockade_volume::Volume { name, labels, created_at, is_anonymous, .. } = found;
        Ok(VolumeRecord { name, labels, created_at, anonymous: is_anonymous })
    });
    let found = found.await?;
    if found.cache().is_none() {
        // A version without records, or a command without a server, may have created it.
        possessions::record(&service.inner, &caller.owner, Kind::Volume, found.name.as_str())
            .await?;
    }
    Ok(found)
}

/// Removes a volume that no sandbox mounts, not even a stopped one.
pub(crate) async fn remove(
    service: &Service,
    caller: &Caller,
    VolumeByName { name }: VolumeByName,
) -> Result<RemovedVolume> {
    let (inner, owner) = (&service.inner, &caller.owner);
    let users = users(service, owner).await?;
    if let Some(host) = possessions::lost_host(inner, owner, Kind::Volume, name.as_str()).await? {
        if let Some(sandboxes) = users.get(&name) {
            return Err(in_use(&name, sandboxes, &[]));
        }
        possessions::remove_lost(inner, owner, Kind::Volume, name.as_str(), &host).await?;
        return Ok(RemovedVolume { freed_bytes: 0 });
    }
    let _lock = inner.possessions.locks.lock(owner).await;
    let removed = with(service, caller, {
        let name = name.clone();
        move |all| {
            let found = all.get(&name).map_err(|error| problem(&error))?;
            if let (Some(_), Some(sandboxes)) = (&found, users.get(&name)) {
                return Err(in_use(&name, sandboxes, &[]));
            }
            let freed_bytes = found.map_or(0, |volume| used_bytes(&volume.path));
            all.remove(&name).map_err(|error| match &error {
                Error::InUse { .. } => in_use(&name, &[], &[RUN.to_owned()]),
                error => problem(error),
            })?;
            Ok(RemovedVolume { freed_bytes })
        }
    });
    let removed = removed.await?;
    possessions::release(inner, owner, Kind::Volume, name.as_str()).await?;
    Ok(removed)
}
