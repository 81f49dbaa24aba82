//! Attacks through the file tree: reading files of the host, devices, files that mean something
//! else outside the sandbox.

use std::ffi::CString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::attempt::{Attempt, all_refused, call, in_child, last_error};
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[Attack] = &[
    ("read", read),
    ("find", find),
    ("write-outside", write_outside),
    ("devices", devices),
    ("open-devices", open_devices),
    ("mknod", mknod),
    ("open-by-handle", open_by_handle),
    ("file-capabilities", file_capabilities),
    ("set-id-files", set_id_files),
    ("link-system-file", link_system_file),
    ("overlay-attributes", overlay_attributes),
    ("host-attributes", host_attributes),
];

/// `read PATH…`: reads each host file by its path and by every indirect path to it.
fn read(paths: &[String]) -> Verdict {
    let mut prefixes: Vec<String> = vec![
        String::new(),
        "/..".repeat(32),
        "/proc/self/root".into(),
        "/proc/self/cwd".to_owned() + &"/..".repeat(32),
        "/proc/thread-self/root".into(),
        "/dev/fd/0".into(),
        "/dev/../..".into(),
        "/tmp/../..".into(),
    ];
    for pid in process_ids() {
        for name in ["root", "cwd", "fd/0", "fd/3", "fd/4", "fd/5", "fd/10"] {
            prefixes.push(format!("/proc/{pid}/{name}"));
            prefixes.push(format!("/proc/{pid}/{name}{}", "/..".repeat(32)));
        }
    }
    let mut escapes = Vec::new();
    for path in paths {
        for prefix in &prefixes {
            let path = format!("{prefix}{path}");
            let mut bytes = [0; 64];
            if let Ok(length) = File::open(&path).and_then(|mut file| file.read(&mut bytes)) {
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                escapes.push(format!("read {path}: {text:?}"));
            } else if std::fs::symlink_metadata(&path).is_ok() {
                escapes.push(format!("saw {path}"));
            }
        }
    }
    Verdict::unless(&escapes, format!("{} ways tried", prefixes.len() * paths.len()))
}

pub(crate) fn process_ids() -> Vec<u32> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// `find TOKEN`: searches everything visible for a name that contains the token.
fn find(arguments: &[String]) -> Verdict {
    let token = &arguments[0];
    let mut found = Vec::new();
    let mut seen = 0_u64;
    let mut directories = vec![PathBuf::from("/")];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            seen += 1;
            let path = entry.path();
            if entry.file_name().to_string_lossy().contains(token.as_str()) {
                found.push(path.display().to_string());
            }
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && !path.starts_with("/proc") && !path.starts_with("/sys") {
                directories.push(path);
            }
        }
    }
    if seen < 50 {
        return Verdict::Broken(format!("only {seen} names were seen"));
    }
    Verdict::unless(&found, format!("{seen} names seen"))
}

/// `write-outside DIRECTORY…`: creates a file in each directory, and in the root.
fn write_outside(directories: &[String]) -> Verdict {
    let mut escapes = Vec::new();
    for directory in directories {
        let path = Path::new(directory).join("made-by-the-probe");
        if std::fs::write(&path, "x").is_ok() {
            let _ = std::fs::remove_file(&path);
            escapes.push(format!("made {}", path.display()));
        }
        if std::fs::create_dir(&path).is_ok() {
            let _ = std::fs::remove_dir(&path);
            escapes.push(format!("made the directory {}", path.display()));
        }
    }
    Verdict::unless(&escapes, format!("{} places refused", directories.len()))
}

/// Every visible device node must be one of the harmless few.
fn devices(_: &[String]) -> Verdict {
    // Major and minor numbers of null, zero, full, random, urandom, tty and ptmx.
    const HARMLESS: [(u32, u32); 7] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)];
    let mut escapes = Vec::new();
    let mut harmless = 0;
    let mut directories = vec![PathBuf::from("/dev")];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let Ok(metadata) = std::fs::symlink_metadata(entry.path()) else { continue };
            let kind = metadata.file_type();
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_block_device() || kind.is_char_device() {
                let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
                // 136: the sandbox's own pseudo-terminals.
                if kind.is_char_device() && (HARMLESS.contains(&(major, minor)) || major == 136) {
                    harmless += 1;
                } else {
                    escapes.push(format!("{} is {major}:{minor}", entry.path().display()));
                }
            } else if kind.is_socket() || kind.is_fifo() {
                escapes.push(format!("{} is a socket or pipe", entry.path().display()));
            }
        }
    }
    if harmless == 0 {
        return Verdict::Broken("not even /dev/null was seen".into());
    }
    Verdict::unless(&escapes, format!("{harmless} harmless devices"))
}

