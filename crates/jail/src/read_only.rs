//! Directories of the host that a jail sees read-only, and through which it reaches nothing that
//! listens there.
//!
//! A read-only mount does not prevent connections to a socket in it, nor writing into a pipe: the
//! kernel asks for the permission to write, and not for a writable mount (`unix(7)`). A socket that
//! the host makes later is reached in the same way. So
//!
//! - where the jail has a range of ids, the tree is mounted with the owners mapped, and without the
//!   groups. The kernel lets no process write to a file whose owner or group is not mapped (`EACCES`),
//!   and reading needs neither.
//! - for an ordinary user, who cannot map owners, it is the lower layer of an overlay without an
//!   upper one. There a socket is another inode than the one that is bound, so connections are
//!   refused. What the host replaces after it was looked up inside may stay as it was.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};

use crate::attach::{LAYERS_DIR, attach_mount};
use crate::identity::Range;
use crate::sys::{self, ForkResult, KillOnDrop, single_thread};

/// A group that no file has: a map must contain one.
const NO_GROUP: u32 = u32::MAX - 1;

/// A user namespace that maps the users of a range and none of its groups, for mounts.
///
/// # Errors
/// The errors of clone(2) and of writing the maps.
pub(crate) fn users_only(range: &Range) -> io::Result<OwnedFd> {
    single_thread()?;
    // SAFETY: this process has a single thread, checked above.
    match unsafe { sys::clone_process(libc::CLONE_NEWUSER, None) }? {
        ForkResult::Child => wait_to_be_killed(),
        ForkResult::Parent(pid, child) => {
            let _child = KillOnDrop(Some(child));
            let users = format!("0 {} {}\n", range.start, range.count);
            let groups = format!("{NO_GROUP} {} 1\n", range.start);
            fs::write(format!("/proc/{pid}/uid_map"), users)?;
            fs::write(format!("/proc/{pid}/gid_map"), groups)?;
            Ok(fs::File::open(format!("/proc/{pid}/ns/user"))?.into())
        }
    }
}

/// Only holds a namespace until its parent has opened it.
fn wait_to_be_killed() -> ! {
    // SAFETY: takes a number; the calls touch no memory.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        loop {
            libc::pause();
        }
    }
}

/// A detached read-only overlay over a tree. `empty` is an empty tree: without an upper layer, an
/// overlay needs a second lower one. Both are attached as for every overlay.
pub(crate) fn overlay(tree: &OwnedFd, empty: &OwnedFd) -> io::Result<OwnedFd> {
    for layer in [tree, empty] {
        attach_mount(layer, Path::new(LAYERS_DIR))?;
    }
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let layers = format!("/proc/self/fd/{}:/proc/self/fd/{}", tree.as_raw_fd(), empty.as_raw_fd());
    fsconfig_set_string(context.as_fd(), "source", "mount")?;
    fsconfig_set_string(context.as_fd(), "lowerdir", layers)?;
    fsconfig_set_flag(context.as_fd(), "userxattr")?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_RDONLY;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use rustix::fs::CWD;
    use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

    use super::*;
    use crate::mounts;
    use crate::spec::HostTree;
    use crate::testing::{
        ChildExit, become_other_user, enter_user_namespace, in_child, is_root, skipped,
    };

    /// A directory with a file that only its owner can read, sockets and a pipe.
    struct Shared {
        directory: tempfile::TempDir,
        _listener: UnixListener,
        _datagrams: UnixDatagram,
    }

    impl Shared {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &str| directory.path().join(name);
            let mode = |name: &str, mode: u32| {
                fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
            };
            fs::create_dir(path("shared")).unwrap();
            fs::create_dir(path("mount")).unwrap();
            fs::write(path("shared/file"), "content").unwrap();
            let listener = UnixListener::bind(path("shared/stream")).unwrap();
            let datagrams = UnixDatagram::bind(path("shared/datagrams")).unwrap();
            let pipe = CString::new(path("shared/pipe").to_str().unwrap()).unwrap();
            // SAFETY: the path is valid for the call.
            assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o666) }, 0);
            for name in ["shared", "shared/stream", "shared/datagrams", "shared/pipe"] {
                mode(name, 0o777);
            }
            for name in ["", "mount", "shared/file"] {
                mode(name, 0o755);
            }
            Self { directory, _listener: listener, _datagrams: datagrams }
        }

        fn attach(&self, mount: &OwnedFd) {
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            move_mount(mount, "", CWD, self.directory.path().join("mount"), flags).unwrap();
        }

        /// A socket that the host makes after the mount.
        fn late(&self) -> UnixListener {
            let path = self.directory.path().join("shared/late");
            let listener = UnixListener::bind(&path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
            listener
        }

        /// Whether nothing is reached through the mount, although its files are read.
        fn is_out_of_reach(&self) -> bool {
            let path = |name: &str| self.directory.path().join("mount").join(name);
            assert_eq!(fs::read_to_string(path("file")).unwrap(), "content");
            let refused = |result: io::Result<()>| {
                result.is_err_and(|error| {
                    matches!(error.raw_os_error(), Some(libc::EACCES | libc::ECONNREFUSED))
                })
            };
            let connect = |name: &str| std::os::unix::net::UnixStream::connect(path(name));
            refused(connect("stream").map(drop))
                && refused(connect("late").map(drop))
                && refused(UnixDatagram::unbound().unwrap().connect(path("datagrams")))
                && refused(
                    UnixDatagram::unbound().unwrap().send_to(b"x", path("datagrams")).map(drop),
                )
        }
    }

    fn own_mounts() {
        // SAFETY: takes flags; the calling process is a forked child with one thread.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
        mounts::separate().unwrap();
    }

    #[test]
    fn a_range_reads_and_reaches_nothing_that_listens() {
        if !is_root() {
            skipped("only root can map owners");
            return;
        }
        let shared = Shared::new();
        let tree = HostTree::open(&shared.directory.path().join("shared")).unwrap();
        let ended = in_child(|| {
            let Ok(range) = Range::acquire() else { return 77 };
            own_mounts();
            let namespace = users_only(&range).unwrap();
            let mount = match mounts::clone_mapped(&tree, Some(namespace.as_fd())) {
                Ok(mount) => mount,
                // The file system has no idmapped mounts.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return 77,
                Err(error) => panic!("{error}"),
            };
            shared.attach(&mount);
            let _late = shared.late();
            // The files belong to id 0 of the range.
            sys::become_ids(range.start, range.start, true).unwrap();
            i32::from(!shared.is_out_of_reach())
        });
        if ended == ChildExit::Exited(77) {
            skipped("no idmapped mounts here");
            return;
        }
        assert_eq!(ended, ChildExit::Exited(0));
    }

    #[test]
    fn an_ordinary_user_reads_and_reaches_nothing_that_listens() {
        let shared = Shared::new();
        let ended = in_child(|| {
            become_other_user();
            enter_user_namespace();
            own_mounts();
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let tree = open_tree(CWD, shared.directory.path().join("shared"), flags).unwrap();
            let empty = mounts::new_tmpfs(0o755, 1 << 16, &[], MountAttrFlags::empty()).unwrap();
            shared.attach(&overlay(&tree, &empty).unwrap());
            let _late = shared.late();
            i32::from(!shared.is_out_of_reach())
        });
        assert_eq!(ended, ChildExit::Exited(0));
    }
}
