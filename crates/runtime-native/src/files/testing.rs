//! The test directories of the file operations. They replace the root of a sandbox: ordinary
//! directories and file systems that are mounted in separate user namespaces.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags};
use stockade_core::sandbox::User;
pub(super) use stockade_test_support::skipped;

use super::Root;
use stockade_runtime::SandboxPath;

/// The first id of the tests' range.
pub(super) const START: u32 = 0x7000_0000 + 3000 * 65_536;
/// The ordinary user of a range.
pub(super) const USER: User = User { user: 1000, group: 1000 };

/// A root directory with the entries that every test needs: `project` and `home/user`, which belong
/// to the ordinary user, `etc`, which belongs to the inside root, and `tmp` for all.
pub(super) struct Fixture {
    /// The kind of directory, for messages.
    pub(super) name: &'static str,
    pub(super) root: Root,
    /// The same directory for the test itself.
    directory: OwnedFd,
    pub(super) host_start: Option<u32>,
    holder: Option<Child>,
    /// A directory for files outside the root.
    pub(super) outside: tempfile::TempDir,
}

/// Creates the directories, as the inside root. The first argument is the directory, the second the
/// ordinary user; the third is a directory of the host's root, if there is one.
const FILL: &str = r#"
    cd "$0" && mkdir -p project home/user etc tmp mounted && chmod 1777 tmp
    chown "$1:$1" project home/user || exit 1
    echo original > etc/file && chmod 644 etc/file
"#;

/// Mounts entries that are never opened: the host's `/proc`, a device, and a directory of the
/// host's root.
const MOUNT: &str = r#"
    cd "$0" && mkdir proc dev foreign && touch dev/null
    mount --rbind /proc proc && mount --bind /dev/null dev/null || exit 1
    mount -t tmpfs tmpfs mounted || exit 1
    test -z "$2" || mount --bind "$2" foreign
"#;

impl Fixture {
    /// Every kind of test directory that is available here.
    pub(super) fn all() -> Vec<Self> {
        let mut worlds = vec![Self::plain()];
        worlds.extend(Self::mounted());
        worlds
    }

