//! A world for one test: a temporary home, data directory and git project that belong to one
//! identity, and functions that run `stockade` in it.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use stockade_test_support::skip;
use stockade_test_support::{program, require_nextest};

use crate::call::{Call, Outcome};

/// The ordinary user whose id the tests use when they run as root.
const ORDINARY_USER: u32 = 1000;

/// The user that a test runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    Root,
    User,
}

/// Declares, for each function that takes a [`World`], one test as root and one as an ordinary
/// user. The compiler warns about a function that is not listed, because it is dead code.
macro_rules! as_root_and_as_user {
    ($($(#[$attribute:meta])* $name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            $(#[$attribute])*
            fn as_root() {
                $crate::harness::Identity::Root.runs(concat!(module_path!(), "::as_root"), super::$name);
            }

            #[test]
            $(#[$attribute])*
            fn as_user() {
                $crate::harness::Identity::User.runs(concat!(module_path!(), "::as_user"), super::$name);
            }
        }
    )+};
}

/// Whether the tests themselves run as root.
pub(crate) fn tests_run_as_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Identity {
    /// Runs a test in a new world of this identity, or records a skip if this identity is not
    /// available.
    pub(crate) fn runs(self, name: &str, test: impl FnOnce(&World)) {
        if self == Self::Root && !tests_run_as_root() {
            skip(name, "the tests do not run as root");
            return;
        }
        require_nextest();
        test(&World::new(self));
    }

    /// The user id on the host.
    pub(crate) fn uid(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::User if tests_run_as_root() => ORDINARY_USER,
            Self::User => rustix::process::geteuid().as_raw(),
        }
    }

    fn gid(self) -> u32 {
        match self {
            Self::User if !tests_run_as_root() => rustix::process::getegid().as_raw(),
            _ => self.uid(),
        }
    }

    /// Makes a command run as this identity, in no group but its own.
    pub(crate) fn assume(self, command: &mut Command) {
        use std::os::unix::process::CommandExt as _;
        if self == Self::User && tests_run_as_root() {
            // When a user id but no groups are set, the standard library clears the supplementary
            // groups.
            command.uid(self.uid()).gid(self.gid());
        }
    }
}

/// Everything that one test sees of the host. It is removed when dropped.
#[derive(Debug)]
pub(crate) struct World {
    root: tempfile::TempDir,
    pub(crate) identity: Identity,
    /// The project, a git repository with one commit.
    pub(crate) project: PathBuf,
}

impl World {
    /// A world whose project is called `project`.
    pub(crate) fn new(identity: Identity) -> Self {
        Self::with_project(identity, OsStr::new("project"))
    }

    /// A world whose project has this name.
    pub(crate) fn with_project(identity: Identity, name: &OsStr) -> Self {
        let root = tempfile::Builder::new().prefix("stockade-e2e-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(root.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let world = Self { project: root.path().join(name), root, identity };
        world.chown(world.root.path());
        for directory in [world.home(), world.data(), world.outside(), world.project.clone()] {
            fs::create_dir(&directory).unwrap();
            world.chown(&directory);
        }
        let programs = world.path("bin");
        fs::create_dir(&programs).unwrap();
        let probe = program("probe");
        for name in ["stockade", "stockade-server"] {
            link_or_copy(&program(name), &programs.join(name));
        }
        link_or_copy(&probe, &programs.join("probe"));
        // Not a hard link: tests change the owner of the project's files, which would affect all
        // links.
        let attacker = world.project.join("probe");
        copy_program(&probe, &attacker);
        fs::set_permissions(&attacker, PermissionsExt::from_mode(0o755)).unwrap();
        world.chown(&attacker);
        world.write("a.txt", "alpha\n");
        world.write("src/main.rs", "fn main() {}\n");
        world.write("src/deep/er/file.txt", "deep\n");
        world.write(".gitignore", "*.log\nbuild/\n/probe\n");
        world.git(&["init", "--quiet", "--initial-branch=main"]);
        world.git(&["add", "."]);
        world.git(&["commit", "--quiet", "--message=start"]);
        world
    }

    /// A path in the world, outside the project.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The caller's home directory.
    pub(crate) fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// Stockade's data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// A directory of the same identity that no sandbox may access.
    pub(crate) fn outside(&self) -> PathBuf {
        self.path("outside")
    }

    /// Makes this world's identity the file owner of a path.
    pub(crate) fn chown(&self, path: &Path) {
        if tests_run_as_root() {
            std::os::unix::fs::lchown(path, Some(self.identity.uid()), Some(self.identity.gid()))
                .unwrap();
        }
    }

    /// Changes the file owner of everything below a path. Programs there that are hard links to
    /// files shared by all tests are replaced by copies.
    pub(crate) fn chown_tree(&self, root: &Path, uid: impl Fn(u32) -> u32) {
        for (path, entry) in crate::host::Tree::of(root).entries {
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_file() && metadata.nlink() > 1 {
                let copy = path.with_extension("copy");
                copy_program(&path, &copy);
                fs::rename(&copy, &path).unwrap();
            }
            let id = Some(uid(entry.uid));
            std::os::unix::fs::lchown(path, id, id).unwrap();
        }
    }

    /// Writes a file of the project and creates missing parent directories.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.project.join(name);
        let missing: Vec<_> = path.ancestors().skip(1).take_while(|up| !up.exists()).collect();
        for directory in missing.into_iter().rev() {
            fs::create_dir(directory).unwrap();
            self.chown(directory);
        }
        fs::write(&path, content).unwrap();
        self.chown(&path);
        path
    }

