//! The jail of `stockade run`: one command on a view of a project, and only the view is left
//! afterwards.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use stockade_bundle::beneath::Dir;
use stockade_bundle::layer::Marks;
use stockade_bundle::view;
use stockade_core::network::{TRUSTED_INSIDE, trust_variables};
use stockade_core::sandbox::{SSH_AGENT, User};
use stockade_jail::cgroup::Group;
use stockade_jail::system::{self, Account};
use stockade_jail::{
    Access, Command, HostTree, Identity, JailSpec, Mount, Network, Overlay, Owners, Payload,
    Scratch, Source, Streams, Task, network,
};

use crate::account::account;
use crate::authority_files::AuthorityFiles;
use crate::error::Error;
use crate::etc;
use crate::private_base::{self, Base};
use crate::request::{HOSTNAME, Parts, Request};

/// Where git finds what it needs of the user's configuration: `GIT_CONFIG_SYSTEM`.
const GIT_CONFIGURATION: &str = "/run/stockade/gitconfig";
/// The size in memory of an image's root, which is only for mount points.
const ROOT_BYTES: u64 = 16 << 20;

/// How the workspace is made visible.
#[derive(Debug)]
pub enum View {
    /// Through an overlay whose layers are in this directory.
    Overlay(PathBuf),
    /// Through an overlay whose layers are in memory, of this size in bytes.
    InMemory(u64),
    /// As a copy at this path.
    Copy(PathBuf),
}

/// The inputs for the jail of one command, in addition to the request.
#[derive(Debug)]
pub struct OneShotInput<'a> {
    /// The identity of the jail.
    pub identity: Identity,
    /// How the workspace is made visible.
    pub view: &'a View,
    /// What the command process does.
    pub payload: Payload,
    /// The whole environment.
    pub environment: Vec<CString>,
    /// The directory in which the command starts.
    pub working_directory: CString,
    /// How its streams are made.
    pub streams: Streams,
    /// See [`Command::umask`].
    pub umask: u32,
    /// See [`Command::not_before`].
    pub not_before: Option<(i64, u32)>,
    /// The certificates that programs trust, if they are not the system's.
    pub authorities: Option<AuthorityFiles<'a>>,
    /// The control groups.
    pub group: Option<Group>,
    /// The configuration of git, in addition to the project's.
    pub git: Vec<u8>,
    /// Where copies of the host's `/etc` are made.
    pub etc: &'a Path,
    /// The copy of the system directories, for a request that wants one.
    pub base: Option<&'a Base>,
    /// The socket of the ssh agent for it, which everybody may connect to.
    pub ssh_agent: Option<&'a Path>,
    /// The lock of the view, held as long as the jail lives.
    pub lock: OwnedFd,
}

/// The variables that make programs use the egress proxy and the certificates to trust.
pub(crate) fn network_variables(
    network: Network,
    has_authorities: bool,
) -> Vec<(&'static str, String)> {
    let mut variables = Vec::new();
    match network {
        Network::Off => {}
        Network::Stub => variables.extend(network::variables(network::STUB_PROXY_PORT)),
        Network::Egress => variables.extend(network::variables(network::PROXY_PORT)),
    }
    if has_authorities {
        variables.extend(trust_variables());
    }
    variables
}

impl Request {
    /// Lets the jail, if it has no network access, refuse what programs ask for instead of leaving
    /// them to wait: its listeners are for a process outside.
    pub fn add_stub(&mut self) {
        if self.network == Network::Off {
            self.network = Network::Stub;
        }
    }

    /// The variables of the command that its network and git require.
    pub fn one_shot_variables(&self, has_authorities: bool) -> Vec<(&'static str, String)> {
        let mut variables = network_variables(self.network, has_authorities);
        variables.push(("GIT_CONFIG_SYSTEM", GIT_CONFIGURATION.to_owned()));
        variables
    }

