//! The volumes and caches of a request: they are created if missing, opened, and locked as long as the
//! jail lives.
//!
//! The owners of their files are those inside: a file of user 1000 in one sandbox is one of user 1000 in
//! every other, whichever ids of the host they have. No file of a volume is a device or changes the
//! identity of what runs it: the mount forbids both.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use stockade_bundle::data::DataDir;
use stockade_bundle::view::coarse_now;
use stockade_core::cache::{Shared, mount_points};
use stockade_core::sandbox::{CacheMount, User, VolumeMount};
use stockade_core::{OwnerId, SandboxSpec, Time, VolumeName};
use stockade_jail::{Access, HostTree, Mount, Owners, Scratch, Source};
use stockade_volume::{Mounted, Part, Volumes, of_cache};

use crate::error::Error;
use crate::inside_path::mount_point;

/// The size in memory of the directory around a cache in which a tool has its configuration.
const HOME_BYTES: u64 = 64 << 20;

/// The mounts of volumes, and the locks that keep them from being removed.
#[derive(Debug, Default)]
pub(super) struct OpenVolumes {
    pub(super) mounts: Vec<(PathBuf, Mount)>,
    pub(super) locks: Vec<OwnedFd>,
}

impl OpenVolumes {
    /// Opens the volumes and caches of a request, in the data directory at `data`.
    pub(super) fn open(spec: &SandboxSpec, own: User, data: &Path) -> Result<Self, Error> {
        let mut all = Self::default();
        if spec.volumes.is_empty() && spec.caches.is_empty() {
            return Ok(all);
        }
        refuse_twice(spec)?;
        let data = DataDir::open(data).map_err(stockade_volume::Error::from)?;
        for mount in &spec.volumes {
            all.volume(mount, &data)?;
        }
        for cache in &spec.caches {
            all.cache(cache, own, &data)?;
        }
        Ok(all)
    }

    fn volume(&mut self, mount: &VolumeMount, data: &DataDir) -> Result<(), Error> {
        let volumes = open_or_create(data, &mount.owner, &mount.name, &Default::default())?;
        volumes.refuse_cache(&mount.name)?;
        let mounted = volumes.mount(&mount.name, mount.sub_path.as_deref())?;
        self.add(mount.inside.clone(), mounted, mount.writable);
        Ok(())
    }

    fn cache(&mut self, cache: &CacheMount, own: User, data: &DataDir) -> Result<(), Error> {
        let (name, labels) = of_cache(cache)?;
        let volumes = open_or_create(data, &cache.owner, &name, &labels)?;
        volumes.require_cache(&name, &labels)?;
        let Some(tool) = cache.tool() else {
            let inside =
                cache.inside.clone().ok_or_else(|| Error::UnknownCache(cache.name.clone()))?;
            let mounted = volumes.mount(&name, None)?;
            self.add(inside, mounted, true);
            return Ok(());
        };
        if let Some(home) = tool.home {
            let User { user, group } = own;
            let scratch = Scratch { mode: 0o755, size_bytes: HOME_BYTES, user, group };
            self.mounts.push((home.into(), Mount::Scratch(scratch)));
        }
        for Shared { name: part, inside, is_file } in tool.shared {
            let part = if *is_file { Part::File(part) } else { Part::Directory(part) };
            let mounted = volumes.mount_part(&name, part)?;
            self.add(inside.into(), mounted, true);
        }
        Ok(())
    }

    fn add(&mut self, inside: PathBuf, mounted: Mounted, writable: bool) {
        let Mounted { path, file, lock } = mounted;
        let access = if writable { Access::Write } else { Access::Read };
        let tree = HostTree { path, file };
        let source = Source::Host { tree, access, owners: Owners::OnDisk };
        self.mounts.push((inside, Mount::Tree(source)));
        self.locks.push(lock);
    }
}

/// Refuses two mounts at one place, of which one would hide the other.
fn refuse_twice(spec: &SandboxSpec) -> Result<(), Error> {
    let mut seen: Vec<PathBuf> = spec.mounts.iter().map(|mount| mount.inside.clone()).collect();
    if let Some(workspace) = &spec.workspace {
        seen.push(workspace.inside.clone());
    }
    let volumes = spec.volumes.iter().map(|mount| mount.inside.clone());
    for inside in volumes.chain(spec.caches.iter().flat_map(mount_points)) {
        mount_point(&inside)?;
        // The text of a path may have more slashes than another one of the same place.
        if seen.iter().any(|other| other.components().eq(inside.components())) {
            return Err(Error::MountedTwice(inside));
        }
        seen.push(inside);
    }
    Ok(())
}

fn open_or_create(
    data: &DataDir,
    owner: &OwnerId,
    name: &VolumeName,
    labels: &std::collections::BTreeMap<String, String>,
) -> Result<Volumes, Error> {
    let volumes = Volumes::open(data, owner)?;
    let now = coarse_now();
    let ms =
        now.seconds.saturating_mul(1000).saturating_add(i64::from(now.nanoseconds / 1_000_000));
    volumes.create(name, labels, false, Time::from_ms(ms))?;
    Ok(volumes)
}
