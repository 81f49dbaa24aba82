//! Attaching detached mounts.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, move_mount};

/// Where layers are attached while an overlay is made from them: a directory that exists on every
/// host.
pub(crate) const LAYERS_DIR: &str = "/usr";

/// Attaches a mount at a path of this mount namespace.
pub(crate) fn attach_mount(mount: &OwnedFd, target: &Path) -> rustix::io::Result<()> {
    move_mount(mount, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}
