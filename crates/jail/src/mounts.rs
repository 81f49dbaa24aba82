//! The jail's file system, in two phases: `gather` takes hold of everything
//! while the host's root is still there; `Assembly::attach` puts it together once
//! the host's root is gone, so that no path resolved there can lead out.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
    fsopen, mount_change, move_mount, open_tree, unmount,
};

use crate::spec::{Access, HostTree, Mount, Overlay, Scratch, Source};
use crate::sys;
use crate::walls::Wall;

/// A step that failed, and the wall that it belongs to.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) wall: Wall,
    pub(crate) step: String,
    pub(crate) errno: i32,
}

/// Names the step of a kernel call that failed.
pub(crate) trait At<T> {
    fn at(self, wall: Wall, step: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, wall: Wall, step: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|e| {
            let error: io::Error = e.into();
            Failure { wall, step: step(), errno: error.raw_os_error().unwrap_or(libc::EIO) }
        })
    }
}

/// The device files of every jail; each is the host's own and harmless.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// What a read-only `/proc` still shows of the host to anyone. Entries that only host root may
/// open are not named: host root does not exist inside.
const MASKED: [&str; 17] = [
    "acpi",
    "asound",
    "bus",
    "cmdline",
    "config.gz",
    "driver",
    "dynamic_debug",
    "fs",
    "interrupts",
    "irq",
    "kallsyms",
    "key-users",
    "keys",
    "modules",
    "sched_debug",
    "scsi",
    "timer_list",
];

/// Where the parts of an overlay stand while it is being put together.
const LOWER: &str = "/.lower";
const VIEW: &str = "/.view";
const IMAGE: &str = "/.image";

/// Everything of the jail's file system, held but not yet in its place.
#[derive(Debug)]
pub(crate) struct Assembly {
    root: Option<Gathered>,
    mounts: Vec<(PathBuf, Piece)>,
    proc: Option<OwnedFd>,
    devices: Vec<OwnedFd>,
}

#[derive(Debug)]
enum Piece {
    Tree(Gathered),
    Scratch(Scratch),
    File(Vec<u8>),
    Link(PathBuf),
    Directory,
}

#[derive(Debug)]
enum Gathered {
    Empty,
    Mounted(OwnedFd),
    Overlay { lower: OwnedFd, view: Option<OwnedFd>, size_bytes: u64 },
}

/// What attaching found out.
#[derive(Debug, Default)]
pub(crate) struct Attached {
    /// The upper layer that lives in memory, where one does.
    pub(crate) upper: Option<OwnedFd>,
    /// `/proc` could not be mounted and is an empty directory.
    pub(crate) proc_missing: bool,
}

/// Which trees the outer process must clone and hand in, in the order in which they are gathered:
/// those whose owners are mapped, and what lies below directories that only the caller may pass.
pub(crate) fn handed_in<'a>(
    root: &'a Source,
    mounts: &'a [(PathBuf, Mount)],
) -> impl Iterator<Item = (&'a HostTree, bool)> {
    let sources = mounts.iter().filter_map(|(_, mount)| match mount {
        Mount::Tree(source) => Some(source),
        _ => None,
    });
    std::iter::once(root)
        .chain(sources)
        .flat_map(|source| match source {
            Source::Empty => [None, None],
            Source::Host { tree, owners_mapped, .. } => {
                [owners_mapped.then_some((tree, true)), None]
            }
            Source::Overlay(Overlay { lower, view, .. }) => {
                [Some((lower, true)), view.as_ref().map(|tree| (tree, false))]
            }
        })
        .flatten()
}

