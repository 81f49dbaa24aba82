//! From what was asked for to a complete jail: what is visible inside, where changes go, and what
//! its processes are bound by.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use stockade_core::sandbox::{HostMount, Root, User, Workspace};
use stockade_core::{SandboxSpec, sandbox};
use stockade_jail::cgroup::Group;
use stockade_jail::rlimits::ResourceLimits;
use stockade_jail::{
    Access, Areas, HostTree, Identity, JailSpec, Mount, Network, Overlay, Owners, Source, Task,
    system,
};

use super::account::Users;
use super::areas;
use super::programs::Programs;
use super::record::Environment;
use crate::native::wire::Failure;

/// How long a jail lives when no keeper renews its lease.
pub(super) const LEASE: Duration = Duration::from_secs(60);
/// The machine's name inside.
const HOSTNAME: &str = "stockade";
/// How many processes and threads a sandbox has at most when nothing else is asked for.
const PROCESSES: u64 = 4096;
/// Places inside that belong to the sandbox itself.
const RESERVED: [&str; 3] = ["/dev", "/proc", "/sys"];

/// What a jail is made from, besides what was asked for.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    /// The data directory, of which nothing is ever shown inside.
    pub(super) data: &'a Path,
    /// The sandbox's own directory.
    pub(super) place: &'a Path,
    /// What lies below the root's upper layer; never a snapshot.
    pub(super) root: &'a Root,
    /// Whether the layers are there, with the owners that they have inside, from a snapshot.
    pub(super) restored: bool,
    /// Whether they are whole trees, and so there too.
    pub(super) whole: bool,
    /// Its ordinary user.
    pub(super) user: User,
    /// How many descriptors the keeper may have.
    pub(super) descriptors: u64,
}

/// A request for which a jail may be made: every path of the host was looked at.
#[derive(Debug)]
pub(super) struct Checked {
    lower: Lower,
    workspace: Option<(PathBuf, PathBuf)>,
    mounts: Vec<(PathBuf, Mount)>,
    areas: Option<Areas>,
    network: Network,
}

#[derive(Debug)]
enum Lower {
    /// The host's own programs.
    Host,
    /// A directory that holds a root.
    Directory(PathBuf),
}

/// Refuses what can never be granted, and finds what of the host is to be shown.
pub(super) fn check(spec: &SandboxSpec, parts: &Parts<'_>) -> Result<Checked, Failure> {
    let lower = match parts.root {
        Root::Host => Lower::Host,
        Root::Directory(path) => {
            let real = real(path, parts.data)?;
            if !real.is_dir() {
                return Err(Failure::Invalid(format!("{} is no directory", path.display())));
            }
            Lower::Directory(real)
        }
        Root::Image(name) => {
            let text = format!("there is no image {name} here: name a directory that holds a root");
            return Err(Failure::Invalid(text));
        }
        Root::Snapshot(snapshot) => return Err(Failure::NoSnapshot(snapshot.clone())),
    };
    let workspace = match &spec.workspace {
        None => None,
        Some(Workspace { host, inside }) => {
            inside_path(inside)?;
            Some((inside.clone(), real(host, parts.data)?))
        }
    };
    let mounts = spec
        .mounts
        .iter()
        .map(|asked| mount(asked, workspace.as_ref(), parts.data))
        .collect::<Result<_, _>>()?;
    check_words(spec, &spec.environment)?;
    let areas = areas::of(&spec.access, parts.user)?;
    let network = if spec.network.is_some() { Network::Egress } else { Network::Off };
    Ok(Checked { lower, workspace, mounts, areas, network })
}

/// Refuses a directory or variables that no command can have.
pub(super) fn check_words(spec: &SandboxSpec, environment: &Environment) -> Result<(), Failure> {
    if let Some(directory) = &spec.working_directory {
        absolute(directory)?;
    }
    let bad = |name: &String| name.is_empty() || name.contains(['=', '\0']);
    if environment.iter().any(|(name, value)| bad(name) || value.contains('\0')) {
        return Err(Failure::Invalid("a variable's name or value cannot be one".to_owned()));
    }
    Ok(())
}

