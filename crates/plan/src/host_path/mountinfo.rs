//! The mounts of this process (`proc_pid_mountinfo(5)`), and the position of a path in its file
//! system.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// The file that lists the mounts.
pub(super) const PATH: &str = "/proc/self/mountinfo";

/// Every mount that this process can see.
#[derive(Debug)]
pub(super) struct MountTable(Vec<Mount>);

/// One mount.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    id: u64,
    /// The part of the file system that is mounted.
    source: Location,
    /// The mount point.
    point: PathBuf,
}

/// A position in a file system, independent of mount points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    /// `major:minor` of the file system.
    device: String,
    /// The path from its root.
    path: PathBuf,
}

impl Location {
    /// Whether one of the two is, or contains, the other.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.device == other.device
            && (self.path.starts_with(&other.path) || other.path.starts_with(&self.path))
    }
}

impl MountTable {
    pub(super) fn read() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read(PATH)?))
    }

    fn parse(text: &[u8]) -> Self {
        Self(text.split(|byte| *byte == b'\n').filter_map(Mount::parse).collect())
    }

    /// The position of a path without links, which lies on the mount with this id.
    pub(super) fn locate(&self, mount_id: u64, real: &Path) -> Option<Location> {
        let mount = self.0.iter().find(|mount| mount.id == mount_id)?;
        let below = real.strip_prefix(&mount.point).ok()?;
        Some(mount.source.join(below))
    }

    /// The sources of the mounts below a path without links.
    pub(super) fn below(&self, real: &Path) -> impl Iterator<Item = &Location> {
        let is_below = move |mount: &&Mount| mount.point != real && mount.point.starts_with(real);
        self.0.iter().filter(is_below).map(|mount| &mount.source)
    }
}

impl Location {
    fn join(&self, below: &Path) -> Self {
        // `join` of an empty path would append a slash.
        let path = self.path.components().chain(below.components()).collect();
        Self { device: self.device.clone(), path }
    }
}

impl Mount {
    /// Reads `ID PARENT MAJOR:MINOR ROOT POINT …`.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let device = std::str::from_utf8(fields.nth(1)?).ok()?.to_owned();
        let path = unescaped(fields.next()?);
        let point = unescaped(fields.next()?);
        Some(Self { id, source: Location { device, path }, point })
    }
}

/// Decodes a path in which the kernel has written space, tab, newline and backslash as octal
/// numbers.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A home directory on a separate disk, a bind mount of a part of it, one of a part of that
    /// below a project, and another disk.
    const TABLE: &[u8] = b"\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
30 22 254:16 / /home rw shared:1 - ext4 /dev/vdb rw\n\
31 22 254:16 /ann/.local /srv/ann\\040local rw - ext4 /dev/vdb rw\n\
32 22 254:16 /ann/.local/share/stockade/journals /srv/w/p/j rw - ext4 /dev/vdb rw\n\
33 22 0:40 / /srv/w/p/tmp rw - tmpfs tmpfs rw\n";

    fn location(path: &str) -> Location {
        Location { device: "254:16".to_owned(), path: path.into() }
    }

    #[test]
    fn a_path_has_one_place_under_all_its_names() {
        let table = MountTable::parse(TABLE);
        let data = location("/ann/.local/share/stockade");
        let by_home = table.locate(30, Path::new("/home/ann/.local/share/stockade"));
        let by_bind = table.locate(31, Path::new("/srv/ann local/share/stockade"));
        assert_eq!((by_home.as_ref(), by_bind.as_ref()), (Some(&data), Some(&data)));
        assert!(table.locate(31, Path::new("/srv/ann local")).unwrap().overlaps(&data));
        assert!(table.locate(32, Path::new("/srv/w/p/j")).unwrap().overlaps(&data));
        assert!(!table.locate(30, Path::new("/home/bob")).unwrap().overlaps(&data));
        assert!(!table.locate(22, Path::new("/ann/.local")).unwrap().overlaps(&data));
        assert_eq!(table.locate(99, Path::new("/home")), None);
    }

    #[test]
    fn what_is_mounted_in_a_tree_is_found() {
        let table = MountTable::parse(TABLE);
        let below: Vec<_> = table.below(Path::new("/srv/w")).collect();
        assert_eq!(below.len(), 2);
        assert!(below[0].overlaps(&location("/ann/.local/share/stockade")));
        assert_eq!(table.below(Path::new("/srv/w/p/tmp")).count(), 0);
        assert_eq!(table.below(Path::new("/sr")).count(), 0);
    }

    #[test]
    fn escaped_bytes_are_read_back() {
        assert_eq!(unescaped(b"/a\\040b\\134\\011c"), Path::new("/a b\\\tc"));
        assert_eq!(unescaped(b"/a\\9zz\\"), Path::new("/a\\9zz\\"));
    }
}
