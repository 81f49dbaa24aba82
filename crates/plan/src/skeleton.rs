//! The lower layer of sandboxes that use the host's own programs: a small directory with the mount
//! points of everything that is mounted above it, the links and small files that the host has
//! there, the programs of `expected_programs`, and directories for the ordinary user.
//!
//! Its name is the hash of its content. An updated host gets another one, and sandboxes that
//! started with an old one keep it. Its content is the host's and may be read by everybody inside;
//! nothing of a sandbox is ever written here.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind, Rename, Stat};
use stockade_bundle::claim::{claim, try_lock};
use stockade_bundle::manifest::ContentHash;
use stockade_jail::system::{self, Account};
use stockade_jail::{Mount, Source};

use crate::{etc, expected_programs};

/// The version of the format, which distinguishes the skeletons of different builds of this
/// program.
const FORMAT: &[u8] = b"skeleton 4";
/// Where git finds what it needs of the user's configuration, as `GIT_CONFIG_SYSTEM`.
pub const GIT_CONFIGURATION: &str = "/etc/gitconfig";
/// The prefix of the names of incomplete skeletons.
pub const UNFINISHED: &str = "new-";

/// An existing, complete skeleton, and the mounts above it.
#[derive(Debug)]
pub struct Skeleton {
    path: PathBuf,
    mounts: Vec<(PathBuf, Mount)>,
}

impl Skeleton {
    /// The directory. Its file owners are the ids inside, counted from 0 as root, or the caller's
    /// own otherwise.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The read-only mounts above it: the host's programs and configuration, except for the links
    /// and files that it contains already. It has a mount point for each.
    pub fn mounts(self) -> Vec<(PathBuf, Mount)> {
        self.mounts
    }
}

/// The skeleton for the current state of the host. If it is missing, it is made in `directory`,
/// completely or not at all. `account` is the ordinary user.
///
/// # Errors
/// The error of reading the host's system directories or of writing to `directory`.
pub fn ensure(directory: &Path, account: &Account, hostname: &str) -> io::Result<Skeleton> {
    let mut items = base_items(account);
    let mut mounts = Vec::new();
    let mut shown = etc::entries();
    let mut own = system::identity_files(account, hostname);
    own.push(system::local_name_services());
    let programs = expected_programs::files();
    if !programs.is_empty() {
        let (path, text) = expected_programs::PROFILE;
        own.push((path.into(), Mount::File(text.as_bytes().to_vec())));
    }
    items.extend(programs.into_iter().map(|(path, text)| (path, Item::Program(text))));
    // If there is a resolver, a file that names it is mounted there; with a workspace, a
    // configuration of git.
    etc::add_own(&mut shown, own, ["/etc/resolv.conf", GIT_CONFIGURATION].map(Path::new))?;
    for (path, mount) in system::programs()? {
        items.insert(path.clone(), Item::new(&mount)?);
        if matches!(mount, Mount::Tree(_)) {
            mounts.push((path, mount));
        }
    }
    add_parents(&mut items);
    let name =
        RelativePath::new(&digest(&items, &shown, account)[..32]).map_err(io::Error::other)?;
    let skeletons = Dir::open(directory)?;
    if skeletons.stat(&name)?.is_none() {
        make(&skeletons, &name, (&items, &shown), account)?;
    }
    Ok(Skeleton { path: directory.join(name.as_os_str()), mounts })
}

/// One node of a skeleton.
#[derive(Debug, PartialEq, Eq)]
enum Item {
    /// A directory of the inside root, with this mode.
    Directory(u32),
    /// A directory of the ordinary user.
    UserDirectory,
    /// A file that everybody may read.
    File(Vec<u8>),
    /// A file that everybody may read and execute.
    Program(Vec<u8>),
    /// The mount point of a file.
    MountPoint,
    /// A link.
    Link(Vec<u8>),
}

impl Item {
    fn new(mount: &Mount) -> io::Result<Self> {
        Ok(match mount {
            Mount::Tree(Source::Host { tree, .. }) => match Stat::of(&tree.file)?.kind {
                FileKind::Directory => Self::Directory(0o755),
                _ => Self::MountPoint,
            },
            Mount::Tree(_) | Mount::Scratch(_) | Mount::Directory | Mount::Optional(_) => {
                Self::Directory(0o755)
            }
            Mount::File(content) => Self::File(content.clone()),
            Mount::Link(to) => Self::Link(to.as_os_str().as_bytes().to_vec()),
        })
    }

    /// The data that distinguishes it from every other one.
    fn identity(&self) -> (u8, u32, &[u8]) {
        match self {
            Self::Directory(mode) => (b'd', *mode, &[]),
            Self::UserDirectory => (b'u', 0, &[]),
            Self::File(content) => (b'f', 0, content),
            Self::Program(content) => (b'x', 0, content),
            Self::MountPoint => (b'p', 0, &[]),
            Self::Link(to) => (b'l', 0, to),
        }
    }
}

