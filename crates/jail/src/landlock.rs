//! The Landlock wall: rules on files and signals that apply in addition to the mounts and cannot be
//! undone, not even by a process that circumvents a mount.
//!
//! The system calls are made directly (landlock(7)): this runs between fork and exec, where
//! allocation is not allowed, and three calls need no builder. Networks are left to namespaces: TCP
//! rules would also block the jail's own loopback.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};

use crate::mounts::{At as _, Failure};
use crate::raw;
use crate::seccomp::OWN_CALL;
use crate::walls::Wall;

/// What a rule allows on a file or below a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading and listing.
    Read,
    /// Reading, listing and executing.
    ReadExecute,
    /// What `Read` allows, and changing everything except device files: files may be created,
    /// removed, truncated, linked, and moved between trees that are writable.
    Change,
    /// What `Change` allows, and executing.
    Write,
    /// Reading and writing existing files and using devices (ioctl), for `/dev`.
    Devices,
}

impl Access {
    /// Every value, in an order that never changes.
    pub(crate) const ALL: [Self; 5] =
        [Self::Read, Self::ReadExecute, Self::Change, Self::Write, Self::Devices];
}

/// The file or directory of a rule.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// An open file; `O_PATH` is enough.
    Open(BorrowedFd<'a>),
    /// A path, opened when the rule is added.
    Path(&'a CStr),
}

/// The Landlock restrictions that were enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landlock {
    /// The version of the kernel interface that was used, 1 to [`NEWEST_ABI`].
    pub abi: u32,
    /// Whether signals and abstract sockets are restricted too ([`Scope::Own`], since ABI 6, Linux
    /// 6.12).
    pub scoped: bool,
}

