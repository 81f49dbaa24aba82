//! The third phase of the inner half: the jail's root replaces the host's, with everything mounted
//! in it, and the paths for the rules of Landlock are collected.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};

use crate::access_mounts;
use crate::dev_proc::DevProc;
use crate::landlock::Access as LandlockAccess;
use crate::mounts::{self, At as _, Failure};
use crate::seccomp::SetIdBits;
use crate::spec::{Access, JailSpec, Mount, OptionalMount, Overlay, Owners, Rights, Source, Task};
use crate::vm_helper::VmHelper;
use crate::walls::Wall;

/// The parts of the jail's file system that later phases need.
pub(super) struct Files {
    /// The upper layer, where it is in memory.
    pub(super) upper: Option<OwnedFd>,
    /// The mount namespace, which the supervisor of one command holds beyond the end of the jail.
    pub(super) mounts: Option<OwnedFd>,
    /// The root directory, for the keeper of a persistent jail.
    pub(super) root: Option<OwnedFd>,
    /// `/proc` had to be omitted.
    pub(super) proc_missing: bool,
    /// The paths with their Landlock rights, except `/dev`.
    pub(super) landlock_targets: Vec<(CString, LandlockAccess)>,
    /// Where commands may connect to sockets that they did not make, if that is to be restricted.
    pub(super) socket_targets: Option<Vec<CString>>,
    /// Whether files may become set-id programs.
    pub(super) set_id_bits: SetIdBits,
    /// Whether an overlay of the jail cannot rename directories of its lower layer.
    pub(super) lacks_renames: bool,
}

/// Assembles the jail's file system and leaves the host's. `mount_points` tells for each mount
/// whether its mount point is in the root that the helper makes; `trees` are those that the
/// supervisor has cloned.
pub(super) fn assemble(
    spec: &mut JailSpec,
    helper: &VmHelper,
    mount_points: Option<Vec<bool>>,
    trees: Option<Vec<OwnedFd>>,
) -> Result<Files, Failure> {
    let words = |text: &'static str| move || text.to_owned();
    let writable =
        writable_targets(spec).at(Wall::Landlock, words("resolve the writable paths"))?;
    let socket_targets =
        socket_targets(spec).at(Wall::Landlock, words("list the places of sockets"))?;
    let access_mounts = spec.access_mounts.take();
    let set_id_bits = set_id_bits(spec);
    let lacks_renames = lacks_renames(spec);
    let root = std::mem::replace(&mut spec.root, Source::Empty);
    let mounts = std::mem::take(&mut spec.mounts);
    let root = mount_points.is_none().then_some(root);
    let mount_points = mount_points.unwrap_or_default();
    let mut assembly = mounts::gather(root, spec.root_writable, mounts, mount_points, trees)?;
    let own_mounts = match spec.task {
        Task::Once { .. } => Some(open_mounts().at(Wall::Root, words("open the own mounts"))?),
        Task::Serve { .. } | Task::Fork(_) => None,
    };
    let upper = assembly.upper.take();
    assembly.make_overlays()?;
    if let Some(root) = helper.wait_for_root()? {
        assembly.set_root(root);
    }
    assembly.leave_host_root()?;
    helper.report_root_entered();
    if !spec.root_is_own {
        helper.wait_until_host_root_is_gone()?;
    }
    let proc_missing = !helper.attach_dev_proc()?;
    assembly.attach(|target| !DevProc::contains(target))?;
    if access_mounts.is_some() || !assembly.is_attached() {
        helper.finish()?;
    }
    assembly.attach(|_| true)?;
    helper.wait_for_devices()?;
    assembly.close()?;
    let landlock_targets = match &access_mounts {
        None => writable,
        Some(areas) => {
            let raised = access_mounts::apply(areas)?;
            targets_of(&raised).at(Wall::Landlock, words("list the access mounts"))?
        }
    };
    let root = match spec.task {
        Task::Once { .. } | Task::Fork(_) => None,
        Task::Serve { .. } => Some(open_root().at(Wall::Root, words("open the root"))?),
    };
    Ok(Files {
        upper,
        mounts: own_mounts,
        root,
        proc_missing,
        landlock_targets,
        socket_targets,
        set_id_bits,
        lacks_renames,
    })
}

fn open_mounts() -> rustix::io::Result<OwnedFd> {
    rustix::fs::open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn open_root() -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open("/", flags, Mode::empty())
}