/// Takes hold of every source. `handed` are the trees of [`handed_in`] where the outer process
/// has cloned them; without it this process clones them itself.
pub(crate) fn gather(
    root: Source,
    mounts: Vec<(PathBuf, Mount)>,
    handed: Option<Vec<OwnedFd>>,
) -> Result<Assembly, Failure> {
    let mut handed = handed.map(Vec::into_iter);
    let mut tree = |tree: &HostTree, recursive: bool, handed_in: bool| match &mut handed {
        Some(handed) if handed_in => handed
            .next()
            .ok_or(Errno::BADF)
            .at(Wall::View, || "receive the mapped trees".to_owned()),
        _ => clone_tree(tree, recursive),
    };
    let mut source = |source: Source| match source {
        Source::Empty => Ok(Gathered::Empty),
        Source::Host { tree: host, access, recursive, owners_mapped } => {
            let mount = tree(&host, recursive, owners_mapped)?;
            let mut set = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
            if access == Access::Read {
                set |= libc::MOUNT_ATTR_RDONLY;
            }
            sys::mount_setattr(mount.as_fd(), recursive, set, None)
                .at(Wall::Root, || format!("restrict the mount of {}", host.path.display()))?;
            Ok(Gathered::Mounted(mount))
        }
        Source::Overlay(Overlay { lower, view, size_bytes }) => Ok(Gathered::Overlay {
            lower: tree(&lower, false, true)?,
            view: view.map(|view| tree(&view, false, true)).transpose()?,
            size_bytes,
        }),
    };
    let root = match root {
        Source::Empty => None,
        other => Some(source(other)?),
    };
    let mounts = mounts
        .into_iter()
        .map(|(target, mount)| {
            let piece = match mount {
                Mount::Tree(tree) => Piece::Tree(source(tree)?),
                Mount::Scratch(scratch) => Piece::Scratch(scratch),
                Mount::File(content) => Piece::File(content),
                Mount::Link(to) => Piece::Link(to),
                Mount::Directory => Piece::Directory,
            };
            Ok((target, piece))
        })
        .collect::<Result<_, Failure>>()?;
    let devices = DEVICES
        .iter()
        .map(|name| {
            open_tree(
                CWD,
                format!("/dev/{name}"),
                OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
            )
            .at(Wall::Devices, || format!("clone /dev/{name}"))
        })
        .collect::<Result<_, _>>()?;
    Ok(Assembly { root, mounts, proc: new_proc()?, devices })
}

/// A new procfs, made while the host's is still visible: the kernel allows it only then
/// (`mount_too_revealing`). None in a container whose own is partly covered.
fn new_proc() -> Result<Option<OwnedFd>, Failure> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_RDONLY;
    match new_filesystem("proc", &[], attributes) {
        Ok(mount) => Ok(Some(mount)),
        Err(Errno::PERM) => Ok(None),
        Err(e) => Err(e).at(Wall::Proc, || "mount a new /proc".to_owned()),
    }
}

/// Clones a tree in this process's own mount namespace. The path is resolved again, for mounts
/// of another namespace cannot be cloned; it must still lead to what the caller opened.
fn clone_tree(tree: &HostTree, recursive: bool) -> Result<OwnedFd, Failure> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    let step = || format!("clone the tree {}", tree.path.display());
    let clone = open_tree(CWD, &tree.path, flags).at(Wall::Root, step)?;
    let (seen, wanted) = (
        rustix::fs::fstat(&clone).at(Wall::Root, step)?,
        rustix::fs::fstat(&tree.file).at(Wall::Root, step)?,
    );
    if (seen.st_dev, seen.st_ino) != (wanted.st_dev, wanted.st_ino) {
        return Err(Errno::STALE).at(Wall::Root, step);
    }
    Ok(clone)
}

/// Clones a tree for a jail whose owners are mapped through its user namespace.
pub(crate) fn clone_mapped(
    tree: &HostTree,
    user_namespace: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let clone = open_tree(
        &tree.file,
        "",
        OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH,
    )?;
    if user_namespace.is_some() {
        sys::mount_setattr(clone.as_fd(), false, 0, user_namespace)?;
    }
    Ok(clone)
}