    /// The jail of one command.
    ///
    /// # Errors
    /// A file that cannot be opened on the host.
    pub fn one_shot_jail(mut self, input: OneShotInput<'_>) -> Result<JailSpec, Error> {
        let account = account(self.own);
        let mut image = self.image.take();
        let mut locks = vec![input.lock];
        let below = image.as_mut().map(|image| std::mem::take(&mut image.below));
        let root = match self.root.take() {
            Some(top) => Source::Overlay(Overlay {
                lower: top.tree,
                below: below.unwrap_or_default(),
                view: None,
                size_bytes: if image.is_some() { self.memory_bytes() } else { ROOT_BYTES },
                synced: false,
                records_renames: false,
            }),
            None => Source::Empty,
        };
        let has_host_programs = matches!(root, Source::Empty);
        let root_writable = image.is_some();
        let mut mounts = match image {
            Some(image) => {
                locks.extend(image.locks);
                self.files_of_image(image.directories, image.has_tmp, input.authorities)
            }
            None => self.system_files(
                &account,
                input.authorities,
                has_host_programs,
                input.etc,
                (input.base, &mut locks),
            )?,
        };
        mounts.push((GIT_CONFIGURATION.into(), Mount::File(input.git)));
        if let Some(socket) = input.ssh_agent {
            let (tree, access) = (open(socket)?, Access::Read);
            let source = Source::Host { tree, access, owners: Owners::Range };
            mounts.push((SSH_AGENT.into(), Mount::Tree(source)));
        }
        // The upper layer in memory that is found afterwards is that of the last view.
        if let Some(host) = self.repository.take() {
            mounts.push((host.real, Mount::Tree(repository(host.tree, input.view)?)));
        }
        if let Some((inside, host)) = self.workspace.take() {
            mounts.push((inside, Mount::Tree(workspace(host.tree, input.view)?)));
        }
        let command = Command {
            payload: input.payload,
            environment: input.environment,
            working_directory: input.working_directory,
            user: account.user,
            group: account.group,
            groups: std::mem::take(&mut self.groups),
            umask: input.umask,
            processors: self.processors(),
            not_before: input.not_before,
        };
        Ok(self.jail(Parts {
            identity: input.identity,
            root,
            root_writable,
            root_is_own: has_host_programs,
            mounts,
            task: Task::Once { command, streams: input.streams },
            open_files: None,
            cgroup: input.group,
            locks,
            reports_refused_calls: true,
        }))
    }

    /// The copy of the host's `/etc`, with the files of this sandbox and mount points for `over`.
    fn etc(
        &self,
        account: &Account,
        directory: &Path,
        over: &[(PathBuf, Mount)],
    ) -> Result<etc::Copy, Error> {
        let mut own = system::identity_files(account, HOSTNAME);
        if self.network != Network::Off {
            own.extend([system::name_services(), system::resolver()]);
        } else {
            own.push(system::local_name_services());
        }
        let mut entries = etc::entries();
        let points = over.iter().map(|(path, _)| path.as_path());
        etc::add_own(&mut entries, own, points.chain([Path::new(TRUSTED_INSIDE)]))
            .and_then(|()| etc::ensure(directory, &entries))
            .map_err(|source| Error::HostPath { path: directory.to_owned(), source })
    }

    /// The size of each file system in memory.
    fn memory_bytes(&self) -> u64 {
        self.scratch_bytes().unwrap_or(u64::MAX).min(quarter_of_memory())
    }

    /// What an image of the store gets: the files that every container has of its own, and the
    /// directories that the image expects. All else is the image's.
    fn files_of_image(
        &self,
        directories: Vec<(PathBuf, Mount)>,
        has_tmp: bool,
        authorities: Option<AuthorityFiles<'_>>,
    ) -> Vec<(PathBuf, Mount)> {
        let mut mounts = system::host_names(HOSTNAME);
        if self.network != Network::Off {
            mounts.push(system::resolver());
        }
        if let Some(authorities) = authorities {
            mounts.push((TRUSTED_INSIDE.into(), Mount::File(authorities.text.as_bytes().to_vec())));
        }
        if !has_tmp {
            let size_bytes = self.memory_bytes();
            let User { user, group } = self.own;
            let tmp = Scratch { mode: 0o1777, size_bytes, user, group };
            mounts.push(("/tmp".into(), Mount::Scratch(tmp)));
        }
        mounts.extend(directories);
        mounts
    }

