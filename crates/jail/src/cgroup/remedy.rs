//! Why a limit cannot be held here, and the exact command that changes it.
//!
//! Only texts: what was tried and failed is decided by the drivers.

use std::io;
use std::path::{Path, PathBuf};

use super::Limit;

/// Why a group could not be made or a limit not be set.
#[derive(Debug)]
pub(super) enum Cause {
    /// No hierarchy that we can reach has the controller.
    NoController,
    /// Our own group gives no children to us.
    Denied {
        /// The group that the new one should lie in.
        parent: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Others live in our own group, so that it can have no children with controllers.
    Busy {
        /// That group.
        group: PathBuf,
    },
    /// The kernel did not take the limit's value.
    Setting {
        /// The control file.
        file: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Who asks, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker {
    /// The effective user id.
    pub(super) user: u32,
    /// Whether systemd runs the host.
    pub(super) systemd: bool,
    /// Whether the hierarchy in question is of version 2.
    pub(super) unified: bool,
}

impl Cause {
    /// The cause in one sentence.
    pub(super) fn reason(&self, limit: Limit) -> String {
        let controller = limit.controller();
        match self {
            Self::NoController => {
                format!("no control group hierarchy here has the `{controller}` controller")
            }
            Self::Denied { parent, source } => {
                format!("no control group can be made in {}: {source}", parent.display())
            }
            Self::Busy { group } => format!(
                "other processes live in this process's control group {}, so that it can give \
                 no controllers to children",
                group.display()
            ),
            Self::Setting { file, source } => {
                format!("the kernel refused the value for {}: {source}", file.display())
            }
        }
    }

    /// What to do about it.
    pub(super) fn remedy(&self, limit: Limit, asker: Asker) -> String {
        let Asker { user, systemd, unified } = asker;
        let delegated = if user == 0 {
            "systemd-run --scope -p Delegate=yes stockade run …"
        } else {
            "systemd-run --user --scope -p Delegate=yes stockade run …"
        };
        match self {
            Self::Setting { .. } => "choose a value within what the group above allows".to_owned(),
            Self::Denied { parent, source }
                if source.kind() == io::ErrorKind::ReadOnlyFilesystem =>
            {
                format!("mount -o remount,rw {}", mount_of(parent, unified).display())
            }
            // Only version 2 can be delegated to a user's own systemd.
            Self::NoController | Self::Denied { .. } | Self::Busy { .. } if unified && systemd => {
                delegated.to_owned()
            }
            Self::Busy { group } | Self::Denied { parent: group, .. } => {
                hand_over(group, user, limit, unified)
            }
            Self::NoController => {
                let controller = limit.controller();
                format!(
                    "as root: mkdir -p /sys/fs/cgroup/{controller} && mount -t cgroup -o \
                     {controller} none /sys/fs/cgroup/{controller} (a kernel started with \
                     cgroup_disable={controller} has none; in a container the host must give it)"
                )
            }
        }
    }
}

/// The commands with which root makes a group for a user and puts the user's shell in it.
fn hand_over(group: &Path, user: u32, limit: Limit, unified: bool) -> String {
    let place = group.join(format!("stockade-{user}"));
    let place = place.display();
    let enable = if unified {
        let group = group.display();
        format!("echo +{} > {group}/cgroup.subtree_control && ", limit.controller())
    } else {
        String::new()
    };
    format!(
        "as root: {enable}mkdir {place} && chown -R {user} {place} && echo PID-OF-YOUR-SHELL > \
         {place}/cgroup.procs, then: exec stockade run …"
    )
}

/// The mount point, as far as the usual places tell.
fn mount_of(group: &Path, unified: bool) -> &Path {
    let depth = if unified { 4 } else { 5 };
    let above = group.components().count().saturating_sub(depth);
    group.ancestors().nth(above).unwrap_or(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(kind: i32) -> Cause {
        let source = io::Error::from_raw_os_error(kind);
        Cause::Denied { parent: PathBuf::from("/sys/fs/cgroup/memory/a"), source }
    }

    #[test]
    fn a_user_under_systemd_is_told_to_ask_for_a_scope() {
        let user = Asker { user: 1000, systemd: true, unified: true };
        let scope = "systemd-run --user --scope -p Delegate=yes stockade run …";
        assert_eq!(denied(libc::EACCES).remedy(Limit::Memory, user), scope);
        assert_eq!(Cause::NoController.remedy(Limit::Memory, user), scope);
        let busy = Cause::Busy { group: PathBuf::from("/sys/fs/cgroup/x") };
        assert_eq!(busy.remedy(Limit::Pids, user), scope);
        let root = Asker { user: 0, ..user };
        assert!(busy.remedy(Limit::Pids, root).starts_with("systemd-run --scope "));
    }

    #[test]
    fn a_user_without_systemd_is_told_what_root_must_do() {
        let user = Asker { user: 1000, systemd: false, unified: false };
        assert_eq!(
            denied(libc::EACCES).remedy(Limit::Memory, user),
            "as root: mkdir /sys/fs/cgroup/memory/a/stockade-1000 && chown -R 1000 \
             /sys/fs/cgroup/memory/a/stockade-1000 && echo PID-OF-YOUR-SHELL > \
             /sys/fs/cgroup/memory/a/stockade-1000/cgroup.procs, then: exec stockade run …"
        );
        // Version 1 cannot be delegated by a user's systemd.
        let systemd = Asker { systemd: true, ..user };
        assert!(denied(libc::EACCES).remedy(Limit::Memory, systemd).starts_with("as root: mkdir"));
    }

    #[test]
    fn a_read_only_mount_and_a_missing_controller_have_remedies_of_their_own() {
        let root = Asker { user: 0, systemd: false, unified: false };
        assert_eq!(
            denied(libc::EROFS).remedy(Limit::Memory, root),
            "mount -o remount,rw /sys/fs/cgroup/memory"
        );
        let missing = Cause::NoController.remedy(Limit::Pids, root);
        assert!(missing.contains("mount -t cgroup -o pids none /sys/fs/cgroup/pids"), "{missing}");
    }
}
