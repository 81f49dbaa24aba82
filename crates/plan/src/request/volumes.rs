//! The volumes and caches of a request: they are created if missing, opened, and locked as long as the
//! jail lives.
//!
//! The owners of their files are those inside: a file of user 1000 in one sandbox is one of user 1000 in
//! every other, whichever ids of the host they have. No file of a volume is a device or changes the
//! identity of what runs it: the mount forbids both.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use stockade_bundle::data::DataDir;
use stockade_bundle::view::coarse_now;
use stockade_core::cache::{IGNORED, Shared, mount_points, places_at_home};
use stockade_core::sandbox::{CacheMount, Root, User, VolumeMount};
use stockade_core::{OwnerId, SandboxSpec, Time, VolumeName};
use stockade_jail::{Access, HostTree, Mount, OptionalMount, Owners, Scratch, Source};
use stockade_volume::{Mounted, Part, Volumes, of_cache};

use crate::account;
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
    /// Opens the volumes and caches of a request, in the data directory at `data`. `root` is the
    /// lower layer of the root.
    pub(super) fn open(
        spec: &SandboxSpec,
        root: &Root,
        own: User,
        data: &Path,
    ) -> Result<Self, Error> {
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
        if let Some(home) = home(spec, root, own) {
            for cache in &spec.caches {
                all.at_home(cache, (spec, &home), own, &data)?;
            }
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
        if cache.name.as_str() == IGNORED {
            return Err(Error::OwnCache(cache.name.clone()));
        }
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
        for shared in tool.shared {
            let mounted = volumes.mount_part(&name, part(shared))?;
            self.add(shared.inside.into(), mounted, true);
        }
        Ok(())
    }

    /// Mounts a cache also where its tool looks without the variables, except where the request
    /// itself mounts something.
    fn at_home(
        &mut self,
        cache: &CacheMount,
        (spec, home): (&SandboxSpec, &Path),
        own: User,
        data: &DataDir,
    ) -> Result<(), Error> {
        let (name, _) = of_cache(cache)?;
        let volumes = Volumes::open(data, &cache.owner)?;
        for (shared, below) in places_at_home(cache) {
            let inside = home.join(below);
            let is_free =
                |other: &PathBuf| !inside.starts_with(other) && !other.starts_with(&inside);
            if !requested(spec).all(|other| is_free(&other)) {
                continue;
            }
            let mounted = volumes.mount_part(&name, part(shared))?;
            let source = self.source(mounted, true);
            let User { user, group } = own;
            let mount = OptionalMount { source, below: below.into(), user, group };
            self.mounts.push((inside, Mount::Optional(mount)));
        }
        Ok(())
    }

    fn add(&mut self, inside: PathBuf, mounted: Mounted, writable: bool) {
        let source = self.source(mounted, writable);
        self.mounts.push((inside, Mount::Tree(source)));
    }

    fn source(&mut self, mounted: Mounted, writable: bool) -> Source {
        let Mounted { path, file, lock } = mounted;
        let access = if writable { Access::Write } else { Access::Read };
        self.locks.push(lock);
        Source::Host { tree: HostTree { path, file }, access, owners: Owners::OnDisk }
    }
}

const fn part(shared: &Shared) -> Part<'static> {
    if shared.is_file { Part::File(shared.name) } else { Part::Directory(shared.name) }
}

/// The home directory of the sandbox's own user, if something can be mounted below it: the usual one,
/// or that of an image. Another one that `HOME` names may be read-only.
fn home(spec: &SandboxSpec, root: &Root, own: User) -> Option<PathBuf> {
    let usual = account::home(own.user, own);
    let Some(named) = spec.environment.get("HOME") else { return Some(usual.into()) };
    let named = PathBuf::from(OsStr::from_bytes(&named.0));
    let is_usual = named.as_path() == Path::new(usual);
    let is_possible = is_usual || (matches!(root, Root::Image(_)) && mount_point(&named).is_ok());
    is_possible.then_some(named)
}

/// The mount points that a request names.
fn requested(spec: &SandboxSpec) -> impl Iterator<Item = PathBuf> {
    let hosts = spec.mounts.iter().map(|mount| &mount.inside);
    let workspace = spec.workspace.iter().map(|workspace| &workspace.inside);
    let volumes = spec.volumes.iter().map(|mount| &mount.inside);
    let caches = spec.caches.iter().filter_map(|cache| cache.inside.as_ref());
    // The text of a path may have more slashes than another one of the same place.
    hosts.chain(workspace).chain(volumes).chain(caches).map(|inside| inside.components().collect())
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
