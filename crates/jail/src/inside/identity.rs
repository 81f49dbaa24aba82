//! The second phase of the inner half: the ids inside are mapped, and this process takes them on.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::io::Errno;

use super::bind_to_supervisor;
use crate::channel::{Channel, ToInit};
use crate::identity::Identity;
use crate::mounts::{self, At as _, Failure};
use crate::spec::JailSpec;
use crate::sys;
use crate::vm_helper::VmHelper;
use crate::walls::Wall;

/// Maps the ids, or waits until the supervisor has, and takes them on. Returns the trees that the
/// supervisor has cloned for a range of ids ([`mounts::trees_to_send`]).
pub(super) fn assume(
    spec: &JailSpec,
    channel: &Channel,
    helper: &VmHelper,
) -> Result<Option<Vec<OwnedFd>>, Failure> {
    let trees = match &spec.identity {
        Identity::Own { .. } => {
            map_own(&spec.identity)?;
            None
        }
        Identity::Range(range) if range.is_unshifted() => {
            wait_for_go(channel, 0)?;
            sys::become_ids(0, 0, true).at(Wall::User, || "switch to the inside ids".to_owned())?;
            None
        }
        Identity::Range(_) => {
            let count = mounts::trees_to_send(&spec.root, &spec.mounts).count();
            let trees = wait_for_go(channel, count)?;
            sys::become_ids(0, 0, true).at(Wall::User, || "switch to the inside ids".to_owned())?;
            Some(trees)
        }
    };
    helper.report_ids_mapped(trees.is_some());
    bind_to_supervisor()?;
    // Mount points must be accessible to everybody inside, whatever the caller's umask is.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    Ok(trees)
}

/// Maps the caller's own ids, which needs no privilege (`user_namespaces(7)`).
fn map_own(identity: &Identity) -> Result<(), Failure> {
    let (users, groups) = identity.maps();
    for (file, text) in
        [("setgroups", "deny"), ("uid_map", users.as_str()), ("gid_map", groups.as_str())]
    {
        fs::write(format!("/proc/self/{file}"), text).at(Wall::User, || format!("write {file}"))?;
    }
    Ok(())
}

/// Waits for the supervisor's message to continue and for this many trees, which may come in
/// several messages.
pub(super) fn wait_for_go(channel: &Channel, trees: usize) -> Result<Vec<OwnedFd>, Failure> {
    let step = || "wait for the supervisor".to_owned();
    let mut received = Vec::with_capacity(trees);
    loop {
        match channel.receive().at(Wall::User, step)? {
            Some((bytes, descriptors)) if ToInit::decode(&bytes) == Some(ToInit::Proceed) => {
                received.extend(descriptors);
            }
            Some(_) => {}
            None => return Err(io::Error::from(Errno::PIPE)).at(Wall::User, step),
        }
        if received.len() >= trees {
            return Ok(received);
        }
    }
}
