//! Where this process's control groups are: which hierarchy has which controller.
//!
//! Pure: reads the texts of /proc/self/cgroup and /proc/self/mountinfo (cgroups(7), proc(5)),
//! never a file.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use super::Limit;

/// The hierarchies that this process can see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hierarchies {
    /// Our own group in the version 1 hierarchy of each controller that has one.
    pub(super) v1: Vec<(Limit, PathBuf)>,
    /// Our own group in the version 1 freezer hierarchy.
    pub(super) freezer: Option<PathBuf>,
    /// The version 2 hierarchy.
    pub(super) v2: Option<Unified>,
}

/// The version 2 hierarchy as it is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unified {
    /// The mount point: groups above it are not visible.
    pub(super) mount: PathBuf,
    /// Our own group, `mount` itself or below.
    pub(super) own: PathBuf,
}

impl Hierarchies {
    /// Our own group in the version 1 hierarchy that has the controller of this limit.
    pub(super) fn v1(&self, limit: Limit) -> Option<&Path> {
        self.v1.iter().find(|(held, _)| *held == limit).map(|(_, directory)| directory.as_path())
    }
}

/// Finds the hierarchies; invalid lines are skipped.
pub(super) fn parse(cgroup: &[u8], mountinfo: &[u8]) -> Hierarchies {
    let mounts: Vec<Mount<'_>> = lines(mountinfo).filter_map(Mount::parse).collect();
    let mut hierarchies = Hierarchies::default();
    for line in lines(cgroup) {
        // `4:memory:/path`, and `0::/path` for version 2. The path may contain colons.
        let mut fields = line.splitn(3, |b| *b == b':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        if controllers.is_empty() {
            hierarchies.v2 = mounts.iter().filter(|m| m.kind == b"cgroup2").find_map(|mount| {
                Some(Unified { mount: mount.point.clone(), own: mount.locate(path)? })
            });
            continue;
        }
        let own = |name: &str| {
            let named = |list: &[u8]| list.split(|b| *b == b',').any(|c| c == name.as_bytes());
            named(controllers).then_some(())?;
            mounts
                .iter()
                .filter(|mount| mount.kind == b"cgroup" && named(mount.options))
                .find_map(|mount| mount.locate(path))
        };
        for limit in Limit::ALL {
            hierarchies.v1.extend(own(limit.controller()).map(|directory| (limit, directory)));
        }
        hierarchies.freezer = hierarchies.freezer.or_else(|| own("freezer"));
    }
    hierarchies
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| *b == b'\n').filter(|line| !line.is_empty())
}

/// One line of mountinfo: `32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup x rw,cpu`.
struct Mount<'a> {
    /// The directory of the file system that is the mount's root.
    root: Vec<u8>,
    point: PathBuf,
    kind: &'a [u8],
    /// The file system's own options, which include the controllers.
    options: &'a [u8],
}

impl<'a> Mount<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|b| *b == b' ');
        let root = unescape(fields.nth(3)?);
        let point = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
        // The optional fields end with a dash.
        fields.by_ref().find(|field| *field == b"-")?;
        let kind = fields.next()?;
        let options = fields.nth(1)?;
        Some(Self { root, point, kind, options })
    }

    /// The path of the group `path` in this mount, if it lies in it. In a control group namespace,
    /// the path of a group outside it starts with `/..`.
    fn locate(&self, path: &[u8]) -> Option<PathBuf> {
        let root = if self.root == b"/" { &b""[..] } else { &self.root };
        let below = path.strip_prefix(root)?;
        if !(below.is_empty() || below.starts_with(b"/")) {
            return None;
        }
        let mut directory = self.point.clone();
        for component in below.split(|b| *b == b'/').filter(|component| !component.is_empty()) {
            if component == b".." {
                return None;
            }
            directory.push(OsString::from_vec(component.to_vec()));
        }
        Some(directory)
    }
}

/// Spaces, tabs, newlines and backslashes are written as `\040` and the like.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        if let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] = rest {
            bytes.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
            rest = tail;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> PathBuf {
        PathBuf::from(text)
    }

    #[test]
    fn separate_v1_hierarchies_and_an_empty_v2_are_told_apart() {
        let found = parse(
            b"9:name=systemd:/\n8:pids:/\n6:freezer:/\n4:memory:/api/38d\n2:cpuacct:/\n1:cpu:/\n0::/\n",
            b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
              31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
              32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
              33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct\n\
              35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
              37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n\
              39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
              40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n\
              41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
        );
        assert_eq!(found.v1(Limit::Memory), Some(&*path("/sys/fs/cgroup/memory/api/38d")));
        assert_eq!(found.v1(Limit::Cpus), Some(&*path("/sys/fs/cgroup/cpu")));
        assert_eq!(found.v1(Limit::Pids), Some(&*path("/sys/fs/cgroup/pids")));
        assert_eq!(found.freezer, Some(path("/sys/fs/cgroup/freezer")));
        let unified = path("/sys/fs/cgroup/unified");
        assert_eq!(found.v2, Some(Unified { mount: unified.clone(), own: unified }));
    }

    #[test]
    fn controllers_that_share_a_hierarchy_share_the_group() {
        let found = parse(
            b"5:cpu,cpuacct:/user.slice\n",
            b"30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:12 - cgroup cgroup rw,cpu,cpuacct\n",
        );
        assert_eq!(found.v1(Limit::Cpus), Some(&*path("/sys/fs/cgroup/cpu,cpuacct/user.slice")));
        assert_eq!(found.v1(Limit::Memory), None);
        assert_eq!(found.v2, None);
    }

    #[test]
    fn a_pure_v2_host_has_one_group() {
        let found = parse(
            b"0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-u7.scope\n",
            b"25 22 0:22 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
        );
        assert!(found.v1.is_empty());
        let unified = found.v2.unwrap();
        assert_eq!(unified.mount, path("/sys/fs/cgroup"));
        assert!(unified.own.ends_with("app.slice/run-u7.scope"));
    }

    #[test]
    fn a_container_sees_only_its_own_part() {
        // Without a control group namespace the paths are the host's, and only a part of the
        // hierarchy is mounted.
        let mounts: &[u8] =
            b"700 690 0:26 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
            701 690 0:27 /docker/abc /sys/fs/cgroup/pids\\040x ro - cgroup cgroup rw,pids\n";
        let found = parse(b"4:memory:/docker/abc\n8:pids:/docker/abc/job:1\n", mounts);
        assert_eq!(found.v1(Limit::Memory), Some(&*path("/sys/fs/cgroup/memory")));
        assert_eq!(found.v1(Limit::Pids), Some(&*path("/sys/fs/cgroup/pids x/job:1")));
        // A group that is not in the mounted part cannot be reached.
        assert!(parse(b"4:memory:/docker/abcd\n8:pids:/\n", mounts).v1.is_empty());
        let outside = parse(b"0::/../sibling\n", b"25 22 0:22 / /cg rw - cgroup2 cgroup2 rw\n");
        assert_eq!(outside.v2, None);
    }

    #[test]
    fn nonsense_is_passed_over() {
        let found = parse(b"\n:\nx\n4:memory\n4:memory:/a\n", b"\n1 2 3\n- - - - - - -\n\xff\n");
        assert_eq!(found, Hierarchies::default());
    }
}
