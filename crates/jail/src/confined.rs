//! The replacement for a jail where none can be created: this process is already confined by
//! another program, whose filter forbids new namespaces. Only the filter and Landlock can be
//! enabled there.
//!
//! This condition is determined from the kernel alone. No variable or file that a caller could set
//! claims it: a process that has no_new_privs, a system call filter and no right to create
//! namespaces was confined by the program that started it, and cannot be made to omit a wall that
//! would be available.

use crate::landlock::{self, Access, Ruleset, Scope, Target};
use crate::launch::{self, Error};
use crate::mounts::{At as _, Failure};
use crate::rlimits::ResourceLimits;
use crate::seccomp::SetIdBits;
use crate::sys::{self, ForkResult};
use crate::walls::Wall;
use crate::{capabilities, seccomp};

/// Whether another program has confined this process, so that no jail can be launched in it.
pub fn is_already_confined() -> bool {
    sys::is_confined() && !can_have_namespaces()
}

fn can_have_namespaces() -> bool {
    // SAFETY: the child only exits, so the state of its copy of the memory does not matter.
    match unsafe { sys::clone_process(sys::NAMESPACES, None) } {
        Ok(ForkResult::Child) => sys::exit_now(0),
        Ok(ForkResult::Parent(_, child)) => {
            sys::wait(&child);
            true
        }
        Err(_) => false,
    }
}

/// Enables the walls for this process that are possible without namespaces: limits, no capability,
/// no file, the filter.
///
/// # Errors
/// [`Error::Wall`] for one that cannot be enabled.
pub fn confine(limits: &ResourceLimits) -> Result<(), Error> {
    let raised = confine_with_ruleset(limits).map(drop);
    raised.map_err(|Failure { wall, step, errno }| launch::failed(wall, step, errno))
}

/// Enables the same walls, but for these files. For a process that reads hostile input and has to write
/// what it makes of it.
///
/// # Errors
/// [`Error::Wall`] for one that cannot be enabled.
pub fn confine_to(limits: &ResourceLimits, files: &[(Target<'_>, Access)]) -> Result<(), Error> {
    let raise = || {
        let words = |text: &'static str| move || text.to_owned();
        let rules = Ruleset::new(files, Scope::Own)
            .map_err(std::io::Error::from)
            .at(Wall::Landlock, words("create the Landlock rules"))?;
        restrict(limits, &rules)
    };
    raise().map_err(|Failure { wall, step, errno }| launch::failed(wall, step, errno))
}

/// Does the same, and returns a ruleset that allows nothing, which is in force, and Landlock's
/// version.
pub(crate) fn confine_with_ruleset(limits: &ResourceLimits) -> Result<(Ruleset, u32), Failure> {
    let (nothing, landlock) = landlock::deny_all_ruleset()?;
    restrict(limits, &nothing)?;
    Ok((nothing, landlock))
}

fn restrict(limits: &ResourceLimits, rules: &Ruleset) -> Result<(), Failure> {
    let words = |text: &'static str| move || text.to_owned();
    sys::prctl(libc::PR_SET_DUMPABLE, 0).at(Wall::Inheritance, words("become undumpable"))?;
    limits.apply().at(Wall::ResourceLimits, words("set the limits"))?;
    capabilities::drop_all().at(Wall::Capabilities, words("drop all capabilities"))?;
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
        .at(Wall::NoNewPrivileges, words("set no_new_privs"))?;
    rules.restrict().at(Wall::Landlock, words("restrict by Landlock"))?;
    seccomp::install(seccomp::program(SetIdBits::Refused))
        .at(Wall::Seccomp, words("install the filter"))
}

#[cfg(test)]
mod live_tests {
    use super::*;
    use crate::testing::{ChildExit, fork_child, wait_for};

    /// Whether a child counts as confined once it has run this function.
    fn answers(before: fn()) -> bool {
        let child = fork_child(move || {
            before();
            i32::from(is_already_confined())
        });
        match wait_for(child) {
            ChildExit::Exited(code) => code == 1,
            other => panic!("{other:?}"),
        }
    }

    fn no_new_privileges() {
        sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1).unwrap();
    }

    #[test]
    fn only_a_filter_that_holds_counts_as_a_confinement() {
        assert!(!answers(|| {}));
        assert!(!answers(no_new_privileges));
        assert!(answers(|| {
            no_new_privileges();
            seccomp::install(seccomp::program(SetIdBits::Refused)).unwrap();
        }));
    }

    #[test]
    fn a_process_that_confines_itself_opens_nothing_more() {
        let child = fork_child(|| {
            confine(&ResourceLimits::default()).unwrap();
            i32::from(std::fs::File::open("/").is_ok()) + i32::from(!is_already_confined()) * 2
        });
        assert_eq!(wait_for(child), ChildExit::Exited(0));
    }
}
