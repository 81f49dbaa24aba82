//! The part of `doctor` that runs inside a jail: it tries to break each wall and writes a line
//! for each, `NAME held|open DETAIL`.
//!
//! It runs in the memory of the jail's init, so it starts no thread, spawns nothing and does
//! not panic.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use stockade_jail::Wall;

/// Tries every wall; the exit code only reports that all were tried.
pub(super) fn probe() -> u8 {
    let mut lines = String::new();
    for wall in Wall::ALL {
        let (held, detail) = match attempt(*wall) {
            Ok(detail) => ("held", detail),
            Err(detail) => ("open", detail),
        };
        lines.push_str(&format!("{wall} {held} {detail}\n"));
    }
    // Without its lines the probe counts as failed.
    let _ = std::io::stdout().lock().write_all(lines.as_bytes());
    let _ = std::io::stdout().lock().flush();
    0
}

/// The text of [`connect`] if the connection arrives.
pub(super) const REACHED_PROXY: &str = "arrives at the egress proxy";

/// Connects to a host that does not exist, in a network with an egress proxy.
pub(super) fn connect() -> u8 {
    // TEST-NET-1 (RFC 5737).
    let nobody = std::net::SocketAddr::from(([192, 0, 2, 1], 9));
    let line = match std::net::TcpStream::connect_timeout(&nobody, Duration::from_secs(5)) {
        Ok(_) => format!("a connection to {nobody} {REACHED_PROXY}\n"),
        Err(error) => format!("a connection to {nobody}: {error}\n"),
    };
    let mut output = std::io::stdout().lock();
    u8::from(output.write_all(line.as_bytes()).and_then(|()| output.flush()).is_err())
}

/// The evidence that a wall holds, or what broke through it.
fn attempt(wall: Wall) -> Result<String, String> {
    match wall {
        Wall::User => user(),
        Wall::Pid => pid(),
        Wall::Network => network(),
        Wall::Ipc => same_as_caller("ipc", "/proc/sysvipc/shm"),
        Wall::HostName => host_name(),
        Wall::Cgroup => cgroup(),
        Wall::Root => root(),
        Wall::View => view(),
        Wall::Devices => devices(),
        Wall::Proc => proc(),
        Wall::ResourceLimits => resource_limits(),
        Wall::Capabilities => capabilities(),
        Wall::NoNewPrivileges => status("NoNewPrivs:", "1"),
        Wall::Landlock => landlock(),
        Wall::Seccomp => seccomp(),
        Wall::Inheritance => inheritance(),
    }
}

fn expect_error<T>(result: Result<T, Errno>, what: &str) -> Result<String, String> {
    match result {
        Ok(_) => Err(format!("{what} was allowed")),
        Err(errno) => Ok(format!("{what}: {errno}")),
    }
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))
}

/// Init is undumpable, so its own files in `/proc` cannot be read; the process's own maps are used
/// instead.
fn user() -> Result<String, String> {
    let map = read("/proc/self/uid_map")?;
    let host_zero = map.lines().any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.get(1) == Some(&"0")
    });
    if host_zero { Err("an inside id is host 0".to_owned()) } else { Ok(one_line(&map)) }
}

fn pid() -> Result<String, String> {
    let processes = fs::read_dir("/proc")
        .map_err(|e| e.to_string())?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()))
        .count();
    // These are init and this process.
    if processes <= 2 {
        Ok(format!("{processes} processes are visible"))
    } else {
        Err(format!("{processes} processes are visible"))
    }
}

fn network() -> Result<String, String> {
    let devices = read("/proc/net/dev")?;
    let names: Vec<_> =
        devices.lines().skip(2).filter_map(|line| line.split(':').next().map(str::trim)).collect();
    if names != ["lo"] {
        return Err(format!("interfaces: {}", names.join(" ")));
    }
    // TEST-NET-1 (RFC 5737): no such host exists, and nothing must be sent.
    let error = std::net::UdpSocket::bind("0.0.0.0:0")
        .and_then(|socket| socket.connect("192.0.2.1:9"))
        .err()
        .ok_or("there is a route to the outside")?;
    Ok(format!("only lo; {error}"))
}

fn same_as_caller(name: &str, table: &str) -> Result<String, String> {
    let lines = read(table)?.lines().count();
    if lines <= 1 {
        Ok(format!("{table} is empty"))
    } else {
        Err(format!("{name} objects are visible"))
    }
}

fn host_name() -> Result<String, String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name != "stockade" {
        return Err(format!("the name is {name}"));
    }
    expect_error(rustix::system::sethostname(b"other"), "sethostname")
}

