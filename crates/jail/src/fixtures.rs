//! What is the same in every jail: `/dev`, and a `/proc` that tells nothing of the host.
//!
//! [`Fixtures::attach`] runs in a process that shares the memory of another one which runs at the
//! same time ([`crate::helper`]): it allocates nothing and makes bare calls only.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use crate::mounts::{At as _, Failure};
use crate::sys;
use crate::walls::Wall;

/// The device files of every jail; each is the host's own and harmless.
const DEVICES: [&CStr; 6] =
    [c"/dev/null", c"/dev/zero", c"/dev/full", c"/dev/random", c"/dev/urandom", c"/dev/tty"];

const LINKS: [(&CStr, &CStr); 5] = [
    (c"/dev/ptmx", c"pts/ptmx"),
    (c"/dev/fd", c"/proc/self/fd"),
    (c"/dev/stdin", c"/proc/self/fd/0"),
    (c"/dev/stdout", c"/proc/self/fd/1"),
    (c"/dev/stderr", c"/proc/self/fd/2"),
];

/// What a read-only `/proc` still shows of the host to anyone. Entries that only host root may
/// open are not named: host root does not exist inside.
const MASKED: [&CStr; 18] = [
    c"/proc/acpi",
    c"/proc/asound",
    c"/proc/bootconfig",
    c"/proc/bus",
    c"/proc/fs",
    c"/proc/cmdline",
    c"/proc/config.gz",
    c"/proc/dynamic_debug",
    c"/proc/interrupts",
    c"/proc/iomem",
    c"/proc/ioports",
    c"/proc/kallsyms",
    c"/proc/key-users",
    c"/proc/keys",
    c"/proc/modules",
    c"/proc/sched_debug",
    c"/proc/scsi",
    c"/proc/timer_list",
];

/// Everything for `/dev` and `/proc` that is the host's, held but not yet in its place.
#[derive(Debug)]
pub(crate) struct Fixtures {
    devices: [OwnedFd; DEVICES.len()],
    proc: Option<OwnedFd>,
    root_writable: bool,
}

/// A step of putting the fixtures in their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    Network = 1,
    Ids,
    Dev,
    Device,
    Terminals,
    SharedMemory,
    DeviceLink,
    DevReadOnly,
    Proc,
    Cover,
}

impl Step {
    pub(crate) const ALL: [Self; 10] = [
        Self::Network,
        Self::Ids,
        Self::Dev,
        Self::Device,
        Self::Terminals,
        Self::SharedMemory,
        Self::DeviceLink,
        Self::DevReadOnly,
        Self::Proc,
        Self::Cover,
    ];

    /// The wall that could not be raised.
    pub(crate) const fn wall(self) -> Wall {
        match self {
            Self::Network => Wall::Network,
            Self::Ids => Wall::User,
            Self::Proc | Self::Cover => Wall::Proc,
            _ => Wall::Devices,
        }
    }

    /// The step in words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Network => "make the network",
            Self::Ids => "take on the inside ids",
            Self::Dev => "make /dev",
            Self::Device => "attach a device",
            Self::Terminals => "attach terminals",
            Self::SharedMemory => "attach shared memory",
            Self::DeviceLink => "make a device link",
            Self::DevReadOnly => "make /dev read-only",
            Self::Proc => "attach /proc",
            Self::Cover => "cover an entry of /proc",
        }
    }
}

type Result<T> = std::result::Result<T, (Step, Errno)>;

fn at<T>(step: Step, result: rustix::io::Result<T>) -> Result<T> {
    result.map_err(|errno| (step, errno))
}

impl Fixtures {
    /// Takes hold of everything, while the host's root is there.
    pub(crate) fn gather(root_writable: bool) -> std::result::Result<Self, Failure> {
        let device = |path: &CStr| {
            open_tree(CWD, path, CLONE)
                .at(Wall::Devices, || format!("clone {}", path.to_string_lossy()))
        };
        let [null, zero, full, random, urandom, tty] = DEVICES;
        let devices = [
            device(null)?,
            device(zero)?,
            device(full)?,
            device(random)?,
            device(urandom)?,
            device(tty)?,
        ];
        Ok(Self { devices, proc: new_proc()?, root_writable })
    }

