//! Why a limit cannot be enforced here, and the exact command that changes this.
//!
//! Only texts: the drivers decide what was tried and failed.

use std::io;
use std::path::{Path, PathBuf};

use super::Limit;

/// Why a group could not be created or a limit not be set.
#[derive(Debug)]
pub(super) enum Cause {
    /// No hierarchy that is visible to us has the controller.
    NoController,
    /// The version 2 hierarchy has the controller, but our own group does not get it.
    NotDelegated {
        /// Our own group.
        group: PathBuf,
    },
    /// We may not create children in our own group.
    Denied {
        /// The intended parent of the new group.
        parent: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Other processes are in our own group, so that it can have no children with controllers.
    Busy {
        /// That group.
        group: PathBuf,
    },
    /// The kernel did not accept the limit's value.
    Setting {
        /// The control file.
        file: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The environment of the process that requests the limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller<'a> {
    /// The effective user id.
    pub(super) user: u32,
    /// Whether systemd runs the host.
    pub(super) systemd: bool,
    /// The hierarchy in question, if it is of version 2.
    pub(super) unified: Option<TopGroup<'a>>,
}

/// The highest visible group of version 2.
#[derive(Debug, Clone, Copy)]
pub(super) struct TopGroup<'a> {
    /// Its mount point.
    pub(super) mount: &'a Path,
    /// Whether it is the root of the whole hierarchy, which may contain processes.
    pub(super) is_root: bool,
}

/// How to make a limit possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// An instruction.
    Advice(String),
    /// Commands to run before the one that requests the limit.
    RunFirst(String),
    /// A command that gets the one that requests the limit as its argument.
    Wrapper(String),
}

impl Remedy {
    /// The remedy as text for a user who requests the limit by `command`.
    pub fn text_for(&self, command: &str) -> String {
        match self {
            Self::Advice(text) => text.clone(),
            Self::RunFirst(commands) => format!("{commands} && {command}"),
            Self::Wrapper(outer) => format!("{outer} {command}"),
        }
    }
}

impl Cause {
    /// The cause in one sentence.
    pub(super) fn reason(&self, limit: Limit) -> String {
        let controller = limit.controller();
        match self {
            Self::NoController => {
                format!("no control group hierarchy here has the `{controller}` controller")
            }
            Self::NotDelegated { group } => format!(
                "this process's control group {} does not have the `{controller}` controller",
                group.display()
            ),
            Self::Denied { parent, source } => {
                format!("no control group can be created in {}: {source}", parent.display())
            }
            Self::Busy { group } => format!(
                "other processes are in this process's control group {}, so it cannot delegate controllers to child groups",
                group.display()
            ),
            Self::Setting { file, source } => {
                format!("the kernel refused the value for {}: {source}", file.display())
            }
        }
    }

    /// How to fix it.
    pub(super) fn remedy(&self, limit: Limit, caller: Caller<'_>) -> Remedy {
        let controller = limit.controller();
        match self {
            Self::Setting { .. } => {
                Remedy::Advice("choose a value within the limit of the parent group".to_owned())
            }
            Self::Denied { parent, source }
                if source.kind() == io::ErrorKind::ReadOnlyFilesystem =>
            {
                let mount = caller.unified.map_or_else(|| mount_of(parent), |top| top.mount);
                Remedy::Advice(format!("mount -o remount,rw {}", mount.display()))
            }
            Self::NoController => Remedy::Advice(missing(controller, caller.unified.is_some())),
            Self::NotDelegated { group }
            | Self::Busy { group }
            | Self::Denied { parent: group, .. } => {
                match caller.unified {
                    // Only version 2 can be delegated to a user's own systemd.
                    Some(_) if caller.systemd => scope(caller.user),
                    Some(top) => delegate(top, caller.user, controller),
                    None => delegate_group(group, caller.user),
                }
            }
        }
    }
}

/// The command that gets a new group from systemd.
fn scope(user: u32) -> Remedy {
    let whose = if user == 0 { "" } else { "--user " };
    Remedy::Wrapper(format!("systemd-run {whose}--scope -p Delegate=yes"))
}

/// How to get a controller that no hierarchy has.
fn missing(controller: &str, unified: bool) -> String {
    let elsewhere = format!(
        "a kernel started with cgroup_disable={controller} has none; in a container the host must provide it"
    );
    if unified {
        return elsewhere;
    }
    format!(
        "sudo mkdir -p /sys/fs/cgroup/{controller} && sudo mount -t cgroup -o {controller} none \
         /sys/fs/cgroup/{controller} # {elsewhere}"
    )
}

/// The commands with which root makes a hierarchy of version 2 give a controller to its groups; for
/// another user, to a group of that user with the user's shell below it.
fn delegate(top: TopGroup<'_>, user: u32, controller: &str) -> Remedy {
    let mount = top.mount.display();
    let mut commands = vec![format!("echo +{controller} > {mount}/cgroup.subtree_control")];
    if !top.is_root {
        commands.insert(
            0,
            format!(
                "mkdir -p {mount}/rest && for p in $(cat {mount}/cgroup.procs); do echo $p > \
                 {mount}/rest/cgroup.procs 2>/dev/null || :; done"
            ),
        );
    }
    if user == 0 {
        return Remedy::RunFirst(commands.join(" && "));
    }
    let path = format!("{mount}/stockade-{user}");
    commands.extend([
        format!("mkdir -p {path}/shell"),
        format!("echo +{controller} > {path}/cgroup.subtree_control"),
        format!("chown -R {user} {path}"),
    ]);
    as_root(&commands, &format!("{path}/shell"))
}

