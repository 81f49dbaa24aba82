//! The jail of a persistent sandbox: its init serves commands, and its files persist after the
//! jail.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stockade_bundle::beneath::Dir;
use stockade_bundle::layer::Marks;
use stockade_bundle::project::Project;
use stockade_bundle::view::Ownership;
use stockade_core::network::TRUSTED_INSIDE;
use stockade_core::sandbox::User;
use stockade_jail::cgroup::Group;
use stockade_jail::{
    Access, Bubblewrap, HostTree, Identity, JailSpec, Mount, Network, Overlay, Owners, Source,
    Task, system,
};

use crate::error::Error;
use crate::layers::{self, Origin};
use crate::owners;
use crate::programs::{Found, Programs};
use crate::request::{HOSTNAME, Parts, Request};
use crate::skeleton::GIT_CONFIGURATION;
use crate::ssh_agent;

/// The file of the certificates that programs trust ([`TRUSTED_INSIDE`]), in the sandbox's own
/// directory.
pub const TRUSTED_FILE: &str = "authorities.pem";

/// How long a jail lives if no keeper renews its lease.
pub const LEASE: Duration = Duration::from_secs(60);

/// The inputs for the jail of a persistent sandbox, in addition to the request.
#[derive(Debug)]
pub struct PersistentInput<'a> {
    /// The identity of the jail.
    pub identity: Identity,
    /// The sandbox's own directory.
    pub directory: &'a Path,
    /// Where the upper layers come from.
    pub origin: Origin,
    /// The path of the program bubblewrap, if it makes the innermost namespaces.
    pub bubblewrap: Option<PathBuf>,
    /// The visible programs of the host.
    pub programs: &'a mut Programs,
    /// The control groups.
    pub group: Group,
    /// The socket on which init listens.
    pub listener: OwnedFd,
    /// How many file descriptors the keeper may have.
    pub descriptors: u64,
}

/// A planned jail.
#[derive(Debug)]
pub struct JailPlan {
    /// The jail.
    pub spec: JailSpec,
    /// The name of the skeleton that is the lower layer of the root, if any.
    pub skeleton: Option<String>,
}

impl Request {
    /// Creates the layers, and completes the jail of a persistent sandbox.
    ///
    /// # Errors
    /// A file that cannot be created in the sandbox's directory or opened on the host.
    pub fn persistent_jail(mut self, input: PersistentInput<'_>) -> Result<JailPlan, Error> {
        let PersistentInput { identity, directory, origin, bubblewrap, programs, .. } = input;
        let PersistentInput { group, listener, descriptors, .. } = input;
        let bubblewrap = bubblewrap.map(|program| with_log(program, self.own)).transpose()?;
        let mut locks = Vec::new();
        let (lower, mut mounts, skeleton) = match self.root.take() {
            Some(root) => (root.real, Vec::new(), None),
            None => {
                let Found { skeleton, mounts, lock } =
                    programs.find(self.own, self.private_base)?;
                locks.extend(lock);
                let name = skeleton.file_name().and_then(|name| name.to_str()).map(str::to_owned);
                (skeleton, mounts, name)
            }
        };
        let is_image = skeleton.is_none();
        let mut below = Vec::new();
        let is_of_store = self.image.is_some();
        if let Some(image) = self.image.take() {
            if bubblewrap.is_some() && !image.has_loader {
                return Err(Error::NoLoader);
            }
            below = image.below;
            locks.extend(image.locks);
            // A bind mount would show its path on the host.
            mounts.extend(system::host_names(HOSTNAME));
            mounts.extend(image.directories);
        }
        let layers = layers::make(&directory.join("layers"), &lower, &identity, origin)?;
        if is_image && !is_of_store && origin != Origin::Snapshot {
            layers::make_home(&layers.join("upper"), &lower, self.own, &identity)?;
        }
        mounts.extend(self.secrets_directory());
        if self.network == Network::Egress {
            mounts.extend(name_files(directory, is_image)?);
        }
        if self.ssh_agent {
            mounts.push(ssh_agent::mount(directory)?);
        }
        if let Some((_, host)) = self.workspace.as_ref().filter(|_| !is_image) {
            mounts.extend(git_file(directory, &host.real)?);
        }
        if let Some(host) = self.repository.take() {
            let layers = layers::make_again(&directory.join("repository"), &host.real, &identity)?;
            mounts.push((
                host.real.clone(),
                Mount::Tree(view(&host.real, Vec::new(), &layers, Origin::New)?),
            ));
        }
        if let Some((inside, host)) = self.workspace.take() {
            let workspace_dir = directory.join("workspace");
            let layers = layers::make(&workspace_dir, &host.real, &identity, origin)?;
            if origin == Origin::New {
                let upper = upper(&layers)?;
                if identity.range().is_some() {
                    Marks::of_new(&upper);
                }
                place_hard_links(&host.real, &upper, &identity)?;
            }
            mounts.push((inside, Mount::Tree(view(&host.real, Vec::new(), &layers, origin)?)));
        }
        let lock = match identity.range() {
            Some(range) => range.lock().map_err(|source| Error::Exhausted {
                what: "cannot lock the sandbox's range of user ids".to_owned(),
                source,
            })?,
            None => None,
        };
        let processors = self.processors();
        let spec = self.jail(Parts {
            root: view(&lower, below, &layers, origin)?,
            identity,
            root_writable: true,
            root_is_own: !is_image && origin == Origin::New,
            mounts,
            task: Task::Serve { listener, lease: LEASE, processors, bubblewrap },
            open_files: Some(open_files(descriptors)),
            cgroup: Some(group),
            locks: lock.into_iter().chain(locks).collect(),
            reports_refused_calls: true,
        });
        Ok(JailPlan { spec, skeleton })
    }
}

