//! Attacks through /proc, /sys and the cgroup tree: the host's settings, and the information in
//! them.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[Attack] = &[
    ("write-knob", write_knob),
    ("write-proc", write_proc),
    ("write-sys", write_sys),
    ("cgroup-files", cgroup_files),
    ("kernel-secrets", kernel_secrets),
    ("host-identity", host_identity),
    ("proc-remount-targets", proc_remount_targets),
];

/// Opens for writing and writes nothing. The null device, which masks files of /proc, does not
/// count.
fn can_write(path: &Path) -> bool {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = OpenOptions::new().write(true).custom_flags(flags).open(path);
    opened.and_then(|file| file.metadata()).is_ok_and(|metadata| {
        std::os::unix::fs::MetadataExt::rdev(&metadata) != libc::makedev(1, 3)
    })
}

/// `write-knob PATH…`: opening each for writing must fail.
fn write_knob(paths: &[String]) -> Verdict {
    let mut escapes = Vec::new();
    let absent = paths.iter().filter(|path| !Path::new(path).exists()).count();
    for path in paths {
        if can_write(Path::new(path)) {
            escapes.push(format!("{path} opened for writing"));
        }
        // Through the process's own descriptors, which some masks miss.
        let read_only = File::open(path);
        if let Ok(file) = read_only {
            let number = std::os::fd::AsRawFd::as_raw_fd(&file);
            if can_write(Path::new(&format!("/proc/self/fd/{number}"))) {
                escapes.push(format!("{path} reopened for writing"));
            }
        }
    }
    Verdict::unless(&escapes, format!("{} knobs refused, {absent} of them absent", paths.len()))
}

/// Everything below /proc that is not about a process.
fn write_proc(_: &[String]) -> Verdict {
    let skip = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_digit()) || matches!(name, "self" | "thread-self")
    };
    let files = walk(Path::new("/proc"), &skip, 12);
    if files.len() < 5 {
        return Verdict::Broken(format!("only {} files below /proc", files.len()));
    }
    let escapes: Vec<_> = files
        .iter()
        .filter(|path| can_write(path))
        .map(|path| format!("{} opened for writing", path.display()))
        .collect();
    Verdict::unless(&escapes, format!("{} files refused", files.len()))
}

/// Everything below /sys, if it exists.
fn write_sys(_: &[String]) -> Verdict {
    let files = walk(Path::new("/sys"), &|_| false, 5);
    let escapes: Vec<_> = files
        .iter()
        .filter(|path| can_write(path))
        .map(|path| format!("{} opened for writing", path.display()))
        .collect();
    Verdict::unless(&escapes, format!("{} files refused", files.len()))
}

/// The files below a directory, up to a depth, without following symbolic links.
fn walk(root: &Path, skip: &dyn Fn(&str) -> bool, depth: usize) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories = vec![(root.to_owned(), depth)];
    while let Some((directory, depth)) = directories.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let top = directory == root && skip(&entry.file_name().to_string_lossy());
            let Ok(kind) = entry.file_type() else { continue };
            if top || kind.is_symlink() {
                continue;
            }
            if !kind.is_dir() {
                files.push(entry.path());
            } else if depth > 0 {
                directories.push((entry.path(), depth - 1));
            }
        }
    }
    files
}

/// Any visible cgroup tree, especially a `release_agent` (CVE-2022-0492).
fn cgroup_files(_: &[String]) -> Verdict {
    let mut escapes = Vec::new();
    for name in ["release_agent", "notify_on_release", "cgroup.procs", "tasks", "devices.allow"] {
        for path in walk(Path::new("/sys/fs/cgroup"), &|_| false, 3) {
            if path.file_name().is_some_and(|file| file == name) {
                escapes.push(path.display().to_string());
            }
        }
    }
    if let Ok(table) = std::fs::read_to_string("/proc/self/mountinfo") {
        escapes.extend(table.lines().filter(|line| line.contains(" - cgroup")).map(str::to_owned));
    }
    Verdict::unless(&escapes, "no cgroup tree is visible")
}

