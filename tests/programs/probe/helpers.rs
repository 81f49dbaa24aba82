//! Not attacks: operations with raw system calls that the tests need on the host, and small queries
//! from inside.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, IntoRawFd as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::attempt::{error_name, last_error, raw_syscall};
use crate::processes::c_arguments;
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[Attack] = &[
    ("apart", unshared),
    ("container", container),
    ("with-names", with_names),
    ("with-authorities", with_authorities),
    ("with-open", with_open),
    ("on-terminal", on_terminal),
    ("exchange", exchange),
    ("open-terminal", open_terminal),
    ("locate", locate),
];

fn replace(words: &[String]) -> Verdict {
    let Some((program, arguments)) = words.split_first() else {
        return Verdict::Broken("no command".into());
    };
    let error = Command::new(program).args(arguments).exec();
    Verdict::Broken(format!("{program}: {error}"))
}

/// `apart COMMAND…`: runs a command with every capability in temporary namespaces, where an attack
/// that needs them is harmless: the proof that the attack would work.
fn unshared(words: &[String]) -> Verdict {
    // SAFETY: getuid and getgid have no arguments and cannot fail.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    if raw_syscall(libc::SYS_unshare, [flags as usize, 0, 0, 0, 0, 0]) != 0 {
        return Verdict::Broken(format!("unshare: {}", error_name(last_error())));
    }
    let _ = std::fs::write("/proc/self/setgroups", "deny");
    for (file, id) in [("uid_map", user), ("gid_map", group)] {
        if let Err(error) = std::fs::write(format!("/proc/self/{file}"), format!("0 {id} 1")) {
            return Verdict::Broken(format!("{file}: {error}"));
        }
    }
    replace(words)
}

/// `container (one|range) (plain|masked) COMMAND…`: runs a command as a container engine would: as
/// root of a user namespace with one id or 65536 of them (which needs root outside), a pid and a
/// mount namespace, and a /proc that is plain or has masked paths.
fn container(arguments: &[String]) -> Verdict {
    let [ids, proc, words @ ..] = arguments else {
        return Verdict::Broken("two words and a command are needed".into());
    };
    // SAFETY: getuid and getgid have no arguments and cannot fail.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let (Ok((mut ready_reader, ready_writer)), Ok((mapped_reader, mapped_writer))) =
        (std::io::pipe(), std::io::pipe())
    else {
        return Verdict::Broken("no pipe".into());
    };
    // SAFETY: the probe has one thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop((ready_reader, mapped_writer));
        return inside_container(ready_writer, mapped_reader, proc == "masked", words);
    }
    drop((ready_writer, mapped_reader));
    let mut byte = [0];
    if std::io::Read::read_exact(&mut ready_reader, &mut byte).is_err() {
        return Verdict::Broken("the container could not unshare".into());
    }
    let (user_map, group_map) = if ids == "range" {
        ("0 1000000 65536".to_owned(), "0 1000000 65536".to_owned())
    } else {
        let _ = std::fs::write(format!("/proc/{child}/setgroups"), "deny");
        (format!("0 {user} 1"), format!("0 {group} 1"))
    };
    for (file, map) in [("uid_map", user_map), ("gid_map", group_map)] {
        if let Err(error) = std::fs::write(format!("/proc/{child}/{file}"), map) {
            return Verdict::Broken(format!("{file}: {error}"));
        }
    }
    drop(mapped_writer);
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    std::process::exit(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 })
}