/// The commands with which root creates a group of version 1 for a user, with the user's shell in
/// it.
fn delegate_group(group: &Path, user: u32) -> Remedy {
    let path = group.join(format!("stockade-{user}"));
    let path = path.display().to_string();
    as_root(&[format!("mkdir -p {path}"), format!("chown -R {user} {path}")], &path)
}

/// Commands that root runs for a user, and then moves the user's shell into a group. All of it is
/// typed in that shell, which is what `$$` refers to.
fn as_root(commands: &[String], group: &str) -> Remedy {
    let commands = commands.join(" && ").replace('$', "\\$");
    Remedy::RunFirst(format!("sudo sh -c \"{commands} && echo $$ > {group}/cgroup.procs\""))
}

/// The mount point of a version 1 group, assuming the usual directory layout.
fn mount_of(group: &Path) -> &Path {
    let above = group.components().count().saturating_sub(5);
    group.ancestors().nth(above).unwrap_or(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top(whole: bool) -> Option<TopGroup<'static>> {
        Some(TopGroup { mount: Path::new("/sys/fs/cgroup"), is_root: whole })
    }

    fn denied(kind: i32) -> Cause {
        let source = io::Error::from_raw_os_error(kind);
        Cause::Denied { parent: PathBuf::from("/sys/fs/cgroup/memory/a"), source }
    }

    #[test]
    fn a_user_under_systemd_is_told_to_ask_for_a_scope() {
        let user = Caller { user: 1000, systemd: true, unified: top(true) };
        let scope = "systemd-run --user --scope -p Delegate=yes CMD";
        assert_eq!(denied(libc::EACCES).remedy(Limit::Memory, user).text_for("CMD"), scope);
        let not_given = Cause::NotDelegated { group: PathBuf::from("/sys/fs/cgroup/x") };
        assert_eq!(not_given.remedy(Limit::Memory, user).text_for("CMD"), scope);
        // systemd cannot delegate a controller that the kernel does not have.
        assert!(
            !Cause::NoController.remedy(Limit::Memory, user).text_for("CMD").contains("systemd")
        );
        let busy = Cause::Busy { group: PathBuf::from("/sys/fs/cgroup/x") };
        assert_eq!(busy.remedy(Limit::Pids, user).text_for("CMD"), scope);
        let root = Caller { user: 0, ..user };
        assert!(busy.remedy(Limit::Pids, root).text_for("CMD").starts_with("systemd-run --scope "));
    }

    #[test]
    fn a_user_without_systemd_is_told_what_root_must_do() {
        let user = Caller { user: 1000, systemd: false, unified: None };
        assert_eq!(
            denied(libc::EACCES).remedy(Limit::Memory, user).text_for("CMD"),
            "sudo sh -c \"mkdir -p /sys/fs/cgroup/memory/a/stockade-1000 && chown -R 1000 \
             /sys/fs/cgroup/memory/a/stockade-1000 && echo $$ > \
             /sys/fs/cgroup/memory/a/stockade-1000/cgroup.procs\" && CMD"
        );
        // Version 1 cannot be delegated by a user's systemd.
        let systemd = Caller { systemd: true, ..user };
        assert!(
            denied(libc::EACCES)
                .remedy(Limit::Memory, systemd)
                .text_for("CMD")
                .starts_with("sudo sh -c \"mkdir")
        );
    }

    /// Must match the commands that `cargo xtask guest` runs in its machine word for word.
    #[test]
    fn without_systemd_version_2_gives_from_its_top() {
        let group = PathBuf::from("/sys/fs/cgroup/sshd");
        let root = Caller { user: 0, systemd: false, unified: top(true) };
        assert_eq!(
            Cause::Busy { group: group.clone() }.remedy(Limit::Cpus, root).text_for("CMD"),
            "echo +cpu > /sys/fs/cgroup/cgroup.subtree_control && CMD"
        );
        let user = Caller { user: 1000, ..root };
        assert_eq!(
            Cause::NotDelegated { group: group.clone() }
                .remedy(Limit::Memory, user)
                .text_for("CMD"),
            "sudo sh -c \"echo +memory > /sys/fs/cgroup/cgroup.subtree_control && mkdir -p \
             /sys/fs/cgroup/stockade-1000/shell && echo +memory > \
             /sys/fs/cgroup/stockade-1000/cgroup.subtree_control && chown -R 1000 \
             /sys/fs/cgroup/stockade-1000 && echo $$ > \
             /sys/fs/cgroup/stockade-1000/shell/cgroup.procs\" && CMD"
        );
        // In a container the top is an ordinary group, which gives controllers only while it
        // contains no process.
        let container = Caller { unified: top(false), ..root };
        let remedy =
            Cause::Busy { group: group.clone() }.remedy(Limit::Memory, container).text_for("CMD");
        assert!(remedy.starts_with("mkdir -p /sys/fs/cgroup/rest && for p in $(cat"), "{remedy}");
        // Root's shell must expand the variables, not the user's.
        let user = Caller { user: 1000, ..container };
        let remedy = Cause::Busy { group }.remedy(Limit::Memory, user).text_for("CMD");
        assert!(remedy.contains("for p in \\$(cat") && remedy.contains("echo $$ >"), "{remedy}");
    }

    #[test]
    fn a_read_only_mount_and_a_missing_controller_have_remedies_of_their_own() {
        let root = Caller { user: 0, systemd: false, unified: None };
        assert_eq!(
            denied(libc::EROFS).remedy(Limit::Memory, root).text_for("CMD"),
            "mount -o remount,rw /sys/fs/cgroup/memory"
        );
        let missing = Cause::NoController.remedy(Limit::Pids, root).text_for("CMD");
        assert!(missing.contains("mount -t cgroup -o pids none /sys/fs/cgroup/pids"), "{missing}");
    }
}
