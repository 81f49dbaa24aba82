//! From the arguments to a complete jail: what is visible inside, who the
//! command is, and what it is bound by.

use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use stockade_bundle::project::{Git, Project};
use stockade_core::network::binding::Binding;
use stockade_core::{Code, Problem};
use stockade_jail::rlimits::ResourceLimits;
use stockade_jail::system::{self, Account};
use stockade_jail::{
    Access, Command, HostTree, Identity, JailSpec, Mount, Network, Overlay, Owners, Payload,
    Scratch, Source, Streams, Task, network,
};

use super::network::placeholders;
use super::{environment, mounts};
use crate::args::{BestEffort, Run};
use crate::terminal;

/// The machine's name inside.
const HOSTNAME: &str = "stockade";
/// Where programs find whom to believe, where that is not the system's to say.
const BELIEVED: &str = "/etc/stockade/authorities.pem";
/// How many processes and threads a jail has at most when nothing else is asked for.
const PROCESSES: u64 = 4096;
/// How much an image's root takes of memory, which is only for mount points.
const ROOT_BYTES: u64 = 16 << 20;

/// How the project is shown.
#[derive(Debug)]
pub(super) enum Shown {
    /// Through an overlay whose layers are in this directory.
    Overlay(PathBuf),
    /// Through an overlay whose layers are in memory, of this size.
    InMemory(u64),
    /// As a copy, which is at this path.
    Copy(PathBuf),
}

/// What a spec is made from, beside the arguments.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) project: &'a Project,
    pub(super) data: &'a Path,
    pub(super) current: &'a Path,
    pub(super) account: &'a Account,
    /// The image's root directory, where one was asked for.
    pub(super) image: Option<&'a Path>,
    /// What there is beyond the sandbox's own loopback.
    pub(super) network: Network,
    /// The secrets that go with requests, and are not for the command.
    pub(super) secrets: &'a [Binding],
    /// The certificates (PEM) that programs are to believe, where they are not the system's.
    pub(super) believed: Option<&'a str>,
}

/// Builds the spec.
pub(super) fn spec(
    arguments: &Run,
    around: &Surroundings<'_>,
    identity: Identity,
    shown: &Shown,
    not_before: (i64, u32),
    lock: OwnedFd,
) -> Result<JailSpec, Problem> {
    let command = command(arguments, around, not_before)?;
    let root = match around.image {
        Some(image) => Source::Overlay(Overlay {
            lower: open(image)?,
            view: None,
            size_bytes: ROOT_BYTES,
            synced: false,
        }),
        None => Source::Empty,
    };
    let streams =
        if arguments.tty { Streams::Terminal(terminal::window_size()) } else { Streams::Pipes };
    Ok(JailSpec {
        identity,
        root,
        root_writable: false,
        root_is_own: around.image.is_none(),
        mounts: visible(arguments, around, shown)?,
        hostname: HOSTNAME.to_owned(),
        network: around.network,
        task: Task::Once { command, streams },
        rlimits: ResourceLimits {
            processes: Some(arguments.pids.unwrap_or(PROCESSES)),
            ..ResourceLimits::default()
        },
        cgroup: None,
        kept: vec![lock],
        areas: None,
        landlock_optional: arguments.best_effort.contains(&BestEffort::Landlock),
    })
}

fn command(
    arguments: &Run,
    around: &Surroundings<'_>,
    not_before: (i64, u32),
) -> Result<Command, Problem> {
    let text = |bytes: &[u8], what: &str| {
        CString::new(bytes)
            .map_err(|_| Problem::new(Code::InvalidInput, format!("{what} holds a NUL byte")))
    };
    let account = around.account;
    let program = arguments
        .command
        .iter()
        .map(|word| text(word.as_bytes(), "an argument"))
        .collect::<Result<_, _>>()?;
    let directory = match &arguments.cwd {
        Some(directory) => around.current.join(directory),
        None => around.current.to_owned(),
    };
    let mut own: Vec<(&'static str, String)> = match around.network {
        Network::Off => Vec::new(),
        Network::Egress => network::variables().collect(),
    };
    if around.believed.is_some() {
        own.extend(network::trust_variables(BELIEVED));
    }
    let mut variables: Vec<(&str, String)> = own;
    variables.extend(placeholders(around.secrets));
    Ok(Command {
        payload: Payload::Program(program),
        environment: environment::build(
            std::env::vars_os(),
            &arguments.env,
            &account.name,
            &account.home,
            &variables,
        )?,
        working_directory: text(directory.as_os_str().as_bytes(), "the directory")?,
        user: account.user,
        group: account.group,
        not_before: Some(not_before),
    })
}

