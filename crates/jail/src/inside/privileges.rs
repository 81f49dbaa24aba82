//! The fifth phase of the inner half: this process gives up what neither init nor a command needs.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::Gid;

use super::bind_to_supervisor;
use super::filesystem::Files;
use super::group_view;
use super::identity::wait_for_go;
use crate::cgroup::View;
use crate::channel::Channel;
use crate::landlock::{Ruleset, Scope};
use crate::mounts::{At as _, Failure};
use crate::spec::{JailSpec, Task};
use crate::walls::Wall;
use crate::{capabilities, landlock, seccomp, sys};

/// The restrictions that commands put on themselves at their start, and this process does not.
pub(super) struct Restrictions {
    /// Landlock's version; 0 where the kernel has none.
    pub(super) landlock: i32,
    pub(super) ruleset: Option<Ruleset>,
    /// By which refused system calls are heard of.
    pub(super) calls: Option<CallListening>,
}

/// Who hears of refused system calls.
pub(super) enum CallListening {
    /// The supervisor, by this listener.
    Supervisor(OwnedFd),
    /// Init, by this listener, because the filter also asks about renames.
    Init(OwnedFd),
}

/// Creates the rules of Landlock, hides the outer control groups and gives up all privileges.
pub(super) fn give_up(
    spec: &JailSpec,
    channel: &Channel,
    files: &Files,
    (groups, upper_group): (&View, Option<OwnedFd>),
) -> Result<Restrictions, Failure> {
    let mut restrictions = restrictions(spec, files)?;
    if spec.identity.range().is_none() {
        wait_for_go(channel, 0)?;
    }
    // The supervisor has put this process into its groups before it sent the message to continue.
    sys::hide_outer_groups().at(Wall::Cgroup, || "hide the outer control groups".to_owned())?;
    group_view::mount(groups, upper_group)
        .at(Wall::Cgroup, || "show the own control groups".to_owned())?;
    restrictions.calls = drop_privileges(spec, files)?;
    Ok(restrictions)
}

/// Landlock's version; 0 where the kernel has none, and the jail may be without.
pub(super) fn landlock_version(spec: &JailSpec) -> Result<i32, Failure> {
    match landlock::abi() {
        Ok(version) => Ok(version.cast_signed()),
        Err(_) if spec.landlock_optional => Ok(0),
        Err(e) => {
            let step = || "query Landlock's version".to_owned();
            Err(io::Error::from(e)).at(Wall::Landlock, step)
        }
    }
}

fn restrictions(spec: &JailSpec, files: &Files) -> Result<Restrictions, Failure> {
    let landlock = landlock_version(spec)?;
    // Commands of one persistent jail may signal each other, as users expect, and share abstract
    // sockets.
    let scope = match spec.task {
        Task::Once { .. } | Task::Fork(_) => Scope::Own,
        Task::Serve { .. } => Scope::Namespaces,
    };
    let ruleset = match spec.task {
        Task::Fork(_) => Some(landlock::deny_all_ruleset()?.0),
        _ if landlock > 0 => {
            let sockets = files.socket_targets.as_deref();
            Some(landlock::command_ruleset(&files.landlock_targets, sockets, scope)?)
        }
        _ => None,
    };
    Ok(Restrictions { landlock, ruleset, calls: None })
}

/// Gives up the caller's session, the ids that built the jail, every capability and system calls. An init
/// of many commands keeps the capabilities to start them as several users. Returns the listener for
/// refused system calls, if there is one.
fn drop_privileges(spec: &JailSpec, files: &Files) -> Result<Option<CallListening>, Failure> {
    let words = |text: &'static str| move || text.to_owned();
    rustix::process::setsid().at(Wall::Inheritance, words("leave the caller's session"))?;
    capabilities::drop_bounding().at(Wall::Capabilities, words("empty the bounding set"))?;
    let dropped = match (&spec.task, spec.identity.range()) {
        (Task::Once { command, .. }, Some(_)) => {
            // The command's own ids are enough for init to end it.
            let groups: Vec<_> = command.groups.iter().copied().map(Gid::from_raw).collect();
            if !groups.is_empty() {
                rustix::thread::set_thread_groups(&groups)
                    .map_err(std::io::Error::from)
                    .at(Wall::User, words("take on the groups of the command's user"))?;
            }
            sys::become_ids(command.user, command.group, false)
                .at(Wall::User, words("switch to the command's ids"))?;
            capabilities::drop_all()
        }
        (Task::Fork(_), Some(range)) => {
            sys::become_ids(range.init(), range.init(), false)
                .at(Wall::User, words("switch to the zygote's ids"))?;
            capabilities::drop_all()
        }
        (Task::Serve { .. }, Some(range)) => {
            sys::become_ids(range.init(), range.init(), false)
                .at(Wall::User, words("switch to init's ids"))?;
            capabilities::keep_init_capabilities()
        }
        (_, None) => capabilities::drop_all(),
    };
    dropped.at(Wall::Capabilities, words("drop all capabilities"))?;
    // A change of ids resets both settings (`prctl(2)`).
    bind_to_supervisor()?;
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
        .at(Wall::NoNewPrivileges, words("set no_new_privs"))?;
    let follows_renames = follows_renames(spec, files);
    let installed = match spec.reports_refused_calls {
        true => seccomp::install_reporting(files.set_id_bits, follows_renames),
        false => seccomp::install(seccomp::program(files.set_id_bits)).map(|()| None),
    };
    let listener = installed.at(Wall::Seccomp, words("install the filter"))?;
    let calls = listener.map(|listener| match follows_renames {
        true => CallListening::Init(listener),
        false => CallListening::Supervisor(listener),
    });
    // Commands inherit this; signals that the caller ignores are not ignored inside.
    sys::reset_signals();
    Ok(calls)
}

/// Whether init makes the renames that an overlay lacks. It learns from `/proc` what is renamed.
fn follows_renames(spec: &JailSpec, files: &Files) -> bool {
    let may_keep_listener = match &spec.task {
        // A function runs in init's memory, and init waits for its end: it could answer no call.
        Task::Once { command, .. } => command.payload.is_program(),
        // Those of root have few overlays that need it, and their init has more rights than commands.
        Task::Serve { .. } => {
            spec.identity.range().is_none_or(|range| range.subordinate().is_some())
        }
        Task::Fork(_) => false,
    };
    files.lacks_renames && !files.proc_missing && may_keep_listener
}
