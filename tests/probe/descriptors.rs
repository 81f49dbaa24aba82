//! Attacks through open descriptors: what was left open by the host, what
//! standard input and output can be turned into, the runtime's own binary.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt};

use crate::attempt::{error_name, last_error};
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[Attack] = &[
    ("inherited-descriptors", inherited_descriptors),
    ("walk-descriptors", walk_descriptors),
    ("reopen-standard", reopen_standard),
    ("truncate-standard", truncate_standard),
    ("own-executable", own_executable),
    ("init-executable", init_executable),
];

/// The descriptors of this process, without the one that lists them.
fn open_descriptors() -> Vec<i32> {
    let Ok(listing) = std::fs::read_dir("/proc/self/fd") else {
        return (0..1024).filter(|&number| is_open(number)).collect();
    };
    let numbers: Vec<i32> =
        listing.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    numbers.into_iter().filter(|&number| is_open(number)).collect()
}

fn is_open(number: i32) -> bool {
    // SAFETY: asks for a flag of a descriptor that may or may not be open.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

/// Any descriptor above the standard three.
fn inherited_descriptors(_: &[String]) -> Verdict {
    let extra: Vec<_> = open_descriptors()
        .into_iter()
        .filter(|&number| number > 2)
        .map(|number| {
            let target = std::fs::read_link(format!("/proc/self/fd/{number}"));
            format!(
                "{number} is {}",
                target.map_or_else(|e| e.to_string(), |t| t.display().to_string())
            )
        })
        .collect();
    Verdict::unless(&extra, "only the standard three are open")
}

/// `walk-descriptors CANARY`: reaches a host file from every open descriptor, its link in /proc
/// and the directories of the processes that can be seen (CVE-2024-21626).
fn walk_descriptors(arguments: &[String]) -> Verdict {
    let canary = arguments[0].trim_start_matches('/');
    let up = "../".repeat(16);
    let mut escapes = Vec::new();
    let mut tried = 0;
    for number in open_descriptors() {
        for path in [canary.to_owned(), format!("{up}{canary}")] {
            tried += 1;
            let Ok(path) = std::ffi::CString::new(path) else { continue };
            // SAFETY: `path` outlives the call.
            let found = unsafe { libc::openat(number, path.as_ptr(), libc::O_RDONLY) };
            if found >= 0 {
                // SAFETY: the descriptor was just opened and belongs to nobody else.
                drop(unsafe { File::from_raw_fd(found) });
                escapes.push(format!("opened below descriptor {number}"));
            }
        }
        for link in [
            format!("/proc/self/fd/{number}/{canary}"),
            format!("/proc/self/fd/{number}/{up}{canary}"),
            format!("/dev/fd/{number}/{canary}"),
        ] {
            tried += 1;
            if File::open(&link).is_ok() {
                escapes.push(link);
            }
        }
    }
    Verdict::unless(&escapes, format!("{tried} ways tried"))
}

/// Opens what standard input, output and error are once more, with more rights: a host file
/// that was meant to be appended to could be read, a host directory entered.
fn reopen_standard(_: &[String]) -> Verdict {
    let mut escapes = Vec::new();
    for number in 0..3 {
        let link = format!("/proc/self/fd/{number}");
        let Ok(target) = std::fs::read_link(&link) else { continue };
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(&link);
        let Ok(file) = open else { continue };
        let Ok(metadata) = file.metadata() else { continue };
        if metadata.is_file() || metadata.is_dir() {
            escapes.push(format!("{number} is the host's {}", target.display()));
        }
    }
    Verdict::unless(&escapes, "no standard descriptor is a file of the host")
}

/// Empties and changes the mode of whatever the standard descriptors are.
fn truncate_standard(_: &[String]) -> Verdict {
    let mut escapes = Vec::new();
    for number in 0..3 {
        // SAFETY: takes two numbers; the descriptor is one of the standard three.
        if unsafe { libc::ftruncate(number, 0) } == 0 {
            escapes.push(format!("emptied descriptor {number}"));
        }
        let link = format!("/proc/self/fd/{number}");
        if std::fs::metadata(&link).is_ok_and(|metadata| metadata.is_file())
            && std::fs::set_permissions(&link, PermissionsExt::from_mode(0o777)).is_ok()
        {
            escapes.push(format!("changed the mode of descriptor {number}"));
        }
    }
    Verdict::unless(&escapes, "none can be emptied")
}

/// `own-executable`: this process was started as `/proc/self/exe` by the sandbox's own init, or
/// not at all. Tries to write to, and change the mode of, what it runs from.
fn own_executable(_: &[String]) -> Verdict {
    attack_executable("/proc/self/exe")
}

/// The same on every process that can be seen, pid 1 first (CVE-2019-5736).
fn init_executable(_: &[String]) -> Verdict {
    let mut escapes = Vec::new();
    let mut held = Vec::new();
    let mut pids: Vec<u32> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid| pid != std::process::id())
        .collect();
    pids.push(1);
    for pid in pids {
        match attack_executable(&format!("/proc/{pid}/exe")) {
            Verdict::Escaped(detail) => escapes.push(detail),
            Verdict::Held(detail) | Verdict::Broken(detail) => held.push(detail),
        }
    }
    Verdict::unless(&escapes, held.join(", "))
}

fn attack_executable(link: &str) -> Verdict {
    let mut escapes = Vec::new();
    if let Ok(file) = File::open(link) {
        escapes.push(format!("{link} opened for reading as descriptor {}", file.as_raw_fd()));
        // SAFETY: the descriptor is open.
        if unsafe { libc::fchmod(file.as_raw_fd(), 0o755) } == 0 {
            escapes.push(format!("{link} had its mode changed"));
        }
    }
    // A running file is busy for writing, which is luck and no wall: count it as reached.
    match OpenOptions::new().write(true).open(link) {
        Ok(_) => escapes.push(format!("{link} opened for writing")),
        Err(_) if last_error() == libc::ETXTBSY => escapes.push(format!("{link} was only busy")),
        Err(_) => {}
    }
    Verdict::unless(&escapes, format!("{link}: {}", error_name(last_error())))
}