/// Everything below the root, in the order in which it is mounted.
fn visible(
    arguments: &Run,
    around: &Surroundings<'_>,
    shown: &Shown,
) -> Result<Vec<(PathBuf, Mount)>, Problem> {
    let account = around.account;
    let io = |e: std::io::Error| {
        Problem::new(Code::Io, "cannot look at the host's system directories")
            .because(e.to_string())
    };
    let mut mounts = Vec::new();
    if around.image.is_none() {
        mounts = system::programs().map_err(io)?;
        mounts.extend(system::configuration(account, HOSTNAME, system::COPIED_BYTES).map_err(io)?);
        mounts.push(("/run".into(), Mount::Directory));
        mounts.push(("/var/tmp".into(), Mount::Link("/tmp".into())));
    }
    if around.network == Network::Egress {
        // An image says itself how names are looked up.
        mounts.extend(around.image.is_none().then(system::name_services));
        mounts.push(system::resolver());
    }
    let believed = around.believed.map(|text| Mount::File(text.as_bytes().to_vec()));
    mounts.extend(believed.map(|file| (BELIEVED.into(), file)));
    let scratch = |mode| {
        Mount::Scratch(Scratch {
            mode,
            size_bytes: quarter_of_memory(),
            user: account.user,
            group: account.group,
        })
    };
    mounts.push(("/tmp".into(), scratch(0o1777)));
    mounts.push((account.home.clone(), scratch(0o700)));
    mounts.push((around.project.root.clone(), Mount::Tree(project(around.project, shown)?)));
    if let Git::Worktree { common_dir, .. } = &around.project.git {
        mounts.push((common_dir.clone(), read_only(common_dir)?));
    }
    for argument in &arguments.mount {
        let asked = mounts::parse(argument)?;
        mounts.push(asked.open(around.data, &around.project.root)?);
    }
    Ok(mounts)
}

fn project(project: &Project, shown: &Shown) -> Result<Source, Problem> {
    let overlay = |view, size_bytes| {
        let lower = open(&project.root)?;
        Ok(Source::Overlay(Overlay { lower, view, size_bytes, synced: false }))
    };
    match shown {
        Shown::Overlay(layers) => overlay(Some(open(layers)?), 0),
        Shown::InMemory(size_bytes) => overlay(None, *size_bytes),
        Shown::Copy(copy) => {
            Ok(Source::Host { tree: open(copy)?, access: Access::Write, owners: Owners::Range })
        }
    }
}

fn read_only(path: &Path) -> Result<Mount, Problem> {
    Ok(Mount::Tree(Source::Host {
        tree: open(path)?,
        access: Access::Read,
        owners: Owners::OnDisk,
    }))
}

fn open(path: &Path) -> Result<HostTree, Problem> {
    HostTree::open(path).map_err(|e| {
        Problem::new(Code::Io, format!("cannot open {}", path.display())).because(e.to_string())
    })
}

/// What `/tmp` and the home may hold, each; memory that is used counts against `--memory`.
fn quarter_of_memory() -> u64 {
    let info = rustix::system::sysinfo();
    (u64::from(info.mem_unit) * info.totalram / 4).max(64 << 20)
}

/// The program's place on the host, when it is one that the sandbox does not show.
pub(super) fn hidden_program(name: &OsString, path: Option<&OsString>) -> Option<PathBuf> {
    std::env::split_paths(path?).map(|directory| directory.join(name)).find(|candidate| {
        let shown = environment::PATH.split(':').any(|directory| candidate.starts_with(directory));
        !shown && candidate.is_file()
    })
}