fn inside_container(
    ready: std::io::PipeWriter,
    mut mapped: std::io::PipeReader,
    masked: bool,
    words: &[String],
) -> Verdict {
    let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID;
    if raw_syscall(libc::SYS_unshare, [flags as usize, 0, 0, 0, 0, 0]) != 0 {
        return Verdict::Broken(format!("unshare: {}", error_name(last_error())));
    }
    if std::io::Write::write_all(&mut &ready, b"x").is_err() {
        return Verdict::Broken("the parent is gone".into());
    }
    drop(ready);
    let _ = std::io::Read::read(&mut mapped, &mut [0]);
    // SAFETY: take numbers only; the ids exist once the parent has written the map.
    unsafe {
        libc::setgid(0);
        libc::setuid(0);
    }
    // SAFETY: the probe has one thread. The first child in a pid namespace is its pid 1.
    let first = unsafe { libc::fork() };
    if first != 0 {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        unsafe { libc::waitpid(first, &raw mut status, 0) };
        std::process::exit(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 });
    }
    // SAFETY: every pointer is a C string that outlives its call, or null where that is allowed.
    unsafe {
        let none = std::ptr::null();
        libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast());
        libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), 0, none.cast());
        if masked {
            for path in [c"/proc/kcore", c"/proc/keys", c"/proc/timer_list"] {
                let null = c"/dev/null".as_ptr();
                libc::mount(null, path.as_ptr(), none, libc::MS_BIND, none.cast());
            }
            for path in [c"/proc/sys", c"/proc/irq", c"/proc/bus"] {
                libc::mount(path.as_ptr(), path.as_ptr(), none, libc::MS_BIND, none.cast());
                let flags = libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY;
                libc::mount(none, path.as_ptr(), none, flags, none.cast());
            }
        }
    }
    replace(words)
}

/// `with-names HOSTS RESOLVER COMMAND…`: runs a command on a host whose `/etc/hosts` and
/// `/etc/resolv.conf` are these files.
fn with_names(arguments: &[String]) -> Verdict {
    let [hosts, resolver, words @ ..] = arguments else {
        return Verdict::Broken("two files and a command are needed".into());
    };
    with_files(&[(hosts, "/etc/hosts"), (resolver, "/etc/resolv.conf")], words)
}

/// `with-authorities HOSTS RESOLVER AUTHORITIES COMMAND…`: the same on a host that trusts only the
/// certificate authorities in that file.
fn with_authorities(arguments: &[String]) -> Verdict {
    let [hosts, resolver, authorities, words @ ..] = arguments else {
        return Verdict::Broken("three files and a command are needed".into());
    };
    let known = stockade_core::network::AUTHORITIES.iter();
    let Some(place) = known.copied().find(|place| std::path::Path::new(place).exists()) else {
        return Verdict::Broken("this host believes nobody: install ca-certificates".into());
    };
    let files = [(hosts, "/etc/hosts"), (resolver, "/etc/resolv.conf"), (authorities, place)];
    with_files(&files, words)
}

/// Runs a command on a host where these files replace others.
fn with_files(files: &[(&String, &str)], words: &[String]) -> Verdict {
    // SAFETY: getuid and getgid have no arguments and cannot fail.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let own_users = if user == 0 { 0 } else { libc::CLONE_NEWUSER };
    let flags = libc::CLONE_NEWNS | own_users;
    if raw_syscall(libc::SYS_unshare, [flags as usize, 0, 0, 0, 0, 0]) != 0 {
        return Verdict::Broken(format!("unshare: {}", error_name(last_error())));
    }
    if own_users != 0 {
        let _ = std::fs::write("/proc/self/setgroups", "deny");
        for (file, id) in [("uid_map", user), ("gid_map", group)] {
            if let Err(error) = std::fs::write(format!("/proc/self/{file}"), format!("{id} {id} 1"))
            {
                return Verdict::Broken(format!("{file}: {error}"));
            }
        }
    }
    let none = std::ptr::null();
    // SAFETY: every pointer is a C string that outlives the call, or null where that is allowed.
    unsafe {
        libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast());
    }
    for (file, place) in files {
        let [file, place] = [file.as_str(), place].map(CString::new);
        let (Ok(file), Ok(place)) = (file, place) else {
            return Verdict::Broken("no file".into());
        };
        // SAFETY: as above.
        let mounted =
            unsafe { libc::mount(file.as_ptr(), place.as_ptr(), none, libc::MS_BIND, none.cast()) };
        if mounted != 0 {
            return Verdict::Broken(format!("mount: {}", error_name(last_error())));
        }
    }
    replace(words)
}

