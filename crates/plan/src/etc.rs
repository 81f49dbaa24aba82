//! The `/etc` of sandboxes that use the host's own programs: a copy of what the rule in [`rule`]
//! lets through, with the sandbox's own accounts and host names.
//!
//! A copy is made once for each state of the host's `/etc`, because a jail with one mount starts
//! faster than one with a mount for each file, and because what appears in the host's `/etc` later
//! must pass the rule first. What everybody may read on the host is readable inside.

mod rule;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, Rename};
use stockade_bundle::claim::{claim, try_lock};
use stockade_bundle::manifest::ContentHash;
use stockade_jail::{HostTree, Mount};

use self::rule::HostMarks;

/// The directory of the host.
const ETC: &str = "/etc";
/// The version of the format and of the rule.
const FORMAT: &[u8] = b"etc 2";
/// Larger files are left out.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// What lies deeper, or beyond that many entries, is left out.
const MAX_DEPTH: usize = 12;
const MAX_ENTRIES: usize = 50_000;
/// How many copies are kept: sandboxes differ by their accounts and their network.
const KEPT: usize = 8;
/// The prefix of the names of incomplete copies.
const UNFINISHED: &str = "new-";

/// The visible entries below `/etc`, each after its parent.
pub(crate) type Entries = BTreeMap<RelativePath, Entry>;

/// One visible entry, by its state on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A directory.
    Directory,
    /// A symbolic link.
    Link(Stamp),
    /// A file.
    File { stamp: Stamp, executable: bool },
    /// A file of the sandbox's own.
    Text(Vec<u8>),
}

/// What changes when the content of a file, or the target of a link, may have changed.
type Stamp = [u8; 40];

/// The visible entries of the host. Each sandbox reads them before it starts, so this reads no
/// file and no link.
pub(crate) fn entries() -> Entries {
    let mut found = Entries::new();
    if let Some(etc) = open_directory(rustix::fs::CWD, ETC) {
        walk(&etc, None, 0, &mut found);
    }
    found
}

/// Adds what is in one directory. What cannot be read is left out, as for every user.
fn walk(directory: &OwnedFd, path: Option<&RelativePath>, depth: usize, found: &mut Entries) {
    let Ok(listed) = rustix::fs::Dir::read_from(directory) else { return };
    for listed in listed.flatten() {
        let name = listed.file_name();
        if depth > MAX_DEPTH
            || found.len() > MAX_ENTRIES
            || !rule::is_visible(name.to_bytes(), depth == 0)
        {
            continue;
        }
        let joined = match path {
            Some(path) => path.join(name.to_bytes()),
            None => RelativePath::new(name.to_bytes()),
        };
        let Ok(joined) = joined else { continue };
        let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if stat.st_mode & 0o005 == 0o005 => {
                found.insert(joined.clone(), Entry::Directory);
                if let Some(below) = open_directory(directory, name) {
                    walk(&below, Some(&joined), depth + 1, found);
                }
            }
            FileType::Symlink => {
                found.insert(joined, Entry::Link(stamp(&stat)));
            }
            FileType::RegularFile
                if stat.st_mode & 0o004 != 0 && stat.st_size.unsigned_abs() <= MAX_FILE_BYTES =>
            {
                let executable = stat.st_mode & 0o001 != 0;
                found.insert(joined, Entry::File { stamp: stamp(&stat), executable });
            }
            _ => {}
        }
    }
}

fn open_directory(parent: impl std::os::fd::AsFd, name: impl rustix::path::Arg) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty()).ok()
}

fn stamp(stat: &rustix::fs::Stat) -> Stamp {
    let mut stamp = [0; 40];
    let values = [
        stat.st_ino,
        stat.st_size.unsigned_abs(),
        stat.st_mtime.unsigned_abs(),
        stat.st_ctime.unsigned_abs(),
        stat.st_ctime_nsec,
    ];
    for (part, value) in stamp.chunks_mut(8).zip(values) {
        part.copy_from_slice(&value.to_le_bytes());
    }
    stamp
}

/// The data of an entry that distinguishes it from every other one.
impl Entry {
    pub(crate) fn identity(&self) -> (u8, &[u8]) {
        match self {
            Self::Directory => (b'd', &[]),
            Self::Link(stamp) => (b'l', stamp),
            Self::File { stamp, executable: false } => (b'h', stamp),
            Self::File { stamp, executable: true } => (b'x', stamp),
            Self::Text(text) => (b't', text),
        }
    }
}