    /// Whether a path lies in what is attached here, which then has to be there before.
    pub(crate) fn hold(path: &Path) -> bool {
        ["/dev", "/proc", "/sys"].iter().any(|own| path.starts_with(own))
    }

    /// Whether there can be a `/proc`.
    pub(crate) fn has_proc(&self) -> bool {
        self.proc.is_some()
    }

    /// Puts everything in its place below the current root.
    pub(crate) fn attach(&self) -> Result<()> {
        self.attach_devices()?;
        self.attach_proc()
    }

    fn attach_devices(&self) -> Result<()> {
        at(Step::Dev, make_directory(c"/dev"))?;
        // What is made here would else be kept in the root's layer, and could be changed.
        let own = match self.root_writable {
            false => None,
            true => Some(at(Step::Dev, new_tmpfs(c"/dev", c"755", c"1048576", c"1024"))?),
        };
        for (path, mount) in DEVICES.iter().zip(&self.devices) {
            let attached = touch(path).and_then(|()| attach(mount, path));
            at(Step::Device, attached)?;
        }
        let options = [(c"ptmxmode", c"0666"), (c"mode", c"0620")];
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        at(Step::Terminals, new_at(c"/dev/pts", c"devpts", &options, flags))?;
        at(Step::SharedMemory, new_tmpfs(c"/dev/shm", c"1777", c"268435456", c"65536"))?;
        for (path, to) in LINKS {
            at(Step::DeviceLink, rustix::fs::symlink(to, path))?;
        }
        match own {
            None => Ok(()),
            Some(own) => at(Step::DevReadOnly, make_read_only(&own)),
        }
    }

    fn attach_proc(&self) -> Result<()> {
        at(Step::Proc, make_directory(c"/proc"))?;
        let Some(proc) = &self.proc else { return Ok(()) };
        at(Step::Proc, attach(proc, c"/proc"))?;
        // `/dev/pts` aside, the one directory of the root that is always empty.
        at(Step::Cover, make_directory(c"/sys"))?;
        MASKED.into_iter().try_for_each(|path| at(Step::Cover, cover(path)))
    }
}

/// A new procfs, made while the host's is still visible: the kernel allows it only then
/// (`mount_too_revealing`). None in a container whose own is partly covered.
fn new_proc() -> std::result::Result<Option<OwnedFd>, Failure> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_RDONLY;
    match new(c"proc", &[], attributes) {
        Ok(mount) => Ok(Some(mount)),
        Err(Errno::PERM) => Ok(None),
        Err(e) => Err(e).at(Wall::Proc, || "mount a new /proc".to_owned()),
    }
}

const CLONE: OpenTreeFlags = OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC);

/// Covers an entry of `/proc`, where it is there.
fn cover(path: &CStr) -> rustix::io::Result<()> {
    let cover = match rustix::fs::lstat(path) {
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_dir() => {
            let cover = open_tree(CWD, c"/sys", CLONE)?;
            make_read_only(&cover)?;
            cover
        }
        Ok(_) => open_tree(CWD, c"/dev/null", CLONE)?,
    };
    attach(&cover, path)
}

fn attach(mount: &OwnedFd, path: &CStr) -> rustix::io::Result<()> {
    move_mount(mount, c"", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

fn make_read_only(mount: &OwnedFd) -> rustix::io::Result<()> {
    sys::mount_setattr(mount.as_fd(), false, libc::MOUNT_ATTR_RDONLY, None)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

fn new_tmpfs(
    path: &CStr,
    mode: &CStr,
    size_bytes: &CStr,
    inodes: &CStr,
) -> rustix::io::Result<OwnedFd> {
    let options = [(c"mode", mode), (c"size", size_bytes), (c"nr_inodes", inodes)];
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    new_at(path, c"tmpfs", &options, flags)
}

/// A new file system, attached over a directory that is made where it is missing.
fn new_at(
    path: &CStr,
    kind: &CStr,
    options: &[(&CStr, &CStr)],
    flags: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let mount = new(kind, options, flags)?;
    make_directory(path)?;
    attach(&mount, path)?;
    Ok(mount)
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

fn make_directory(path: &CStr) -> rustix::io::Result<()> {
    unless_there(rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)))
}

/// Makes an empty file unless something is there.
fn touch(path: &CStr) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    unless_there(rustix::fs::open(path, flags, Mode::from_raw_mode(0o444)).map(drop))
}

fn unless_there(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}