    /// Directories in separate namespaces: with a uid range as root, else with the caller's own id.
    pub(super) fn mounted() -> Vec<Self> {
        let kinds = [
            ("tmpfs", r#"mount -t tmpfs -o mode=755 tmpfs "$0""#),
            (
                "overlay",
                r#"cd "$0/.." && mount -t overlay -o userxattr,lowerdir=lower,upperdir=upper,workdir=work overlay "$0""#,
            ),
        ];
        let fixture = |(name, mount)| match Self::in_namespace(name, mount) {
            Ok(world) => Some(world),
            Err(reason) => {
                skipped(&format!("no {name} in a user namespace here: {reason}"));
                None
            }
        };
        kinds.into_iter().filter_map(fixture).collect()
    }

    /// The mounted directories that have a uid range.
    pub(super) fn ranged() -> Vec<Self> {
        if !is_root() {
            skipped("only root has a range of ids");
            return Vec::new();
        }
        Self::mounted()
    }

    /// An ordinary directory. The caller's own id is its only id.
    pub(super) fn plain() -> Self {
        let outside = tempfile::tempdir().unwrap();
        let path = outside.path().join("root");
        std::fs::create_dir(&path).unwrap();
        let user = own().user.to_string();
        let filled = Command::new("sh").args(["-c", FILL]).arg(&path).arg(user).status().unwrap();
        assert!(filled.success());
        Self::new("plain directory", &path, None, None, outside)
    }

    fn new(
        name: &'static str,
        path: &Path,
        host_start: Option<u32>,
        holder: Option<Child>,
        outside: tempfile::TempDir,
    ) -> Self {
        let user = if host_start.is_some() { USER } else { own() };
        let root = Root::new(look_at(path), host_start, user);
        Self { name, root, directory: look_at(path), host_start, holder, outside }
    }

    fn in_namespace(name: &'static str, mount: &str) -> Result<Self, String> {
        let outside = tempfile::tempdir().unwrap();
        let range = is_root().then_some(START);
        let at = |name: &str| outside.path().join(name);
        for name in ["lower", "upper", "work", "root"] {
            std::fs::create_dir(at(name)).unwrap();
            if let Some(start) = range {
                std::os::unix::fs::chown(at(name), Some(start), Some(start)).unwrap();
            }
        }
        chmod(outside.path(), 0o755);
        let foreign = if range.is_some() { foreign(&at("foreign")) } else { PathBuf::new() };
        let user = if range.is_some() { USER.user } else { 0 };
        let script = format!("({mount} && {FILL} {MOUNT}) && echo ready && read end");
        let mut command = match range {
            // This process maps the ids; a shell that starts after that has capabilities.
            Some(start) => {
                let mut command = Command::new("setpriv");
                command.args([&format!("--reuid={start}"), &format!("--regid={start}")]);
                command.args(["--clear-groups", "unshare", "--user", "--mount", "sh", "-c"]);
                command.arg(r#"echo && read mapped && exec sh -c "$@""#).arg("sh");
                command
            }
            None => {
                let mut command = Command::new("unshare");
                command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
                command
            }
        };
        command.arg(script).arg(at("root")).arg(user.to_string()).arg(foreign);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = command.spawn().map_err(|error| error.to_string())?;
        let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
        let mut line = || lines.next().and_then(Result::ok);
        if let Some(start) = range.filter(|_| line().is_some()) {
            for map in ["uid_map", "gid_map"] {
                let map = format!("/proc/{}/{map}", holder.id());
                std::fs::write(map, format!("0 {start} 65536")).map_err(|e| e.to_string())?;
            }
            holder.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        }
        if line().as_deref() != Some("ready") {
            let output = holder.wait_with_output().unwrap();
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let inside = at("root");
        let path = PathBuf::from(format!("/proc/{}/root{}", holder.id(), inside.display()));
        Ok(Self::new(name, &path, range, Some(holder), outside))
    }

    /// A path of the host to the same file as a path inside.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        // A thread may use the descriptors of its own process under any user id.
        let directory = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
        Path::new(&directory).join(path.trim_start_matches('/'))
    }

    /// Creates a file, as the test, with this owner inside.
    pub(super) fn put(&self, path: &str, content: &str, mode: u32, owner: User) {
        let (user, group) = self.host(owner);
        stockade_jail::as_file_user(user, group, || {
            stockade_jail::with_caller_rights(|| std::fs::write(self.at(path), content))
        })
        .unwrap();
        chmod(self.at(path), mode);
    }

    /// Creates a directory in the same way.
    pub(super) fn put_directory(&self, path: &str, mode: u32, owner: User) {
        let (user, group) = self.host(owner);
        stockade_jail::as_file_user(user, group, || {
            stockade_jail::with_caller_rights(|| std::fs::create_dir(self.at(path)))
        })
        .unwrap();
        chmod(self.at(path), mode);
    }

    /// Runs a function as the ordinary user.
    pub(super) fn as_user<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let (user, group) = self.host(self.user());
        stockade_jail::as_file_user(user, group, || Ok(act())).unwrap()
    }

    /// The ordinary user.
    pub(super) fn user(&self) -> User {
        if self.host_start.is_some() { USER } else { own() }
    }

    /// The ids of an inside user on the host.
    pub(super) fn host(&self, user: User) -> (u32, u32) {
        match self.host_start {
            Some(start) => (start + user.user, start + user.group),
            None => (own().user, own().group),
        }
    }

    /// The owner and mode of a file as the host sees them.
    pub(super) fn owner_and_mode(&self, path: &str) -> ((u32, u32), u32) {
        use std::os::unix::fs::MetadataExt as _;
        let found = std::fs::symlink_metadata(self.at(path)).unwrap();
        ((found.uid(), found.gid()), found.mode() & 0o7777)
    }

    /// The names in a directory that have the prefix of temporary files.
    pub(super) fn leftovers(&self, path: &str) -> Vec<PathBuf> {
        let names = std::fs::read_dir(self.at(path)).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| path.to_string_lossy().contains(".stockade-")).collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            // This closes the write end of the pipe, so `read` returns.
            drop(holder.stdin.take());
            holder.wait().unwrap();
        }
    }
}

/// A directory of the host's root with entries that all users may read and entries that only root
/// may read.
fn foreign(path: &Path) -> PathBuf {
    std::fs::create_dir_all(path.join("private")).unwrap();
    for name in ["public", "secret", "private/public"] {
        std::fs::write(path.join(name), name).unwrap();
    }
    chmod(path.join("secret"), 0o600);
    chmod(path.join("private"), 0o700);
    chmod(path, 0o755);
    path.to_owned()
}

pub(super) fn own() -> User {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    User { user: user.as_raw(), group: group.as_raw() }
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(super) fn chmod(path: impl AsRef<Path>, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub(super) fn look_at(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

pub(super) fn path(text: impl AsRef<[u8]>) -> SandboxPath {
    SandboxPath::new(std::ffi::OsStr::from_bytes(text.as_ref())).unwrap()
}