/// Writes entries below an empty directory, each after its parent. A file of the host that has
/// changed or that the rule refuses because of its content is left out.
pub(crate) fn write(dir: &Dir, entries: &Entries) -> io::Result<()> {
    let marks = HostMarks::of_host();
    for (path, entry) in entries {
        let on_host = Path::new(ETC).join(path.as_os_str());
        let (content, mode) = match entry {
            Entry::Directory => {
                dir.mkdir(path, 0o755)?;
                dir.chmod(path, 0o755)?;
                continue;
            }
            Entry::Link(_) => {
                if let Ok(target) = fs::read_link(&on_host)
                    && rule::is_visible_link(&target)
                {
                    dir.symlink(target.as_os_str().as_bytes(), path)?;
                }
                continue;
            }
            Entry::Text(text) => (text.clone(), 0o644),
            Entry::File { executable, .. } => {
                let Some(content) = read(&on_host) else { continue };
                if !marks.are_absent(&content) {
                    continue;
                }
                (content, if *executable { 0o755 } else { 0o644 })
            }
        };
        let mut file = dir.create_file(path, 0o600)?;
        file.write_all(&content)?;
        dir.chmod(path, mode)?;
    }
    Ok(())
}

/// The content of a regular file that everybody may still read.
fn read(path: &Path) -> Option<Vec<u8>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path);
    let file = file.ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o004 == 0 {
        return None;
    }
    let mut content = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut content).ok()?;
    Some(content)
}

/// Adds a sandbox's own files, which are given by their paths inside, and empty files where others
/// are mounted.
///
/// # Errors
/// A path below `/etc` that has a `..`.
pub(crate) fn add_own<'a>(
    entries: &mut Entries,
    own: impl IntoIterator<Item = (PathBuf, Mount)>,
    mount_points: impl IntoIterator<Item = &'a Path>,
) -> io::Result<()> {
    let mut put = |path: &Path, text: Vec<u8>| -> io::Result<()> {
        let Ok(below) = path.strip_prefix(ETC) else { return Ok(()) };
        let below = RelativePath::new(below.as_os_str().as_bytes()).map_err(io::Error::other)?;
        let mut parent = below.parent();
        while let Some(path) = parent {
            parent = path.parent();
            entries.entry(path).or_insert(Entry::Directory);
        }
        entries.insert(below, Entry::Text(text));
        Ok(())
    };
    for point in mount_points {
        put(point, Vec::new())?;
    }
    for (path, mount) in own {
        if let Mount::File(text) = mount {
            put(&path, text)?;
        }
    }
    Ok(())
}

/// A complete copy, which is not removed as long as the lock is open.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) tree: HostTree,
    pub(crate) lock: OwnedFd,
}

