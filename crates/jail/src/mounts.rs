//! The jail's file system, in two phases: `gather` opens everything while the host's root is still
//! mounted; `Assembly::attach` mounts it once that root is unmounted, so that no path resolved
//! there can lead out.

use std::cell::Cell;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, unlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
    fsopen, mount_change, move_mount, open_tree, unmount,
};

use crate::attach::{LAYERS_DIR, attach_mount};
use crate::nodes::{make_directory, make_link, new_file, parent_and_name, touch};
use crate::optional_mount::{self, Owner};
use crate::spec::{Access, HostTree, Mount, OptionalMount, Overlay, Owners, Scratch, Source};
use crate::walls::Wall;
use crate::{read_only, sys};

/// A failed step, and the wall that it belongs to.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) wall: Wall,
    pub(crate) step: String,
    pub(crate) errno: i32,
}

/// Names the step of a kernel call that failed.
pub(crate) trait At<T> {
    fn at(self, wall: Wall, step: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, wall: Wall, step: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|e| {
            let error: io::Error = e.into();
            Failure { wall, step: step(), errno: error.raw_os_error().unwrap_or(libc::EIO) }
        })
    }
}

/// All parts of the jail's file system, opened but not attached yet.
#[derive(Debug)]
pub(crate) struct Assembly {
    /// `None` until another process has made it.
    root: Option<Prepared>,
    root_writable: bool,
    mounts: Vec<(MountPoint, Content)>,
    /// The upper layer in memory, where there is one.
    pub(crate) upper: Option<OwnedFd>,
}

#[derive(Debug)]
enum Prepared {
    Mount(OwnedFd),
    /// An overlay that is not made yet, with `upper` and `work` in `view`.
    Layers {
        /// The lower layers, the topmost first.
        lower: Vec<OwnedFd>,
        view: OwnedFd,
        synced: bool,
    },
    /// A read-only overlay that is not made yet, over the tree of this path.
    ReadOnly {
        tree: OwnedFd,
        empty: OwnedFd,
        path: PathBuf,
    },
}

/// A mount point, and whether its file or directory exists already: then only directories lead to
/// it.
#[derive(Debug)]
struct MountPoint {
    path: PathBuf,
    exists: bool,
}

#[derive(Debug)]
enum Content {
    Prepared(Prepared),
    Scratch(Scratch),
    File(Vec<u8>),
    Link(PathBuf),
    Directory,
    Optional { prepared: Prepared, below: PathBuf, owner: Owner },
}

/// How the owners of a tree are mapped where the jail has a range of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// Not at all: it belongs to the range already.
    None,
    /// Users and groups, through the jail's user namespace.
    Owners,
    /// Users only: see [`read_only`].
    UsersOnly,
}

/// What the outer process makes and sends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sent<'a> {
    /// A clone of a tree.
    Tree(&'a HostTree, Mapping),
    /// An overlay of the host, made of clones.
    View(&'a Overlay, &'a HostTree),
}

impl Sent<'_> {
    /// The path to name in errors.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Tree(tree, _) => &tree.path,
            Self::View(overlay, _) => &overlay.lower.path,
        }
    }
}

/// What the outer process must make and send, in the order in which it is gathered: trees whose owners
/// are mapped, those below directories that only the caller may search, and overlays of the host.
pub(crate) fn trees_to_send<'a>(
    root: &'a Source,
    mounts: &'a [(PathBuf, Mount)],
) -> impl Iterator<Item = Sent<'a>> {
    let sources = mounts.iter().filter_map(|(_, mount)| match mount {
        Mount::Tree(source) | Mount::Optional(OptionalMount { source, .. }) => Some(source),
        _ => None,
    });
    std::iter::once(root).chain(sources).flat_map(|source| match source {
        Source::Empty => Vec::new(),
        Source::Host { tree, owners, .. } => {
            let mapping = match owners {
                Owners::Nobody => None,
                Owners::OnDisk => Some(Mapping::Owners),
                Owners::Range => Some(Mapping::None),
            };
            mapping.map(|mapping| Sent::Tree(tree, mapping)).into_iter().collect()
        }
        Source::ReadOnly(tree) => vec![Sent::Tree(tree, Mapping::UsersOnly)],
        Source::Layer(tree) => vec![Sent::Tree(tree, Mapping::None)],
        Source::Overlay(overlay) => match &overlay.view {
            Some(view) if overlay.records_renames => vec![Sent::View(overlay, view)],
            view => {
                let lower = std::iter::once(&overlay.lower).chain(&overlay.below);
                let lower = lower.map(|tree| Sent::Tree(tree, Mapping::Owners));
                lower.chain(view.as_ref().map(|tree| Sent::Tree(tree, Mapping::None))).collect()
            }
        },
    })
}

