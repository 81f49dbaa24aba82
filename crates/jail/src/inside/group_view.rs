//! Mounts the jail's own control groups at `/sys/fs/cgroup`, read-only, where the runtimes of languages
//! read limits. In the namespace of its groups, the jail sees nothing above them.
//!
//! A persistent jail on version 2 is in a group below the one with its limits. So that its processes find
//! the limits at the path of their own group, which is the root of their namespace, the upper group is
//! mounted there: [`mount_of_upper_group`] makes that mount in a process that is in this group for a
//! moment.
//!
//! The limits hold without it. So a kernel that refuses it, as in some containers, only leaves `/sys`
//! empty.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, symlinkat};
use rustix::io::{DupFlags, dup3};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsmount, fsopen,
};

use crate::attach::attach_mount;
use crate::cgroup::{UnifiedView, View};
use crate::mounts::new_tmpfs;
use crate::sys::{self, ForkResult};

/// Where programs look for control groups.
const TOP: &str = "/sys/fs/cgroup";

/// The mount of the group of version 2 above the one of this process, if the view shows that. This
/// process must have the ids that own the groups, and a single thread.
pub(super) fn mount_of_upper_group(view: &View) -> Option<OwnedFd> {
    let Some(UnifiedView::Above(group)) = view.v2.as_ref().filter(|_| view.v1.is_empty()) else {
        return None;
    };
    open_in(group.as_fd()).ok()
}

/// Mounts the hierarchy of version 2 as a child sees it whose root is this group.
fn open_in(group: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    // The child replaces this descriptor, which both have.
    let place = rustix::fs::open(c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    // A process that is created in the group need not be moved there, which would take long.
    // SAFETY: this process has a single thread.
    match unsafe { sys::clone_process(libc::CLONE_FILES, Some(group)) } {
        Ok(ForkResult::Child) => {
            let mut place = std::mem::ManuallyDrop::new(place);
            let made = sys::hide_outer_groups().is_ok()
                && open(c"cgroup2", &[])
                    .and_then(|mount| dup3(&mount, &mut place, DupFlags::CLOEXEC))
                    .is_ok();
            sys::exit_now(i32::from(!made))
        }
        Ok(ForkResult::Parent(_, child)) => match sys::wait_for_success(&child) {
            true => Ok(place),
            false => Err(rustix::io::Errno::NOTSUP),
        },
        Err(error) => {
            Err(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
        }
    }
}

/// Mounts the hierarchies of a view. This process must be in its groups, and see them as the roots.
/// `upper` is what [`mount_of_upper_group`] has returned.
///
/// # Errors
/// If what the kernel has given cannot be attached.
pub(super) fn mount(view: &View, upper: Option<OwnedFd>) -> io::Result<()> {
    if view.is_empty() {
        return Ok(());
    }
    let Ok(prepared) = prepare(view, upper) else { return Ok(()) };
    if prepared.is_empty() {
        return Ok(());
    }
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

fn prepare(view: &View, upper: Option<OwnedFd>) -> rustix::io::Result<Vec<Hierarchy>> {
    let mut prepared = Vec::new();
    for controllers in &view.v1 {
        let flags: Vec<_> = controllers.iter().map(|name| name.as_c_str()).collect();
        let names: Vec<_> =
            controllers.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        let mount = open(c"cgroup", &flags)?;
        prepared.push(Hierarchy { mount, directory: names.join(","), names });
    }
    let unified = match &view.v2 {
        Some(_) if !prepared.is_empty() => None,
        Some(UnifiedView::Own) => Some(open(c"cgroup2", &[])?),
        Some(UnifiedView::Above(_)) => upper,
        None => None,
    };
    prepared.extend(unified.map(|mount| Hierarchy {
        mount,
        directory: String::new(),
        names: Vec::new(),
    }));
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