/// The copy with these entries. If it is missing, it is made in `directory`, completely or not at
/// all, and copies that were not used for long are removed.
pub(crate) fn ensure(directory: &Path, entries: &Entries) -> io::Result<Copy> {
    let name = RelativePath::new(&digest(entries)[..32]).map_err(io::Error::other)?;
    let copies = Dir::open(directory)?;
    for _ in 0..KEPT {
        match copies.open_dir(&name) {
            Err(error) if error.errno() == Some(Errno::NOENT) => make(&copies, &name, entries)?,
            Err(error) => return Err(error.into()),
            Ok(dir) => {
                let lock = dir.as_fd().try_clone_to_owned()?;
                rustix::fs::flock(&lock, FlockOperation::LockShared)?;
                let inode = dir.stat_self()?.inode;
                // It may have been removed before it was locked.
                if copies.stat(&name)?.is_some_and(|there| there.inode == inode) {
                    let tree = HostTree::open(&directory.join(name.as_os_str()))?;
                    return Ok(Copy { tree, lock });
                }
            }
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

fn digest(entries: &Entries) -> String {
    let mut bytes = FORMAT.to_vec();
    for (path, entry) in entries {
        let (kind, data) = entry.identity();
        bytes.push(kind);
        for part in [path.as_bytes(), data] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
    }
    ContentHash::of(&bytes).to_hex()
}

fn make(copies: &Dir, name: &RelativePath, entries: &Entries) -> io::Result<()> {
    sweep(copies)?;
    let (unfinished, dir) = claim(copies, UNFINISHED)?;
    let made = write(&dir, entries).and_then(|()| {
        copies.chmod(&unfinished, 0o755)?;
        match copies.rename(&unfinished, copies, name, Rename::NoReplace) {
            // Another process was faster, and made the same.
            Err(error) if error.errno() == Some(Errno::EXIST) => {
                Ok(copies.remove_tree(&unfinished)?)
            }
            other => Ok(other?),
        }
    });
    if made.is_err() {
        // The first error is returned; the next maker sweeps.
        let _ = copies.remove_tree(&unfinished);
    }
    made
}

/// Removes what killed makers left, and the oldest copies that no jail uses.
fn sweep(copies: &Dir) -> io::Result<()> {
    let mut complete = Vec::new();
    for (name, _) in copies.entries()? {
        let is_unfinished = name.starts_with(UNFINISHED.as_bytes());
        let name = RelativePath::new(name).map_err(io::Error::other)?;
        let Some(stat) = copies.stat(&name)? else { continue };
        complete.push((!is_unfinished, stat.changed, name));
    }
    complete.sort_by_key(|copy| (copy.0, copy.1));
    let surplus = complete.iter().filter(|copy| copy.0).count().saturating_sub(KEPT - 1);
    let unfinished = complete.iter().filter(|copy| !copy.0).count();
    for (_, _, name) in complete.into_iter().take(unfinished + surplus) {
        let Ok(dir) = copies.open_dir(&name) else { continue };
        if try_lock(&dir)? {
            copies.remove_tree(&name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_what_links_of_programs_lead_to_and_no_secret() {
        let directory = tempfile::tempdir().unwrap();
        let mut shown = entries();
        let own = [(PathBuf::from("/etc/passwd"), Mount::File(b"user:x:1:1\n".to_vec()))];
        add_own(&mut shown, own, [Path::new("/etc/stockade/authorities.pem")]).unwrap();
        let copy = ensure(directory.path(), &shown).unwrap();
        let at = |name: &str| copy.tree.path.join(name);
        assert_eq!(fs::read_to_string(at("passwd")).unwrap(), "user:x:1:1\n");
        assert_eq!(fs::metadata(at("stockade/authorities.pem")).unwrap().len(), 0);
        for secret in ["shadow", "machine-id", "ssh", "hosts", "sudoers"] {
            assert!(!at(secret).exists(), "{secret}");
        }
        for (path, entry) in &shown {
            if let Entry::File { .. } = entry {
                let mode = fs::metadata(Path::new(ETC).join(path.as_os_str()))
                    .unwrap()
                    .permissions()
                    .mode();
                assert_eq!(mode & 0o004, 0o004, "{path:?}");
            }
        }
        // The same state has the same copy, and another one another.
        let again = ensure(directory.path(), &shown).unwrap();
        assert_eq!(again.tree.path, copy.tree.path);
        shown.insert(RelativePath::literal("more"), Entry::Text(Vec::new()));
        assert_ne!(ensure(directory.path(), &shown).unwrap().tree.path, copy.tree.path);
    }

    #[test]
    fn a_changed_file_and_a_changed_link_are_another_state() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let state = || {
            let mut found = Entries::new();
            walk(&open_directory(rustix::fs::CWD, directory.path()).unwrap(), None, 0, &mut found);
            found
        };
        fs::create_dir(at("below")).unwrap();
        fs::write(at("below/file"), "one").unwrap();
        std::os::unix::fs::symlink("one", at("link")).unwrap();
        let first = state();
        assert_eq!(first.len(), 3, "{first:?}");
        assert_eq!(state(), first);
        fs::write(at("below/file"), "four").unwrap();
        let second = state();
        assert_ne!(second, first);
        std::os::unix::fs::symlink("two", at("new")).unwrap();
        fs::rename(at("new"), at("link")).unwrap();
        assert_ne!(state(), second);
    }

    #[test]
    fn a_copy_in_use_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let made = |number: usize| {
            let text = Entry::Text(number.to_string().into_bytes());
            ensure(directory.path(), &Entries::from([(RelativePath::literal("number"), text)]))
                .unwrap()
        };
        let used = made(0);
        for number in 1..3 * KEPT {
            drop(made(number));
        }
        assert_eq!(fs::read_to_string(used.tree.path.join("number")).unwrap(), "0");
        assert!(fs::read_dir(directory.path()).unwrap().count() <= KEPT + 1);
    }
}
