//! The capability wall: the process has no capability and cannot gain any.
//!
//! capabilities(7): the bounding set limits what executing a file may give, the securebits define
//! what user id 0 means, the ambient set is inherited through an exec, and the other three sets are
//! what the process has now.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities_secure_bits,
    capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
};

/// User id 0 gives no capability, changing user ids changes none, none can be made ambient, and all
/// of this is locked.
const LOCKED: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_ROOT
    .union(CapabilitiesSecureBits::NO_ROOT_LOCKED)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED)
    .union(CapabilitiesSecureBits::KEEP_CAPS_LOCKED)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED);

/// Ensures that the calling thread and all processes that it will start cannot gain a capability
/// that they do not have already: neither an exec nor a change of user ids gives one. Allocates
/// nothing.
///
/// Needs CAP_SETPCAP, unless everything that requires it is already done. The thread keeps its
/// current capabilities, even when it gives up user id 0: [`drop_all`] removes those.
///
/// # Errors
/// The error of prctl(2).
pub fn drop_bounding() -> io::Result<()> {
    if capabilities_secure_bits() != Ok(LOCKED) {
        set_capabilities_secure_bits(LOCKED)?;
    }
    drop_bounding_except(CapabilitySet::empty())
}

/// The capability with which user id 0 may make a user namespace that contains its id.
const MAP_ROOT: CapabilitySet = CapabilitySet::SETFCAP;

/// Drops every capability from the bounding set but the one with which user id 0 may make a user
/// namespace that contains its id (`user_namespaces(7)`). An exec as user id 0 keeps that one.
///
/// # Errors
/// The error of prctl(2).
pub(crate) fn drop_bounding_to_map_root() -> io::Result<()> {
    drop_bounding_except(MAP_ROOT)
}

fn drop_bounding_except(kept: CapabilitySet) -> io::Result<()> {
    // The kernel's last capability is unknown here; numbers beyond it fail with EINVAL.
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match capability_is_in_bounding_set(capability) {
            Ok(false) => {}
            Ok(true) => remove_capability_from_bounding_set(capability)?,
            Err(Errno::INVAL) if number > 0 => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Whether no capability can be gained by executing a file, whatever the user id is.
pub(crate) fn is_bounding_empty() -> bool {
    (0..64).all(|number| {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        capability_is_in_bounding_set(capability) != Ok(true)
    })
}

/// Drops every capability of the calling thread. Needs no privilege and allocates nothing.
///
/// Call [`drop_bounding`] first: otherwise an exec as user id 0 would give the capabilities back.
///
/// # Errors
/// The error of prctl(2) or capset(2).
pub fn drop_all() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).map_err(io::Error::from)
}

/// The capabilities of an init that starts commands of several users: to take on their ids, and to
/// end them.
const INIT_CAPABILITIES: CapabilitySet =
    CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::KILL);

/// Drops every capability of the calling thread except those of an init. See [`drop_all`].
///
/// # Errors
/// The error of prctl(2) or capset(2).
pub(crate) fn keep_init_capabilities() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let sets = CapabilitySets {
        effective: INIT_CAPABILITIES,
        permitted: INIT_CAPABILITIES,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(io::Error::from)
}

/// Drops every capability of the calling thread but that of [`drop_bounding_to_map_root`].
///
/// # Errors
/// The error of prctl(2) or capset(2).
pub(crate) fn keep_to_map_root() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let sets = CapabilitySets {
        effective: MAP_ROOT,
        permitted: MAP_ROOT,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::{ChildExit, enter_user_namespace, in_child};

    /// The five capability sets of the calling thread, as the kernel prints them.
    fn sets() -> Vec<u64> {
        capability_lines(&fs::read_to_string("/proc/thread-self/status").unwrap())
    }

    fn capability_lines(status: &str) -> Vec<u64> {
        let sets: Vec<u64> = status
            .lines()
            .filter_map(|line| line.strip_prefix("Cap")?.split_once(':'))
            .map(|(_, hex)| u64::from_str_radix(hex.trim(), 16).unwrap())
            .collect();
        assert_eq!(sets.len(), 5, "{status}");
        sets
    }

    #[test]
    fn nothing_is_left_and_nothing_comes_back() {
        let ended = in_child(|| {
            // In a new user namespace, every process has all capabilities.
            enter_user_namespace();
            assert!(sets()[1] != 0 && sets()[3] != 0);
            drop_bounding().unwrap();
            drop_all().unwrap();
            assert_eq!(sets(), [0; 5]);
            // Otherwise, an exec as user id 0 would restore all of them.
            let output = std::process::Command::new("cat").arg("/proc/self/status").output();
            assert_eq!(
                capability_lines(&String::from_utf8(output.unwrap().stdout).unwrap()),
                [0; 5]
            );
            let unlocked = set_capabilities_secure_bits(CapabilitiesSecureBits::empty());
            assert_eq!(unlocked, Err(Errno::PERM));
            0
        });
        assert_eq!(ended, ChildExit::Exited(0));
    }

    #[test]
    fn giving_up_user_0_keeps_what_drop_all_takes() {
        let ended = in_child(|| {
            enter_user_namespace();
            drop_bounding().unwrap();
            let [_, permitted, effective, bounding, _] = sets()[..] else { return 1 };
            assert!(permitted != 0 && effective != 0);
            assert_eq!(bounding, 0);
            drop_all().unwrap();
            // As in each command of an init, which has nothing left to drop from the bounding set.
            drop_bounding().unwrap();
            assert_eq!(sets(), [0; 5]);
            0
        });
        assert_eq!(ended, ChildExit::Exited(0));
    }

    #[test]
    fn a_caller_without_the_right_to_drop_is_refused() {
        let ended = in_child(|| {
            enter_user_namespace();
            drop_all().unwrap();
            i32::from(drop_bounding().map_err(|e| e.raw_os_error()) != Err(Some(libc::EPERM)))
        });
        assert_eq!(ended, ChildExit::Exited(0));
    }
}
