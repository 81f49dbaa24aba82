//! A request whose host paths are checked and open, and the parts that are the same in every jail:
//! the mounts, the network, the access rules, the limits of each process.

mod links;
#[cfg(test)]
mod tests;
mod volumes;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use stockade_bundle::project::{Git, Project};
use stockade_core::access::SYSTEM;
use stockade_core::sandbox::{
    BestEffort, HostMount, Limits, Root, SECRETS_DIRECTORY, SECRETS_MODE, User, Workspace,
};
use stockade_core::{Bytes, SandboxSpec};
use stockade_jail::rlimits::ResourceLimits;
use stockade_jail::{
    Access, AccessMounts, HostTree, Identity, JailSpec, Mount, Network, OptionalMount, Owners,
    Scratch, Source, Task,
};

use crate::access;
use crate::account::Users;
use crate::error::Error;
use crate::host_path::{HostPath, HostPaths, IMAGES};
use crate::image_root::{self, ImageRoot};
use crate::inside_path::{absolute, mount_point};
use crate::limits::PROCESSES;
use crate::request::volumes::OpenVolumes;

/// The size of `/dev/shm` that every jail has.
const SHARED_MEMORY_BYTES: u64 = 256 << 20;
/// The least size of a file system in memory.
const SMALLEST_SCRATCH: u64 = 1 << 20;
/// The size of the directory of files with secrets.
const SECRETS_BYTES: u64 = 1 << 20;

/// The host name inside.
pub const HOSTNAME: &str = "stockade";

/// A request for which a jail may be created: each path of the host was checked and is open.
#[derive(Debug)]
pub struct Request {
    /// The directory of the root, or the topmost layer of an image; `None` for the host's own
    /// programs.
    pub(crate) root: Option<HostPath>,
    /// The rest of an image of the store.
    pub(crate) image: Option<ImageRoot>,
    pub(crate) workspace: Option<(PathBuf, HostPath)>,
    /// The git directory of the workspace, where it lies outside of it.
    pub(crate) repository: Option<HostPath>,
    /// The sandbox's own user.
    pub(crate) own: User,
    /// The supplementary groups of that user.
    pub(crate) groups: Vec<u32>,
    mounts: Vec<(PathBuf, Mount)>,
    /// The locks of the volumes among the mounts.
    locks: Vec<OwnedFd>,
    access_mounts: Option<AccessMounts>,
    pub(crate) network: Network,
    /// Whether there is a directory for the socket of an ssh agent.
    pub(crate) ssh_agent: bool,
    /// Whether the system directories come from a copy.
    pub(crate) private_base: bool,
    processes: u64,
    limits: Limits,
    landlock_optional: bool,
    /// Whether the jail will have a range of ids.
    has_range: bool,
}

/// The parts of a jail in addition to those that every jail of the request has.
pub(crate) struct Parts {
    pub(crate) identity: Identity,
    pub(crate) root: Source,
    pub(crate) root_writable: bool,
    pub(crate) root_is_own: bool,
    /// The mounts below the requested ones.
    pub(crate) mounts: Vec<(PathBuf, Mount)>,
    pub(crate) task: Task,
    pub(crate) open_files: Option<u64>,
    pub(crate) cgroup: Option<stockade_jail::cgroup::Group>,
    pub(crate) locks: Vec<OwnedFd>,
    pub(crate) reports_refused_calls: bool,
}

impl Request {
    /// Checks a request. `root` is the lower layer of the root: that of the request, or of the
    /// snapshot that it names.
    ///
    /// # Errors
    /// A part that can never be granted, or not on this host.
    pub fn check(
        spec: &SandboxSpec,
        root: &Root,
        users: Users,
        paths: &dyn Fn() -> Result<HostPaths, Error>,
    ) -> Result<Self, Error> {
        let own = users.choose(spec.user, spec.workspace.as_ref())?;
        let names_host = spec.workspace.is_some()
            || !spec.mounts.is_empty()
            || !spec.volumes.is_empty()
            || !spec.caches.is_empty()
            || matches!(root, Root::Directory(_) | Root::Image(_));
        // The mount table is read only if there are paths to compare.
        let paths = if names_host { Some(paths()?.exact(spec.exact_paths)) } else { None };
        let mut image = None;
        let opened = match (root, &paths) {
            (Root::Directory(path), Some(paths)) => Some(paths.open_root(path)?),
            (Root::Image(name), Some(paths)) => {
                let (top, rest) = image_root::open(name, paths.data(), spec, (own, users))?;
                image = Some(rest);
                Some(top)
            }
            (Root::Snapshot(snapshot), _) => return Err(Error::NoSnapshot(snapshot.clone())),
            (Root::Host | Root::Directory(_) | Root::Image(_), _) => None,
        };
        if spec.private_base
            && let Some((opened, paths)) = opened.as_ref().zip(paths.as_ref())
            && !opened.real.starts_with(paths.data().join(IMAGES))
        {
            return Err(Error::HostRootFiles(opened.real.clone()));
        }
        let mut request = Self {
            root: opened,
            image,
            workspace: None,
            repository: None,
            own,
            groups: users.check_groups(&spec.groups)?,
            mounts: Vec::new(),
            locks: Vec::new(),
            access_mounts: access::access_mounts(&spec.access, own)?,
            network: if spec.network.is_some() { Network::Egress } else { Network::Off },
            ssh_agent: spec.ssh_agent,
            private_base: spec.private_base,
            processes: spec.limits.processes.unwrap_or(PROCESSES),
            limits: spec.limits,
            landlock_optional: spec.best_effort.contains(&BestEffort::Landlock),
            has_range: users.has_range(),
        };
        if let (Some(workspace), Some(paths)) = (&spec.workspace, &paths) {
            request.open_workspace(workspace, paths, !spec.exact_paths)?;
        }
        if let Some(paths) = &paths {
            let sockets = sockets(&spec.mounts);
            for mount in &spec.mounts {
                let shown = request.mount(mount, paths, &sockets)?;
                request.mounts.push(shown);
            }
            request.open_volumes(spec, root, paths)?;
        }
        for rule in spec.access.as_slice().unwrap_or_default() {
            links::refuse(Path::new(&rule.path), &|inside| request.host_path(inside))?;
        }
        check_command(spec.working_directory.as_deref(), &spec.environment)?;
        Ok(request)
    }