/// Leaves the host's root for an empty one: afterwards `/` is a file system in memory.
pub(crate) fn leave_host_root() -> Result<(), Failure> {
    let step = |text: &'static str| move || text.to_owned();
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .at(Wall::Root, step("make the mounts private"))?;
    let root = new_tmpfs(0o755, 16 << 20, &[], MountAttrFlags::empty())
        .at(Wall::Root, step("make an empty root"))?;
    enter_root(&root)
}

/// Makes this detached mount the root and detaches the one before it (`pivot_root(2)`, "Notes").
fn enter_root(root: &OwnedFd) -> Result<(), Failure> {
    let step = |text: &'static str| move || text.to_owned();
    move_mount(root, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .at(Wall::Root, step("attach the new root"))?;
    rustix::process::fchdir(root).at(Wall::Root, step("enter the new root"))?;
    rustix::process::pivot_root(".", ".").at(Wall::Root, step("pivot to the new root"))?;
    unmount(".", UnmountFlags::DETACH).at(Wall::Root, step("detach the old root"))?;
    rustix::process::chdir("/").at(Wall::Root, step("stand in the new root"))
}

impl Assembly {
    /// Puts everything in its place below the current root, and makes that read-only.
    pub(crate) fn attach(self) -> Result<Attached, Failure> {
        let mut attached = Attached { proc_missing: self.proc.is_none(), upper: None };
        if let Some(root) = self.root {
            let mount = match root {
                Gathered::Empty => None,
                Gathered::Mounted(mount) => Some(mount),
                Gathered::Overlay { lower, view, size_bytes } => {
                    Some(overlay(&lower, view.as_ref(), size_bytes, &mut None)?)
                }
            };
            if let Some(mount) = mount {
                // The kernel wants the mount below the root that it replaces.
                make_directory(Path::new(IMAGE))
                    .at(Wall::Root, || "make a place for the image".to_owned())?;
                enter_root(&mount)?;
            }
        }
        for (index, (target, piece)) in self.mounts.into_iter().enumerate() {
            attach_piece(&target, piece, &mut attached.upper).map_err(|mut failure| {
                failure.step = format!("{} (mount {index}, {})", failure.step, target.display());
                failure
            })?;
        }
        attach_devices(self.devices)?;
        attach_proc(self.proc)?;
        let root = open_tree(CWD, "/", OpenTreeFlags::OPEN_TREE_CLOEXEC)
            .at(Wall::Root, || "open the root".to_owned())?;
        let set = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
        sys::mount_setattr(root.as_fd(), false, set, None)
            .at(Wall::Root, || "make the root read-only".to_owned())?;
        Ok(attached)
    }
}

fn attach_piece(target: &Path, piece: Piece, upper: &mut Option<OwnedFd>) -> Result<(), Failure> {
    let step = |what: &'static str| move || what.to_owned();
    if let Some(parent) = target.parent() {
        make_directory(parent).at(Wall::Root, step("make the parent directories"))?;
    }
    match piece {
        Piece::Directory => make_directory(target).at(Wall::Root, step("make a directory")),
        Piece::Link(to) => match std::os::unix::fs::symlink(to, target) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.at(Wall::Root, step("make a link")),
        },
        Piece::File(content) => write_file(target, &content).at(Wall::Root, step("write a file")),
        Piece::Scratch(scratch) => {
            make_directory(target).at(Wall::Root, step("make a mount point"))?;
            let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
            let owner = [("uid", scratch.user.to_string()), ("gid", scratch.group.to_string())];
            let mount = new_tmpfs(scratch.mode, scratch.size_bytes, &owner, flags)
                .at(Wall::Root, step("make a file system in memory"))?;
            attach_mount(&mount, target).at(Wall::Root, step("attach a file system in memory"))
        }
        Piece::Tree(Gathered::Empty) => {
            make_directory(target).at(Wall::Root, step("make a directory"))
        }
        Piece::Tree(Gathered::Mounted(mount)) => {
            let kind = rustix::fs::fstat(&mount).at(Wall::Root, step("look at a tree"))?;
            if rustix::fs::FileType::from_raw_mode(kind.st_mode).is_dir() {
                make_directory(target).at(Wall::Root, step("make a mount point"))?;
            } else {
                touch(target).at(Wall::Root, step("make a mount point"))?;
            }
            attach_mount(&mount, target).at(Wall::Root, step("attach a tree"))
        }
        Piece::Tree(Gathered::Overlay { lower, view, size_bytes }) => {
            make_directory(target).at(Wall::View, step("make a mount point"))?;
            let mount = overlay(&lower, view.as_ref(), size_bytes, upper)?;
            attach_mount(&mount, target).at(Wall::View, step("attach the view"))
        }
    }
}

