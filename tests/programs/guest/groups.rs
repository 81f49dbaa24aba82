//! The tree of control groups in which the checks run: its layout, names and owners are those of
//! systemd on a host of version 2, with one user who is logged in.

use std::cell::Cell;
use std::fs::{create_dir, create_dir_all, read_dir, read_to_string, remove_dir_all, write};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use crate::caller::{Caller, Running};

/// The ordinary user.
pub(crate) const USER: u32 = 1000;

/// The mount point of the hierarchy.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";

/// The directory that exists if systemd runs the host, `sd_booted(3)`.
const SYSTEMD: &str = "/run/systemd/system";

/// The tree.
#[derive(Debug)]
pub(crate) struct Groups {
    scopes: Cell<u32>,
}

impl Groups {
    /// Creates the tree and moves this process to systemd's own group.
    pub(crate) fn create() -> Self {
        let init = Path::new(ROOT).join("init.scope");
        create_dir(&init).unwrap();
        write(init.join("cgroup.procs"), "0").unwrap();
        enable_controllers(Path::new(ROOT), "+cpu +memory +pids");
        let slice = Path::new(ROOT).join("user.slice");
        create_dir(&slice).unwrap();
        enable_controllers(&slice, "+cpu +memory +pids");
        for (user, controllers) in [(0, "+memory +pids"), (USER, "+cpu +memory +pids")] {
            let slice = slice.join(format!("user-{user}.slice"));
            create_dir(&slice).unwrap();
            enable_controllers(&slice, controllers);
            create_dir(slice.join(format!("session-{user}.scope"))).unwrap();
        }
        let manager = slice.join(format!("user-{USER}.slice/user@{USER}.service"));
        let apps = manager.join("app.slice");
        create_dir_all(&apps).unwrap();
        for group in [&manager, &apps] {
            delegate(group, USER);
            enable_controllers(group, "+cpu +memory +pids");
        }
        Self { scopes: Cell::new(0) }
    }

    /// The session of a logged-in user. systemd does not delegate sessions.
    pub(crate) fn session(&self, user: u32) -> Caller {
        let group = format!("user.slice/user-{user}.slice/session-{user}.scope");
        Caller { user, group: Path::new(ROOT).join(group) }
    }

    /// A new scope, as `systemd-run --user --scope -p Delegate=yes` creates them.
    pub(crate) fn scope(&self) -> Caller {
        self.scopes.set(self.scopes.get() + 1);
        let manager = format!("user.slice/user-{USER}.slice/user@{USER}.service");
        let name = format!("app.slice/run-u{}.scope", self.scopes.get());
        let group = Path::new(ROOT).join(manager).join(name);
        create_dir(&group).unwrap();
        delegate(&group, USER);
        Caller { user: USER, group }
    }

    /// Makes the host look as if systemd ran it, until the result is dropped.
    pub(crate) fn systemd(&self) -> Systemd {
        create_dir_all(SYSTEMD).unwrap();
        Systemd
    }

    /// The group of a process.
    pub(crate) fn group_of(&self, running: &Running) -> PathBuf {
        let text = read_to_string(format!("/proc/{}/cgroup", running.pid())).unwrap();
        let path = text.trim().strip_prefix("0::/").unwrap();
        Path::new(ROOT).join(path)
    }

    /// Every group that `stockade` has created and that still exists.
    pub(crate) fn stockade_groups(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut pending = vec![PathBuf::from(ROOT)];
        while let Some(group) = pending.pop() {
            let below = read_dir(&group).into_iter().flatten().flatten();
            pending.extend(below.map(|entry| entry.path()).filter(|path| path.is_dir()));
            if group.file_name().is_some_and(|n| n.to_string_lossy().starts_with("stockade-")) {
                found.push(group);
            }
        }
        found
    }
}

/// See [`Groups::systemd`].
pub(crate) struct Systemd;

impl Drop for Systemd {
    fn drop(&mut self) {
        remove_dir_all(SYSTEMD).unwrap();
    }
}

/// Enables controllers for a group's children.
pub(crate) fn enable_controllers(group: &Path, controllers: &str) {
    write(group.join("cgroup.subtree_control"), controllers).unwrap();
}

/// Delegates a group to a user as the kernel's documentation says: the directory and the files that
/// move processes and enable controllers, not those that limit the group.
pub(crate) fn delegate(group: &Path, user: u32) {
    for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
        chown(group.join(file), Some(user), Some(user)).unwrap();
    }
}