/// Opens every source. `handed` are the trees of [`trees_to_send`] if the outer process has cloned
/// them; otherwise this process clones them itself. `landlock_targets` tells for each mount whether its mount
/// point exists as soon as the root does. Without a root, one follows ([`Assembly::set_root`]).
pub(crate) fn gather(
    root: Option<Source>,
    root_writable: bool,
    mounts: Vec<(PathBuf, Mount)>,
    mount_points: Vec<bool>,
    trees: Option<Vec<OwnedFd>>,
) -> Result<Assembly, Failure> {
    let is_mapped = trees.is_some();
    let mut trees = trees.map(Vec::into_iter);
    let mut tree = |tree: &HostTree, handed_in: bool| match &mut trees {
        Some(trees) if handed_in => {
            trees.next().ok_or(Errno::BADF).at(Wall::View, || "receive the mapped trees".to_owned())
        }
        _ => clone_tree(tree),
    };
    let upper = Cell::new(None);
    let mut source = |source: Source| match source {
        Source::Empty => new_tmpfs(0o755, 16 << 20, &[], MountAttrFlags::empty())
            .map(Prepared::Mount)
            .at(Wall::Root, || "make an empty root".to_owned()),
        Source::Host { tree: host, access, owners } => {
            let mount = tree(&host, owners != Owners::Nobody)?;
            let mut set = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
            if access == Access::Read {
                set |= libc::MOUNT_ATTR_RDONLY;
            }
            sys::mount_setattr(mount.as_fd(), true, set, None)
                .at(Wall::Root, || format!("restrict the mount of {}", host.path.display()))?;
            Ok(Prepared::Mount(mount))
        }
        Source::ReadOnly(host) => {
            let mount = make_read_only(tree(&host, true)?, &host)?;
            if is_mapped { Ok(Prepared::Mount(mount)) } else { layer(mount, host) }
        }
        Source::Layer(host) => layer(make_read_only(tree(&host, true)?, &host)?, host),
        Source::Overlay(Overlay { lower, below, view, size_bytes, synced, records_renames }) => {
            if records_renames && view.is_some() {
                if !is_mapped {
                    return Err(Errno::INVAL).at(Wall::View, || "receive the view".to_owned());
                }
                // The outer process has made the overlay.
                return Ok(Prepared::Mount(tree(&lower, true)?));
            }
            let all = std::iter::once(&lower).chain(&below);
            let lower = all.map(|layer| tree(layer, true)).collect::<Result<Vec<_>, _>>()?;
            match view {
                Some(view) => Ok(Prepared::Layers { lower, view: tree(&view, true)?, synced }),
                None => {
                    let (memory, layer) = layers_in_memory(&lower[0], size_bytes)?;
                    upper.set(Some(layer));
                    Ok(Prepared::Layers { lower, view: memory, synced })
                }
            }
        }
    };
    let root = root.map(&mut source).transpose()?;
    // A root's own upper layer is only for mount points, so it contains no changes of interest.
    upper.set(None);
    let mut entries = Vec::with_capacity(mounts.len());
    let mount_points = mount_points.into_iter().chain(std::iter::repeat(false));
    for ((path, mount), is_there) in mounts.into_iter().zip(mount_points) {
        let content = match mount {
            Mount::Tree(tree) => Content::Prepared(source(tree)?),
            Mount::Scratch(scratch) => Content::Scratch(scratch),
            Mount::File(content) => Content::File(content),
            Mount::Link(to) => Content::Link(to),
            Mount::Directory => Content::Directory,
            Mount::Optional(OptionalMount { source: tree, below, user, group }) => {
                let owner = Owner { user, group };
                Content::Optional { prepared: source(tree)?, below, owner }
            }
        };
        entries.push((MountPoint { path, exists: is_there }, content));
    }
    Ok(Assembly { root, root_writable, mounts: entries, upper: upper.into_inner() })
}