/// Makes the layers and completes the jail.
pub(super) fn spec(
    checked: Checked,
    parts: &Parts<'_>,
    programs: &mut Programs,
    limits: &sandbox::Limits,
    identity: Identity,
    group: Option<Group>,
    listener: OwnedFd,
) -> Result<JailSpec, Failure> {
    let users = Users::of(&identity);
    let Checked { lower, workspace, mounts: asked, areas, network } = checked;
    let (lower, mut mounts, is_image) = match lower {
        Lower::Directory(lower) => (lower, Vec::new(), true),
        Lower::Host => {
            let found = programs.find(&users.account(), HOSTNAME);
            let (skeleton, mounts) = found.map_err(|e| host(Path::new("/usr"), &e))?;
            (skeleton, mounts, false)
        }
    };
    let is_root_own = !is_image && !parts.restored && !parts.whole;
    let layers = layers(&parts.place.join("layers"), &lower, &identity, parts)?;
    if is_image && !parts.restored {
        home(&layers.join("upper"), &lower, users, &identity).map_err(|e| host(&layers, &e))?;
    }
    if network == Network::Egress {
        mounts.extend(names(parts.place, is_image)?);
    }
    if let Some((inside, project)) = workspace {
        let place = parts.place.join("workspace");
        let layers = self::layers(&place, &project, &identity, parts)?;
        mounts.push((inside, Mount::Tree(view(&project, &layers, parts.whole)?)));
    }
    mounts.extend(asked);
    let lock = match identity.range() {
        Some(range) => range.lock().map_err(|e| Failure::Exhausted(e.to_string()))?,
        None => None,
    };
    Ok(JailSpec {
        root: view(&lower, &layers, parts.whole)?,
        root_writable: true,
        root_is_own: is_root_own,
        identity,
        mounts,
        hostname: HOSTNAME.to_owned(),
        network,
        task: Task::Serve { listener, lease: LEASE },
        rlimits: ResourceLimits {
            processes: Some(limits.processes.unwrap_or(PROCESSES)),
            open_files: Some(open_files(parts.descriptors)),
            ..ResourceLimits::default()
        },
        cgroup: group,
        kept: lock.into_iter().collect(),
        areas,
        landlock_optional: false,
    })
}

/// What says how names are found where there is a resolver: files of the sandbox's own directory,
/// which are mounted, so that nothing of them is in any layer.
fn names(place: &Path, is_image: bool) -> Result<Vec<(PathBuf, Mount)>, Failure> {
    // An image says itself how names are looked up.
    let files = [(!is_image).then(system::name_services), Some(system::resolver())];
    let shown = |(inside, mount): (PathBuf, Mount)| {
        let (Mount::File(content), Some(name)) = (&mount, inside.file_name()) else {
            return Ok((inside, mount));
        };
        let path = place.join(name);
        let write = || -> io::Result<()> {
            std::fs::write(&path, content)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))
        };
        write().map_err(|e| host(&path, &e))?;
        // Everybody inside may read it, and nobody owns it there.
        let source =
            Source::Host { tree: open(&path)?, access: Access::Read, owners: Owners::Range };
        Ok((inside, Mount::Tree(source)))
    };
    files.into_iter().flatten().map(shown).collect()
}

/// How many descriptors a command may have: fewer than the keeper, by more than one message carries.
/// As many as it may have it may send, too, and the kernel refuses whoever may have fewer than all
/// processes of the user on the host have sent and nobody has received (`unix(7)`, `ETOOMANYREFS`).
fn open_files(keeper: u64) -> u64 {
    (keeper / 4 * 3).min(65_536)
}

/// A path of the host that may be shown inside.
fn real(path: &Path, data: &Path) -> Result<PathBuf, Failure> {
    let real = std::fs::canonicalize(path).map_err(|e| host(path, &e))?;
    if real == Path::new("/") {
        return Err(Failure::Invalid("the host's root is not shown inside".to_owned()));
    }
    let data = std::fs::canonicalize(data).map_err(|e| host(data, &e))?;
    if real.starts_with(&data) || data.starts_with(&real) {
        let text = format!("{} holds Stockade's own data, which is never shown", path.display());
        return Err(Failure::Invalid(text));
    }
    Ok(real)
}

fn absolute(path: &Path) -> Result<(), Failure> {
    let plain = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    if path.is_absolute() && plain && !path.as_os_str().as_encoded_bytes().contains(&0) {
        return Ok(());
    }
    Err(Failure::Invalid(format!("{} is no absolute path without `..`", path.display())))
}