    /// The sandbox's own user.
    pub const fn own(&self) -> User {
        self.own
    }

    fn open_workspace(
        &mut self,
        workspace: &Workspace,
        paths: &HostPaths,
        with_repository: bool,
    ) -> Result<(), Error> {
        mount_point(&workspace.inside)?;
        let host = paths.open(&workspace.host)?;
        // A git worktree is useless without the repository that it belongs to. What is written in
        // the workspace decides where that is.
        if with_repository
            && std::fs::symlink_metadata(host.real.join(".git")).is_ok_and(|file| file.is_file())
            && let Ok(project) = Project::open(&host.real, None)
            && let Git::Worktree { common_dir, .. } = &project.git
        {
            self.repository = Some(paths.open(common_dir)?);
        }
        self.workspace = Some((workspace.inside.clone(), host));
        Ok(())
    }

    fn open_volumes(
        &mut self,
        spec: &SandboxSpec,
        root: &Root,
        paths: &HostPaths,
    ) -> Result<(), Error> {
        let volumes = spec.volumes.iter().map(|mount| mount.inside.as_path());
        let caches = spec.caches.iter().filter_map(|cache| cache.inside.as_deref());
        volumes.chain(caches).try_for_each(|inside| self.check_in_workspace(inside))?;
        let open = OpenVolumes::open(spec, root, self.own, paths.data())?;
        self.mounts.extend(open.mounts);
        self.locks.extend(open.locks);
        Ok(())
    }

    fn mount(
        &self,
        mount: &HostMount,
        paths: &HostPaths,
        sockets: &[PathBuf],
    ) -> Result<(PathBuf, Mount), Error> {
        mount_point(&mount.inside)?;
        let host = match mount.writable {
            true => paths.open(&mount.host)?,
            false => paths.open_to_read(&mount.host)?,
        };
        self.check_in_workspace(&mount.inside)?;
        if !mount.writable {
            return Ok((mount.inside.clone(), self.read_only(host, paths, sockets)?));
        }
        paths.refuse_sockets(&host.real, sockets)?;
        Ok((mount.inside.clone(), tree(host.tree, Access::Write)))
    }

    /// The read-only mount of a path: of a directory, nothing that listens in it can be reached.
    fn read_only(
        &self,
        host: HostPath,
        paths: &HostPaths,
        sockets: &[PathBuf],
    ) -> Result<Mount, Error> {
        if !host.real.is_dir() {
            return Ok(tree(host.tree, Access::Read));
        }
        // An ordinary user's mount contains those below it, over which no overlay is possible.
        if !self.has_range && paths.has_mounts_below(&host.real) {
            paths.refuse_sockets(&host.real, sockets)?;
            return Ok(tree(host.tree, Access::Read));
        }
        Ok(Mount::Tree(Source::ReadOnly(host.tree)))
    }

    /// The path on the host of what is at a path inside; `None` for what the sandbox itself
    /// provides.
    fn host_path(&self, inside: &Path) -> Option<PathBuf> {
        let workspace = self.workspace.as_ref().map(|(top, host)| (top, &host.real));
        let repository = self.repository.as_ref().map(|host| (&host.real, &host.real));
        let workspace = workspace.into_iter().chain(repository);
        let mounts = self.mounts.iter().filter_map(|(top, mount)| match mount {
            Mount::Tree(Source::Host { tree, .. } | Source::ReadOnly(tree))
            | Mount::Optional(OptionalMount { source: Source::Host { tree, .. }, .. }) => {
                Some((top, &tree.path))
            }
            _ => None,
        });
        let around = workspace.chain(mounts).filter(|(top, _)| inside.starts_with(top));
        if let Some((top, host)) = around.max_by_key(|(top, _)| top.components().count()) {
            return Some(host.join(inside.strip_prefix(top).ok()?));
        }
        match &self.root {
            Some(image) => Some(image.real.join(inside.strip_prefix("/").ok()?)),
            None => SYSTEM.iter().any(|top| inside.starts_with(top)).then(|| inside.to_owned()),
        }
    }

