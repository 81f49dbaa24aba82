//! Attacks on the mount table: new mounts, read-only ones made writable, and information in the
//! table about the host.

use std::ffi::CString;
use std::path::Path;

use crate::attempt::{Attempt, all_refused, call, in_child, last_error, raw_syscall};
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[Attack] = &[
    ("mount-tmpfs", mount_tmpfs),
    ("bind-mount", bind_mount),
    ("new-mount-calls", new_mount_calls),
    ("mount-in-namespace", mount_in_namespace),
    ("make-writable", make_writable),
    ("unmount", unmount),
    ("change-root", change_root),
    ("host-paths", host_paths),
    ("shared-mounts", shared_mounts),
];

fn c_string(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

fn mount(source: &str, target: &str, kind: &str, flags: u64) -> i32 {
    let (source, target, kind) = (c_string(source), c_string(target), c_string(kind));
    raw_syscall(
        libc::SYS_mount,
        [
            source.as_ptr().addr(),
            target.as_ptr().addr(),
            kind.as_ptr().addr(),
            flags as usize,
            0,
            0,
        ],
    )
}

/// Every file system type that a new namespace would allow, and some that none does.
fn mount_tmpfs(_: &[String]) -> Verdict {
    let attempts: Vec<_> = ["tmpfs", "proc", "sysfs", "devpts", "mqueue", "cgroup2", "overlay"]
        .map(|kind| (kind.to_owned(), in_child(|| mount("none", "/tmp", kind, 0))))
        .into();
    all_refused(&attempts)
}

/// Bind-mounts one visible path over another, with and without recursion.
fn bind_mount(_: &[String]) -> Verdict {
    let attempts: Vec<_> = [libc::MS_BIND, libc::MS_BIND | libc::MS_REC, libc::MS_MOVE]
        .map(|flags| (format!("flags {flags:#x}"), in_child(|| mount("/usr", "/tmp", "", flags))))
        .into();
    all_refused(&attempts)
}

/// The descriptor-based mount calls, which a deny list written for `mount` misses (CVE-2021-41133),
/// and the parameter parser behind them (CVE-2022-0185).
fn new_mount_calls(_: &[String]) -> Verdict {
    let mut attempts = Vec::new();
    for kind in ["tmpfs", "proc", "ext4", "cgroup2"] {
        let kind_c = c_string(kind);
        let attempt = call(libc::SYS_fsopen, [kind_c.as_ptr().addr(), 0, 0, 0, 0, 0]);
        attempts.push((format!("fsopen {kind}"), attempt));
    }
    let usr = c_string("/usr");
    let here = libc::AT_FDCWD as usize;
    for (name, number, arguments) in [
        ("open_tree", libc::SYS_open_tree, [here, usr.as_ptr().addr(), 1, 0, 0, 0]),
        ("fspick", libc::SYS_fspick, [here, usr.as_ptr().addr(), 0, 0, 0, 0]),
    ] {
        attempts.push((name.to_owned(), call(number, arguments)));
    }
    all_refused(&attempts)
}

/// A new user namespace, and a mount in it.
fn mount_in_namespace(_: &[String]) -> Verdict {
    let attempt = in_child(|| {
        let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
        match raw_syscall(libc::SYS_unshare, [flags as usize, 0, 0, 0, 0, 0]) {
            0 => mount("none", "/tmp", "tmpfs", 0),
            error => error,
        }
    });
    all_refused(&[("unshare and mount".into(), attempt)])
}

/// `make-writable DIRECTORY…`: remounts each without its read-only flag by the old and the new call
/// (CVE-2026-46695), then tries to create a file in it.
fn make_writable(directories: &[String]) -> Verdict {
    /// `struct mount_attr`: clear MOUNT_ATTR_RDONLY, set nothing.
    const CLEAR_READ_ONLY: [u64; 4] = [0, 1, 0, 0];
    let mut escapes = Vec::new();
    for directory in directories {
        let path = c_string(directory);
        let remounts = [
            in_child(|| mount("none", directory, "", libc::MS_REMOUNT | libc::MS_BIND)),
            in_child(|| mount("none", directory, "", libc::MS_REMOUNT)),
            call(
                libc::SYS_mount_setattr,
                [
                    libc::AT_FDCWD as usize,
                    path.as_ptr().addr(),
                    0,
                    CLEAR_READ_ONLY.as_ptr().addr(),
                    size_of_val(&CLEAR_READ_ONLY),
                    0,
                ],
            ),
        ];
        if remounts.contains(&Attempt::Done) {
            escapes.push(format!("{directory} was remounted"));
        }
        let file = Path::new(directory).join("made-by-the-probe");
        if std::fs::write(&file, "x").is_ok() {
            let _ = std::fs::remove_file(&file);
            escapes.push(format!("{directory} is writable"));
        }
    }
    Verdict::unless(&escapes, "all stayed read-only")
}

/// Unmounts a path, to see what it covers.
fn unmount(_: &[String]) -> Verdict {
    let mut attempts = Vec::new();
    for path in ["/proc", "/tmp", "/etc", "/dev", "/"] {
        let target = c_string(path);
        for flags in [0, libc::MNT_DETACH as usize] {
            let attempt = call(libc::SYS_umount2, [target.as_ptr().addr(), flags, 0, 0, 0, 0]);
            attempts.push((format!("umount {path} flags {flags}"), attempt));
        }
    }
    all_refused(&attempts)
}

/// `chroot` to get a working directory outside the root, and `pivot_root`.
fn change_root(_: &[String]) -> Verdict {
    let tmp = c_string("/tmp");
    let pointer = tmp.as_ptr().addr();
    all_refused(&[
        ("chroot".into(), call(libc::SYS_chroot, [pointer, 0, 0, 0, 0, 0])),
        ("pivot_root".into(), call(libc::SYS_pivot_root, [pointer, pointer, 0, 0, 0, 0])),
    ])
}

/// `host-paths TOKEN…`: searches all descriptions of the mount table, old and new, for strings that
/// only the host's paths contain.
fn host_paths(tokens: &[String]) -> Verdict {
    let mut texts = Vec::new();
    for path in
        ["/proc/self/mountinfo", "/proc/self/mounts", "/proc/self/mountstats", "/proc/1/mountinfo"]
    {
        if let Ok(text) = std::fs::read(path) {
            texts.push((path.to_owned(), text));
        }
    }
    let by_call = statmount_texts();
    let seen = texts.len() + by_call.len();
    texts.extend(by_call);
    let mut escapes = Vec::new();
    for token in tokens {
        for (place, text) in &texts {
            if text.windows(token.len()).any(|window| window == token.as_bytes()) {
                escapes.push(format!("{place} tells `{token}`"));
            }
        }
    }
    Verdict::unless(&escapes, format!("{seen} descriptions read"))
}

/// The strings that `statmount` (Linux 6.8) returns for every mount that `listmount` lists.
fn statmount_texts() -> Vec<(String, Vec<u8>)> {
    const STATMOUNT: i64 = 457;
    const LISTMOUNT: i64 = 458;
    /// LSMT_ROOT: the root mount of this namespace.
    const ROOT: u64 = u64::MAX;
    /// Mount root, mount point, type, options and source.
    const STRINGS: u64 = 0x8 | 0x10 | 0x20 | 0x80 | 0x200;
    let list_request: [u64; 4] = [32, ROOT, 0, 0];
    let mut ids = [0_u64; 256];
    // SAFETY: the request has the length that it states and `ids` holds 256 elements.
    let count =
        unsafe { libc::syscall(LISTMOUNT, list_request.as_ptr(), ids.as_mut_ptr(), ids.len(), 0) };
    let mut texts = Vec::new();
    for id in ids.iter().take(usize::try_from(count).unwrap_or(0)) {
        let request: [u64; 4] = [32, *id, STRINGS, 0];
        let mut answer = vec![0_u8; 16 * 1024];
        // SAFETY: the request has the length that it states, and `answer` has the length that is
        // passed.
        let result = unsafe {
            libc::syscall(STATMOUNT, request.as_ptr(), answer.as_mut_ptr(), answer.len(), 0)
        };
        if result == 0 {
            texts.push((format!("statmount {id}"), answer));
        }
    }
    texts
}

/// Mounts that share events with a peer outside: a mount made inside would appear on the host.
fn shared_mounts(_: &[String]) -> Verdict {
    let Ok(table) = std::fs::read_to_string("/proc/self/mountinfo") else {
        return Verdict::Blocked(format!("no mount table to read: {}", last_error()));
    };
    let shared: Vec<_> = table
        .lines()
        .filter(|line| line.contains(" shared:") || line.contains(" master:"))
        .map(str::to_owned)
        .collect();
    Verdict::unless(&shared, format!("{} mounts, none shared", table.lines().count()))
}