/// Devices by their common names.
fn open_devices(_: &[String]) -> Verdict {
    const NAMES: [&str; 28] = [
        "kvm",
        "mem",
        "kmem",
        "port",
        "fuse",
        "net/tun",
        "vda",
        "sda",
        "nvme0n1",
        "loop0",
        "loop-control",
        "mapper/control",
        "snapshot",
        "uinput",
        "vhost-net",
        "vhost-vsock",
        "vsock",
        "userfaultfd",
        "nvram",
        "hpet",
        "rtc0",
        "console",
        "tty0",
        "tty1",
        "kmsg",
        "cpu_dma_latency",
        "autofs",
        "btrfs-control",
    ];
    let mut escapes = Vec::new();
    for name in NAMES {
        let path = c_path(Path::new("/dev").join(name));
        // SAFETY: `path` outlives the call; the descriptor ends with the child.
        let attempt = in_child(|| unsafe {
            if libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_NONBLOCK) >= 0 {
                0
            } else {
                last_error()
            }
        });
        if attempt == Attempt::Done {
            escapes.push(format!("opened /dev/{name}"));
        }
    }
    Verdict::unless(&escapes, "none can be opened")
}

/// Creates device nodes: the disk, the memory, a whiteout that would fake a deletion.
fn mknod(_: &[String]) -> Verdict {
    let disk = std::fs::metadata("/").map_or(0, |metadata| metadata.dev());
    let mut attempts = Vec::new();
    for (name, kind, device) in [
        ("the disk", libc::S_IFBLK, disk),
        ("/dev/mem", libc::S_IFCHR, libc::makedev(1, 1)),
        ("/dev/null", libc::S_IFCHR, libc::makedev(1, 3)),
        ("a whiteout", libc::S_IFCHR, libc::makedev(0, 0)),
    ] {
        for directory in [".", "/tmp"] {
            let path = c_path(Path::new(directory).join("node-made-by-the-probe"));
            let here = libc::AT_FDCWD as usize;
            let mode = (kind | 0o666) as usize;
            let arguments = [here, path.as_ptr().addr(), mode, device as usize, 0, 0];
            let attempt = call(libc::SYS_mknodat, arguments);
            // A whiteout outside an overlay is only an inert node.
            if attempt == Attempt::Done && name == "a whiteout" && directory == "/tmp" {
                continue;
            }
            attempts.push((format!("{name} in {directory}"), attempt));
        }
    }
    all_refused(&attempts)
}

/// Opens the root of a file system by its handle, bypassing every mount over it ("shocker").
fn open_by_handle(_: &[String]) -> Verdict {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        data: [u8; 128],
    }
    let mut attempts = Vec::new();
    for dir in ["/", "/usr", ".", "/etc/passwd"] {
        let attempt = in_child(|| {
            let path = c_path(PathBuf::from(dir));
            let mut handle = Handle { bytes: 128, kind: 0, data: [0; 128] };
            let mut mount = 0_i32;
            // SAFETY: both out-parameters outlive the call and the handle states its size.
            let named = unsafe {
                libc::syscall(
                    libc::SYS_name_to_handle_at,
                    libc::AT_FDCWD,
                    path.as_ptr(),
                    &raw mut handle,
                    &raw mut mount,
                    0,
                )
            };
            if named < 0 {
                // Inode 2, the root of an ext file system, as the original exploit guessed it.
                handle = Handle { bytes: 8, kind: 1, data: [0; 128] };
                handle.data[0] = 2;
            }
            let at = match File::open(dir) {
                Ok(file) => file,
                Err(error) => return error.raw_os_error().unwrap_or(255),
            };
            let descriptor = std::os::fd::AsRawFd::as_raw_fd(&at);
            // SAFETY: the handle outlives the call.
            let opened = unsafe {
                libc::syscall(libc::SYS_open_by_handle_at, descriptor, &raw const handle, 0)
            };
            if opened < 0 { last_error() } else { 0 }
        });
        attempts.push((format!("a handle of {dir}"), attempt));
    }
    all_refused(&attempts)
}