/// Clones a tree in this process's own mount namespace. The path is resolved again, because mounts
/// of another namespace cannot be cloned; it must still lead to what the caller opened.
///
/// The mounts below it are cloned too: the kernel refuses a clone without them, because they could
/// cover something (`mount_namespaces(7)`, "locked").
fn clone_tree(tree: &HostTree) -> Result<OwnedFd, Failure> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let step = || format!("clone the tree {}", tree.path.display());
    let clone = open_tree(CWD, &tree.path, flags).at(Wall::Root, step)?;
    let (seen, wanted) = (
        rustix::fs::fstat(&clone).at(Wall::Root, step)?,
        rustix::fs::fstat(&tree.file).at(Wall::Root, step)?,
    );
    if (seen.st_dev, seen.st_ino) != (wanted.st_dev, wanted.st_ino) {
        return Err(Errno::STALE).at(Wall::Root, step);
    }
    Ok(clone)
}

/// Clones a tree for a jail whose owners are mapped through its user namespace.
pub(crate) fn clone_mapped(
    tree: &HostTree,
    user_namespace: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let clone = open_tree(
        &tree.file,
        "",
        OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH,
    )?;
    if user_namespace.is_some() {
        sys::mount_setattr(clone.as_fd(), false, 0, user_namespace)?;
    }
    Ok(clone)
}

/// Makes every mount of this namespace private: no mount event passes to or from the host's
/// namespace.
pub(crate) fn separate() -> Result<(), Failure> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .at(Wall::Root, || "make the mounts private".to_owned())
}

/// Makes a mount of a tree read-only.
fn make_read_only(mount: OwnedFd, host: &HostTree) -> Result<OwnedFd, Failure> {
    let set = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_RDONLY;
    sys::mount_setattr(mount.as_fd(), true, set, None)
        .at(Wall::Root, || format!("restrict the mount of {}", host.path.display()))?;
    Ok(mount)
}

/// A read-only overlay over the mount of a tree.
fn layer(mount: OwnedFd, host: HostTree) -> Result<Prepared, Failure> {
    let empty = new_tmpfs(0o755, 1 << 16, &[], MountAttrFlags::empty());
    let empty = empty.at(Wall::Root, || format!("make a layer beside {}", host.path.display()))?;
    Ok(Prepared::ReadOnly { tree: mount, empty, path: host.path })
}

/// A detached overlay over the layers in `lower`, with `upper` and `work` in `view`.
///
/// An overlay accepts only attached layers. They cover a directory of the host, so they are
/// unmounted with its root, and after this call nothing of the host can be cloned any more. (If
/// they were stacked on the root itself, they would remain and be reachable at `/..`.) They are
/// named by file descriptor, so the overlay's mount options reveal nothing about the host.
fn overlay(lower: &[OwnedFd], view: &OwnedFd, synced: bool) -> Result<OwnedFd, Failure> {
    for layer in lower.iter().chain([view]) {
        attach_mount(layer, Path::new(LAYERS_DIR))
            .at(Wall::View, || "attach a layer".to_owned())?;
    }
    let view = view.as_raw_fd();
    let lower: Vec<_> =
        lower.iter().map(|layer| format!("/proc/self/fd/{}", layer.as_raw_fd())).collect();
    new_overlay(
        &lower,
        &format!("/proc/self/fd/{view}/upper"),
        &format!("/proc/self/fd/{view}/work"),
        (synced, false),
    )
    .at(Wall::View, || "mount the overlay".to_owned())
}