/// Bubblewrap for a sandbox of this user, with a file in memory for what it writes.
fn with_log(program: PathBuf, own: User) -> Result<Bubblewrap, Error> {
    let log = rustix::fs::memfd_create("bwrap", rustix::fs::MemfdFlags::CLOEXEC);
    let log = log.map_err(|errno| Error::Exhausted {
        what: "cannot create a file in memory".to_owned(),
        source: errno.into(),
    })?;
    Ok(Bubblewrap { program, user: own.user, group: own.group, log })
}

/// The configuration of git for a workspace, in the sandbox's own directory.
fn git_file(directory: &Path, workspace: &Path) -> Result<Option<(PathBuf, Mount)>, Error> {
    let Ok(project) = Project::open(workspace, None) else { return Ok(None) };
    let file = Mount::File(project.git_configuration());
    own_file(directory, (GIT_CONFIGURATION.into(), file)).map(Some)
}

/// The files that configure name lookups where there is a resolver, and the file of the certificates
/// to trust, which is empty until the sandbox has a secret. They are in the sandbox's own directory
/// and are mounted, so that no layer contains them.
fn name_files(directory: &Path, is_image: bool) -> Result<Vec<(PathBuf, Mount)>, Error> {
    // An image configures name lookups itself.
    let trusted = (PathBuf::from(TRUSTED_INSIDE), Mount::File(Vec::new()));
    let files = [(!is_image).then(system::name_services), Some(system::resolver()), Some(trusted)];
    files.into_iter().flatten().map(|file| own_file(directory, file)).collect()
}

/// A file of the sandbox's own, written to its directory and mounted from there.
fn own_file(
    directory: &Path,
    (inside, mount): (PathBuf, Mount),
) -> Result<(PathBuf, Mount), Error> {
    let (Mount::File(content), Some(name)) = (&mount, inside.file_name()) else {
        return Ok((inside, mount));
    };
    let path = directory.join(name);
    let write = || -> io::Result<()> {
        std::fs::write(&path, content)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))
    };
    write().map_err(|source| Error::HostPath { path: path.clone(), source })?;
    // Every user inside may read it, and none owns it.
    let source = Source::Host { tree: open(&path)?, access: Access::Read, owners: Owners::Range };
    Ok((inside, Mount::Tree(source)))
}

/// How many file descriptors a command may have: the keeper's limit must be higher by more than one
/// message carries. A command may send as many as it may have, and the kernel refuses a sender
/// whose limit is lower than the number that all processes of the user on the host have in flight
/// (`unix(7)`, `ETOOMANYREFS`).
fn open_files(keeper: u64) -> u64 {
    (keeper / 4 * 3).min(65_536)
}

/// The source of a mount of the layers over `lower` and the layers `below` it, or of a full copy, which needs no lower layer.
fn view(
    lower: &Path,
    below: Vec<HostTree>,
    layers: &Path,
    origin: Origin,
) -> Result<Source, Error> {
    if origin == Origin::FullCopy {
        let tree = open(&layers.join("upper"))?;
        return Ok(Source::Host { tree, access: Access::Write, owners: Owners::Range });
    }
    let (lower, view) = (open(lower)?, Some(open(layers)?));
    let records_renames = below.is_empty() && Marks::of(&upper(layers)?) == Marks::Trusted;
    Ok(Source::Overlay(Overlay {
        lower,
        below,
        view,
        size_bytes: 0,
        synced: true,
        records_renames,
    }))
}

/// Puts files of a workspace that have several names into its upper layer.
fn place_hard_links(workspace: &Path, upper: &Dir, identity: &Identity) -> Result<(), Error> {
    let survey = owners::survey(identity, workspace, owners::ENTRIES_OF_A_KEEPER);
    let range = identity.range().filter(|range| range.subordinate().is_none());
    let ownership = range.map(|range| Ownership { host_start: range.start, count: range.count });
    let placed =
        survey.hard_links.place(workspace, upper, ownership, owners::HARD_LINKS_OF_A_KEEPER);
    placed.map(drop).map_err(|error| Error::HostPath {
        path: workspace.to_owned(),
        source: io::Error::other(error),
    })
}

fn upper(layers: &Path) -> Result<Dir, Error> {
    let path = layers.join("upper");
    Dir::open(&path).map_err(|error| Error::HostPath { path, source: error.into() })
}

fn open(path: &Path) -> Result<HostTree, Error> {
    HostTree::open(path).map_err(|source| Error::HostPath { path: path.to_owned(), source })
}