/// `with-open PATH DESCRIPTOR COMMAND…`: runs a command that inherits PATH as DESCRIPTOR, as from a
/// careless parent; writable where possible.
fn with_open(arguments: &[String]) -> Verdict {
    let [path, number, words @ ..] = arguments else {
        return Verdict::Broken("a path, a number and a command are needed".into());
    };
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .or_else(|_| std::fs::File::open(path));
    let (Ok(file), Ok(number)) = (file, number.parse()) else {
        return Verdict::Broken(format!("{path} cannot be opened"));
    };
    // SAFETY: `dup2` makes a copy without the close-on-exec flag; this process may choose any
    // number.
    if unsafe { libc::dup2(file.as_raw_fd(), number) } < 0 {
        return Verdict::Broken(format!("dup2: {}", error_name(last_error())));
    }
    if file.as_raw_fd() == number {
        let _ = file.into_raw_fd();
    }
    replace(words)
}

/// `on-terminal PATH COMMAND…`: runs a command as a session leader whose controlling terminal
/// and standard descriptors are the terminal at PATH.
fn on_terminal(arguments: &[String]) -> Verdict {
    let [path, words @ ..] = arguments else {
        return Verdict::Broken("a path and a command are needed".into());
    };
    let Some(path) = c_arguments(std::slice::from_ref(path)).pop() else {
        return Verdict::Broken("no path".into());
    };
    // SAFETY: `path` outlives the call; all other arguments are numbers.
    unsafe {
        libc::setsid();
        let terminal = libc::open(path.as_ptr(), libc::O_RDWR);
        if terminal < 0 || libc::ioctl(terminal, libc::TIOCSCTTY, 0) < 0 {
            return Verdict::Broken(format!("the terminal: {}", error_name(last_error())));
        }
        for number in 0..3 {
            libc::dup2(terminal, number);
        }
        if terminal > 2 {
            libc::close(terminal);
        }
    }
    replace(words)
}

/// `exchange ONE OTHER MILLISECONDS`: exchanges two names as fast as it can, for that long.
fn exchange(arguments: &[String]) -> Verdict {
    let [one, other, duration] = arguments else {
        return Verdict::Broken("two paths and a duration are needed".into());
    };
    let end = Instant::now() + Duration::from_millis(duration.parse().unwrap_or(0));
    let paths = c_arguments(&[one.clone(), other.clone()]);
    let mut swaps = 0_u64;
    while Instant::now() < end {
        // SAFETY: both paths outlive the call.
        let result = unsafe {
            libc::renameat2(
                libc::AT_FDCWD,
                paths[0].as_ptr(),
                libc::AT_FDCWD,
                paths[1].as_ptr(),
                libc::RENAME_EXCHANGE,
            )
        };
        swaps += u64::from(result == 0);
    }
    Verdict::Blocked(format!("{swaps} swaps"))
}

/// Opens the terminal on which the run was started.
fn open_terminal(_: &[String]) -> Verdict {
    let open = std::fs::OpenOptions::new().read(true).write(true).open("/dev/tty");
    match open {
        Ok(_) => Verdict::Escaped("/dev/tty is the caller's terminal".into()),
        Err(error) => Verdict::Blocked(error.to_string()),
    }
}

/// Prints the namespaces of this process, for guards of other attacks.
fn locate(_: &[String]) -> Verdict {
    let names: Vec<_> = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"]
        .iter()
        .filter_map(|name| std::fs::read_link(format!("/proc/self/ns/{name}")).ok())
        .map(|link| link.display().to_string())
        .collect();
    Verdict::Blocked(names.join(" "))
}
