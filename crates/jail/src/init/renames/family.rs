//! To which command a thread belongs: what restricts itself by Landlock restricts all that descends from it, and
//! everything that a command has started descends from its subreaper.

use std::collections::BTreeSet;

/// How many ancestors are looked at.
const MAX_ANCESTORS: usize = 64;
/// Init's own id.
const INIT: i32 = 1;

/// What a jail's processes descend from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Families<'a> {
    /// All belong together.
    One,
    /// From these children of init, one for each command.
    Of(&'a [i32]),
}

/// The families in which a process has given up rights that init still has.
#[derive(Debug, Default)]
pub(super) struct Restricted {
    all: bool,
    families: BTreeSet<i32>,
}

impl Restricted {
    /// A thread gives up rights now.
    pub(super) fn insert(&mut self, thread: i32, families: Families<'_>) {
        match (families, family(thread)) {
            // One of a family that has lost its ancestor is never helped again, see `contains`.
            (Families::Of(_), Some(family)) => _ = self.families.insert(family),
            (Families::One, _) | (Families::Of(_), None) => self.all = true,
        }
    }

    /// Whether rights may have been given up in the family of a thread.
    pub(super) fn contains(&self, thread: i32, families: Families<'_>) -> bool {
        match families {
            _ if self.all => true,
            Families::Of(known) if !self.families.is_empty() => family(thread)
                .is_none_or(|family| self.families.contains(&family) || !known.contains(&family)),
            Families::One | Families::Of(_) => false,
        }
    }

    /// Nothing is left of this family.
    pub(super) fn forget(&mut self, family: i32) {
        self.families.remove(&family);
    }
}

/// The child of init from which a thread descends.
fn family(thread: i32) -> Option<i32> {
    let (mut process, mut parent) = relatives(thread)?;
    for _ in 0..MAX_ANCESTORS {
        if parent == INIT {
            return Some(process);
        }
        let next = relatives(parent)?;
        // If it still has this parent, then nothing else had the parent's id meanwhile.
        if relatives(process)? != (process, parent) {
            return None;
        }
        (process, parent) = next;
    }
    None
}

/// The process of a thread and its parent.
fn relatives(thread: i32) -> Option<(i32, i32)> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some((number("Tgid:")?, number("PPid:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_process_and_parent() {
        let own = std::process::id().cast_signed();
        let parent = std::os::unix::process::parent_id().cast_signed();
        let thread =
            std::thread::spawn(|| relatives(rustix::thread::gettid().as_raw_nonzero().get()));
        assert_eq!(thread.join().unwrap(), Some((own, parent)));
        assert_eq!(relatives(0), None);
    }

    #[test]
    fn only_the_family_that_gave_up_rights_gets_no_help() {
        let own = std::process::id().cast_signed();
        let Some(family) = family(own) else { return };
        let mut restricted = Restricted::default();
        assert!(!restricted.contains(own, Families::Of(&[])));
        restricted.insert(own, Families::Of(&[family]));
        assert!(restricted.contains(own, Families::Of(&[family])));
        restricted.forget(family);
        assert!(!restricted.contains(own, Families::Of(&[family])));
        // Another family has: then one that is not known gets none either.
        restricted.families.insert(i32::MAX);
        assert!(!restricted.contains(own, Families::Of(&[family])));
        assert!(restricted.contains(own, Families::Of(&[])));
        restricted.insert(own, Families::One);
        assert!(restricted.contains(own, Families::Of(&[family])));
    }
}