/// Why Landlock was not enabled. Building one allocates nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel was built without Landlock, or started with it disabled.
    #[error(
        "the kernel has no Landlock (it needs CONFIG_SECURITY_LANDLOCK and `landlock` in lsm=)"
    )]
    Unsupported,
    /// The kernel did not report its version of the interface.
    #[error("querying the version of Landlock failed")]
    Version(#[source] io::Error),
    /// The ruleset could not be created.
    #[error("creating a Landlock ruleset failed")]
    Ruleset(#[source] io::Error),
    /// A rule's file could not be opened.
    #[error("opening the file of Landlock rule {index} failed")]
    Open {
        /// The rule's index, from 0.
        index: usize,
        /// The error of open(2).
        source: io::Error,
    },
    /// A rule was not accepted.
    #[error("adding Landlock rule {index} failed")]
    Rule {
        /// The rule's index, from 0.
        index: usize,
        /// The error of landlock_add_rule(2).
        source: io::Error,
    },
    /// The rules could not be enforced.
    #[error("enforcing the Landlock rules failed")]
    Restrict(#[source] io::Error),
}

impl From<Error> for io::Error {
    /// The kernel's own error, for callers that know the step by other means.
    fn from(error: Error) -> Self {
        match error {
            Error::Unsupported => Self::from_raw_os_error(libc::EOPNOTSUPP),
            Error::Version(source)
            | Error::Ruleset(source)
            | Error::Open { source, .. }
            | Error::Rule { source, .. }
            | Error::Restrict(source) => source,
        }
    }
}

/// The newest interface version that is used; features of newer versions are not.
pub const NEWEST_ABI: u32 = 9;
/// The first interface version that restricts connections to sockets by their path.
pub const SOCKETS_ABI: u32 = 9;

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIRECTORY: u64 = 1 << 3;
const MAKE_CHARACTER_DEVICE: u64 = 1 << 6;
const MAKE_BLOCK_DEVICE: u64 = 1 << 11;
/// The thirteen rights of the first version.
const FIRST_RIGHTS: u64 = (1 << 13) - 1;
/// Moving and linking between directories, since ABI 2; denied where it is not granted.
const REFER: u64 = 1 << 13;
/// Since ABI 3.
const TRUNCATE: u64 = 1 << 14;
/// Since ABI 5; checked when a device is opened, so an inherited open terminal works.
const IOCTL_DEVICE: u64 = 1 << 15;
/// Connecting and sending to a socket by its path, since ABI 9. A socket that was made under the same
/// ruleset can be reached anyway.
const RESOLVE_UNIX: u64 = 1 << 16;
/// The rights that a rule on a file that is no directory may grant.
const FILE_RIGHTS: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE | RESOLVE_UNIX;

const SCOPE_ABSTRACT_SOCKET: u64 = 1 << 0;
const SCOPE_SIGNAL: u64 = 1 << 1;

impl Access {
    const fn rights(self) -> u64 {
        match self {
            Self::Read => READ_FILE | READ_DIRECTORY,
            Self::ReadExecute => EXECUTE | READ_FILE | READ_DIRECTORY,
            Self::Change => Self::Write.rights() & !EXECUTE,
            Self::Write => {
                (FIRST_RIGHTS & !(MAKE_CHARACTER_DEVICE | MAKE_BLOCK_DEVICE)) | REFER | TRUNCATE
            }
            Self::Devices => READ_FILE | READ_DIRECTORY | WRITE_FILE | TRUNCATE | IOCTL_DEVICE,
        }
    }
}

const fn handled_rights(abi: u32) -> u64 {
    let refer = if abi >= 2 { REFER } else { 0 };
    let truncate = if abi >= 3 { TRUNCATE } else { 0 };
    let ioctl = if abi >= 5 { IOCTL_DEVICE } else { 0 };
    FIRST_RIGHTS | refer | truncate | ioctl
}

/// The kernel's `struct landlock_ruleset_attr`. Older kernels accept it as long as the fields that
/// they do not know are zero.
#[repr(C)]
struct RulesetAttribute {
    handled_files: u64,
    handled_networks: u64,
    scoped: u64,
}

/// The kernel's `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneathAttribute {
    allowed: u64,
    parent: i32,
}

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;

/// The version of Landlock that the kernel offers, at most [`NEWEST_ABI`].
///
/// # Errors
/// [`Error::Unsupported`] where there is none, [`Error::Version`] for all other errors.
pub fn abi() -> Result<u32, Error> {
    let no_attribute = std::ptr::null::<RulesetAttribute>();
    // SAFETY: with this flag the kernel takes no attribute and returns a number.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, no_attribute, 0, CREATE_RULESET_VERSION)
    };
    match u32::try_from(version) {
        Ok(version) if version > 0 => Ok(version.min(NEWEST_ABI)),
        Ok(_) => Err(Error::Unsupported),
        Err(_) => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP)) => {
                Err(Error::Unsupported)
            }
            error => Err(Error::Version(error)),
        },
    }
}

/// How far signals and abstract sockets of a restricted process reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Only processes that it starts itself, where the kernel can enforce that.
    Own,
    /// All processes in its namespaces.
    Namespaces,
}

/// A ruleset that is not enforced yet.
#[derive(Debug)]
pub struct Ruleset {
    file: OwnedFd,
    enforced: Landlock,
}