    /// Writes a file into any directory of the world.
    pub(crate) fn plant(&self, path: &Path, content: &str) {
        let missing: Vec<_> = path.ancestors().skip(1).take_while(|up| !up.exists()).collect();
        for directory in missing.into_iter().rev() {
            fs::create_dir(directory).unwrap();
            self.chown(directory);
        }
        fs::write(path, content).unwrap();
        self.chown(path);
    }

    /// The text of a file of the project.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.project.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Whether anything, even a dangling symbolic link, exists at a path of the project.
    pub(crate) fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.project.join(name)).is_ok()
    }

    /// Runs git in the project as this identity and returns its output.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let mut command = self.command(OsStr::new("git"));
        command.args(["-c", "user.name=Test", "-c", "user.email=test@localhost"]).args(arguments);
        let output = command.output().expect("git runs");
        assert!(output.status.success(), "git {arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A command with this world's identity, directory and environment, not yet started.
    fn command(&self, program: &OsStr) -> Command {
        let mut command = self.command_of_tests(program);
        self.identity.assume(&mut command);
        command
    }

    /// The same with the identity of the tests.
    fn command_of_tests(&self, program: &OsStr) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.project)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", self.home())
            .env("STOCKADE_DATA_DIR", self.data())
            // Each test has its own server, and few of them need more than one sandbox.
            .env("STOCKADE_POOL", "2")
            .env("LANG", "C.UTF-8");
        command
    }

    /// The path of the binary as this world's identity sees it.
    pub(crate) fn binary(&self) -> PathBuf {
        self.path("bin/stockade")
    }

    /// The path of the probe on the host; in the project it is `./probe`.
    pub(crate) fn probe(&self) -> PathBuf {
        self.path("bin/probe")
    }

    /// `stockade ARGUMENTS`, not yet started.
    pub(crate) fn stockade<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Call {
        let mut command = self.command(self.binary().as_os_str());
        command.args(arguments);
        Call::new(command)
    }

    /// Any program on the host as this identity, not yet started.
    pub(crate) fn on_host<S: AsRef<OsStr>>(&self, program: &Path, arguments: &[S]) -> Call {
        let mut command = self.command(program.as_os_str());
        command.args(arguments);
        Call::new(command)
    }

    /// Any program in the network of a process, as this identity, not yet started. Only root may enter
    /// such a network.
    pub(crate) fn in_network_of(&self, process: &str, program: &Path, arguments: &[&str]) -> Call {
        let (uid, gid) = (self.identity.uid().to_string(), self.identity.gid().to_string());
        let mut command = self.command_of_tests(OsStr::new("/usr/bin/nsenter"));
        command.args(["-t", process, "-n", "--setuid", &uid, "--setgid", &gid, "--"]);
        command.arg(program).args(arguments);
        Call::new(command)
    }

    /// `stockade` started by the probe's helper `words`, which finally starts a command.
    pub(crate) fn stockade_by(&self, words: &[&str], arguments: &[&str]) -> Call {
        let binary = self.binary();
        let mut all = words.to_vec();
        all.push(binary.to_str().unwrap());
        all.extend(arguments);
        self.on_host(&self.probe(), &all)
    }

    /// Runs `stockade run OPTIONS -- COMMAND` until it ends.
    pub(crate) fn run(&self, options: &[&str], command: &[&str]) -> Outcome {
        let mut arguments = vec!["run"];
        arguments.extend(options);
        arguments.push("--");
        arguments.extend(command);
        self.stockade(&arguments).finish()
    }

    /// Runs `stockade run --discard -- sh -c SCRIPT` until it ends.
    pub(crate) fn shell(&self, script: &str) -> Outcome {
        self.run(&["--discard"], &["sh", "-c", script])
    }

    /// Runs `stockade run --review -- sh -c SCRIPT` until it ends; it must succeed.
    pub(crate) fn review(&self, script: &str) -> Outcome {
        let outcome = self.run(&["--review"], &["sh", "-c", script]);
        outcome.succeeds();
        outcome
    }

    /// Attacks from inside a sandbox.
    pub(crate) fn attack(&self, words: &[&str]) -> Outcome {
        self.attack_with(&[], words)
    }

    /// Attacks from inside a sandbox that was started with additional options.
    pub(crate) fn attack_with(&self, options: &[&str], words: &[&str]) -> Outcome {
        let mut all = vec!["--discard"];
        all.extend(options);
        let mut command = vec!["./probe"];
        command.extend(words);
        self.run(&all, &command)
    }

    /// The same attack without a sandbox, as this identity.
    pub(crate) fn attack_bare(&self, words: &[&str]) -> Outcome {
        self.on_host(&self.probe(), words).finish()
    }

    /// The same attack without a sandbox, with every capability in temporary namespaces.
    pub(crate) fn attack_unshared(&self, words: &[&str]) -> Outcome {
        let probe = self.probe();
        let mut all = vec!["apart", probe.to_str().unwrap()];
        all.extend(words);
        self.on_host(&probe, &all).finish()
    }

    /// The list that `stockade bundles --json` prints, newest first.
    pub(crate) fn bundles(&self) -> Vec<serde_json::Value> {
        let outcome = self.stockade(&["bundles", "--json"]).finish();
        outcome.succeeds();
        outcome.json()["bundles"].as_array().expect("a list of bundles").clone()
    }

    /// Everything at and below a path whose file name or content contains the token.
    pub(crate) fn files_with(&self, root: &Path, token: &str) -> Vec<PathBuf> {
        crate::host::Tree::of(root)
            .entries
            .into_iter()
            .filter(|(path, entry)| {
                path.to_string_lossy().contains(token) || entry.content_holds(token.as_bytes())
            })
            .map(|(path, _)| path)
            .collect()
    }
}