fn cgroup() -> Result<String, String> {
    let groups = read("/proc/self/cgroup")?;
    let outside = groups.lines().find(|line| line.rsplit(':').next() != Some("/"));
    match outside {
        Some(line) => Err(line.to_owned()),
        None if Path::new("/sys/fs/cgroup").exists() => Err("/sys/fs/cgroup is visible".to_owned()),
        None => Ok("every path is /".to_owned()),
    }
}

fn root() -> Result<String, String> {
    for hidden in ["/boot", "/root/.ssh", "/var/log", "/etc/shadow", "/run/systemd"] {
        if Path::new(hidden).exists() {
            return Err(format!("{hidden} is visible"));
        }
    }
    match fs::write("/written", "") {
        Ok(()) => Err("the root can be written".to_owned()),
        Err(e) => Ok(format!("writing to /: {e}")),
    }
}

/// The caller checks afterwards whether the host's file is unchanged.
fn view() -> Result<String, String> {
    fs::write("canary", "changed inside")
        .map_err(|e| format!("the view cannot be written: {e}"))?;
    Ok("written; the host's file is unchanged".to_owned())
}

fn devices() -> Result<String, String> {
    let expected = [
        "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
        "urandom", "zero",
    ];
    let mut names: Vec<_> = fs::read_dir("/dev")
        .map_err(|e| e.to_string())?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    if names == expected { Ok(names.join(" ")) } else { Err(names.join(" ")) }
}

fn proc() -> Result<String, String> {
    if fs::read("/proc/keys").is_ok_and(|keys| !keys.is_empty()) {
        return Err("/proc/keys can be read".to_owned());
    }
    match fs::OpenOptions::new().write(true).open("/proc/sys/kernel/core_pattern") {
        Ok(_) => Err("/proc/sys can be written".to_owned()),
        Err(e) => Ok(format!("core_pattern: {e}")),
    }
}

fn resource_limits() -> Result<String, String> {
    let core = rustix::process::getrlimit(rustix::process::Resource::Core);
    match core.maximum {
        Some(0 | 1) => Ok("no core dumps".to_owned()),
        other => Err(format!("core dumps of {other:?} bytes")),
    }
}

fn capabilities() -> Result<String, String> {
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        status(set, "0000000000000000")?;
    }
    Ok("all five sets are empty".to_owned())
}

fn status(name: &str, wanted: &str) -> Result<String, String> {
    let status = read("/proc/self/status")?;
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
        .ok_or_else(|| format!("{name} is missing"))?;
    if value == wanted { Ok(format!("{name} {value}")) } else { Err(format!("{name} {value}")) }
}

/// The root is read-only (EROFS) by its mount; only Landlock returns EACCES to its owner.
fn landlock() -> Result<String, String> {
    match rustix::fs::open(
        "/dev/pts",
        rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR,
        rustix::fs::Mode::RWXU,
    ) {
        Err(Errno::ACCESS) => Ok("creating a file in /dev/pts: permission denied".to_owned()),
        Err(errno) => match rustix::fs::mkdir("/dev/pts/x", rustix::fs::Mode::RWXU) {
            Err(Errno::ACCESS) => {
                Ok("creating a directory in /dev/pts: permission denied".to_owned())
            }
            _ => Err(format!("creating a file in /dev/pts: {errno}")),
        },
        Ok(_) => Err("a file was created in /dev/pts".to_owned()),
    }
}

fn seccomp() -> Result<String, String> {
    status("Seccomp:", "2")?;
    let vsock = rustix::net::socket(
        rustix::net::AddressFamily::from_raw(40),
        rustix::net::SocketType::STREAM,
        None,
    );
    if !matches!(vsock, Err(Errno::AFNOSUPPORT)) {
        return Err("a vsock socket was created".to_owned());
    }
    expect_error(rustix::mount::mount_remount("/", rustix::mount::MountFlags::empty(), ""), "mount")
}

fn inheritance() -> Result<String, String> {
    let mut descriptors: Vec<_> = fs::read_dir("/proc/self/fd")
        .map_err(|e| e.to_string())?
        .flatten()
        .filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok())
        // Descriptors above 2 are closed at exec, which this process does not call.
        .filter(|descriptor| *descriptor < 3)
        .collect();
    descriptors.sort_unstable();
    if descriptors == [0, 1, 2] {
        Ok("three descriptors, an environment of its own".to_owned())
    } else {
        Err(format!("descriptors {descriptors:?}"))
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
