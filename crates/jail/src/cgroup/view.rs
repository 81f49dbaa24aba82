//! What a jail shows of its own control groups, below `/sys/fs/cgroup`: where the runtimes of languages
//! read how much memory and how many processors they may use.

use std::ffi::CString;

use super::{Group, Limit, Version};

/// The hierarchies in which a jail has limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// The controllers of each hierarchy of version 1, as the kernel combines them.
    pub(crate) v1: Vec<Vec<CString>>,
    /// Whether limits are in the one of version 2.
    pub(crate) v2: bool,
}

impl View {
    /// Whether there is nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.v1.is_empty() && !self.v2
    }
}

impl Group {
    /// What the jail shows of these groups. Without a limit, nothing: it would be that of the caller.
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
                // The processes of a jail that can be frozen are in a group below, which has no limits.
                Version::Two => {
                    let of_two = |freezer: &super::Freezer| freezer.version == Version::Two;
                    view.v2 = !self.freezer.as_ref().is_some_and(of_two);
                }
            }
        }
        view
    }
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
    use super::super::Part;
    use super::*;

    fn part(version: Version, enforced: &[Limit]) -> Part {
        Part { version, directory: "/g".into(), enforced: enforced.to_vec(), leaf: None }
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
        assert!(!view.v2 && !view.is_empty());
        let group = Group { parts: vec![part(Version::Two, &[Limit::Pids])], freezer: None };
        assert_eq!(group.view_in("0::/x\n"), View { v1: Vec::new(), v2: true });
        assert!(Group::default().view_in(own).is_empty());
        let lost = Group { parts: vec![part(Version::One, &[Limit::Memory])], freezer: None };
        assert!(lost.view_in("").is_empty());
    }
}