/// Refuses a place inside that would hide the sandbox itself.
fn inside_path(path: &Path) -> Result<(), Failure> {
    absolute(path)?;
    if path == Path::new("/") || RESERVED.iter().any(|reserved| path.starts_with(reserved)) {
        let text = format!("{} belongs to the sandbox itself", path.display());
        return Err(Failure::Invalid(text));
    }
    Ok(())
}

fn mount(
    asked: &HostMount,
    workspace: Option<&(PathBuf, PathBuf)>,
    data: &Path,
) -> Result<(PathBuf, Mount), Failure> {
    inside_path(&asked.inside)?;
    let path = real(&asked.host, data)?;
    // A mount point that is missing from the workspace would have to be made in its view, and
    // would come back as a change.
    if let Some((inside, project)) = workspace
        && let Ok(below) = asked.inside.strip_prefix(inside)
        && std::fs::symlink_metadata(project.join(below)).is_err()
    {
        let text = format!("{} does not exist in the workspace", asked.inside.display());
        return Err(Failure::Invalid(text));
    }
    let tree = open(&path)?;
    let access = if asked.writable { Access::Write } else { Access::Read };
    let source = Source::Host { tree, access, owners: Owners::OnDisk };
    Ok((asked.inside.clone(), Mount::Tree(source)))
}

/// What is shown of the layers over `lower`, or of those that need nothing below.
fn view(lower: &Path, layers: &Path, whole: bool) -> Result<Source, Failure> {
    if whole {
        let tree = open(&layers.join("upper"))?;
        return Ok(Source::Host { tree, access: Access::Write, owners: Owners::Range });
    }
    let (lower, view) = (open(lower)?, Some(open(layers)?));
    Ok(Source::Overlay(Overlay { lower, view, size_bytes: 0, synced: true }))
}

fn open(path: &Path) -> Result<HostTree, Failure> {
    HostTree::open(path).map_err(|e| host(path, &e))
}

/// The directory with the layers over `lower`: new ones, unless an upper layer is there already.
fn layers(
    place: &Path,
    lower: &Path,
    identity: &Identity,
    parts: &Parts<'_>,
) -> Result<PathBuf, Failure> {
    let make = || -> io::Result<()> {
        let start = identity.range().map(|range| range.start);
        let root = std::fs::metadata(lower)?;
        // What cannot be owned inside belongs to the inside's root.
        let inside = |id: u32| identity.range().map_or(id, |range| inside_id(id, range.count));
        let (user, group) = (inside(root.uid()), inside(root.gid()));
        let own = |path: &Path, user: u32, group: u32| match start {
            Some(start) => chown(path, Some(start + user), Some(start + group)),
            None => Ok(()),
        };
        if !place.is_dir() {
            directory(place)?;
        }
        // The jail, which has no rights of the host's root, must find its layers in it.
        own(place, 0, 0)?;
        let upper = place.join("upper");
        if !parts.restored && !parts.whole {
            directory(&upper)?;
            std::fs::set_permissions(
                &upper,
                std::fs::Permissions::from_mode(root.mode() & 0o1777),
            )?;
            own(&upper, user, group)?;
        }
        if parts.whole {
            return Ok(());
        }
        let work = place.join("work");
        directory(&work)?;
        own(&work, 0, 0)
    };
    make().map_err(|e| match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Failure::Exhausted(format!("no room for the layers of a sandbox: {e}"))
        }
        _ => host(place, &e),
    })?;
    Ok(place.to_owned())
}

const fn inside_id(id: u32, count: u32) -> u32 {
    if id < count { id } else { 0 }
}