/// Restricts the calling thread and all processes that it will start to `rules`, with every right
/// that this kernel can restrict; an access that no rule allows fails with EACCES.
///
/// The caller must have set no_new_privs. Files that are already open stay usable. On an error
/// nothing has been restricted.
///
/// # Errors
/// [`Error::Unsupported`] where the kernel has no Landlock, else the step that failed.
pub fn restrict(rules: &[(Target<'_>, Access)]) -> Result<Landlock, Error> {
    let ruleset = Ruleset::new(rules, Scope::Own)?;
    ruleset.restrict().map_err(Error::Restrict)?;
    Ok(ruleset.enforced)
}

impl Ruleset {
    /// Creates a ruleset that handles every right that this kernel can restrict.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the kernel has no Landlock, else the step that failed.
    pub fn new(rules: &[(Target<'_>, Access)], scope: Scope) -> Result<Self, Error> {
        Self::with_sockets(rules, scope, None)
    }

    /// The same. With `sockets`, and where the kernel can restrict it (since [`SOCKETS_ABI`]), a socket
    /// is reached by its path only at or below these paths, or if it was made under this ruleset. A
    /// path that does not exist is ignored.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the kernel has no Landlock, else the step that failed.
    pub fn with_sockets(
        rules: &[(Target<'_>, Access)],
        scope: Scope,
        sockets: Option<&[CString]>,
    ) -> Result<Self, Error> {
        let abi = abi()?;
        let sockets = sockets.filter(|_| abi >= SOCKETS_ABI);
        let handled = handled_rights(abi) | if sockets.is_some() { RESOLVE_UNIX } else { 0 };
        let scoped = abi >= 6 && scope == Scope::Own;
        let attribute = RulesetAttribute {
            handled_files: handled,
            handled_networks: 0,
            scoped: if scoped { SCOPE_ABSTRACT_SOCKET | SCOPE_SIGNAL } else { 0 },
        };
        // SAFETY: the attribute is valid for the call and has the given size.
        let result = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const attribute,
                size_of::<RulesetAttribute>(),
                0,
            )
        };
        let descriptor =
            i32::try_from(result).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error);
        // SAFETY: the kernel has just opened this descriptor for us.
        let file = unsafe { OwnedFd::from_raw_fd(descriptor.map_err(Error::Ruleset)?) };

        for (index, (place, access)) in rules.iter().enumerate() {
            let rights = access.rights() & handled;
            match place {
                Target::Open(open) => add_rule(&file, *open, rights),
                Target::Path(path) => {
                    let flags = OFlags::PATH | OFlags::CLOEXEC;
                    let open = rustix::fs::openat(CWD, *path, flags, Mode::empty())
                        .map_err(|errno| Error::Open { index, source: errno.into() })?;
                    add_rule(&file, open.as_fd(), rights)
                }
            }
            .map_err(|source| Error::Rule { index, source })?;
        }
        for (index, path) in (rules.len()..).zip(sockets.unwrap_or_default()) {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            match rustix::fs::openat(CWD, path.as_c_str(), flags, Mode::empty()) {
                Err(rustix::io::Errno::NOENT) => continue,
                Err(errno) => return Err(Error::Open { index, source: errno.into() }),
                Ok(open) => add_rule(&file, open.as_fd(), RESOLVE_UNIX),
            }
            .map_err(|source| Error::Rule { index, source })?;
        }
        Ok(Self { file, enforced: Landlock { abi, scoped } })
    }

    /// Enforces the rules for the calling thread and all processes that it will start, in addition
    /// to the rules that are already enforced. Allocates nothing and does not touch `errno`.
    ///
    /// # Errors
    /// The error of landlock_restrict_self(2).
    pub fn restrict(&self) -> io::Result<()> {
        // The filter may be installed already, and the supervisor need not hear of this call.
        let own = (OWN_CALL as usize) << u32::BITS;
        let arguments = [raw::signed(self.file.as_raw_fd()), 0, 0, 0, 0, own];
        // SAFETY: takes a descriptor and no pointers.
        let result = unsafe { raw::syscall(libc::SYS_landlock_restrict_self, arguments) };
        raw::check(result).map(drop)
    }
}

impl AsFd for Ruleset {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Adds one rule; on a file that is no directory it grants only the rights of files.
fn add_rule(ruleset: &OwnedFd, target: BorrowedFd<'_>, rights: u64) -> io::Result<()> {
    let add = |allowed: u64| {
        let rule = PathBeneathAttribute { allowed, parent: target.as_raw_fd() };
        // SAFETY: the rule is valid for the call and of the given type.
        let result = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                ruleset.as_raw_fd(),
                RULE_PATH_BENEATH,
                &raw const rule,
                0,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    match add(rights) {
        // The kernel's error for rights of directories on a file.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => add(rights & FILE_RIGHTS),
        result => result,
    }
}

/// The Landlock rules for every command: these paths, `/dev`, and these places of sockets.
pub(crate) fn command_ruleset(
    targets: &[(CString, Access)],
    sockets: Option<&[CString]>,
    scope: Scope,
) -> Result<Ruleset, Failure> {
    let rules: Vec<_> = [(Target::Path(c"/dev"), Access::Devices)]
        .into_iter()
        .chain(targets.iter().map(|(path, access)| (Target::Path(path.as_c_str()), *access)))
        .collect();
    Ruleset::with_sockets(&rules, scope, sockets)
        .map_err(io::Error::from)
        .at(Wall::Landlock, || "create the Landlock rules".to_owned())
}

/// A ruleset that allows nothing, and Landlock's version.
pub(crate) fn deny_all_ruleset() -> Result<(Ruleset, u32), Failure> {
    let ruleset = Ruleset::new(&[], Scope::Own)
        .map_err(io::Error::from)
        .at(Wall::Landlock, || "create the Landlock rules".to_owned())?;
    let version = abi()
        .map_err(io::Error::from)
        .at(Wall::Landlock, || "query Landlock's version".to_owned())?;
    Ok((ruleset, version))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use super::*;
    use crate::testing::{ChildExit, errno_of, in_child, set_no_new_privs, skipped};

    fn c(path: &Path) -> CString {
        CString::new(path.to_str().unwrap()).unwrap()
    }

    /// Two writable trees and a readable one with a file and a program in it.
    struct Trees {
        dir: tempfile::TempDir,
    }

    impl Trees {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for name in ["one", "two", "read", "hidden"] {
                fs::create_dir(dir.path().join(name)).unwrap();
                fs::write(dir.path().join(name).join("file"), name).unwrap();
            }
            fs::copy("/bin/true", dir.path().join("hidden/program")).unwrap();
            Self { dir }
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.dir.path().join(name)
        }

        /// Runs `body` under rules on these trees and the system; `None` without Landlock.
        fn confined(&self, body: impl FnOnce() -> bool) -> Option<ChildExit> {
            if matches!(abi(), Err(Error::Unsupported)) {
                skipped("this kernel has no Landlock");
                return None;
            }
            let system: Vec<CString> = ["/usr", "/bin", "/lib", "/lib64", "/proc"]
                .into_iter()
                .filter(|path| Path::new(path).exists())
                .map(|path| CString::new(path).unwrap())
                .collect();
            let own = [
                (c(&self.path("one")), Access::Write),
                (c(&self.path("two")), Access::Write),
                (c(&self.path("read")), Access::ReadExecute),
                (CString::new("/dev").unwrap(), Access::Devices),
            ];
            let rules: Vec<_> = system
                .iter()
                .map(|path| (Target::Path(path), Access::ReadExecute))
                .chain(own.iter().map(|(path, access)| (Target::Path(path), *access)))
                .collect();
            Some(in_child(|| {
                set_no_new_privs();
                let raised = restrict(&rules).unwrap();
                assert_eq!(raised.abi, abi().unwrap());
                i32::from(!body())
            }))
        }

        fn holds(&self, body: impl FnOnce() -> bool) {
            if let Some(ended) = self.confined(body) {
                assert_eq!(ended, ChildExit::Exited(0));
            }
        }
    }

    fn refused<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|error| error.raw_os_error() == Some(libc::EACCES))
    }

    #[test]
    fn files_outside_the_rules_cannot_be_reached() {
        let trees = Trees::new();
        let hidden = trees.path("hidden/file");
        trees.holds(|| refused(fs::read(&hidden)));
        trees.holds(|| refused(fs::write(&hidden, "changed")));
        trees.holds(|| refused(fs::remove_file(&hidden)));
        trees.holds(|| refused(fs::read_dir(trees.path("hidden"))));
        trees.holds(|| refused(fs::create_dir(trees.path("hidden/new"))));
        trees.holds(|| {
            refused(std::process::Command::new(trees.path("hidden/program")).status().map(drop))
        });
        // A link in a writable tree grants no access to its target.
        symlink(&hidden, trees.path("one/link")).unwrap();
        trees.holds(|| refused(fs::read(trees.path("one/link"))));
        let link = || fs::hard_link(&hidden, trees.path("one/hard"));
        trees.holds(|| link().is_err_and(|e| e.raw_os_error() == Some(libc::EXDEV)));
        trees.holds(|| refused(fs::rename(&hidden, trees.path("one/moved"))));
        assert_eq!(fs::read(hidden).unwrap(), b"hidden");
    }

    #[test]
    fn sockets_of_others_are_reached_only_where_a_path_is_given() {
        let Some(version) = abi().ok().filter(|abi| *abi >= SOCKETS_ABI) else {
            skipped("this kernel's Landlock cannot restrict sockets by their path");
            return;
        };
        let trees = Trees::new();
        let _listeners: Vec<_> = ["one", "two"]
            .map(|name| UnixListener::bind(trees.path(name).join("socket")).unwrap())
            .into();
        let rules = [(c"/".to_owned(), Access::Write)];
        let rules: Vec<_> =
            rules.iter().map(|(path, access)| (Target::Path(path), *access)).collect();
        let connect =
            |name: &str| std::os::unix::net::UnixStream::connect(trees.path(name).join("socket"));
        for sockets in [vec![c(&trees.path("one"))], vec![c(&trees.path("one/socket"))]] {
            let ended = in_child(|| {
                set_no_new_privs();
                let sockets = [sockets.as_slice(), &[c(&trees.path("missing"))]].concat();
                let ruleset =
                    Ruleset::with_sockets(&rules, Scope::Own, Some(sockets.as_slice())).unwrap();
                ruleset.restrict().unwrap();
                let _own = UnixListener::bind(trees.path("two").join("own")).unwrap();
                let own = std::os::unix::net::UnixStream::connect(trees.path("two").join("own"));
                i32::from(connect("one").is_err() || !refused(connect("two")) || own.is_err())
            });
            assert_eq!(ended, ChildExit::Exited(0), "{version}");
        }
    }

    #[test]
    fn a_readable_tree_can_be_read_and_not_changed() {
        let trees = Trees::new();
        let file = trees.path("read/file");
        trees.holds(|| fs::read(&file).unwrap() == b"read");
        trees.holds(|| refused(fs::OpenOptions::new().write(true).open(&file)));
        trees.holds(|| refused(fs::remove_file(&file)));
        trees.holds(|| refused(fs::write(trees.path("read/new"), "")));
        if abi().is_ok_and(|abi| abi >= 3) {
            let path = c(&file);
            trees.holds(|| {
                let path = path.as_ptr() as usize;
                errno_of(libc::SYS_truncate, [path, 0, 0, 0, 0, 0]) == libc::EACCES
            });
        }
        trees.holds(|| std::process::Command::new("true").status().unwrap().success());
    }

    #[test]
    fn a_writable_tree_can_be_changed_and_moved_out_of_only_into_another() {
        let trees = Trees::new();
        trees.holds(|| {
            fs::write(trees.path("one/new"), "new").unwrap();
            fs::create_dir(trees.path("one/directory")).unwrap();
            symlink("new", trees.path("one/symlink")).unwrap();
            let socket = UnixListener::bind(trees.path("one/socket")).is_ok();
            fs::File::options()
                .write(true)
                .open(trees.path("one/file"))
                .unwrap()
                .set_len(1)
                .unwrap();
            fs::remove_file(trees.path("one/socket")).unwrap();
            socket
        });
        if abi().is_ok_and(|abi| abi >= 2) {
            trees.holds(|| {
                fs::rename(trees.path("one/new"), trees.path("two/new")).unwrap();
                fs::hard_link(trees.path("one/file"), trees.path("two/hard")).unwrap();
                true
            });
        }
        trees.holds(|| refused(fs::rename(trees.path("one/file"), trees.path("read/file"))));
        if crate::testing::is_root() {
            let path = c(&trees.path("one/device"));
            trees.holds(|| {
                let (path, mode) = (path.as_ptr() as usize, libc::S_IFCHR as usize | 0o600);
                let null = usize::try_from(libc::makedev(1, 3)).unwrap();
                errno_of(libc::SYS_mknod, [path, mode, null, 0, 0, 0]) == libc::EACCES
            });
        }
    }

    #[test]
    fn devices_and_terminals_work() {
        let trees = Trees::new();
        trees.holds(|| {
            fs::OpenOptions::new().write(true).open("/dev/null").unwrap().write_all(b"x").unwrap();
            let zero = fs::File::open("/dev/zero").unwrap();
            // FIONREAD reaches the driver, which does not support it: Landlock would fail with
            // EACCES.
            let mut waiting = 0_i32;
            let waiting = (&raw mut waiting) as usize;
            let fd = usize::try_from(zero.as_raw_fd()).unwrap();
            errno_of(libc::SYS_ioctl, [fd, 0x541b, waiting, 0, 0, 0]) != libc::EACCES
        });
        trees.holds(|| refused(fs::File::create_new("/dev/stockade-test")));
        // The pseudo-terminal multiplexer, opened inside, answers TIOCGPTN.
        let openable = fs::File::options().read(true).write(true).open("/dev/ptmx").is_ok();
        if openable {
            trees.holds(|| {
                let master = fs::File::options().read(true).write(true).open("/dev/ptmx").unwrap();
                let mut number = 0_u32;
                let number = (&raw mut number) as usize;
                let fd = usize::try_from(master.as_raw_fd()).unwrap();
                errno_of(libc::SYS_ioctl, [fd, 0x8004_5430, number, 0, 0, 0]) == 0
            });
        }
    }

    #[test]
    fn a_rule_can_name_one_file_or_an_open_one() {
        let trees = Trees::new();
        if abi().is_err() {
            skipped("this kernel has no Landlock");
            return;
        }
        let open = fs::File::open(trees.path("read")).unwrap();
        let file = c(&trees.path("one/file"));
        let ended = in_child(|| {
            set_no_new_privs();
            restrict(&[
                (Target::Open(open.as_fd()), Access::ReadExecute),
                (Target::Path(&file), Access::Write),
            ])
            .unwrap();
            assert_eq!(fs::read(trees.path("read/file")).unwrap(), b"read");
            fs::write(trees.path("one/file"), "changed").unwrap();
            i32::from(!refused(fs::read(trees.path("two/file"))))
        });
        assert_eq!(ended, ChildExit::Exited(0));
    }

    #[test]
    fn signals_and_abstract_sockets_do_not_leave() {
        if abi().map_or(true, |abi| abi < 6) {
            skipped("this kernel's Landlock has no scopes");
            return;
        }
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::{SocketAddr, UnixStream};
        let name = format!("stockade-landlock-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        UnixStream::connect_addr(&address).unwrap();
        let parent = usize::try_from(std::process::id()).unwrap();
        let kill = |pid: usize| errno_of(libc::SYS_kill, [pid, 0, 0, 0, 0, 0]);
        let ended = in_child(|| {
            assert_eq!(kill(parent), 0);
            set_no_new_privs();
            assert!(restrict(&[]).unwrap().scoped);
            let connected = UnixStream::connect_addr(&address);
            let refused = connected.is_err_and(|e| e.raw_os_error() == Some(libc::EPERM));
            assert!(refused);
            // Its own process can still be signalled.
            assert_eq!(kill(usize::try_from(std::process::id()).unwrap()), 0);
            i32::from(kill(parent) != libc::EPERM)
        });
        assert_eq!(ended, ChildExit::Exited(0));
    }

    #[test]
    fn a_place_that_is_not_there_is_named_and_restricts_nothing() {
        if abi().is_err() {
            skipped("this kernel has no Landlock");
            return;
        }
        let ended = in_child(|| {
            set_no_new_privs();
            let error = restrict(&[
                (Target::Path(c"/"), Access::ReadExecute),
                (Target::Path(c"/no/such/place"), Access::Write),
            ])
            .unwrap_err();
            assert!(matches!(error, Error::Open { index: 1, .. }), "{error:?}");
            i32::from(fs::read("/proc/self/stat").is_err())
        });
        assert_eq!(ended, ChildExit::Exited(0));
    }

    #[test]
    fn only_rights_that_the_kernel_knows_are_asked_for() {
        assert_eq!(handled_rights(1), 0x1fff);
        assert_eq!(handled_rights(2), 0x3fff);
        assert_eq!(handled_rights(4), 0x7fff);
        assert_eq!(handled_rights(7), 0xffff);
        for access in
            [Access::Read, Access::ReadExecute, Access::Change, Access::Write, Access::Devices]
        {
            assert_eq!(access.rights() & !handled_rights(NEWEST_ABI), 0);
        }
    }
}