/// See the kernel's `filesystems/overlayfs.rst`: an unprivileged mount requires `userxattr`, which
/// turns `redirect_dir` and `metacopy` off. One that records renames is not unprivileged. With `index`
/// off too, the upper layer alone shows what changed, and it may belong to an overlay that is just being
/// unmounted. `volatile` is the opposite of `synced`.
pub(crate) fn new_overlay(
    lower: &[String],
    upper: &str,
    work: &str,
    (synced, records_renames): (bool, bool),
) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", "view")?;
    match lower {
        [one] => fsconfig_set_string(context.as_fd(), "lowerdir", one.as_str())?,
        all => set_lower_layers(context.as_fd(), all)?,
    }
    fsconfig_set_string(context.as_fd(), "upperdir", upper)?;
    fsconfig_set_string(context.as_fd(), "workdir", work)?;
    if records_renames {
        fsconfig_set_string(context.as_fd(), "redirect_dir", "on")?;
        fsconfig_set_string(context.as_fd(), "metacopy", "off")?;
        fsconfig_set_string(context.as_fd(), "nfs_export", "off")?;
    } else {
        fsconfig_set_flag(context.as_fd(), "userxattr")?;
    }
    fsconfig_set_string(context.as_fd(), "index", "off")?;
    if !synced {
        fsconfig_set_flag(context.as_fd(), "volatile")?;
    }
    fsconfig_create(context.as_fd())?;
    fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
}

/// Kernels from 6.7 on take the lower layers one by one. Older ones take all in one text of at most
/// 255 bytes, which is enough for 15 layers.
fn set_lower_layers(context: BorrowedFd<'_>, lower: &[String]) -> rustix::io::Result<()> {
    for (index, layer) in lower.iter().enumerate() {
        match fsconfig_set_string(context, "lowerdir+", layer.as_str()) {
            Err(Errno::INVAL) if index == 0 => {
                return fsconfig_set_string(context, "lowerdir", lower.join(":").as_str());
            }
            set => set?,
        }
    }
    Ok(())
}

/// A file system in memory with `upper` and `work`, and the file descriptor of `upper`, which has
/// the owner and mode of the lower layer's root.
fn layers_in_memory(lower: &OwnedFd, size_bytes: u64) -> Result<(OwnedFd, OwnedFd), Failure> {
    let step = || "make the layers in memory".to_owned();
    let memory = new_tmpfs(0o755, size_bytes, &[], MountAttrFlags::empty()).at(Wall::View, step)?;
    let root = rustix::fs::fstat(lower).at(Wall::View, step)?;
    rustix::fs::mkdirat(&memory, "work", Mode::RWXU).at(Wall::View, step)?;
    rustix::fs::mkdirat(&memory, "upper", Mode::from_raw_mode(root.st_mode & 0o777))
        .at(Wall::View, step)?;
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let upper = rustix::fs::openat(&memory, "upper", flags, Mode::empty()).at(Wall::View, step)?;
    let (user, group) = (Uid::from_raw(root.st_uid), Gid::from_raw(root.st_gid));
    rustix::fs::fchown(&upper, Some(user), Some(group)).at(Wall::View, step)?;
    Ok((memory, upper))
}

impl Prepared {
    /// The mount; an overlay that is not made yet is made now.
    fn mount(&mut self) -> Result<&OwnedFd, Failure> {
        if let Self::Layers { lower, view, synced } = self {
            *self = Self::Mount(overlay(lower, view, *synced)?);
        }
        if let Self::ReadOnly { tree, empty, path } = self {
            let step = || format!("mount an overlay over {}", path.display());
            *self = Self::Mount(read_only::overlay(tree, empty).at(Wall::Root, step)?);
        }
        match self {
            Self::Mount(mount) => Ok(mount),
            Self::Layers { .. } | Self::ReadOnly { .. } => {
                Err(Errno::INVAL).at(Wall::View, || "make the view".to_owned())
            }
        }
    }
}