/// Makes the ordinary user's home where an image has none and nothing that is in the way. What of the
/// way the image has stays as it is there.
fn home(upper: &Path, lower: &Path, users: Users, identity: &Identity) -> io::Result<()> {
    let system::Account { user, group, home, .. } = users.account();
    let mut path = PathBuf::new();
    for component in home.components().filter(|component| *component != Component::RootDir) {
        path.push(component);
        let in_the_way = |metadata: std::fs::Metadata| !metadata.is_dir();
        if std::fs::symlink_metadata(lower.join(&path)).is_ok_and(in_the_way) {
            return Ok(());
        }
    }
    if std::fs::symlink_metadata(lower.join(&path)).is_ok() {
        return Ok(());
    }
    let start = identity.range().map(|range| range.start);
    let mut made = upper.to_owned();
    let last = path.components().count() - 1;
    let mut below = lower.to_owned();
    for (index, component) in path.components().enumerate() {
        made.push(component);
        below.push(component);
        match directory(&made) {
            // A whole tree has what the lower layer has.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            made => made?,
        }
        let below = std::fs::symlink_metadata(&below).ok();
        if let Some((range, start)) = identity.range().zip(start) {
            let inside = |id: u32| inside_id(id, range.count);
            let (user, group) = match &below {
                Some(below) => (inside(below.uid()), inside(below.gid())),
                None if index == last => (user, group),
                None => (0, 0),
            };
            chown(&made, Some(start + user), Some(start + group))?;
        }
        // Whatever the keeper's own files are, everybody inside passes what is new.
        let mode = below.map_or(0o755, |below| below.mode() & 0o1777);
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn directory(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

fn host(path: &Path, error: &io::Error) -> Failure {
    Failure::Host {
        path: path.display().to_string(),
        errno: error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(change: impl FnOnce(&mut SandboxSpec)) -> Result<Checked, Failure> {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        let project = place.path().join("project");
        for directory in [&data, &project, &project.join("there")] {
            std::fs::create_dir(directory).unwrap();
        }
        let mut spec = SandboxSpec {
            workspace: Some(Workspace { host: project, inside: "/project".into() }),
            ..SandboxSpec::default()
        };
        change(&mut spec);
        let root = spec.root.clone();
        let user = User { user: 0, group: 0 };
        let parts = Parts {
            data: &data,
            place: &data,
            root: &root,
            restored: false,
            whole: false,
            user,
            descriptors: 0,
        };
        check(&spec, &parts)
    }

    fn mount(host: &str, inside: &str) -> HostMount {
        HostMount { host: host.into(), inside: inside.into(), writable: false }
    }

    #[test]
    fn what_would_hide_the_sandbox_or_show_what_is_ours_is_refused() {
        assert!(asked(|_| {}).is_ok());
        for (host, inside) in
            [("/usr", "/"), ("/usr", "/proc/x"), ("/usr", "/a/../b"), ("/usr", "a"), ("/", "/a")]
        {
            let refused = asked(|spec| spec.mounts.push(mount(host, inside))).unwrap_err();
            assert!(matches!(refused, Failure::Invalid(_)), "{refused:?}");
        }
        let absent = asked(|spec| spec.mounts.push(mount("/no-such", "/a"))).unwrap_err();
        assert_eq!(absent, Failure::Host { path: "/no-such".to_owned(), errno: 2 });
        let data = asked(|spec| {
            let mut data = spec.workspace.clone().unwrap().host;
            data.pop();
            spec.mounts.push(mount(&data.to_string_lossy(), "/a"));
        });
        assert!(matches!(data.unwrap_err(), Failure::Invalid(text) if text.contains("own data")));
    }

    #[test]
    fn a_mount_in_the_workspace_needs_its_place() {
        assert!(asked(|spec| spec.mounts.push(mount("/usr", "/project/there"))).is_ok());
        let refused =
            asked(|spec| spec.mounts.push(mount("/usr", "/project/missing"))).unwrap_err();
        assert!(matches!(refused, Failure::Invalid(text) if text.contains("does not exist")));
    }

    #[test]
    fn a_root_is_a_directory_and_no_name() {
        let root = |root| asked(|spec| spec.root = root).unwrap_err();
        assert!(matches!(root(Root::Image("debian".to_owned())), Failure::Invalid(_)));
        assert!(matches!(root(Root::Directory("/".into())), Failure::Invalid(_)));
        assert!(matches!(root(Root::Directory("/etc/hosts".into())), Failure::Invalid(_)));
        assert!(asked(|spec| spec.root = Root::Directory("/usr".into())).is_ok());
    }

    #[test]
    fn a_variable_must_be_one() {
        let variable = |name: &str, value: &str| {
            asked(|spec| {
                spec.environment.insert(name.to_owned(), value.to_owned());
            })
        };
        assert!(variable("A", "b=c\n").is_ok());
        for (name, value) in [("", "x"), ("a=b", "x"), ("a", "\0")] {
            assert!(variable(name, value).is_err(), "{name:?}");
        }
    }
}
