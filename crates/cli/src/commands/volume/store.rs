//! Where the volumes are: in the data directory, where they need no server, or on a server at a URL.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use stockade_api::{CreateVolume, Empty, Volume, VolumeByName};
use stockade_bundle::data::DataDir;
use stockade_bundle::disk_usage::used_bytes;
use stockade_core::{OwnerId, Problem, Time, VolumeName};
use stockade_volume::problem::{in_use, problem};
use stockade_volume::{Error, Volumes};

use super::users::{self, Users};
use crate::args::sandbox::ServerMode;
use crate::data_dir::{data_path, open_data_dir};
use crate::problem::Failure;
use crate::remote::{self, chosen};

/// The caller's volumes.
#[derive(Debug)]
pub(super) enum VolumeStore {
    /// Those of the data directory.
    Here(DataDir, Volumes),
    /// Those of a server at a URL.
    Elsewhere,
}

/// What must be known about volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// Their names and labels.
    Names,
    /// Their sizes, and the users that are known without starting a server.
    Shown,
    /// Their sizes and all users, before one is removed.
    Users,
}

/// For each volume how much of the disk is free again, or why it is still there.
pub(super) type Removals = Vec<(VolumeName, Result<u64, Problem>)>;

impl VolumeStore {
    /// Opens it.
    ///
    /// # Errors
    /// If there is no data directory.
    pub(super) fn open() -> Result<Self, Problem> {
        if chosen::chosen().is_some() {
            return Ok(Self::Elsewhere);
        }
        let data = open_data_dir(&data_path()?)?;
        let volumes = Volumes::open(&data, &owner()).map_err(|error| problem(&error))?;
        Ok(Self::Here(data, volumes))
    }

    /// The volumes, by their names.
    ///
    /// # Errors
    /// The errors of the file system or of the server.
    pub(super) fn list(&self, detail: Detail) -> Result<Vec<Volume>, Failure> {
        let (data, volumes) = match self {
            Self::Here(data, volumes) => (data, volumes),
            Self::Elsewhere => {
                return remote::with(mode(), async |remote| {
                    let found = remote.sandboxes.volumes(remote.caller(), Empty {}).await?;
                    remote::report_unreachable("volumes", &found.unreachable_servers);
                    Ok(found.volumes)
                });
            }
        };
        let found = volumes.list().map_err(|error| problem(&error))?;
        let users = match detail {
            Detail::Names => Users::default(),
            Detail::Shown => Users::known(data),
            Detail::Users => Users::all(data)?,
        };
        Ok(found.into_iter().map(|volume| shown(volume, &users, detail)).collect())
    }

    /// Creates a volume. As with Docker, one of that name is not an error.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub(super) fn create(
        &self,
        name: Option<VolumeName>,
        labels: BTreeMap<String, String>,
    ) -> Result<VolumeName, Failure> {
        stockade_volume::problem::check_labels(&labels)?;
        match self {
            Self::Here(_, volumes) => {
                let is_anonymous = name.is_none();
                let generated = || super::name(&uuid::Uuid::now_v7().simple().to_string());
                let name = name.map_or_else(generated, Ok)?;
                let created = volumes.create(&name, &labels, is_anonymous, now());
                created.map_err(|error| problem(&error))?;
                Ok(name)
            }
            Self::Elsewhere => remote::with(mode(), async |remote| {
                let request = CreateVolume { name, labels };
                let made = remote.sandboxes.create_volume(&remote.idempotent(), request).await?;
                Ok(made.name)
            }),
        }
    }

    /// Removes volumes.
    ///
    /// # Errors
    /// What concerns all of them.
    pub(super) fn remove(&self, names: &[VolumeName]) -> Result<Removals, Failure> {
        match self {
            Self::Here(data, volumes) => {
                let users = Users::all(data)?;
                let one = |name: &VolumeName| (name.clone(), remove_here(volumes, name, &users));
                Ok(names.iter().map(one).collect())
            }
            Self::Elsewhere => remote::with(mode(), async |remote| {
                let mut done = Vec::new();
                for name in names {
                    let request = VolumeByName { name: name.clone() };
                    let caller = remote.idempotent();
                    let removed = remote.sandboxes.remove_volume(&caller, request).await;
                    done.push((name.clone(), removed.map(|removed| removed.freed_bytes)));
                }
                Ok(done)
            }),
        }
    }
}

fn remove_here(volumes: &Volumes, name: &VolumeName, users: &Users) -> Result<u64, Problem> {
    let found = volumes.get(name).ok().flatten();
    if let Some(volume) = &found
        && !users.of(volume).is_empty()
    {
        return Err(in_use(name, users.sandboxes(name), &users.others(volume)));
    }
    let bytes = found.map_or(0, |volume| used_bytes(&volume.path));
    volumes.remove(name).map_err(|error| match &error {
        Error::InUse { processes, .. } => in_use(name, &[], &users::processes(processes)),
        error => problem(error),
    })?;
    Ok(bytes)
}

fn shown(volume: stockade_volume::Volume, users: &Users, detail: Detail) -> Volume {
    Volume {
        used_by: if detail == Detail::Names { Vec::new() } else { users.of(&volume) },
        size_bytes: if detail == Detail::Names { 0 } else { used_bytes(&volume.path) },
        name: volume.name,
        labels: volume.labels,
        created_at: volume.created_at,
        anonymous: volume.is_anonymous,
        mountpoint: Some(volume.path.to_string_lossy().into_owned()),
    }
}

/// The owner of the volumes of the data directory.
pub(super) fn owner() -> OwnerId {
    OwnerId::from_uid(rustix::process::geteuid().as_raw())
}

const fn mode() -> ServerMode {
    ServerMode { in_process: false }
}

fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    Time::from_ms(i64::try_from(now).unwrap_or(i64::MAX))
}