impl Assembly {
    /// Makes the overlays, which requires the host's root.
    pub(crate) fn make_overlays(&mut self) -> Result<(), Failure> {
        for (_, piece) in &mut self.mounts {
            if let Content::Prepared(held) | Content::Optional { prepared: held, .. } = piece {
                held.mount()?;
            }
        }
        self.root.as_mut().map_or(Ok(()), |root| root.mount().map(drop))
    }

    /// Takes the root that another process has made.
    pub(crate) fn set_root(&mut self, root: OwnedFd) {
        self.root = Some(Prepared::Mount(root));
    }

    fn root(&mut self) -> Result<&OwnedFd, Failure> {
        match &mut self.root {
            Some(root) => root.mount(),
            None => Err(Errno::INVAL).at(Wall::Root, || "create a root".to_owned()),
        }
    }

    /// Leaves the host's root for the jail's: afterwards only `/..` leads to the host's files
    /// (`pivot_root(2)`, "Notes"), until [`detach_old_root`] was called.
    pub(crate) fn leave_host_root(&mut self) -> Result<(), Failure> {
        pivot_to(self.root()?)
    }

    /// Attaches the mounts that exist below the current root, if `chosen` accepts their mount
    /// point.
    pub(crate) fn attach(&mut self, chosen: impl Fn(&Path) -> bool) -> Result<(), Failure> {
        let all = std::mem::take(&mut self.mounts);
        let (now, later) = all.into_iter().partition(|(place, _)| chosen(&place.path));
        self.mounts = later;
        for (place, piece) in now {
            attach_content(&place, piece).map_err(|mut failure| {
                failure.step = format!("{} at {}", failure.step, place.path.display());
                failure
            })?;
        }
        Ok(())
    }

    /// Whether everything is attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.mounts.is_empty()
    }

    /// Makes the root read-only, unless it must be writable. Everything must be attached.
    pub(crate) fn close(mut self) -> Result<(), Failure> {
        let mut set = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
        if !self.root_writable {
            set |= libc::MOUNT_ATTR_RDONLY;
        }
        sys::mount_setattr(self.root()?.as_fd(), false, set, None)
            .at(Wall::Root, || "make the root read-only".to_owned())
    }
}

/// Changes from the current root to another one, and unmounts the old one with everything mounted
/// below it.
pub(crate) fn enter_root(root: &OwnedFd) -> Result<(), Failure> {
    pivot_to(root)?;
    detach_old_root().at(Wall::Root, || "detach the old root".to_owned())?;
    check_root()
}

/// Changes from the current root to another one, which the old one then covers.
fn pivot_to(root: &OwnedFd) -> Result<(), Failure> {
    let step = |text: &'static str| move || text.to_owned();
    attach_mount(root, Path::new("/")).at(Wall::Root, step("attach the new root"))?;
    rustix::process::fchdir(root).at(Wall::Root, step("enter the new root"))?;
    rustix::process::pivot_root(".", ".").at(Wall::Root, step("pivot to the new root"))
}

/// Unmounts the old root that covers the current one. The kernel waits for every processor then.
/// Allocates nothing and makes bare system calls only.
pub(crate) fn detach_old_root() -> rustix::io::Result<()> {
    rustix::process::chdir(c"/")?;
    unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")
}

/// Verifies that nothing covers the root.
pub(crate) fn check_root() -> Result<(), Failure> {
    let step = |text: &'static str| move || text.to_owned();
    rustix::process::chdir("/").at(Wall::Root, step("enter the new root directory"))?;
    // A mount that still covered the root would be reached by this path.
    let seen = ["/", "/.."].map(|path| rustix::fs::stat(path).map(|s| (s.st_dev, s.st_ino)));
    match seen {
        [Ok(root), Ok(above)] if root == above => Ok(()),
        _ => Err(Errno::BUSY).at(Wall::Root, step("check that nothing is above the root")),
    }
}