    /// Everything below the workspace and the requested mounts, in the order in which it is
    /// mounted.
    fn system_files(
        &self,
        account: &Account,
        authorities: Option<AuthorityFiles<'_>>,
        has_host_programs: bool,
        directory: &Path,
        (base, locks): (Option<&Base>, &mut Vec<OwnedFd>),
    ) -> Result<Vec<(PathBuf, Mount)>, Error> {
        let failed = |source| Error::HostPath { path: "/usr".into(), source };
        let over_etc = match authorities.filter(|_| has_host_programs) {
            Some(authorities) => authorities.over_the_system()?,
            None => Vec::new(),
        };
        let mut mounts = Vec::new();
        if has_host_programs {
            mounts = system::programs().map_err(failed)?;
            if self.private_base {
                let missing = || Error::Base(Box::new(private_base::Error::Missing));
                let (copies, lock) =
                    private_base::replace(mounts, base.ok_or_else(missing)?).map_err(failed)?;
                mounts = copies;
                locks.push(lock);
            }
            let copy = self.etc(account, directory, &over_etc)?;
            mounts.push(("/etc".into(), Mount::Tree(Source::Layer(copy.tree))));
            locks.push(copy.lock);
            mounts.push(("/run".into(), Mount::Directory));
            mounts.push(("/var/tmp".into(), Mount::Link("/tmp".into())));
        }
        if self.network != Network::Off && !has_host_programs {
            // An image configures name lookups itself.
            mounts.push(system::resolver());
        }
        if let Some(authorities) = authorities {
            mounts.push((TRUSTED_INSIDE.into(), Mount::File(authorities.text.as_bytes().to_vec())));
        }
        mounts.extend(over_etc);
        let size_bytes = self.memory_bytes();
        let scratch = |mode| {
            Mount::Scratch(Scratch { mode, size_bytes, user: account.user, group: account.group })
        };
        mounts.push(("/tmp".into(), scratch(0o1777)));
        mounts.push((account.home.clone(), scratch(0o700)));
        Ok(mounts)
    }
}

fn workspace(lower: HostTree, view: &View) -> Result<Source, Error> {
    let overlay = |view, size_bytes, records_renames| {
        let below = Vec::new();
        Source::Overlay(Overlay { lower, below, view, size_bytes, synced: false, records_renames })
    };
    Ok(match view {
        View::Overlay(layers) => {
            let path = layers.join("upper");
            let marks = Dir::open(&path).map(|upper| Marks::of(&upper));
            let marks = marks.map_err(|error| Error::HostPath { path, source: error.into() })?;
            overlay(Some(open(layers)?), 0, marks == Marks::Trusted)
        }
        View::InMemory(size_bytes) => overlay(None, *size_bytes, false),
        View::Copy(copy) => {
            Source::Host { tree: open(copy)?, access: Access::Write, owners: Owners::Range }
        }
    })
}

/// The git directory of a workspace outside of it, in a view of its own.
fn repository(lower: HostTree, view: &View) -> Result<Source, Error> {
    match view {
        View::Overlay(layers) => workspace(lower, &View::Overlay(layers.join(view::REPOSITORY))),
        View::InMemory(size_bytes) => workspace(lower, &View::InMemory(*size_bytes)),
        View::Copy(copy) => {
            let beside = copy.parent().unwrap_or(copy).join(view::REPOSITORY);
            workspace(lower, &View::Copy(beside.join("copy")))
        }
    }
}

fn open(path: &Path) -> Result<HostTree, Error> {
    HostTree::open(path).map_err(|source| Error::HostPath { path: path.to_owned(), source })
}

/// The size limit of `/tmp` and of the home directory; their content counts against the memory
/// limit.
fn quarter_of_memory() -> u64 {
    let info = rustix::system::sysinfo();
    (u64::from(info.mem_unit) * info.totalram / 4).max(64 << 20)
}