/// The content of every skeleton that is not the host's.
fn base_items(account: &Account) -> BTreeMap<PathBuf, Item> {
    let mut items = BTreeMap::new();
    for place in ["/dev", "/proc", "/run", "/sys"] {
        items.insert(place.into(), Item::Directory(0o755));
    }
    items.insert("/root".into(), Item::Directory(0o700));
    items.insert("/etc".into(), Item::Directory(0o755));
    items.insert("/tmp".into(), Item::Directory(0o1777));
    items.insert("/var/tmp".into(), Item::Link(b"/tmp".to_vec()));
    items.insert("/work".into(), Item::UserDirectory);
    items.insert(account.home.clone(), Item::UserDirectory);
    items
}

/// Adds missing parent directories. The map's order puts each before its content.
fn add_parents(items: &mut BTreeMap<PathBuf, Item>) {
    let paths: Vec<PathBuf> = items.keys().cloned().collect();
    for parent in paths.iter().flat_map(|path| path.ancestors().skip(1)) {
        if parent != Path::new("/") {
            items.entry(parent.to_owned()).or_insert(Item::Directory(0o755));
        }
    }
}

/// A hash of everything that determines the content.
fn digest(items: &BTreeMap<PathBuf, Item>, shown: &etc::Entries, account: &Account) -> String {
    let mut bytes = FORMAT.to_vec();
    for id in [account.user, account.group] {
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    for (path, item) in items {
        let (kind, mode, content) = item.identity();
        bytes.push(kind);
        bytes.extend_from_slice(&mode.to_le_bytes());
        for part in [path.as_os_str().as_bytes(), content] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
    }
    for (path, entry) in shown {
        let (kind, content) = entry.identity();
        bytes.push(kind);
        for part in [path.as_bytes(), content] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part);
        }
    }
    ContentHash::of(&bytes).to_hex()
}

/// Makes a skeleton under a temporary name, and renames it.
fn make(
    skeletons: &Dir,
    name: &RelativePath,
    (items, shown): (&BTreeMap<PathBuf, Item>, &etc::Entries),
    account: &Account,
) -> io::Result<()> {
    sweep(skeletons)?;
    let (unfinished, dir) = claim(skeletons, UNFINISHED)?;
    let etc = RelativePath::new("etc").map_err(io::Error::other)?;
    let made = fill(&dir, items, account).and_then(|()| etc::write(&dir.open_dir(&etc)?, shown));
    let made = made.and_then(|()| {
        // Every user inside may create files in the root, and remove their own.
        skeletons.chmod(&unfinished, 0o1777)?;
        dir.sync_file_system()?;
        match skeletons.rename(&unfinished, skeletons, name, Rename::NoReplace) {
            // Another process was faster, and made the same.
            Err(error) if error.errno() == Some(Errno::EXIST) => {
                Ok(skeletons.remove_tree(&unfinished)?)
            }
            other => Ok(other?),
        }
    });
    if made.is_err() {
        // The first error is returned; the next maker sweeps.
        let _ = skeletons.remove_tree(&unfinished);
    }
    made
}

/// Removes what killed makers left.
fn sweep(skeletons: &Dir) -> io::Result<()> {
    for (name, _) in skeletons.entries()? {
        if !name.starts_with(UNFINISHED.as_bytes()) {
            continue;
        }
        let name = RelativePath::new(name).map_err(io::Error::other)?;
        // Skips a directory that no longer exists, or on which its maker still works.
        let Ok(dir) = skeletons.open_dir(&name) else { continue };
        if !try_lock(&dir)? {
            continue;
        }
        // Its maker may have renamed it, and another maker may have reused the name.
        let inode = dir.stat_self()?.inode;
        if skeletons.stat(&name)?.is_some_and(|there| there.inode == inode) {
            skeletons.remove_tree(&name)?;
        }
    }
    Ok(())
}

fn fill(dir: &Dir, items: &BTreeMap<PathBuf, Item>, account: &Account) -> io::Result<()> {
    for (path, item) in items {
        let below = path.strip_prefix("/").unwrap_or(path);
        let path = RelativePath::new(below.as_os_str().as_bytes()).map_err(io::Error::other)?;
        match item {
            Item::Directory(mode) => {
                dir.mkdir(&path, 0o700)?;
                dir.chmod(&path, *mode)?;
            }
            Item::UserDirectory => {
                dir.mkdir(&path, 0o700)?;
                dir.chmod(&path, 0o755)?;
                if rustix::process::geteuid().is_root() {
                    dir.chown(&path, account.user, account.group)?;
                }
            }
            Item::File(content) => write(dir, &path, content, 0o644)?,
            Item::Program(content) => write(dir, &path, content, 0o755)?,
            Item::MountPoint => drop(dir.create_file(&path, 0o444)?),
            Item::Link(to) => dir.symlink(to, &path)?,
        }
    }
    Ok(())
}