/// A file that would carry capabilities on the host (CVE-2021-3493 copied them up).
fn file_capabilities(_: &[String]) -> Verdict {
    let path = Path::new("capable-file-of-the-probe");
    if let Err(error) = std::fs::write(path, "#!/bin/sh\n") {
        return Verdict::Broken(format!("cannot write a file: {error}"));
    }
    // VFS_CAP_REVISION_2, effective, every capability.
    let mut value = [0_u8; 20];
    value[..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
    value[4..8].fill(0xff);
    let attempt = set_attribute(path, c"security.capability", &value);
    let _ = std::fs::remove_file(path);
    all_refused(&[("security.capability".into(), attempt)])
}

/// `set-id-files DIRECTORY`: creates files with the set-user-id and set-group-id bits by every
/// system call that takes a mode.
fn set_id_files(arguments: &[String]) -> Verdict {
    const MODE: usize = 0o6755;
    let here = libc::AT_FDCWD as usize;
    let create = (libc::O_CREAT | libc::O_WRONLY) as usize;
    let mut escapes = Vec::new();
    let mut check = |name: &str, make: &dyn Fn(usize)| {
        let path = Path::new(&arguments[0]).join(name);
        let c_path = c_path(path.clone());
        make(c_path.as_ptr().addr());
        if std::fs::metadata(&path).is_ok_and(|metadata| metadata.mode() & 0o6000 != 0) {
            escapes.push(format!("{name} made {}", path.display()));
        }
    };
    let made = |path: usize| {
        call(libc::SYS_openat, [here, path, create, 0o755, 0, 0]);
    };
    check("open", &|path| {
        call(libc::SYS_open, [path, create, MODE, 0, 0, 0]);
    });
    check("creat", &|path| {
        call(libc::SYS_creat, [path, MODE, 0, 0, 0, 0]);
    });
    check("openat", &|path| {
        call(libc::SYS_openat, [here, path, create, MODE, 0, 0]);
    });
    check("openat2", &|path| {
        let how = [create as u64, MODE as u64, 0];
        call(libc::SYS_openat2, [here, path, how.as_ptr().addr(), size_of_val(&how), 0, 0]);
    });
    check("mknod", &|path| {
        call(libc::SYS_mknod, [path, libc::S_IFREG as usize | MODE, 0, 0, 0, 0]);
    });
    check("mknodat", &|path| {
        call(libc::SYS_mknodat, [here, path, libc::S_IFREG as usize | MODE, 0, 0, 0]);
    });
    check("chmod", &|path| {
        made(path);
        call(libc::SYS_chmod, [path, MODE, 0, 0, 0, 0]);
    });
    check("fchmodat", &|path| {
        made(path);
        call(libc::SYS_fchmodat, [here, path, MODE, 0, 0, 0]);
    });
    check("fchmodat2", &|path| {
        made(path);
        call(libc::SYS_fchmodat2, [here, path, MODE, 0, 0, 0]);
    });
    check("there", &|path| {
        in_child(|| {
            // SAFETY: the path outlives the call; the descriptor ends with the child.
            let descriptor =
                unsafe { libc::open(std::ptr::with_exposed_provenance(path), libc::O_RDONLY) };
            crate::attempt::raw_syscall(libc::SYS_fchmod, [descriptor as usize, MODE, 0, 0, 0, 0])
        });
    });
    Verdict::unless(&escapes, "no set-id bit could be set")
}

/// Creates hard links to files of other users.
fn link_system_file(_: &[String]) -> Verdict {
    let mut escapes = Vec::new();
    for source in ["/etc/passwd", "/usr/bin/env", "/proc/1/exe", "/bin/sh"] {
        for target in ["linked-by-the-probe", "/tmp/linked-by-the-probe"] {
            if std::fs::hard_link(source, target).is_ok() {
                let _ = std::fs::remove_file(target);
                escapes.push(format!("linked {source} to {target}"));
            }
        }
    }
    Verdict::unless(&escapes, "no link was made")
}

/// `overlay-attributes DIRECTORY`: extended attributes that the overlay itself would interpret: an
/// opaque directory hides what is below it, a redirect points to another path. Where they can be
/// set they must have no effect: the host checks the bundle.
fn overlay_attributes(arguments: &[String]) -> Verdict {
    let directory = Path::new(&arguments[0]);
    let mut reported = Vec::new();
    for (name, value) in [
        (c"user.overlay.opaque", &b"y"[..]),
        (c"user.overlay.redirect", b"/etc"),
        (c"user.overlay.origin", b"\0"),
        (c"user.overlay.whiteouts", b"y"),
        (c"trusted.overlay.opaque", b"y"),
        (c"trusted.overlay.redirect", b"/etc"),
    ] {
        reported.push(format!(
            "{}: {}",
            name.to_string_lossy(),
            set_attribute(directory, name, value)
        ));
    }
    Verdict::Blocked(reported.join(", "))
}

/// `host-attributes PATH…`: the attributes in which an overlay of the host records renames, and in which
/// Stockade records that it does so. Only the host may write them.
fn host_attributes(paths: &[String]) -> Verdict {
    let mut escapes = Vec::new();
    for path in paths {
        for (name, value) in [
            (c"trusted.overlay.redirect", &b"/src"[..]),
            (c"trusted.overlay.redirect", b"../../../etc"),
            (c"trusted.overlay.opaque", b"y"),
            (c"trusted.overlay.metacopy", b""),
            (c"trusted.overlay.overlay.redirect", b"/src"),
            (c"trusted.stockade.marks", b"1"),
        ] {
            let attempt = set_attribute(Path::new(path), name, value);
            if !matches!(attempt, Attempt::Failed(libc::EPERM | libc::EOPNOTSUPP)) {
                escapes.push(format!("{} of {path}: {attempt}", name.to_string_lossy()));
            }
        }
    }
    Verdict::unless(&escapes, "no attribute of the host can be set")
}

fn set_attribute(path: &Path, name: &std::ffi::CStr, value: &[u8]) -> Attempt {
    let path = c_path(path.to_owned());
    in_child(|| {
        // SAFETY: all three pointers outlive the call and `value` has the stated length.
        let result = unsafe {
            libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
        };
        if result == 0 { 0 } else { last_error() }
    })
}

fn c_path(path: PathBuf) -> CString {
    CString::new(path.into_os_string().into_encoded_bytes()).unwrap_or_default()
}