/// The Landlock rights: the root is readable, and some paths are writable.
fn writable_targets(spec: &JailSpec) -> io::Result<Vec<(CString, LandlockAccess)>> {
    use LandlockAccess::{ReadExecute, Write};
    let writable = |mount: &Mount| match mount {
        Mount::Scratch(_) | Mount::Tree(Source::Overlay(_)) => true,
        Mount::Tree(Source::Host { access, .. }) => *access == Access::Write,
        Mount::Tree(Source::Empty | Source::ReadOnly(_) | Source::Layer(_))
        | Mount::File(_)
        | Mount::Link(_)
        | Mount::Directory
        // Its surroundings are writable, and it may be omitted.
        | Mount::Optional(_) => false,
    };
    let root = if spec.root_writable { Write } else { ReadExecute };
    let mounts = spec.mounts.iter().filter(|(_, mount)| writable(mount));
    let mounts = mounts.map(|(target, _)| Ok((mounts::c_path(target)?, Write)));
    let fixed =
        [(c"/", root), (c"/dev/shm", Write)].map(|(path, access)| Ok((path.to_owned(), access)));
    fixed.into_iter().chain(mounts).collect()
}

/// Directories of a writable root in which commands of one sandbox reach each other's sockets.
const SOCKET_DIRECTORIES: [&str; 7] = ["/run", "/var", "/tmp", "/home", "/root", "/opt", "/srv"];

/// Where commands may connect to sockets that another command or the host made. `None` if no directory
/// of the host is mounted writable: then every socket that is seen is one of the sandbox, or was
/// mounted by its own name. In a writable directory of the host a program may listen later.
fn socket_targets(spec: &JailSpec) -> io::Result<Option<Vec<CString>>> {
    let mut of_host = Vec::new();
    let mut places = vec![Path::new("/dev/shm")];
    for (target, mount) in &spec.mounts {
        match mount {
            Mount::Tree(Source::Host { tree, access, owners }) if *owners != Owners::Range => {
                let mode = rustix::fs::fstat(&tree.file)?.st_mode;
                match FileType::from_raw_mode(mode) {
                    FileType::Socket => places.push(target.as_path()),
                    FileType::Directory if *access == Access::Write => of_host.push(target),
                    _ => {}
                }
            }
            Mount::Tree(Source::Host { .. } | Source::Overlay(_)) | Mount::Scratch(_) => {
                places.push(target.as_path());
            }
            Mount::Tree(Source::Empty | Source::ReadOnly(_) | Source::Layer(_))
            | Mount::File(_)
            | Mount::Link(_)
            | Mount::Directory
            // A directory of Stockade: no program of the host listens there.
            | Mount::Optional(_) => {}
        }
    }
    if of_host.is_empty() {
        return Ok(None);
    }
    if spec.root_writable {
        places.extend(SOCKET_DIRECTORIES.map(Path::new));
    }
    // A rule also grants what it says below other mounts.
    let is_own = |place: &&Path| !of_host.iter().any(|target| target.starts_with(place));
    places.into_iter().filter(is_own).map(mounts::c_path).collect::<io::Result<_>>().map(Some)
}

/// The Landlock rights in areas. Every path also has the rights of the paths above it, so Landlock
/// alone would not enforce the areas.
fn targets_of(access_mounts: &[(PathBuf, Rights)]) -> io::Result<Vec<(CString, LandlockAccess)>> {
    use LandlockAccess::{Change, Read, ReadExecute, Write};
    let target = |(path, rights): &(PathBuf, Rights)| {
        let access = match rights {
            Rights::Closed => return None,
            Rights::AsIs | Rights::Open { write: false, execute: true } => ReadExecute,
            Rights::Open { write: false, execute: false } => Read,
            Rights::Open { write: true, execute: false } => Change,
            Rights::Open { write: true, execute: true } => Write,
        };
        Some(mounts::c_path(path).map(|path| (path, access)))
    };
    access_mounts.iter().filter_map(target).collect()
}

/// Whether an overlay of this jail cannot rename directories of its lower layer.
fn lacks_renames(spec: &JailSpec) -> bool {
    let lacks = |source: &Source| matches!(source, Source::Overlay(Overlay { view, records_renames, .. }) if view.is_none() || !records_renames);
    let mounted = spec.mounts.iter().any(|(_, mount)| match mount {
        Mount::Tree(source) | Mount::Optional(OptionalMount { source, .. }) => lacks(source),
        _ => false,
    });
    mounted || lacks(&spec.root)
}

/// Whether files may become set-id programs: not if they would be files of the host.
fn set_id_bits(spec: &JailSpec) -> SetIdBits {
    let of_host = |source: &Source| matches!(source, Source::Host { access: Access::Write, owners, .. } if *owners != Owners::Range);
    let mounted = spec.mounts.iter().any(|(_, mount)| match mount {
        Mount::Tree(source) | Mount::Optional(OptionalMount { source, .. }) => of_host(source),
        _ => false,
    });
    if mounted || of_host(&spec.root) { SetIdBits::Refused } else { SetIdBits::Allowed }
}