fn write(dir: &Dir, path: &RelativePath, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = dir.create_file(path, 0o600)?;
    io::Write::write_all(&mut file, content)?;
    Ok(dir.chmod(path, mode)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn account() -> Account {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let (user, group) =
            if user.is_root() { (1000, 1000) } else { (user.as_raw(), group.as_raw()) };
        Account { name: "user".into(), user, group, home: "/home/user".into() }
    }

    fn ensure_in(directory: &Path) -> Skeleton {
        ensure(directory, &account(), "stockade").unwrap()
    }

    #[test]
    fn it_has_what_a_system_needs() {
        let dir = tempfile::tempdir().unwrap();
        let skeleton = ensure_in(dir.path());
        let stat = |path: &str| fs::symlink_metadata(skeleton.path().join(path)).unwrap();
        let mode = |path: &str| stat(path).mode() & 0o7777;
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(
            (mode(""), mode("tmp"), mode("root"), mode("etc")),
            (0o1777, 0o1777, 0o700, 0o755)
        );
        for path in ["home/user", "work"] {
            let owner = (stat(path).uid(), stat(path).gid());
            assert_eq!((owner, mode(path)), ((account().user, account().group), 0o755));
        }
        for path in ["dev", "proc", "sys", "run", "home", "usr"] {
            assert_eq!((stat(path).uid(), stat(path).is_dir()), (own, true), "{path}");
        }
        let link = fs::read_link(skeleton.path().join("var/tmp")).unwrap();
        assert_eq!(link, Path::new("/tmp"));
        for (name, line) in
            [("passwd", "user:x:"), ("hosts", "stockade"), ("nsswitch.conf", "hosts:")]
        {
            let text = fs::read_to_string(skeleton.path().join("etc").join(name)).unwrap();
            assert!(text.contains(line), "{text}");
        }
        if Path::new("/usr/bin/python3").exists() {
            let bin = "opt/stockade/bin";
            assert_eq!((stat(bin).uid(), mode(bin)), (own, 0o755));
            assert_eq!(
                (stat("opt/stockade/bin/sudo").uid(), mode("opt/stockade/bin/sudo")),
                (own, 0o755)
            );
            assert_eq!(mode("etc/profile.d/stockade.sh"), 0o644);
        }
        if let Ok(link) = fs::read_link("/bin") {
            assert_eq!(fs::read_link(skeleton.path().join("bin")).unwrap(), link);
        }
    }

    #[test]
    fn everything_that_is_mounted_has_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let skeleton = ensure_in(dir.path());
        let path = skeleton.path().to_owned();
        let mounts = skeleton.mounts();
        assert!(mounts.iter().any(|(inside, _)| inside == Path::new("/usr")));
        for (inside, mount) in mounts {
            let Mount::Tree(Source::Host { tree, .. }) = mount else { panic!("{mount:?}") };
            let there = fs::symlink_metadata(path.join(inside.strip_prefix("/").unwrap())).unwrap();
            let directory = Stat::of(&tree.file).unwrap().kind == FileKind::Directory;
            assert_eq!((there.is_dir(), there.is_file()), (directory, !directory), "{inside:?}");
        }
    }

    #[test]
    fn it_is_made_once_for_each_content() {
        let dir = tempfile::tempdir().unwrap();
        let first = ensure_in(dir.path()).path;
        fs::write(first.join("mark"), "").unwrap();
        assert_eq!(ensure_in(dir.path()).path, first);
        assert!(first.join("mark").exists());
        let other = ensure(dir.path(), &account(), "other").unwrap().path;
        assert!(other != first && first.join("mark").exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn many_makers_make_one_and_leave_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let abandoned = dir.path().join("new-1-0");
        fs::create_dir_all(abandoned.join("etc")).unwrap();
        for _ in 0..5 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| ensure_in(dir.path()));
                }
            });
            let entries: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
            assert_eq!(entries.len(), 1);
            fs::remove_dir_all(entries.into_iter().next().unwrap().unwrap().path()).unwrap();
        }
    }

    #[test]
    fn a_difference_anywhere_is_another_skeleton() {
        let items = |item| BTreeMap::from([(PathBuf::from("/a"), item)]);
        let kinds = [
            Item::Directory(0o755),
            Item::Directory(0o700),
            Item::UserDirectory,
            Item::MountPoint,
            Item::File(Vec::new()),
            Item::File(b"x".to_vec()),
            Item::Program(b"x".to_vec()),
            Item::Link(b"x".to_vec()),
        ];
        let digests: Vec<_> = kinds
            .into_iter()
            .map(|item| digest(&items(item), &BTreeMap::new(), &account()))
            .collect();
        let mut different = digests.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), digests.len());
        let renamed = Account { user: 7, ..account() };
        assert_ne!(digest(&items(Item::UserDirectory), &BTreeMap::new(), &renamed), digests[2]);
    }
}