impl Drop for World {
    /// An ordinary user cannot remove the content of a directory that they may not enter, such as
    /// an overlay's `work`; root can. Processes of the data directory are ended first.
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The server's log helps to find out why a test failed.
            let log = fs::read_to_string(self.data().join("server/log")).unwrap_or_default();
            let _ = writeln!(std::io::stderr(), "the server's log:\n{log}");
        }
        let mut prune = self.command(self.binary().as_os_str());
        prune.args(["prune", "--all"]);
        crate::daemons::end_all(&self.data(), prune);
        let mut pending =
            if tests_run_as_root() { Vec::new() } else { vec![self.root.path().to_owned()] };
        while let Some(directory) = pending.pop() {
            let _ = fs::set_permissions(&directory, PermissionsExt::from_mode(0o700));
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    pending.push(entry.path());
                }
            }
        }
    }
}

/// Makes a program of the build accessible to all users: by a hard link where possible, otherwise
/// by a copy.
pub(crate) fn link_or_copy(from: &Path, to: &Path) {
    let readable = fs::metadata(from).unwrap().permissions().mode() & 0o555 == 0o555;
    if !readable || fs::hard_link(from, to).is_err() {
        copy_program(from, to);
        fs::set_permissions(to, PermissionsExt::from_mode(0o755)).unwrap();
    }
}

/// Copies a program in a separate process: if a fork of another test inherited a writable
/// descriptor of the copy, executing the copy would fail with `ETXTBSY`.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

/// A change of file owners in one world does not affect other worlds.
#[test]
fn worlds_are_given_away_one_by_one() {
    if !tests_run_as_root() {
        skip("harness::worlds_are_given_away_one_by_one", "the tests do not run as root");
        return;
    }
    let (given, other) = (World::new(Identity::Root), World::new(Identity::Root));
    let before = crate::host::Tree::of(&other.path(""));
    given.chown_tree(&given.path(""), |_| 1000);
    before.assert_same(&crate::host::Tree::of(&other.path("")), "the other world");
    let probe = crate::host::Tree::of(&given.project.join("probe"));
    assert!(probe.entries.values().all(|entry| entry.uid == 1000));
}
