//! The mounts that are the same in every jail: `/dev`, and a `/proc` that reveals nothing of the
//! host.
//!
//! All functions but those that list mount points may run in a process that shares the memory of
//! another, concurrently running one ([`crate::vm_helper`]): they allocate nothing and make bare
//! system calls only.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, mount_bind, move_mount, open_tree,
};

use crate::helper_step::Step;
use crate::sys;

/// The device files of every jail; each is the host's own and harmless.
pub(crate) const DEVICES: [&CStr; 6] =
    [NULL, c"/dev/zero", c"/dev/full", c"/dev/random", c"/dev/urandom", c"/dev/tty"];
const NULL: &CStr = c"/dev/null";

pub(crate) const LINKS: [(&CStr, &CStr); 5] = [
    (c"/dev/ptmx", c"pts/ptmx"),
    (c"/dev/fd", c"/proc/self/fd"),
    (c"/dev/stdin", c"/proc/self/fd/0"),
    (c"/dev/stdout", c"/proc/self/fd/1"),
    (c"/dev/stderr", c"/proc/self/fd/2"),
];

/// Directories in which a read-only `/proc` still reveals information about the host to everyone.
/// Entries that only host root may open are not listed: host root does not exist inside.
pub(crate) const MASKED_DIRECTORIES: [&CStr; 6] = [
    c"/proc/acpi",
    c"/proc/asound",
    c"/proc/bus",
    c"/proc/dynamic_debug",
    c"/proc/fs",
    c"/proc/scsi",
];
/// The same for files.
pub(crate) const MASKED_FILES: [&CStr; 12] = [
    c"/proc/bootconfig",
    c"/proc/cmdline",
    c"/proc/config.gz",
    c"/proc/interrupts",
    c"/proc/iomem",
    c"/proc/ioports",
    c"/proc/kallsyms",
    c"/proc/key-users",
    c"/proc/keys",
    c"/proc/modules",
    c"/proc/sched_debug",
    c"/proc/timer_list",
];

/// Everything for `/dev` and `/proc` that is the host's, opened but not attached yet.
#[derive(Debug)]
pub(crate) struct DevProc {
    devices: [OwnedFd; DEVICES.len()],
    proc: Option<OwnedFd>,
    root: Root,
}

/// The separate file systems in `/dev`.
#[derive(Debug)]
pub(crate) struct Terminals {
    terminals: OwnedFd,
    shared_memory: OwnedFd,
}

/// The root to which the fixtures are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    /// Contains all mount points of this module, and becomes read-only in the end.
    Populated,
    /// May contain anything, and becomes read-only in the end.
    ReadOnly,
    /// May contain anything, and stays writable.
    Writable,
}

type Result<T> = std::result::Result<T, (Step, Errno)>;

fn at<T>(step: Step, result: rustix::io::Result<T>) -> Result<T> {
    result.map_err(|errno| (step, errno))
}

impl DevProc {
    /// Opens everything, while the host's root is mounted.
    pub(crate) fn gather(root: Root) -> Result<Self> {
        let device = |path: &CStr| at(Step::Device, open_tree(CWD, path, CLONE));
        let [null, zero, full, random, urandom, tty] = DEVICES;
        let devices = [
            device(null)?,
            device(zero)?,
            device(full)?,
            device(random)?,
            device(urandom)?,
            device(tty)?,
        ];
        Ok(Self { devices, proc: new_proc()?, root })
    }

    /// Whether a path lies in what is attached here; the fixtures must be attached before it then.
    pub(crate) fn contains(path: &Path) -> bool {
        ["/dev", "/proc", "/sys"].iter().any(|own| path.starts_with(own))
    }

    /// Whether `/proc` is possible.
    pub(crate) fn has_proc(&self) -> bool {
        self.proc.is_some()
    }

    /// An empty root in memory, not attached yet.
    pub(crate) fn new_root() -> Result<OwnedFd> {
        let options = [(c"mode", c"0755"), (c"size", c"16777216"), (c"nr_inodes", c"4096")];
        at(Step::Content, new(c"tmpfs", &options, MountAttrFlags::empty()))
    }

    /// Attaches below the current root what the other fixtures need.
    pub(crate) fn attach_first(&self) -> Result<()> {
        let [null, ..] = &self.devices;
        if self.root == Root::Populated {
            return at(Step::Device, attach(null, NULL));
        }
        at(Step::Dev, make_directory(c"/dev"))?;
        // Otherwise, files created there would be in the root's layer, and could be changed.
        if self.root == Root::Writable {
            let dev = at(Step::Dev, new_tmpfs(c"755", c"1048576", c"1024"))?;
            at(Step::Dev, attach(&dev, c"/dev"))?;
        }
        at(Step::Device, attach_device(null, NULL))?;
        at(Step::Proc, make_directory(c"/proc"))?;
        // Besides `/dev/pts`, the one directory of the root that is always empty.
        at(Step::Mask, make_directory(c"/sys"))
    }