/// A detached overlay over `lower`. Its parts are attached under neutral names for as long as
/// that takes, so that the mount's own options tell nothing of the host.
fn overlay(
    lower: &OwnedFd,
    view: Option<&OwnedFd>,
    size_bytes: u64,
    upper: &mut Option<OwnedFd>,
) -> Result<OwnedFd, Failure> {
    let step = |text: &'static str| move || text.to_owned();
    for place in [LOWER, VIEW] {
        make_directory(Path::new(place)).at(Wall::View, step("make a place for the layers"))?;
    }
    attach_mount(lower, Path::new(LOWER)).at(Wall::View, step("attach the lower layer"))?;
    if let Some(view) = view {
        attach_mount(view, Path::new(VIEW)).at(Wall::View, step("attach the upper layer"))?;
    } else {
        let memory = new_tmpfs(0o755, size_bytes, &[], MountAttrFlags::empty())
            .at(Wall::View, step("make an upper layer in memory"))?;
        attach_mount(&memory, Path::new(VIEW)).at(Wall::View, step("attach the upper layer"))?;
        let root = rustix::fs::stat(LOWER).at(Wall::View, step("look at the lower layer"))?;
        for (name, mode) in [("upper", root.st_mode & 0o777), ("work", 0o700)] {
            let path = Path::new(VIEW).join(name);
            fs::DirBuilder::new()
                .mode(mode)
                .create(&path)
                .at(Wall::View, step("make a layer in memory"))?;
            rustix::fs::chown(
                &path,
                Some(rustix::fs::Uid::from_raw(root.st_uid)),
                Some(rustix::fs::Gid::from_raw(root.st_gid)),
            )
            .at(Wall::View, step("own a layer in memory"))?;
        }
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        *upper = Some(
            rustix::fs::open(Path::new(VIEW).join("upper"), flags, Mode::empty())
                .at(Wall::View, step("open the layer in memory"))?,
        );
    }
    let mount = new_overlay().at(Wall::View, step("mount the overlay"))?;
    for place in [LOWER, VIEW] {
        unmount(place, UnmountFlags::DETACH).at(Wall::View, step("detach the layers"))?;
        fs::remove_dir(place).at(Wall::View, step("remove the layers' places"))?;
    }
    Ok(mount)
}

/// See the kernel's `filesystems/overlayfs.rst`: `userxattr` is what an unprivileged mount needs,
/// and with it `redirect_dir`, `metacopy` and `index` are off, so that the upper layer alone
/// tells what changed.
fn new_overlay() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", "view")?;
    fsconfig_set_string(context.as_fd(), "lowerdir", LOWER)?;
    fsconfig_set_string(context.as_fd(), "upperdir", format!("{VIEW}/upper"))?;
    fsconfig_set_string(context.as_fd(), "workdir", format!("{VIEW}/work"))?;
    fsconfig_set_flag(context.as_fd(), "userxattr")?;
    fsconfig_create(context.as_fd())?;
    fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
}