/// Files that reveal the kernel or the machine: they must be absent or empty.
fn kernel_secrets(_: &[String]) -> Verdict {
    const PATHS: [&str; 20] = [
        "/proc/kallsyms",
        "/proc/keys",
        "/proc/key-users",
        "/proc/config.gz",
        "/proc/cmdline",
        "/proc/kcore",
        "/proc/kmsg",
        "/proc/sched_debug",
        "/proc/timer_list",
        "/proc/latency_stats",
        "/proc/modules",
        "/proc/iomem",
        "/proc/ioports",
        "/proc/slabinfo",
        "/proc/vmallocinfo",
        "/proc/kpagecount",
        "/proc/sysrq-trigger",
        "/proc/acpi/wakeup",
        "/proc/scsi/scsi",
        "/sys/firmware/dmi/tables/DMI",
    ];
    let mut escapes = Vec::new();
    for path in PATHS {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let mut bytes = [0; 256];
        if let Ok(length @ 1..) = file.and_then(|mut file| file.read(&mut bytes)) {
            // If the kernel has zeroed the addresses, only names are revealed; they must still be
            // hidden.
            escapes.push(format!("{path} gives {length} bytes or more"));
        }
    }
    Verdict::unless(&escapes, "none can be read")
}

/// `host-identity NAME MACHINE-ID BOOT-ID`: strings that identify the host, wherever they may be.
fn host_identity(arguments: &[String]) -> Verdict {
    const PATHS: [&str; 8] = [
        "/proc/sys/kernel/hostname",
        "/etc/hostname",
        "/etc/hosts",
        "/etc/machine-id",
        "/var/lib/dbus/machine-id",
        "/proc/sys/kernel/random/boot_id",
        "/proc/version_signature",
        "/etc/mailname",
    ];
    let mut escapes = Vec::new();
    let mut texts: Vec<(String, String)> = PATHS
        .iter()
        .filter_map(|path| Some(((*path).to_owned(), std::fs::read_to_string(path).ok()?)))
        .collect();
    let mut name = [0_u8; 256];
    // SAFETY: `name` has the stated length.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) };
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    texts.push(("gethostname".into(), String::from_utf8_lossy(&name[..length]).into_owned()));
    for token in arguments.iter().filter(|token| !token.is_empty()) {
        for (place, text) in &texts {
            if text.split(|c: char| c.is_whitespace()).any(|word| word == token) {
                escapes.push(format!("{place} tells `{token}`"));
            }
        }
    }
    Verdict::unless(&escapes, format!("{} places read", texts.len()))
}

/// The mask of a file of /proc must itself be harmless: neither writable nor a file that the
/// sandbox could have created (CVE-2025-31133, CVE-2025-52565).
fn proc_remount_targets(_: &[String]) -> Verdict {
    let mut escapes = Vec::new();
    for path in ["/proc/kcore", "/proc/keys", "/proc/sysrq-trigger", "/proc/timer_list"] {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if metadata.file_type().is_symlink() => {
                escapes.push(format!("{path} is a link"));
            }
            _ => {}
        }
        if can_write(Path::new(path)) {
            escapes.push(format!("{path} opened for writing"));
        }
    }
    for device in ["/dev/null", "/dev/console"] {
        if std::fs::remove_file(device).is_ok() {
            escapes.push(format!("{device} was removed"));
        }
        if std::fs::rename(device, "/dev/renamed-by-the-probe").is_ok() {
            escapes.push(format!("{device} was renamed"));
        }
    }
    if std::os::unix::fs::symlink("/proc/sys/kernel/core_pattern", "/dev/made-by-the-probe").is_ok()
    {
        escapes.push("a link was made in /dev".into());
    }
    Verdict::unless(&escapes, "masks are neither links nor writable")
}
