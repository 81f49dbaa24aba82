//! The machine itself: what an init mounts and loads first, and the end of the machine.

use std::fs::{File, create_dir_all, read_dir, write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, mount, mount_bind, mount_move};
use rustix::process::{chdir, chroot};
use rustix::system::{RebootCommand, finit_module, reboot};

/// How long the machine may run; the process that booted it may no longer exist to end it.
const DEADLINE: Duration = Duration::from_secs(290);

/// The persistent disk, if the machine has one.
const DISK: &str = "/dev/vda";

/// `MODULE_INIT_COMPRESSED_FILE` of `finit_module(2)`.
const COMPRESSED: i32 = 4;

/// Prepares the environment in which ordinary programs run.
pub(crate) fn prepare() {
    std::thread::spawn(|| {
        std::thread::sleep(DEADLINE);
        end();
    });
    switch_root();
    let none = MountFlags::empty();
    mount("dev", "/dev", "devtmpfs", none, None).unwrap();
    mount("proc", "/proc", "proc", none, None).unwrap();
    mount("sys", "/sys", "sysfs", none, None).unwrap();
    // With the mount options of systemd.
    let options = c"nsdelegate,memory_recursiveprot";
    mount("cgroup2", "/sys/fs/cgroup", "cgroup2", none, options).unwrap();
    load_modules();
    let home = if Path::new(DISK).exists() { (DISK, "ext4") } else { ("tmpfs", "tmpfs") };
    for (place, (source, kind)) in
        [("/tmp", ("tmpfs", "tmpfs")), ("/home", home), ("/run", ("tmpfs", "tmpfs"))]
    {
        mount(source, place, kind, none, None).unwrap();
    }
    create_dir_all("/dev/shm").unwrap();
    mount("tmpfs", "/dev/shm", "tmpfs", none, None).unwrap();
}

/// Loads all modules, in the order of their dependencies.
fn load_modules() {
    let mut left: Vec<PathBuf> =
        read_dir("/modules").unwrap().map(|module| module.unwrap().path()).collect();
    while !left.is_empty() {
        let before = left.len();
        left.retain(|path| {
            let is_plain = path.extension().is_some_and(|extension| extension == "ko");
            let flags = if is_plain { 0 } else { COMPRESSED };
            finit_module(File::open(path).unwrap(), c"", flags).is_err()
        });
        assert!(left.len() < before, "cannot be loaded: {left:?}");
    }
}

/// `pivot_root(2)` never works on the file system that the kernel unpacked, but does on another
/// mount of it.
fn switch_root() {
    mount_bind("/", "/new-root").unwrap();
    chdir("/new-root").unwrap();
    mount_move(".", "/").unwrap();
    chroot(".").unwrap();
    chdir("/").unwrap();
}

/// Resets the machine immediately, as a loss of power does: no process is ended, nothing is written
/// back (the kernel's `Documentation/admin-guide/sysrq.rst`).
pub(crate) fn reset() -> ! {
    write("/proc/sysrq-trigger", "b").unwrap();
    loop {
        std::thread::park();
    }
}

/// Ends the machine: without `-no-reboot` it would start again.
pub(crate) fn end() -> ! {
    rustix::fs::sync();
    let refused = reboot(RebootCommand::Restart);
    panic!("the machine goes on: {refused:?}");
}