fn attach_devices(devices: Vec<OwnedFd>) -> Result<(), Failure> {
    let step = |text: &'static str| move || text.to_owned();
    make_directory(Path::new("/dev")).at(Wall::Devices, step("make /dev"))?;
    for (name, mount) in DEVICES.iter().zip(&devices) {
        let target = Path::new("/dev").join(name);
        touch(&target).at(Wall::Devices, step("make a device's place"))?;
        attach_mount(mount, &target).at(Wall::Devices, step("attach a device"))?;
    }
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let terminals =
        new_filesystem("devpts", &[("ptmxmode", "0666".into()), ("mode", "0620".into())], flags)
            .at(Wall::Devices, step("make terminals"))?;
    make_directory(Path::new("/dev/pts")).at(Wall::Devices, step("make /dev/pts"))?;
    attach_mount(&terminals, Path::new("/dev/pts")).at(Wall::Devices, step("attach terminals"))?;
    let shared = new_tmpfs(
        0o1777,
        256 << 20,
        &[],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
    .at(Wall::Devices, step("make shared memory"))?;
    make_directory(Path::new("/dev/shm")).at(Wall::Devices, step("make /dev/shm"))?;
    attach_mount(&shared, Path::new("/dev/shm")).at(Wall::Devices, step("attach shared memory"))?;
    for (name, to) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        std::os::unix::fs::symlink(to, Path::new("/dev").join(name))
            .at(Wall::Devices, step("make a device link"))?;
    }
    Ok(())
}

fn attach_proc(proc: Option<OwnedFd>) -> Result<(), Failure> {
    let step = |text: &'static str| move || text.to_owned();
    make_directory(Path::new("/proc")).at(Wall::Proc, step("make /proc"))?;
    let Some(proc) = proc else { return Ok(()) };
    attach_mount(&proc, Path::new("/proc")).at(Wall::Proc, step("attach /proc"))?;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    for name in MASKED {
        let target = Path::new("/proc").join(name);
        let cover = match rustix::fs::lstat(&target) {
            Err(Errno::NOENT) => continue,
            Err(e) => return Err(e).at(Wall::Proc, step("look at an entry of /proc")),
            Ok(stat) if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() => {
                // `/dev/pts` aside, the one directory of the root that is always empty.
                make_directory(Path::new("/sys")).at(Wall::Proc, step("make a cover"))?;
                let cover = open_tree(CWD, "/sys", clone).at(Wall::Proc, step("make a cover"))?;
                sys::mount_setattr(cover.as_fd(), false, libc::MOUNT_ATTR_RDONLY, None)
                    .at(Wall::Proc, step("make a cover read-only"))?;
                cover
            }
            Ok(_) => open_tree(CWD, "/dev/null", clone).at(Wall::Proc, step("make a cover"))?,
        };
        attach_mount(&cover, &target).at(Wall::Proc, step("cover an entry of /proc"))?;
    }
    Ok(())
}

fn attach_mount(mount: &OwnedFd, target: &Path) -> rustix::io::Result<()> {
    move_mount(mount, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

fn new_tmpfs(
    mode: u32,
    size_bytes: u64,
    owner: &[(&str, String)],
    flags: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    // An inode costs about a kilobyte of kernel memory that `size` does not count.
    let inodes = (size_bytes / 4096).clamp(1024, 1 << 20);
    let options = [
        ("mode", format!("{mode:o}")),
        ("size", size_bytes.to_string()),
        ("nr_inodes", inodes.to_string()),
    ];
    new_filesystem("tmpfs", &[&options, owner].concat(), flags)
}

fn new_filesystem(
    kind: &str,
    options: &[(&str, String)],
    flags: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        fsconfig_set_string(context.as_fd(), *name, value.as_str())?;
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

fn make_directory(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            fs::DirBuilder::new().mode(0o755).recursive(true).create(path)
        }
        other => other,
    }
}

fn touch(path: &Path) -> io::Result<()> {
    fs::OpenOptions::new().create(true).append(true).mode(0o444).open(path).map(drop)
}

fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.create(true).write(true).truncate(true).mode(0o644).open(path)?;
    io::Write::write_all(&mut file, content)
}

/// The path as the kernel takes it; a NUL byte cannot be in a path that was ever resolved.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}