    /// Attaches the content of `/dev`, except its separate file systems.
    pub(crate) fn attach_devices(&self) -> Result<()> {
        let is_furnished = self.root == Root::Populated;
        let attach_device = if is_furnished { attach } else { attach_device };
        for (path, mount) in DEVICES.iter().zip(&self.devices).skip(1) {
            at(Step::Device, attach_device(mount, path))?;
        }
        if is_furnished {
            return Ok(());
        }
        at(Step::Terminals, make_directory(c"/dev/pts"))?;
        at(Step::SharedMemory, make_directory(c"/dev/shm"))?;
        for (path, to) in LINKS {
            at(Step::DeviceLink, rustix::fs::symlink(to, path))?;
        }
        Ok(())
    }

    /// Creates the separate file systems in `/dev`, not attached yet.
    pub(crate) fn new_terminals() -> Result<Terminals> {
        let options = [(c"ptmxmode", c"0666"), (c"mode", c"0620")];
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let terminals = at(Step::Terminals, new(c"devpts", &options, flags))?;
        let shared_memory = new_tmpfs(c"1777", c"268435456", c"65536");
        Ok(Terminals { terminals, shared_memory: at(Step::SharedMemory, shared_memory)? })
    }

    /// Attaches the separate file systems in `/dev`. If `/dev` is a mount, it becomes read-only.
    pub(crate) fn attach_terminals(&self, terminals: &Terminals) -> Result<()> {
        at(Step::Terminals, attach(&terminals.terminals, c"/dev/pts"))?;
        at(Step::SharedMemory, attach(&terminals.shared_memory, c"/dev/shm"))?;
        if self.root == Root::Writable {
            at(Step::DevReadOnly, make_dev_read_only())
        } else {
            Ok(())
        }
    }

    /// Attaches `/proc`, in which nothing of the host is visible.
    pub(crate) fn attach_proc(&self) -> Result<()> {
        let Some(proc) = &self.proc else { return Ok(()) };
        at(Step::Proc, attach(proc, c"/proc"))?;
        MASKED_DIRECTORIES.into_iter().try_for_each(|path| at(Step::Mask, mask_directory(path)))?;
        MASKED_FILES.into_iter().try_for_each(|path| at(Step::Mask, mask_file(path)))
    }
}

/// A new procfs, created while the host's is still visible: the kernel permits it only then
/// (`mount_too_revealing`). `None` in a container whose own is partly covered.
fn new_proc() -> Result<Option<OwnedFd>> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_RDONLY;
    match new(c"proc", &[], attributes) {
        Ok(mount) => Ok(Some(mount)),
        Err(Errno::PERM) => Ok(None),
        Err(errno) => Err((Step::Proc, errno)),
    }
}

const CLONE: OpenTreeFlags = OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC);

/// Covers a directory of `/proc`, if it exists.
fn mask_directory(path: &CStr) -> rustix::io::Result<()> {
    if !exists(path)? {
        return Ok(());
    }
    let cover = open_tree(CWD, c"/sys", CLONE)?;
    make_read_only(&cover)?;
    attach(&cover, path)
}

/// Covers a file of `/proc`, if it exists.
fn mask_file(path: &CStr) -> rustix::io::Result<()> {
    match mount_bind(NULL, path) {
        // Either of them may be missing.
        Err(Errno::NOENT) if !exists(path)? => Ok(()),
        other => other,
    }
}

fn exists(path: &CStr) -> rustix::io::Result<bool> {
    match rustix::fs::lstat(path) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn attach(mount: &OwnedFd, path: &CStr) -> rustix::io::Result<()> {
    move_mount(mount, c"", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

pub(crate) fn make_read_only(mount: &OwnedFd) -> rustix::io::Result<()> {
    sys::mount_setattr(mount.as_fd(), false, libc::MOUNT_ATTR_RDONLY, None)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Makes `/dev` itself read-only, if it is a mount.
fn make_dev_read_only() -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    make_read_only(&rustix::fs::open(c"/dev", flags, Mode::empty())?)
}

pub(crate) fn new_tmpfs(
    mode: &CStr,
    size_bytes: &CStr,
    inodes: &CStr,
) -> rustix::io::Result<OwnedFd> {
    let options = [(c"mode", mode), (c"size", size_bytes), (c"nr_inodes", inodes)];
    new(c"tmpfs", &options, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
}

fn new(
    kind: &CStr,
    options: &[(&CStr, &CStr)],
    flags: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        fsconfig_set_string(context.as_fd(), *name, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// Creates a directory if it is missing. A link instead is an error: it could lead anywhere.
fn make_directory(path: &CStr) -> rustix::io::Result<()> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
        Err(Errno::EXIST) => {
            let kind = FileType::from_raw_mode(rustix::fs::lstat(path)?.st_mode);
            if kind.is_dir() { Ok(()) } else { Err(Errno::NOTDIR) }
        }
        made => made,
    }
}

/// Attaches a device over an empty file, which is created if it is missing.
fn attach_device(mount: &OwnedFd, path: &CStr) -> rustix::io::Result<()> {
    let mode = Mode::from_raw_mode(0o444);
    allow_existing(mknodat(CWD, path, FileType::RegularFile, mode, 0))?;
    attach(mount, path)
}

fn allow_existing(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}
