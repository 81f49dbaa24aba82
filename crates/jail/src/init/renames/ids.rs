//! The ids of a thread, as `/proc/ID/status` lists them (`proc(5)`).

use std::fmt::Display;

use rustix::fs::Gid;

/// Every id of a thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ids {
    /// The real, effective, saved and file system ids.
    users: Vec<u32>,
    groups: Vec<u32>,
    supplementary: Vec<u32>,
}

/// The ids of a thread that has one user id and one group id.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SingleIds {
    pub(super) user: u32,
    pub(super) group: u32,
    /// The supplementary groups.
    pub(super) groups: Vec<u32>,
}

impl Ids {
    /// Those of a thread; `self` is this process.
    pub(super) fn of(thread: impl Display) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let numbers = |name: &str| -> Option<Vec<u32>> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().map(|number| number.parse::<u32>().ok()).collect()
        };
        let (users, groups) = (numbers("Uid:")?, numbers("Gid:")?);
        Some(Self { users, groups, supplementary: numbers("Groups:")? })
    }

    /// The ids, if there is one of each kind and all are below `end`: an init with several users may take
    /// on these and no others.
    pub(super) fn below(self, end: u32) -> Option<SingleIds> {
        let single = |ids: &[u32]| {
            let first = *ids.first()?;
            (first < end && ids.iter().all(|id| *id == first)).then_some(first)
        };
        let (user, group) = (single(&self.users)?, single(&self.groups)?);
        let groups = self.supplementary;
        groups.iter().all(|id| *id < end).then_some(SingleIds { user, group, groups })
    }
}

impl SingleIds {
    /// The supplementary groups, for the kernel.
    pub(super) fn supplementary(&self) -> Vec<Gid> {
        self.groups.iter().copied().map(Gid::from_raw).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str =
        "Name:\tgit\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t8 20 \nNSpid:\t3\n";

    #[test]
    fn only_single_ids_below_inits_are_taken_on() {
        let ids = |status: &str| Ids::parse(status).unwrap();
        let single = SingleIds { user: 7, group: 8, groups: vec![8, 20] };
        assert_eq!(ids(STATUS).below(21), Some(single));
        assert_eq!(ids(STATUS).below(20), None);
        assert_eq!(ids(&STATUS.replace("Uid:\t7\t7", "Uid:\t7\t9")).below(30), None);
        assert_eq!(ids(&STATUS.replace("8\t8\nG", "8\t9\nG")).below(30), None);
        let none = Ids::parse(&STATUS.replace("8 20 ", "")).unwrap().below(9);
        assert_eq!(none.map(|ids| ids.groups), Some(Vec::new()));
        assert_eq!(Ids::parse("Uid:\t7\t7\t7\t7\n"), None);
        assert_eq!(Ids::parse(&STATUS.replace('7', "x")), None);
    }

    #[test]
    fn the_own_ids_are_found() {
        let users = Ids::of("self").unwrap().users;
        assert_eq!(users, [rustix::process::getuid().as_raw(); 4]);
    }
}
