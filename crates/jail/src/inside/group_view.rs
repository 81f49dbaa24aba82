//! Mounts the jail's own control groups at `/sys/fs/cgroup`, read-only, where the runtimes of languages
//! read limits. In the namespace of its groups, the jail sees nothing above them.
//!
//! The limits hold without it. So a kernel that refuses it, as in some containers, only leaves `/sys`
//! empty.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, mkdirat, symlinkat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsmount, fsopen,
};

use crate::attach::attach_mount;
use crate::cgroup::View;
use crate::mounts::new_tmpfs;
use crate::sys;

/// Where programs look for control groups.
const TOP: &str = "/sys/fs/cgroup";

/// Mounts the hierarchies of a view. This process must be in its groups, and see them as the roots.
///
/// # Errors
/// If what the kernel has given cannot be attached.
pub(super) fn mount(view: &View) -> io::Result<()> {
    if view.is_empty() {
        return Ok(());
    }
    let Ok(prepared) = prepare(view) else { return Ok(()) };
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let top = new_tmpfs(0o755, 1 << 16, &[], flags)?;
    let mode = Mode::from_raw_mode(0o755);
    mkdirat(&top, "fs", mode)?;
    mkdirat(&top, "fs/cgroup", mode)?;
    attach_mount(&top, Path::new("/sys"))?;
    for Hierarchy { mount, directory, names } in prepared {
        let target = PathBuf::from(TOP).join(&directory);
        if !directory.is_empty() {
            mkdirat(CWD, &target, mode)?;
        }
        attach_mount(&mount, &target)?;
        // As on a host, each controller of a hierarchy has a name of its own.
        for name in names.iter().filter(|name| **name != directory) {
            symlinkat(directory.as_str(), CWD, PathBuf::from(TOP).join(name))?;
        }
    }
    sys::mount_setattr(top.as_fd(), false, libc::MOUNT_ATTR_RDONLY, None)
}

struct Hierarchy {
    mount: OwnedFd,
    /// Its directory; empty for that of version 2, which is the only one.
    directory: String,
    names: Vec<String>,
}

fn prepare(view: &View) -> rustix::io::Result<Vec<Hierarchy>> {
    let mut prepared = Vec::new();
    for controllers in &view.v1 {
        let flags: Vec<_> = controllers.iter().map(|name| name.as_c_str()).collect();
        let names: Vec<_> =
            controllers.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        let mount = open(c"cgroup", &flags)?;
        prepared.push(Hierarchy { mount, directory: names.join(","), names });
    }
    if view.v2 && prepared.is_empty() {
        let mount = open(c"cgroup2", &[])?;
        prepared.push(Hierarchy { mount, directory: String::new(), names: Vec::new() });
    }
    Ok(prepared)
}

fn open(kind: &CStr, controllers: &[&CStr]) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for controller in controllers {
        fsconfig_set_flag(context.as_fd(), *controller)?;
    }
    fsconfig_create(context.as_fd())?;
    fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC
            | MountAttrFlags::MOUNT_ATTR_RDONLY,
    )
}
