//! The capability wall: a process that has none, and can get none in any way.
//!
//! capabilities(7): the bounding set is what executing a file may give, securebits are what
//! user id 0 means, the ambient set is what is inherited past an exec, and the other three are
//! what the process has now.

use std::io;

use rustix::io::Errno;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities_secure_bits,
    capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
};

/// User id 0 gives no capability, changing user ids changes none, none can be made ambient, and
/// nothing of this can be changed again.
const LOCKED: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_ROOT
    .union(CapabilitiesSecureBits::NO_ROOT_LOCKED)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED)
    .union(CapabilitiesSecureBits::KEEP_CAPS_LOCKED)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED);

/// Makes sure that the calling thread and all it will start can get no capability that they do
/// not have already: no exec gives one, nor does a change of user ids. Allocates nothing.
///
/// Needs CAP_SETPCAP, unless nothing of what needs it is left to do. What the thread has now it
/// keeps, even when it gives up user id 0: [`drop_all`] takes that.
///
/// # Errors
/// What prctl(2) said.
pub fn drop_bounding() -> io::Result<()> {
    if capabilities_secure_bits() != Ok(LOCKED) {
        set_capabilities_secure_bits(LOCKED)?;
    }
    // The kernel's last capability is not known here, but past it there are none: EINVAL.
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(false) => {}
            Ok(true) => remove_capability_from_bounding_set(capability)?,
            Err(Errno::INVAL) if number > 0 => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Takes every capability that the calling thread has. Needs no right and allocates nothing.
///
/// Call [`drop_bounding`] first: alone, this leaves what an exec as user id 0 would give back.
///
/// # Errors
/// What prctl(2) or capset(2) said.
pub fn drop_all() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).map_err(io::Error::from)
}

/// What an init keeps that starts commands of several users: taking on their ids, and ending them.
const OF_INIT: CapabilitySet =
    CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::KILL);

/// Takes every capability that the calling thread has but those of an init. See [`drop_all`].
///
/// # Errors
/// What prctl(2) or capset(2) said.
pub(crate) fn keep_those_of_init() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let sets = CapabilitySets {
        effective: OF_INIT,
        permitted: OF_INIT,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::{Ended, enter_user_namespace, in_child};

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
            // In a namespace of its own anybody has every capability.
            enter_user_namespace();
            assert!(sets()[1] != 0 && sets()[3] != 0);
            drop_bounding().unwrap();
            drop_all().unwrap();
            assert_eq!(sets(), [0; 5]);
            // User id 0 that executes a file would have all of them again.
            let output = std::process::Command::new("cat").arg("/proc/self/status").output();
            assert_eq!(
                capability_lines(&String::from_utf8(output.unwrap().stdout).unwrap()),
                [0; 5]
            );
            let unlocked = set_capabilities_secure_bits(CapabilitiesSecureBits::empty());
            assert_eq!(unlocked, Err(Errno::PERM));
            0
        });
        assert_eq!(ended, Ended::Exited(0));
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
            // As each command of an init does, which cannot drop anything more.
            drop_bounding().unwrap();
            assert_eq!(sets(), [0; 5]);
            0
        });
        assert_eq!(ended, Ended::Exited(0));
    }

    #[test]
    fn a_caller_without_the_right_to_drop_is_refused() {
        let ended = in_child(|| {
            enter_user_namespace();
            drop_all().unwrap();
            i32::from(drop_bounding().map_err(|e| e.raw_os_error()) != Err(Some(libc::EPERM)))
        });
        assert_eq!(ended, Ended::Exited(0));
    }
}