fn attach_content(mount_point: &MountPoint, content: Content) -> Result<(), Failure> {
    let step = |what: &'static str| move || what.to_owned();
    let target = mount_point.path.as_path();
    match content {
        Content::Directory => make_directory(target).at(Wall::Root, step("make a directory")),
        Content::Link(to) => make_link(&to, target).at(Wall::Root, step("make a link")),
        Content::File(content) => match write_file(target, &content) {
            // It lies in a mount of the host.
            Err(error) if error.raw_os_error() == Some(libc::EROFS) => cover_file(target, &content),
            written => written,
        }
        .at(Wall::Root, step("write a file")),
        Content::Scratch(scratch) => {
            if !mount_point.exists {
                make_directory(target).at(Wall::Root, step("make a mount point"))?;
            }
            let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
            let owner = [("uid", scratch.user.to_string()), ("gid", scratch.group.to_string())];
            let mount = new_tmpfs(scratch.mode, scratch.size_bytes, &owner, flags)
                .at(Wall::Root, step("make a file system in memory"))?;
            mount_point.attach(&mount).at(Wall::Root, step("attach a file system in memory"))
        }
        Content::Prepared(mut held) => {
            let mount = held.mount()?;
            if !mount_point.exists {
                let kind = rustix::fs::fstat(mount).at(Wall::Root, step("inspect a tree"))?;
                let is_directory = FileType::from_raw_mode(kind.st_mode).is_dir();
                let make = if is_directory { make_directory } else { touch };
                make(target).at(Wall::Root, step("make a mount point"))?;
            }
            mount_point.attach(mount).at(Wall::Root, step("attach a tree"))
        }
        Content::Optional { mut prepared, below, owner } => {
            optional_mount::attach(prepared.mount()?, target, &below, owner)
                .at(Wall::Root, step("attach a tree where it has its place"))
        }
    }
}

impl MountPoint {
    fn attach(&self, mount: &OwnedFd) -> io::Result<()> {
        if self.exists {
            Ok(attach_mount(mount, &self.path)?)
        } else {
            attach_at(mount, &self.path)
        }
    }
}

/// Attaches a mount below the root, without following links of `/proc` on the way. A link at the
/// mount point is not followed.
fn attach_at(mount: &OwnedFd, path: &Path) -> io::Result<()> {
    let (parent, name) = parent_and_name(path)?;
    Ok(move_mount(mount, "", &parent, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

pub(crate) fn new_tmpfs(
    mode: u32,
    size_bytes: u64,
    owner: &[(&str, String)],
    flags: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    // An inode costs about a kilobyte of kernel memory that `size` does not count.
    let inodes = (size_bytes / 4096).clamp(1024, 1 << 20);
    let options = [
        ("mode", format!("{mode:o}")),
        ("size", size_bytes.to_string()),
        ("nr_inodes", inodes.to_string()),
    ];
    new_filesystem("tmpfs", &[&options, owner].concat(), flags)
}

fn new_filesystem(
    kind: &str,
    options: &[(&str, String)],
    flags: MountAttrFlags,
) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        fsconfig_set_string(context.as_fd(), *name, value.as_str())?;
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// Writes a file and replaces anything that exists there: an image may have a link or a pipe.
fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let (parent, name) = parent_and_name(path)?;
    let file = match new_file(&parent, name, 0o644) {
        Err(Errno::EXIST) => {
            unlinkat(&parent, name, AtFlags::empty())?;
            new_file(&parent, name, 0o644)
        }
        made => made,
    }?;
    io::Write::write_all(&mut fs::File::from(file), content)
}

/// Covers a file of a read-only mount by one with another content. That is made in the root, and
/// has no name any more once it is mounted.
fn cover_file(path: &Path, content: &[u8]) -> io::Result<()> {
    const MADE: &str = "/.new-file";
    write_file(Path::new(MADE), content)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(CWD, MADE, flags)?;
    sys::mount_setattr(mount.as_fd(), false, libc::MOUNT_ATTR_RDONLY, None)?;
    // A file without a name cannot be mounted.
    attach_at(&mount, path)?;
    Ok(rustix::fs::unlink(MADE)?)
}

/// The path as a C string; a path that was ever resolved cannot contain a NUL byte.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}
