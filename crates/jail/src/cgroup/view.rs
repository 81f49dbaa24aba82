//! What a jail shows of its own control groups, below `/sys/fs/cgroup`: where the runtimes of languages
//! read how much memory and how many processors they may use.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use super::{Group, Limit, Version, open_group};

/// The groups that a jail shows.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// The controllers of each hierarchy of version 1 in which the jail has limits, as the kernel
    /// combines them.
    pub(crate) v1: Vec<Vec<CString>>,
    /// The group of version 2.
    pub(crate) v2: Option<UnifiedView>,
}

/// The group of version 2 that a jail shows.
#[derive(Debug)]
pub(crate) enum UnifiedView {
    /// The one in which the jail's first process is.
    Own,
    /// The directory of the one above it: the processes of a jail that can be frozen are in a group
    /// below the one with the limits.
    Above(OwnedFd),
}

impl View {
    /// Whether there is nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.v1.is_empty() && self.v2.is_none()
    }
}

impl Group {
    /// What the jail shows of these groups. Without a group of its own, nothing: it would be that of
    /// the caller.
    pub(crate) fn view(&self) -> View {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        self.view_in(&own)
    }

    fn view_in(&self, own: &str) -> View {
        let mut view = View::default();
        for part in &self.parts {
            match part.version {
                Version::One => {
                    for limit in &part.enforced {
                        let Some(controllers) = combined(own, *limit) else { continue };
                        if !view.v1.contains(&controllers) {
                            view.v1.push(controllers);
                        }
                    }
                }
                // A group without limits can get some later, except where those are of version 1.
                Version::Two if part.enforced.is_empty() && !is_unified(own) => {}
                Version::Two => {
                    view.v2 = match &self.freezer {
                        Some(freezer) if freezer.version == Version::Two => {
                            open_group(&part.directory).map(UnifiedView::Above)
                        }
                        _ => Some(UnifiedView::Own),
                    };
                }
            }
        }
        view
    }
}

/// Whether a text of `/proc/self/cgroup` names no hierarchy of version 1.
fn is_unified(own: &str) -> bool {
    own.lines().all(|line| line.starts_with("0::"))
}

/// The controllers of the hierarchy that has that of a limit, in a text of `/proc/self/cgroup`.
fn combined(own: &str, limit: Limit) -> Option<Vec<CString>> {
    let lists = own.lines().filter_map(|line| line.split(':').nth(1));
    let mut lists = lists.map(|list| list.split(',').collect::<Vec<_>>());
    let list = lists.find(|list| list.contains(&limit.controller()))?;
    list.into_iter().map(|name| CString::new(name).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Freezer, Part};
    use super::*;

    fn part(version: Version, enforced: &[Limit]) -> Part {
        Part { version, directory: "/".into(), enforced: enforced.to_vec(), leaf: None }
    }

    #[test]
    fn hierarchies_are_shown_as_the_kernel_combines_them() {
        let own = "5:cpu,cpuacct:/a\n4:memory:/b:c\n3:pids:/\n0::/\n";
        let parts = vec![
            part(Version::One, &[Limit::Memory]),
            part(Version::One, &[Limit::Cpus]),
            part(Version::One, &[Limit::Cpus]),
        ];
        let view = Group { parts, freezer: None }.view_in(own);
        let names = |list: &[&str]| -> Vec<CString> {
            list.iter().map(|name| CString::new(*name).unwrap()).collect()
        };
        assert_eq!(view.v1, [names(&["memory"]), names(&["cpu", "cpuacct"])]);
        assert!(view.v2.is_none() && !view.is_empty());
        let group = Group { parts: vec![part(Version::Two, &[Limit::Pids])], freezer: None };
        let view = group.view_in("0::/x\n");
        assert!(view.v1.is_empty() && matches!(view.v2, Some(UnifiedView::Own)), "{view:?}");
        assert!(Group::default().view_in(own).is_empty());
        let lost = Group { parts: vec![part(Version::One, &[Limit::Memory])], freezer: None };
        assert!(lost.view_in("").is_empty());
    }

    #[test]
    fn processes_below_the_group_with_the_limits_see_that_one() {
        let freezer = Freezer { version: Version::Two, directory: "/commands".into() };
        for enforced in [&[Limit::Memory][..], &[]] {
            let parts = vec![part(Version::Two, enforced)];
            let group = Group { parts, freezer: Some(freezer.clone()) };
            let view = group.view_in("0::/x\n");
            assert!(matches!(view.v2, Some(UnifiedView::Above(_))), "{view:?}");
            // Limits that it gets later are of version 1 there.
            let beside = group.view_in("4:memory:/\n0::/x\n");
            assert_eq!(beside.v2.is_some(), !enforced.is_empty(), "{beside:?}");
        }
    }
}
