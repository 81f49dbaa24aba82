//! The user that a case runs as. Root runs the same test again as an ordinary user.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use stockade_runtime::conformance;
use stockade_test_support::{DIRECTORY, program, require_nextest};

use crate::native::{backend, bwrap_backend, image_backend};

/// The ordinary user whose id the tests use when they run as root.
const ORDINARY_USER: u32 = 1000;
/// Informs a test that its temporary files are on the file system that it needs.
const MOUNTED: &str = "STOCKADE_TEST_MOUNTED";
const NAMES: [&str; 3] = ["stockade", "echo", "probe"];

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a case as root, or records that this is not possible.
pub(crate) fn as_root(case: &str) {
    require_nextest();
    let no_root = || Err("the tests do not run as root".to_owned());
    conformance::run(case, if is_root() { backend() } else { no_root() });
}

/// Runs a case as an ordinary user.
pub(crate) fn as_user(case: &str) {
    do_as_user(|| conformance::run(case, backend()));
}

/// Runs a case in an image as root, or records that this is not possible.
pub(crate) fn image_as_root(case: &str) {
    require_nextest();
    let no_root = || Err("the tests do not run as root".to_owned());
    conformance::run(case, if is_root() { image_backend() } else { no_root() });
}

/// Runs a case with bubblewrap as root, or records that this is not possible.
pub(crate) fn bwrap_as_root(case: &str) {
    require_nextest();
    let no_root = || Err("the tests do not run as root".to_owned());
    conformance::run(case, if is_root() { bwrap_backend() } else { no_root() });
}

/// Runs a case with bubblewrap as an ordinary user.
pub(crate) fn bwrap_as_user(case: &str) {
    do_as_user(|| conformance::run(case, bwrap_backend()));
}

/// Runs part of a test as root, or records that this is not possible.
pub(crate) fn do_as_root(run: impl FnOnce()) {
    require_nextest();
    if is_root() { run() } else { conformance::skipped("the tests do not run as root") }
}

/// Runs part of a test as an ordinary user.
pub(crate) fn do_as_user(run: impl FnOnce()) {
    require_nextest();
    if !is_root() {
        return run();
    }
    let dir = tempfile::Builder::new().prefix("stockade-programs-").tempdir().unwrap();
    open_to_all(dir.path());
    for name in NAMES {
        link(&program(name), &dir.path().join(name));
    }
    let test = dir.path().join("test");
    link(&std::env::current_exe().unwrap(), &test);
    let mut again = Command::new(&test);
    again.env(DIRECTORY, dir.path()).uid(ORDINARY_USER).gid(ORDINARY_USER);
    run_again(&mut again);
}

/// Runs part of a test whose temporary files are on a file system of this size, which no other
/// process sees.
pub(crate) fn on_small_disk(mebibytes: u64, run: impl FnOnce()) {
    let mount = format!("mount -t tmpfs -o size={mebibytes}m,mode=1777 small \"$0\"");
    on_mount(&mount, run);
}

/// Runs part of a test whose temporary files are on an overlay, which cannot be the upper layer of
/// another overlay, as in a container.
pub(crate) fn on_overlay(run: impl FnOnce()) {
    // If a user mounts it, it stores its attributes where a user may write them.
    let options = if is_root() { "" } else { ",userxattr" };
    let mount = format!(
        "mount -t tmpfs -o mode=1777 below \"$0\" && cd \"$0\" && mkdir lower upper work && \
         chmod 1777 upper && cd / && \
         mount -t overlay -o lowerdir=\"$0\"/lower,upperdir=\"$0\"/upper,workdir=\"$0\"/work{options} \
         above \"$0\""
    );
    on_mount(&mount, run);
}

/// Runs part of a test whose temporary files are on the file system that a shell command has
/// mounted at `$0`.
fn on_mount(mount: &str, run: impl FnOnce()) {
    if std::env::var_os(MOUNTED).is_some() {
        return run();
    }
    let dir = tempfile::Builder::new().prefix("stockade-disk-").tempdir().unwrap();
    let mut again = Command::new("unshare");
    again.args(["--mount", "--propagation", "private"]);
    // A user may mount in a separate user namespace, and then drops the capabilities again.
    let weaken = if is_root() {
        ""
    } else {
        again.args(["--user", "--map-current-user", "--keep-caps"]);
        "setpriv --inh-caps=-all --ambient-caps=-all"
    };
    let script = format!("{mount} && exec {weaken} \"$@\"");
    again.args(["sh", "-c", &script]).arg(dir.path()).arg(std::env::current_exe().unwrap());
    run_again(again.env(MOUNTED, "yes").env("TMPDIR", dir.path()));
}

/// Runs this test again in a program that gets the arguments of a test.
fn run_again(program: &mut Command) {
    let thread = std::thread::current();
    let output = program
        .args([thread.name().unwrap(), "--exact", "--include-ignored", "--nocapture"])
        // Only the first process writes the log.
        .env_remove("STOCKADE_SKIP_LOG")
        .current_dir("/")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let reply = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "run again:\n{reply}");
    assert!(reply.contains("1 passed"), "no test of that name ran:\n{reply}");
    for line in reply.lines().filter(|line| line.starts_with("SKIPPED: ")) {
        conformance::skipped(line.splitn(3, ": ").last().unwrap_or_default());
    }
}

/// Makes a program accessible to all users: by a hard link where possible, otherwise by a copy.
fn link(from: &Path, to: &Path) {
    let readable = from.metadata().unwrap().permissions().mode() & 0o555 == 0o555;
    if !readable || std::fs::hard_link(from, to).is_err() {
        // Copied by another process: if a fork inherited a writable descriptor of the copy,
        // executing the copy would fail with `ETXTBSY`.
        assert!(Command::new("cp").args([from, to]).status().unwrap().success());
        open_to_all(to);
    }
}

fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// One test as root and one as an ordinary user for each scene, passed to the `run_scene` of its file.
macro_rules! scenes {
    ($($name:ident),+ $(,)?) => {
        mod root {
            //! As root.
            $(#[test]
            fn $name() {
                crate::identity::do_as_root(|| super::run_scene(super::$name));
            })+
        }

        mod user {
            //! As an ordinary user.
            $(#[test]
            fn $name() {
                crate::identity::do_as_user(|| super::run_scene(super::$name));
            })+
        }
    };
}

pub(crate) use scenes;