    /// Refuses a path below the workspace that is missing there: it would have to be created in the
    /// view, and would appear as a change.
    fn check_in_workspace(&self, inside: &Path) -> Result<(), Error> {
        if let Some((workspace, host)) = &self.workspace
            && let Ok(below) = inside.strip_prefix(workspace)
            && std::fs::symlink_metadata(host.real.join(below)).is_err()
        {
            return Err(Error::MissingInWorkspace(inside.to_owned()));
        }
        Ok(())
    }

    /// The largest size of one file system in memory, so that programs are out of room before the
    /// sandbox is out of memory.
    pub(crate) fn scratch_bytes(&self) -> Option<u64> {
        self.limits.memory_bytes.map(|bytes| (bytes / 4).max(SMALLEST_SCRATCH))
    }

    /// How many processors the limit is worth, rounded up.
    pub(crate) fn processors(&self) -> Option<usize> {
        let millis = self.limits.cpu_millis?;
        usize::try_from(millis.div_ceil(1000)).ok()
    }

    /// `/dev/shm`, where its size is not the usual one.
    fn shared_memory(&self) -> Option<(PathBuf, Mount)> {
        let size_bytes = match (self.limits.shm_bytes, self.scratch_bytes()) {
            (Some(requested), _) => requested,
            (None, Some(most)) if most < SHARED_MEMORY_BYTES => most,
            (None, _) => return None,
        };
        let User { user, group } = self.own;
        let mount = Mount::Scratch(Scratch { mode: 0o1777, size_bytes, user, group });
        Some((PathBuf::from("/dev/shm"), mount))
    }

    /// The directory of files with secrets, in memory, unless the request has something there. Every
    /// user can reach a file in it by name, and only its owner can list it.
    pub(crate) fn secrets_directory(&self) -> Option<(PathBuf, Mount)> {
        let place = PathBuf::from(SECRETS_DIRECTORY);
        let is_taken = |(inside, _): &(PathBuf, Mount)| {
            inside.starts_with(&place) || place.starts_with(inside) && inside != Path::new("/")
        };
        if self.mounts.iter().any(is_taken) {
            return None;
        }
        let User { user, group } = self.own;
        let size_bytes = SECRETS_BYTES;
        Some((place, Mount::Scratch(Scratch { mode: SECRETS_MODE, size_bytes, user, group })))
    }

    /// Completes the jail.
    pub(crate) fn jail(self, parts: Parts) -> JailSpec {
        let mut mounts: Vec<_> = self.shared_memory().into_iter().collect();
        mounts.extend(parts.mounts);
        mounts.extend(self.mounts);
        let mut locks = parts.locks;
        locks.extend(self.locks);
        JailSpec {
            identity: parts.identity,
            root: parts.root,
            root_writable: parts.root_writable,
            root_is_own: parts.root_is_own,
            mounts,
            hostname: HOSTNAME.to_owned(),
            network: self.network,
            task: parts.task,
            rlimits: ResourceLimits {
                processes: Some(self.processes),
                open_files: parts.open_files,
                ..ResourceLimits::default()
            },
            cgroup: parts.cgroup,
            locks,
            access_mounts: self.access_mounts,
            landlock_optional: self.landlock_optional,
            reports_refused_calls: parts.reports_refused_calls,
        }
    }
}

/// Refuses a directory or variables that are impossible for any command.
///
/// # Errors
/// [`Error::NotAbsolute`] and [`Error::Variable`].
pub fn check_command(
    working_directory: Option<&Path>,
    environment: &BTreeMap<String, Bytes>,
) -> Result<(), Error> {
    working_directory.map_or(Ok(()), absolute)?;
    let is_bad = |name: &str, value: &Bytes| {
        name.is_empty() || name.contains(['=', '\0']) || value.0.contains(&0)
    };
    match environment.iter().find(|(name, value)| is_bad(name, value)) {
        Some((name, _)) => Err(Error::Variable(name.clone())),
        None => Ok(()),
    }
}

/// The sockets that are mounted by their own names.
fn sockets(mounts: &[HostMount]) -> Vec<PathBuf> {
    let real = |mount: &HostMount| mount.host.canonicalize().ok();
    let is_socket =
        |path: &PathBuf| path.metadata().is_ok_and(|metadata| metadata.file_type().is_socket());
    mounts.iter().filter_map(real).filter(is_socket).collect()
}

/// A tree of the host, unchanged.
fn tree(tree: HostTree, access: Access) -> Mount {
    Mount::Tree(Source::Host { tree, access, owners: Owners::OnDisk })
}
